"""What journals in a database share: the columns of their table, and every step of their methods.

`_states.py` decides, a database stores. A database is a `Rows`: it reads and writes single rows, and knows nothing of
what they mean.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from paymentsdk._validate import Seal, check_seals
from paymentsdk.errors import JournalUnavailable, describe
from paymentsdk.journal import _states as states
from paymentsdk.journal._states import Action, Record, RecordState, Resolution, StoredResponse

T = TypeVar("T")
#: What is given to a database. A plain tuple: sqlite3 takes a third longer for a named one.
Values: TypeAlias = tuple[str | float | bytes | None, ...]

logger = logging.getLogger("paymentsdk")

#: The version of the table.
SCHEMA = 1
#: Open states come first, so that an index finds them by ``state < 4``.
CODES = {state: code for code, state in enumerate(RecordState)}
_STATES = dict(enumerate(RecordState))
#: Rows that a process holds at most in memory: more of them are settled with a read.
_MOST_HELD = 10_000


class Columns(NamedTuple):
    """The columns of a row, in their order."""

    id: int
    key: str
    seller: str
    state: int
    owner: str
    lease_until: float
    begun: float
    updated: float
    digest: bytes
    fixed: bytes
    headers: bytes | None
    body: bytes | None
    sealed: int
    reason: str
    response: bytes | None


class _Fixed(msgspec.Struct, array_like=True):
    """What never changes of a record, in one column."""

    name: str
    operation: str
    base_url: str
    account: str | None
    path: str
    sensitive: bool
    keyed: bool
    not_after: float


_ENCODER = msgspec.msgpack.Encoder()
_FIXED = msgspec.msgpack.Decoder(_Fixed)
_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
_RESPONSE = msgspec.msgpack.Decoder(StoredResponse)


class Codec:
    """Turns records into columns, and back.

    Args:
        seal: Encrypts bodies that hold credentials of a payer. Without it such a body is not kept.
        unseal: Undoes *seal*.
    """

    def __init__(self, seal: Seal | None, unseal: Seal | None) -> None:
        check_seals(seal, unseal)
        self._seal = seal
        self._unseal = unseal
        #: Names of records that were warned of.
        self._unreadable: set[str] = set()

    def values(self, record: Record) -> Values:
        """Return the values of the `Columns` of *record*."""
        body, sealed = record.body, 0
        if record.sensitive:
            sealed = int(self._seal is not None)
            body = self._seal(body) if self._seal is not None and body is not None else None
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
            _ENCODER.encode(
                _Fixed(
                    record.name,
                    record.operation,
                    record.base_url,
                    record.account,
                    record.path,
                    record.sensitive,
                    record.keyed,
                    record.not_after,
                )
            ),
            _ENCODER.encode(record.headers) if record.headers else None,
            body,
            sealed,
            record.reason,
            response_column(record.response),
        )

    def record(self, row: Columns) -> Record:
        """Return the record that *row* keeps."""
        what, body = _FIXED.decode(row.fixed), row.body
        if row.sealed and body is not None:
            body = self._unsealed(body, what.name)
        return Record(
            key=row.key,
            name=what.name,
            operation=what.operation,
            base_url=what.base_url,
            seller=row.seller,
            account=what.account,
            path=what.path,
            headers={} if row.headers is None else _HEADERS.decode(row.headers),
            body=body,
            digest=row.digest,
            sensitive=what.sensitive,
            keyed=what.keyed,
            begun=row.begun,
            not_after=what.not_after,
            state=_STATES[row.state],
            owner=row.owner,
            lease_until=row.lease_until,
            updated=row.updated,
            reason=row.reason,
            response=None if row.response is None else _RESPONSE.decode(row.response),
        )

    def _unsealed(self, body: bytes, name: str) -> bytes | None:
        """Return what was sealed; `None` if it cannot be had, as of a key that was discarded: the others are read."""
        try:
            return None if self._unseal is None else self._unseal(body)
        except Exception as error:  # noqa: BLE001 - of whatever seals
            if name not in self._unreadable:
                self._unreadable.add(name)
                logger.warning("the body of the record %s cannot be unsealed: %s", name, describe(error))
            return None


def response_column(response: StoredResponse | None) -> bytes | None:
    """Return *response* as it is kept."""
    return None if response is None else _ENCODER.encode(response)


@lru_cache(maxsize=_MOST_HELD)
def id_of(key: str) -> int:
    """Return the number by which the row of *key* is found: its index is a third of one over the keys."""
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") >> 1


class Transaction(Protocol):
    """Reads and writes rows that nobody else changes meanwhile."""

    async def now(self) -> float:
        """Return the store time."""
        ...

    async def load(self, key: str) -> Record | None:
        """Return the row with the number of *key*."""
        ...

    async def replace(self, rows: Sequence[Record]) -> None:
        """Write *rows* over those that are there."""
        ...

    async def claimable(self, sellers: Sequence[str], owner: str, now: float, limit: int) -> list[Record]:
        """Return open rows of *sellers* without a lease at *now*, or of *owner*: the oldest *limit* of each seller."""
        ...

    async def by_state(self, codes: Sequence[int], limit: int) -> list[Record]:
        """Return rows in these states, the oldest *limit* of each."""
        ...

    async def purge(self, before: float) -> int:
        """Reduce closed rows that were begun *before* a moment, and return how many."""
        ...


#: What is done in a transaction.
Work: TypeAlias = Callable[[Transaction], Awaitable[T]]


class Rows(Protocol):
    """A database with the table of a journal."""

    def insert(self, record: Record, lease: float) -> Awaitable[Record | None]:
        """Keep a new row for *lease* seconds, and return it; return `None` and keep nothing if its key is known."""
        ...

    def settle(self, held: Record, row: Record, otherwise: Work[Record]) -> Awaitable[Record]:
        """Write what *row* says has become of the row *held* by its owner, and return it.

        If owner and state are not those of *held* any more, do what is to be done *otherwise*, as by `transact`. That a
        record is done may become durable later: to lose it costs one replay.
        """
        ...

    def read(self, key: str) -> Awaitable[tuple[Record | None, float]]:
        """Return the row with the number of *key*, and the store time; others may change the row meanwhile."""
        ...

    def transact(self, work: Work[T]) -> Awaitable[T]:
        """Do *work* as one step that is durable in the end.

        If nobody can tell whether it was committed, it is done once more: *work* has to find out what it has done.
        """
        ...


class TableJournal:
    """The methods of a journal, on a database."""

    def __init__(self, rows: Rows) -> None:
        self._rows: Rows = rows
        #: Rows that this process holds, so that settling one needs no read.
        self._held: dict[str, Record] = {}

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal.begin`."""
        new = await self._rows.insert(record, lease)
        action, row = (Action.SEND, new) if new is not None else await self._begin_again(record, lease)
        if row.owner == record.owner:
            self._hold(row)
        return action, row

    async def _begin_again(self, record: Record, lease: float) -> tuple[Action, Record]:
        known, now = await self._rows.read(record.key)
        action, row = _begun(known, record, now, lease)
        if row is known:
            return action, row
        return await self._rows.transact(lambda rows: _begin(rows, record, lease))

    async def get(self, key: str) -> Record | None:
        """See `Journal.get`."""
        return _checked((await self._rows.read(key))[0], key)

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """See `Journal.renew`."""

        def renewed(row: Record, now: float) -> Record:
            return states.renew_lease(row, owner=owner, now=now, lease=lease)

        return await self._rows.transact(lambda rows: _change(rows, key, renewed))

    def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Awaitable[Record]:
        """See `Journal.resolve`: a row that this process holds by a compare-and-set without a read."""

        def work(rows: Transaction) -> Awaitable[Record]:
            return _change(rows, key, lambda row, now: states.resolve_record(row, resolution, owner=owner, now=now))

        held = self._held.pop(key, None)
        if held is not None and held.owner == owner and not held.sensitive:
            row = states.resolve_record(held, resolution, owner=owner, now=held.updated)
            if row is not held:
                return self._rows.settle(held, row, work)
        return self._rows.transact(work)

    async def claim(
        self,
        sellers: Collection[str],
        *,
        owner: str,
        lease: float,
        limit: int = 100,
        keys: Collection[str] | None = None,
    ) -> list[Record]:
        """See `Journal.claim`."""
        among = None if keys is None else frozenset(keys)
        taken = await self._rows.transact(
            lambda rows: _claim(rows, tuple(sellers), owner, lease, limit=limit, among=among)
        )
        for row in taken:
            self._hold(row)
        return taken

    async def records(self, among: Collection[RecordState], *, limit: int = 1000) -> list[Record]:
        """See `Journal.records`."""
        codes = [CODES[state] for state in among]
        return _oldest(await self._rows.transact(lambda rows: rows.by_state(codes, limit)))[:limit]

    async def purge(self, before: float) -> int:
        """See `Journal.purge`."""
        return await self._rows.transact(lambda rows: rows.purge(before))

    def _hold(self, row: Record) -> None:
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[row.key] = row


def _oldest(rows: list[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: row.begun)


def _checked(row: Record | None, key: str) -> Record | None:
    if row is not None and row.key != key:
        raise JournalUnavailable(f"the keys {key} and {row.key} cannot be told apart")
    return row


def _begun(known: Record | None, record: Record, now: float, lease: float) -> tuple[Action, Record]:
    """Begin what was begun before."""
    if _checked(known, record.key) is None:
        raise JournalUnavailable(f"the row of {record.key} has just been deleted")
    return states.begin_record(known, record, now=now, lease=lease)


async def _begin(rows: Transaction, record: Record, lease: float) -> tuple[Action, Record]:
    """Begin what was begun before, where that changes its row."""
    known = await rows.load(record.key)
    action, row = _begun(known, record, await rows.now(), lease)
    if row is not known:
        await rows.replace([row])
    return action, row


async def _change(rows: Transaction, key: str, change: Callable[[Record, float], Record]) -> Record:
    row = _checked(await rows.load(key), key)
    if row is None:
        raise LookupError(f"there is no record with the key {key}")
    changed = change(row, await rows.now())
    if changed is not row:
        await rows.replace([changed])
    return changed


async def _claim(
    rows: Transaction, sellers: Sequence[str], owner: str, lease: float, *, limit: int, among: frozenset[str] | None
) -> list[Record]:
    now = await rows.now()
    wanted = limit if among is None else states.NO_LIMIT
    found = _oldest(await rows.claimable(sellers, owner, now, wanted))
    if among is not None:
        found = [row for row in found if row.key in among]
    own = [row for row in found if row.owner == owner]
    free = [row for row in found if row.owner != owner and states.is_claimable(row, now)]
    taken = [states.take_over(row, owner=owner, now=now, lease=lease) for row in free[: max(0, limit - len(own))]]
    await rows.replace(taken)
    return _oldest([*own, *taken])
