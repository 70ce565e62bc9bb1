"""What journals in a database share: the columns of their table, its statements, and every step of their methods.

`_states.py` decides, a database stores: it runs statements, and knows nothing of what they mean.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from asyncio import sleep
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from paymentsdk._postgres import Database
from paymentsdk._validate import Seal, check_seals
from paymentsdk.errors import JournalUnavailable, describe, tellable
from paymentsdk.journal import _states as states
from paymentsdk.journal._states import Action, Record, RecordState, Resolution, StoredResponse

T = TypeVar("T")
#: What is given to a database. A plain tuple: sqlite3 takes a third longer for a named one.
Values: TypeAlias = tuple[str | float | bytes | None, ...]

logger = logging.getLogger("paymentsdk")

#: The version of the table.
SCHEMA = 1
#: What is run in a transaction, as PostgreSQL has it.
_READ = "SELECT * FROM paymentsdk_record WHERE id IN ({})"
_LOAD = f"{_READ} ORDER BY id FOR UPDATE"
#: What is locked is being written, or in the hands of a session that may last for hours: recovery comes back to it.
_LOAD_FREE = f"{_LOAD} SKIP LOCKED"
_LIST = "SELECT id, begun FROM paymentsdk_record WHERE state {} AND state IN ({}) ORDER BY begun LIMIT $1"
#: Rows that are read or wiped at once: what else the process wants of the journal comes in between.
_PAGE = 500
#: Seconds between two pages that are wiped. Whoever waits to write to a file of SQLite looks that often whether it is
#: free: without a gap as long as that, another process would wait until it gives up.
_PAUSE = 0.1
_UPDATE = "UPDATE paymentsdk_record SET {} WHERE id = ${}"
#: Of what has changed since it was found, nothing is wiped that may have to be sent.
_PURGE = (
    "UPDATE paymentsdk_record SET headers = NULL, body = NULL, response = NULL WHERE state >= 4 AND begun < $1 "
    "AND id IN (SELECT id FROM paymentsdk_record WHERE id > $2 AND state >= 4 AND begun < $3 "
    "AND (headers IS NOT NULL OR body IS NOT NULL OR response IS NOT NULL) ORDER BY id LIMIT $4) RETURNING id"
)
#: Open states come first, so that an index finds them by ``state < 4``.
CODES = {state: code for code, state in enumerate(RecordState)}
_STATES = dict(enumerate(RecordState))
#: The columns of the table, in their order.
COLUMNS = (
    *("id", "key", "seller", "state", "owner", "lease_until", "begun", "updated", "digest", "fixed"),
    *("headers", "body", "sealed", "reason", "response"),
)
#: Rows that a process holds at most in memory: more of them are settled with a read.
_MOST_HELD = 10_000
#: What never changes of a record stands in one column, in this order.
_FIXED_NAMES = ("name", "operation", "base_url", "account", "path", "sensitive", "keyed", "not_after")
#: What stands in a column of its own, as it is.
_PLAIN_NAMES = ("key", "seller", "owner", "lease_until", "begun", "updated", "digest", "reason")
_fixed_of = attrgetter(*_FIXED_NAMES)
#: What is written of a row that has changed: its state, then its request, then the bytes of that.
_STATE_COLUMNS = ("state", "owner", "lease_until", "updated", "reason", "response")
_REQUEST_COLUMNS = (*_STATE_COLUMNS, "begun", "fixed")
_ALL_COLUMNS = (*_REQUEST_COLUMNS, "headers", "body", "sealed")
#: What the column `sealed` says of a row whose headers are sealed, too: they may name the device of a payer.
_WITH_HEADERS = 2
_ENCODER = msgspec.msgpack.Encoder()
_FIXED = msgspec.msgpack.Decoder(tuple[str, str, str, str | None, str, bool, bool, float])
_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
_RESPONSE = msgspec.msgpack.Decoder(StoredResponse)


class _Standing(Struct, frozen=True):
    """What stands in the column ``response`` of an open row, which has no response: status 0, which 0.2 ignores.

    The table can get no further column: 0.2 writes new rows as values of its row type (PostgreSQL) or without naming
    their columns (SQLite), and both then fail.
    """

    in_flight_until: float = 0.0
    first_kept: float = 0.0
    is_dated: bool = True
    status: int = 0


_STANDING = msgspec.msgpack.Decoder(_Standing)
_standing_of = attrgetter("in_flight_until", "first_kept", "is_dated")


class Codec:
    """Turns records into columns, and back.

    Args:
        seal: Encrypts bodies that hold credentials of a payer, and their headers. Without it neither is kept.
        unseal: Undoes *seal*.
    """

    def __init__(self, seal: Seal | None, unseal: Seal | None) -> None:
        check_seals(seal, unseal)
        self._seal = seal
        self._unseal = unseal
        self.seals: bool = seal is not None
        #: Records that were warned of.
        self._warned: set[str] = set()

    def values(self, record: Record) -> Values:
        """Return the values of the columns of *record*, in their order: see ``COLUMNS``."""
        body, headers, sealed = record.body, _ENCODER.encode(record.headers) if record.headers else None, 0
        if record.sensitive:
            # 0.2 cannot read a row whose headers are sealed; it leaves the row to this version.
            sealed = 0 if self._seal is None else _WITH_HEADERS if headers else 1
            body, headers = self._sealed(body), self._sealed(headers)
        return (
            id_of(record.key),
            record.key,
            record.seller,
            CODES[record.state],
            record.owner,
            record.lease_until,
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

    def record(self, row: Mapping[str, Any]) -> Record:
        """Return the record that a row keeps; of one that nobody can read, what is known, for a person to look at."""
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
        """Return what was sealed; `None` if it cannot be had, as of a key that was discarded: the others are read."""
        try:
            return None if sealed is None or self._unseal is None else self._unseal(sealed)
        except Exception as error:  # noqa: BLE001 - of whatever seals
            self._warn(f"the body of the record {name} cannot be unsealed", error)
            return None

    def _response(self, kept: bytes | None, name: str) -> StoredResponse | None:
        try:
            return None if kept is None else _RESPONSE.decode(kept)
        except ValueError as error:
            self._warn(f"the response of the record {name} cannot be read", error)
            return None

    def _warn(self, what: str, error: Exception) -> None:
        """Warn once: the row is read again and again."""
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s: %s", what, describe(error))


def response_column(row: Record) -> bytes | None:
    """Return the response of *row* as it is kept, or what is kept in its place."""
    if row.is_open and (standing := _Standing(*_standing_of(row))) != _Standing():
        return _ENCODER.encode(standing)
    return None if row.response is None else _ENCODER.encode(row.response)


@lru_cache(maxsize=_MOST_HELD)
def id_of(key: str) -> int:
    """Return the number by which the row of *key* is found: its index is a third of one over the keys."""
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") >> 1


class Transaction(Struct, eq=False):
    """Reads and writes rows, which nobody else changes meanwhile if it has locked them."""

    database: Database
    """It is in a transaction, unless it only reads."""
    codec: Codec
    now: Callable[[], Awaitable[float]]
    """Returns the store time."""
    wiped: bool = False
    """Whether bytes were wiped that a log of the database may still hold."""

    async def by_id(self, ids: Sequence[int], statement: str = _READ) -> list[Record]:
        """Return the rows with the numbers *ids*, in their order."""
        places = ", ".join(f"${place}" for place in range(1, len(ids) + 1)) or "NULL"
        rows = {row["id"]: row for row in await self.database.fetch(statement.format(places), *ids)}
        return [self.codec.record(rows[number]) for number in ids if number in rows]

    async def load(self, *keys: str, statement: str = _LOAD) -> list[Record]:
        """Return the rows of *keys*: all processes lock them in one order, so that none waits in a circle."""
        return [checked(row, keys) for row in await self.by_id([*map(id_of, keys)], statement)]

    async def change(self, key: str, change: Callable[..., Record]) -> Record:
        """Replace the row of *key* by what *change* makes of it at the store time, `now=`, and return that."""
        row = next(iter(await self.load(key)), None)
        if row is None:
            raise tellable(LookupError(f"there is no record with the key {key}"))
        changed = change(row, now=await self.now())
        if changed is not row:
            await self._replace([changed])
        return changed

    async def claim(self, sellers: Collection[str], owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """See `Journal.claim`."""
        now, rows = await self.now(), await self.load(*keys, statement=_LOAD_FREE)
        claimed = [states.claim_record(row, sellers=sellers, owner=owner, now=now, lease=lease) for row in rows]
        await self._replace([new for new, row in zip(claimed, rows, strict=True) if new is not row])
        return _oldest([row for row in claimed if row.owner == owner])

    async def ids(self, among: Collection[RecordState], limit: int) -> list[int]:
        """Return the numbers of the rows that `Journal.records` returns."""
        begun: dict[int, float] = {}
        for half, wanted in (("< 4", states.OPEN.intersection(among)), (">= 4", states.CLOSED.intersection(among))):
            if wanted:  # In halves: what is done may be millions of rows, and what is open has an index.
                codes = ", ".join(str(CODES[state]) for state in wanted)
                begun |= dict(map(tuple, await self.database.fetch(_LIST.format(half, codes), limit)))
        return sorted(begun, key=begun.__getitem__)[:limit]

    async def purge(self, before: float, after: int) -> list[int]:
        """Do a page of `Journal.purge`; return the numbers of the rows, all of which come *after* another one."""
        ids = [row["id"] for row in await self.database.fetch(_PURGE, before, after, before, _PAGE)]
        self.wiped = self.wiped or bool(ids)
        return ids

    async def _replace(self, rows: Sequence[Record]) -> None:
        written: dict[str, list[Values]] = defaultdict(list)
        for record in rows:
            values = dict(zip(COLUMNS, self.codec.values(record), strict=True))
            columns: Sequence[str] = _ALL_COLUMNS
            if not states.is_readable(record):
                columns = _STATE_COLUMNS  # The rest stays: a later version may read it.
            elif record.is_open and record.sensitive and values["body"] is None:
                columns = _REQUEST_COLUMNS  # What seals it may be away for a moment.
            else:
                # A sealed body was there before; where none is sealed, none was kept.
                self.wiped = self.wiped or bool(values["sealed"] and values["body"] is None)
            written[_update(columns)].append((*(values[name] for name in columns), values["id"]))
        for statement, changes in written.items():
            await self.database.executemany(statement, changes)


def _update(columns: Sequence[str]) -> str:
    """Return the statement that writes *columns* of a row, whose number comes last."""
    changes = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 1))
    return _UPDATE.format(changes, len(columns) + 1)


#: What is done in a transaction.
Work: TypeAlias = Callable[[Transaction], Awaitable[T]]


class TableJournal(ABC):
    """The methods of a journal, on a database."""

    def __init__(self, seal: Seal | None, unseal: Seal | None) -> None:
        self._codec = Codec(seal, unseal)
        #: Rows that this process holds, so that settling one needs no read.
        self._held: dict[str, Record] = {}
        self._process = os.getpid()
        self._closed = False

    @property
    def seals(self) -> bool:
        """Whether it keeps bodies that hold credentials of a payer: it was given a seal for them."""
        return self._codec.seals

    @abstractmethod
    def _insert(self, record: Record, lease: float) -> Awaitable[Record | None]:
        """Keep a new row for *lease* seconds, and return it; return `None` and keep nothing if its key is known."""

    @abstractmethod
    def _settle(self, held: Record, row: Record, otherwise: Work[Record]) -> Awaitable[Record]:
        """Write what *row* says has become of the row *held* by its owner, and return it.

        If owner and state are not those of *held* any more, do what is to be done *otherwise*, as in a transaction.
        That a record is done may become durable later: to lose it costs one replay.
        """

    @abstractmethod
    def _transact(self, work: Work[T], *, reads: bool = False) -> Awaitable[T]:
        """Do *work* as one step that is durable in the end; what only *reads* may see others write between its reads.

        If nobody can tell whether it was committed, it is done once more: *work* has to find out what it has done.
        """

    def _check(self) -> None:
        """Look whether the journal may be used here.

        Raises:
            JournalUnavailable: It is closed, or belongs to another process.
        """
        if self._closed:
            raise JournalUnavailable("it is closed")
        if self._process != os.getpid():
            raise JournalUnavailable("it belongs to another process: open one in each")

    async def _read(self, key: str) -> tuple[Record | None, float]:
        """Return the row of *key*, and the store time; others may change the row meanwhile."""

        async def read(rows: Transaction) -> tuple[Record | None, float]:
            return next(iter(await rows.load(key)), None), await rows.now()

        return await self._transact(read, reads=True)

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal.begin`."""
        new = await self._insert(record, lease)
        action, row = (Action.SEND, new) if new is not None else await self._begin_again(record, lease)
        if row.owner == record.owner:
            self._hold(row)
        return action, row

    async def _begin_again(self, record: Record, lease: float) -> tuple[Action, Record]:
        """Begin what was begun before: with one read, where that does not change its row."""
        action = Action.SEND

        def begun(row: Record, *, now: float) -> Record:
            nonlocal action
            action, changed = states.begin_record(row, record, now=now, lease=lease)
            return changed

        known, now = await self._read(record.key)
        if known is None or begun(known, now=now) is not known:
            known = await self._transact(lambda rows: rows.change(record.key, begun))
        return action, known

    async def get(self, key: str) -> Record | None:
        """See `Journal.get`."""
        return (await self._read(key))[0]

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """See `Journal.renew`."""
        renewed = partial(states.renew_lease, owner=owner, lease=lease)
        return await self._transact(lambda rows: rows.change(key, renewed))

    def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Awaitable[Record]:
        """See `Journal.resolve`: a row that this process holds by a compare-and-set without a read.

        Not where an attempt may be in flight: that is judged by the store time.
        """
        resolved = partial(states.resolve_record, resolution=resolution, owner=owner)

        def work(rows: Transaction) -> Awaitable[Record]:
            return rows.change(key, resolved)

        held = self._held.pop(key, None)
        in_flight = resolution.in_flight or (held is not None and held.in_flight_until)
        if held is not None and held.owner == owner and not held.sensitive and not in_flight:
            row = resolved(held, now=held.updated)
            if row is not held:
                return self._settle(held, row, work)
        return self._transact(work)

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """See `Journal.claim`."""
        taken = await self._transact(lambda rows: rows.claim(sellers, owner, lease, keys))
        for row in taken:
            self._hold(row)
        return taken

    async def records(self, among: Collection[RecordState], *, limit: int = 1000) -> list[Record]:
        """See `Journal.records`: page by page, as there may be millions, and a lease to renew meanwhile."""
        wanted, found = frozenset(among), list[Record]()
        ids = await self._transact(lambda rows: rows.ids(wanted, limit), reads=True)
        for start in range(0, len(ids), _PAGE):
            page = ids[start : start + _PAGE]
            found += await self._transact(partial(Transaction.by_id, ids=page), reads=True)
        return [row for row in found if row.state in wanted]

    async def purge(self, before: float) -> int:
        """See `Journal.purge`: page by page, too."""
        count, last = 0, -1
        while ids := await self._transact(partial(Transaction.purge, before=before, after=last)):
            count, last = count + len(ids), max(ids)
            await sleep(_PAUSE)
        return count

    def _hold(self, row: Record) -> None:
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[row.key] = row


def _oldest(rows: list[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: row.begun)


def checked(row: Record, keys: Collection[str]) -> Record:
    """Return *row*, which was found by the number of one of *keys*; another key may have the same."""
    if row.key not in keys:
        raise JournalUnavailable(f"the record {row.key} cannot be told apart from one of {', '.join(keys)}")
    return row
