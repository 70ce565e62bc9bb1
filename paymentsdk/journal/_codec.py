"""Records as rows of a table: the columns and their values."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from paymentsdk._validate import Seal, check_seals
from paymentsdk.errors import describe
from paymentsdk.journal._record import OPEN, Record, RecordState, StoredResponse

#: The values of a row. A plain tuple: sqlite3 takes a third longer for a named tuple.
Values: TypeAlias = tuple[str | float | bytes | None, ...]

logger = logging.getLogger("paymentsdk")

#: Open states come first, so that an index finds them by ``state < 4``.
CODES = {state: code for code, state in enumerate(RecordState)}
_STATES = dict(enumerate(RecordState))
#: The columns of the table, in their order, with their types in PostgreSQL.
COLUMNS = {
    "id": "bigint",
    "key": "text",
    "seller": "text",
    "state": "smallint",
    "owner": "text",
    "lease_until": "float8",
    "begun": "float8",
    "updated": "float8",
    "digest": "bytea",
    "fixed": "bytea",
    "headers": "bytea",
    "body": "bytea",
    "sealed": "smallint",
    "reason": "text",
    "response": "bytea",
}
#: The members of a record that never change share one column, in this order.
_FIXED_NAMES = ("name", "operation", "base_url", "account", "path", "sensitive", "keyed", "not_after")
#: The members that have a column of their own, unchanged.
_PLAIN_NAMES = ("key", "seller", "owner", "lease_until", "begun", "updated", "digest", "reason")
_fixed_of = attrgetter(*_FIXED_NAMES)
#: The value of `sealed` for a row whose headers are sealed, too: they may name the device of a payer.
_WITH_HEADERS = 2
_ENCODER = msgspec.msgpack.Encoder()
_FIXED = msgspec.msgpack.Decoder(tuple[str, str, str, str | None, str, bool, bool, float])
_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
_RESPONSE = msgspec.msgpack.Decoder(StoredResponse)


class _Standing(Struct, frozen=True):
    """The column ``response`` of an open row, which has no response: status 0, which version 0.2 ignores.

    The table cannot get another column. Version 0.2 writes new rows as values of its row type (PostgreSQL) or without
    naming their columns (SQLite), and both would fail.
    """

    in_flight_until: float = 0.0
    first_kept: float = 0.0
    is_dated: bool = True
    status: int = 0


_STANDING = msgspec.msgpack.Decoder(_Standing)
_standing_of = attrgetter("in_flight_until", "first_kept", "is_dated")
#: A row with these values needs no `_Standing`.
_PLAIN = _standing_of(_Standing())


class Codec:
    """Turns records into columns, and back.

    Args:
        seal: Encrypts bodies that hold credentials of a payer, and their headers. Without *seal*, neither is kept.
        unseal: Decrypts them.
    """

    def __init__(self, seal: Seal | None, unseal: Seal | None) -> None:
        check_seals(seal, unseal)
        self._seal = seal
        self._unseal = unseal
        self.seals: bool = seal is not None
        #: Warnings that were logged before.
        self._warned: set[str] = set()

    def values(self, record: Record, lease: float | None = None) -> Values:
        """Return the values of the columns of *record*, in the order of ``COLUMNS``.

        For a new row, give *lease*: `lease_until` is then the length of the lease, not its end.
        """
        body, headers, sealed = record.body, _ENCODER.encode(record.headers) if record.headers else None, 0
        if record.sensitive:
            # Version 0.2 cannot read a row whose headers are sealed; it leaves the row to this version.
            sealed = 0 if self._seal is None else _WITH_HEADERS if headers else 1
            body, headers = self._sealed(body), self._sealed(headers)
        return (
            id_of(record.key),
            record.key,
            record.seller,
            CODES[record.state],
            record.owner,
            record.lease_until if lease is None else lease,
            record.begun,
            record.updated,
            record.digest,
            _ENCODER.encode(_fixed_of(record)),
            headers,
            body,
            sealed,
            record.reason,
            response_column(record),
        )

    def record(self, values: Sequence[Any]) -> Record:
        """Return the record of a row. If the row is unreadable, return the part that can be read, for a person."""
        row = dict(zip(COLUMNS, values, strict=True))
        plain: dict[str, Any] = {name: row[name] for name in _PLAIN_NAMES}
        body, headers, key = row["body"], row["headers"], row["key"]
        try:
            fixed: dict[str, Any] = dict(zip(_FIXED_NAMES, _FIXED.decode(row["fixed"]), strict=True))
            headers = self._unsealed(headers, fixed["name"]) if row["sealed"] == _WITH_HEADERS else headers
            headers = {} if headers is None else _HEADERS.decode(headers)
        except ValueError as error:
            self._warn(f"the row of the record {key} cannot be read", error)
            plain["reason"] = f"its row cannot be read: {error}"
            unknown = {"base_url": "", "path": "", "keyed": False, "not_after": row["begun"]}
            fixed, headers, body = {"name": key, "operation": "unreadable", **unknown}, {}, None
        if row["sealed"]:
            body = self._unsealed(body, fixed["name"])
        response = self._response(row["response"], fixed["name"])
        if response is not None and not response.status:
            standing, response = _STANDING.decode(row["response"]), None
            plain |= zip(("in_flight_until", "first_kept", "is_dated"), _standing_of(standing), strict=True)
        return Record(**fixed, **plain, state=_STATES[row["state"]], headers=headers, body=body, response=response)

    def _sealed(self, plain: bytes | None) -> bytes | None:
        return None if plain is None or self._seal is None else self._seal(plain)

    def _unsealed(self, sealed: bytes | None, name: str) -> bytes | None:
        """Return the decrypted bytes; `None` if that fails, as with a discarded key: other records stay readable."""
        try:
            return None if sealed is None or self._unseal is None else self._unseal(sealed)
        except Exception as error:  # noqa: BLE001 - a caller's function may raise anything
            self._warn(f"the body of the record {name} cannot be unsealed", error)
            return None

    def _response(self, column: bytes | None, name: str) -> StoredResponse | None:
        try:
            return None if column is None else _RESPONSE.decode(column)
        except ValueError as error:
            self._warn(f"the response of the record {name} cannot be read", error)
            return None

    def _warn(self, problem: str, error: Exception) -> None:
        """Log a warning once, since the row is read many times."""
        if problem not in self._warned:
            self._warned.add(problem)
            logger.warning("%s: %s", problem, describe(error))


def response_column(row: Record) -> bytes | None:
    """Return the value of the column ``response``: the response of *row*, or its `_Standing`."""
    if (standing := _standing_of(row)) != _PLAIN and row.state in OPEN:
        return _ENCODER.encode(_Standing(*standing))
    return None if row.response is None else _ENCODER.encode(row.response)


@lru_cache(maxsize=10_000)
def id_of(key: str) -> int:
    """Return the number that finds the row of *key*. An index of numbers is a third the size of one over keys."""
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") >> 1
