"""Journals in a database: one set of statements, and every step of their methods.

`_record.py` decides, and the database only stores. Each method passes a plain function to the lane of the database
(`_database.py`), which runs the function in a transaction.
"""

from __future__ import annotations

import os
import time
from asyncio import sleep
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct, structs

from paymentsdk._database import Connection, Database, Driver, Instead, Kind
from paymentsdk._postgres import Postgres, Table
from paymentsdk._sqlite import SQLite
from paymentsdk._validate import Seal, check_path
from paymentsdk.errors import JournalUnavailable, tellable
from paymentsdk.journal import _record as states
from paymentsdk.journal._codec import CODES, COLUMNS, Codec, Values, id_of, response_column
from paymentsdk.journal._record import Action, Record, RecordState, Resolution

T = TypeVar("T")

#: The version of the table.
SCHEMA = 1
_FILE_TABLE = """
CREATE TABLE record (
    seq INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, key TEXT NOT NULL, seller TEXT NOT NULL,
    state INTEGER NOT NULL, owner TEXT NOT NULL,
    lease_until REAL NOT NULL, begun REAL NOT NULL, updated REAL NOT NULL, digest BLOB NOT NULL, fixed BLOB NOT NULL,
    headers BLOB, body BLOB, sealed INTEGER NOT NULL, reason TEXT NOT NULL, response BLOB
) STRICT
"""
_FILE_INDEX = "CREATE INDEX open_record ON record (seller, begun) WHERE state < 4"
#: "paym" in the header of the file: a database of another program is rejected.
_APPLICATION = 0x7061796D
_SERVER_TABLE = """
CREATE TABLE paymentsdk_record (
    id bigint PRIMARY KEY, key text NOT NULL, seller text NOT NULL, state smallint NOT NULL, owner text NOT NULL,
    lease_until float8 NOT NULL, begun float8 NOT NULL, updated float8 NOT NULL, digest bytea NOT NULL,
    fixed bytea NOT NULL, headers bytea, body bytea, sealed smallint NOT NULL, reason text NOT NULL, response bytea
)
"""
_SERVER_INDEX = "CREATE INDEX paymentsdk_record_open ON paymentsdk_record (seller, begun) WHERE state < 4"
_NAMES = ", ".join(COLUMNS)
#: For new rows, whose `lease_until` is the length of the lease, not its end.
_TIMES = {"lease_until": "new.now + new.lease_until", "updated": "new.now"}
_WRITTEN = ", ".join(_TIMES.get(name, f"new.{name}") for name in COLUMNS)
_INSERT = (
    f"INSERT INTO {{table}} ({_NAMES}) SELECT {_WRITTEN} FROM {{rows}} WHERE true "
    "ON CONFLICT (id) DO NOTHING RETURNING id, updated"
)
_SETTLED = {"number": "bigint", "holder": "text", "before": "smallint", "state": "smallint", "reason": "text"}
_SETTLED |= {"response": "bytea"}
_SETTLE = (
    "UPDATE {table} SET state = new.state, owner = '', lease_until = 0, updated = new.now, reason = new.reason, "
    "response = new.response FROM {rows} WHERE id = new.number AND owner = new.holder AND {table}.state = new.before "
    "RETURNING id, updated"
)
_BY_ID = f"SELECT {_NAMES} FROM {{{{table}}}} WHERE id IN ({{marks}}) ORDER BY id"
#: A locked row is being written, or is locked by a session for hours: recovery skips it, and returns to it later.
_UNLOCKED, _LOCKED, _LOCKED_IF_FREE = "", " {locked}", " {skip_locked}"
_READ = f"SELECT {_NAMES}, {{now}} FROM {{table}} WHERE id = %s"
#: In halves: there may be millions of closed rows, and open rows have an index.
_LIST = (
    "SELECT id, begun FROM {{table}} WHERE state {half} AND state IN ({codes}) "
    "AND ({{position}}(fixed, %s) > 0 OR {{position}}(fixed, %s) = 0) "
    "AND (body IS NULL OR sealed > 0 OR {{position}}(body, %s) > 0) ORDER BY begun LIMIT %s"
)
#: There may be millions of closed rows: only open rows have an index.
_COUNT = "SELECT state, count(*) FROM {{table}} WHERE state {half} GROUP BY state"
#: Every base URL has these bytes. A row without them is damaged, and may be of any path.
_IN_EVERY_ROW = b"://"
#: The conditions stand in the UPDATE, too: a row that has become open since the SELECT keeps its bytes.
_PURGE = (
    "UPDATE {table} SET headers = NULL, body = NULL, response = NULL WHERE state >= 4 AND begun < %s "
    "AND id IN (SELECT id FROM {table} WHERE id > %s AND state >= 4 AND begun < %s "
    "AND (headers IS NOT NULL OR body IS NOT NULL OR response IS NOT NULL) ORDER BY id LIMIT %s) RETURNING id"
)
#: The columns to write when a row changes: its state, then its request, then the bytes of the request.
_STATE_COLUMNS = ("state", "owner", "lease_until", "updated", "reason", "response")
_REQUEST_COLUMNS = (*_STATE_COLUMNS, "begun", "fixed")
_ALL_COLUMNS = (*_REQUEST_COLUMNS, "headers", "body", "sealed")
#: Rows that are read or wiped in one work: other works of the process run in between.
_PAGE = 500
#: Seconds between two pages of a purge. A process that waits to write to a file of SQLite checks this often whether the
#: file is free: without such a gap, it would wait until it gives up.
_PAUSE = 0.1


class _Rows(Struct, eq=False):
    """The rows of a table, in a transaction that locks the rows it loads."""

    connection: Connection
    codec: Codec

    def now(self) -> float:
        """Return the store time."""
        [(now,)] = self.connection.fetch("SELECT {now}")
        return float(now)

    def by_id(self, ids: Sequence[int], lock: str = _UNLOCKED) -> list[Record]:
        """Return the rows with the numbers *ids*, in their order."""
        statement = _BY_ID.format(marks=", ".join(["%s"] * len(ids)) or "NULL") + lock
        rows = {row[0]: row for row in self.connection.fetch(statement, *ids)}
        return [self.codec.record(rows[number]) for number in ids if number in rows]

    def load(self, keys: Collection[str], lock: str = _LOCKED) -> list[Record]:
        """Return the rows of *keys*. All processes lock rows in the same order, so that there is no deadlock."""
        return [_checked(row, keys) for row in self.by_id([*map(id_of, keys)], lock)]

    def change(self, key: str, change: Callable[..., Record]) -> Record:
        """Replace the row of *key* by the result of *change*, called with `now=` the store time; return the result."""
        row = next(iter(self.load([key])), None)
        if row is None:
            raise tellable(LookupError(f"there is no record with the key {key}"))
        changed = change(row, now=self.now())
        if changed is not row:
            self._replace([changed])
        return changed

    def claim(self, sellers: Collection[str], owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """See `Journal.claim`."""
        now, rows = self.now(), self.load(keys, _LOCKED_IF_FREE)
        claimed = [states.claim_record(row, sellers=sellers, owner=owner, now=now, lease=lease) for row in rows]
        self._replace([new for new, row in zip(claimed, rows, strict=True) if new is not row])
        return sorted((row for row in claimed if row.owner == owner), key=lambda row: row.begun)

    def ids(self, among: Collection[RecordState], limit: int, path: bytes, containing: bytes) -> list[int]:
        """Return the numbers of the rows that `Journal.records` returns."""
        begun: dict[int, float] = {}
        for half, selected in (("< 4", states.OPEN.intersection(among)), (">= 4", states.CLOSED.intersection(among))):
            if selected:
                statement = _LIST.format(half=half, codes=", ".join(str(CODES[state]) for state in selected))
                begun |= dict(self.connection.fetch(statement, path, _IN_EVERY_ROW, containing, limit))
        return sorted(begun, key=begun.__getitem__)[:limit]

    def count(self, among: Collection[RecordState]) -> dict[RecordState, int]:
        """See `TableJournal.count`."""
        counts = dict.fromkeys(among, 0)
        for half, states_of_half in (("< 4", states.OPEN), (">= 4", states.CLOSED)):
            if states_of_half.intersection(among):
                rows: dict[int, int] = dict(self.connection.fetch(_COUNT.format(half=half)))
                counts |= {state: rows.get(CODES[state], 0) for state in states_of_half.intersection(among)}
        return counts

    def purge(self, before: float, after: int) -> list[int]:
        """Do a page of `Journal.purge`: the rows with numbers above *after*; return their numbers."""
        ids = [number for (number,) in self.connection.fetch(_PURGE, before, after, before, _PAGE)]
        self.connection.has_wiped = self.connection.has_wiped or bool(ids)
        return ids

    def _replace(self, rows: Sequence[Record]) -> None:
        for record in rows:
            values = dict(zip(COLUMNS, self.codec.values(record), strict=True))
            columns: Sequence[str] = _ALL_COLUMNS
            if not states.is_readable(record):
                columns = _STATE_COLUMNS  # The other columns stay: a later version may read them.
            elif record.is_open and record.sensitive and values["body"] is None:
                columns = _REQUEST_COLUMNS  # The seal may be unavailable for a moment.
            elif values["sealed"] and values["body"] is None:
                self.connection.has_wiped = True  # Without a seal, no body was kept, so no body is wiped.
            changes = ", ".join(f"{name} = %s" for name in columns)
            update = f"UPDATE {{table}} SET {changes} WHERE id = %s"
            self.connection.fetch(update, *(values[name] for name in columns), values["id"])


class TableJournal:
    """The methods of a journal in a database."""

    def __init__(self, driver: Driver, seal: Seal | None, unseal: Seal | None) -> None:
        self._codec = Codec(seal, unseal)
        self._lane = Database(driver, JournalUnavailable)
        #: Where works are not committed together, new rows have their own lane: they never wait for a locked row.
        self._inserts = self._lane if driver.joins else Database(driver, JournalUnavailable)
        #: Rows that this process holds, so that settling one needs no read.
        self._held: dict[str, Record] = {}

    @property
    def seals(self) -> bool:
        """Whether the journal keeps bodies that hold credentials of a payer: it then has a seal for them."""
        return self._codec.seals

    async def aclose(self) -> None:
        """See `Journal.aclose`."""
        for lane in (self._inserts, self._lane):
            await lane.aclose()

    def _do(self, work: Callable[[_Rows], T], kind: Kind = Kind.WRITES) -> Awaitable[T]:
        return self._lane.run(lambda connection: work(_Rows(connection, self._codec)), kind)

    async def _read(self, key: str) -> tuple[Record | None, float]:
        """Return the row of *key*, and the store time, without a lock."""

        def read(rows: _Rows) -> tuple[Record | None, float]:
            for *values, now in rows.connection.fetch(_READ, id_of(key)):
                return _checked(rows.codec.record(values), (key,)), now
            return None, 0.0

        return await self._do(read, Kind.READS)

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal.begin`."""
        values = self._codec.values(record, lease)
        new: Record | None
        try:
            new = await self._inserts.run_together(_insert, (values, record, lease), Kind.STATEMENT)
        except JournalUnavailable:
            if self._inserts is not self._lane or await self.get(record.key) is None:
                raise
            new = None  # A kept outcome is returned even if the file is read-only or the disk is full.
        action, row = (Action.SEND, new) if new is not None else await self._begin_again(record, lease)
        if row.owner == record.owner:
            self._held[row.key] = row
        return action, row

    async def _begin_again(self, record: Record, lease: float) -> tuple[Action, Record]:
        """Begin a record whose row exists: with one read if the row does not change."""
        action = Action.SEND

        def begun(row: Record, *, now: float) -> Record:
            nonlocal action
            action, changed = states.begin_record(row, record, now=now, lease=lease)
            return changed

        current, now = await self._read(record.key)
        if current is None or begun(current, now=now) is not current:
            current = await self._do(lambda rows: rows.change(record.key, begun))
        return action, current

    async def get(self, key: str) -> Record | None:
        """See `Journal.get`."""
        return (await self._read(key))[0]

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """See `Journal.renew`."""
        renewed = partial(states.renew_lease, owner=owner, lease=lease)
        return await self._do(lambda rows: rows.change(key, renewed))

    def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Awaitable[Record]:
        """See `Journal.resolve`. A row that this process holds needs a compare-and-set, but no read.

        An attempt that may be in flight is judged by the store time, so it does need the read. The write starts
        immediately, so that it is committed together with the next call's begin.
        """
        resolved = partial(states.resolve_record, resolution=resolution, owner=owner)

        def changed(connection: Connection) -> Record:
            return _Rows(connection, self._codec).change(key, resolved)

        held = self._held.pop(key, None)
        in_flight = resolution.in_flight or (held is not None and held.in_flight_until)
        if held is not None and held.owner == owner and not held.sensitive and not in_flight:
            row = resolved(held, now=held.updated)
            if row is not held:
                before = id_of(key), held.owner, CODES[held.state]
                values = (*before, CODES[row.state], row.reason, response_column(row))
                return self._lane.run_together(_settle, (values, row, Instead(changed)), Kind.STATEMENT)
        return self._lane.run(changed)

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """See `Journal.claim`."""
        claimed = await self._do(lambda rows: rows.claim(sellers, owner, lease, keys))
        self._held |= {row.key: row for row in claimed}
        return claimed

    async def records(
        self, among: Collection[RecordState], *, limit: int = 1000, path: str = "", containing: bytes = b""
    ) -> list[Record]:
        """See `Journal.records`. It reads page by page: there may be millions, and leases must be renewed meanwhile."""
        selected, records = frozenset(among), list[Record]()
        ids = await self._do(lambda rows: rows.ids(selected, limit, path.encode(), containing), Kind.READS)
        for start in range(0, len(ids), _PAGE):
            page = ids[start : start + _PAGE]
            records += await self._do(partial(_Rows.by_id, ids=page), Kind.READS)
        return [row for row in records if row.state in selected]

    async def count(self, among: Collection[RecordState] = states.OPEN) -> dict[RecordState, int]:
        """Return how many records there are in each state of *among*: by default in the open states.

        Open records have an index, so a health check may call this every second. Closed records are counted one by one,
        and there may be millions. `Journal`, the protocol of your own journals, does not have this method.

        Raises:
            JournalUnavailable: The database does not respond.
        """
        return await self._do(lambda rows: rows.count(among), Kind.READS)

    async def purge(self, before: float) -> int:
        """See `Journal.purge`. It works page by page."""
        count, last = 0, -1
        while ids := await self._do(partial(_Rows.purge, before=before, after=last)):
            count, last = count + len(ids), max(ids)
            await sleep(_PAUSE)
        return count


def _insert(connection: Connection, items: Sequence[tuple[Values, Record, float]]) -> list[Record | None]:
    """Keep new rows; return `None` for each whose key exists."""
    rows = sorted((values for values, _, _ in items), key=itemgetter(0))
    written: dict[object, float] = dict(connection.each(_INSERT, COLUMNS, rows))
    # Of two rows with one key, the first was kept.
    times = [written.pop(values[0], None) for values, _, _ in items]
    return [
        None if now is None else states.begin_record(None, record, now=now, lease=lease)[1]
        for (_, record, lease), now in zip(items, times, strict=True)
    ]


def _settle(connection: Connection, items: Sequence[tuple[Values, Record, Instead]]) -> list[Record | Instead]:
    """Write the new states of held rows; return the rows, or the work that replaces the write of a changed row."""
    # A group of `DONE` may wait for the disk if each has a key: their loss costs a replay.
    durable = not all(row.state is RecordState.DONE and row.keyed for _, row, _ in items)
    rows = sorted((values for values, _, _ in items), key=itemgetter(0))
    written: dict[object, float] = dict(connection.each(_SETTLE, _SETTLED, rows, durable=durable))
    times = [written.pop(values[0], None) for values, _, _ in items]
    return [
        changed if now is None else structs.replace(row, updated=now)
        for (_, row, changed), now in zip(items, times, strict=True)
    ]


def _checked(row: Record, keys: Collection[str]) -> Record:
    """Return *row*, which was found by the number of one of *keys*; raise an error if its key differs."""
    if row.key not in keys:
        raise JournalUnavailable(f"the record {row.key} has the same number as one of {', '.join(keys)}")
    return row


class SQLiteJournal(TableJournal):
    """Keeps records in one SQLite file (WAL, mode 0600), durable before they are sent.

    One thread writes, and commits all waiting writes together. Several processes on one machine may use one file, but
    not over a network file system. The leases use the machine's clock. If the file is removed or replaced while it is
    in use, waiting calls fail with `JournalUnavailable`, and later calls use the new file.

    Args:
        path: The file; it is created if it is missing.
        seal: Encrypts bodies that hold credentials of a payer, and their headers, such as the session id. Without
            *seal*, neither is kept: recovery cannot send that record; only a caller with the same request can.
        unseal: Decrypts them.
        busy_timeout: Seconds to wait for another process that writes.
        now: The clock of the leases, in seconds since the epoch; the same for all processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        seal: Seal | None = None,
        unseal: Seal | None = None,
        busy_timeout: float = 5.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        file = SQLite(
            path=check_path("path", path),
            table="record",
            create=(_FILE_TABLE, _FILE_INDEX),
            settings=("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"),
            application=_APPLICATION,
            version=SCHEMA,
            busy_timeout=busy_timeout,
            now=now,
        )
        super().__init__(file, seal, unseal)


class PostgresJournal(TableJournal):
    """Keeps records in PostgreSQL, durable before they are sent; it needs the extra ``postgres``.

    Any number of processes on any number of machines may use one database. The journal creates its table,
    ``paymentsdk_record``, in the first schema of the search path. Waiting writes are committed together, over up to two
    connections for each process. The leases use the clock of the database.

    The journal replaces a lost connection, and reads back whether its last commit succeeded. Records are as durable as
    the server's commits: they survive the loss of the server's machine only with synchronous replication. ``DONE`` may
    reach the disk up to a second later if the record has a key. If the server crashes before that, the record is sent
    once more, with the same key. You may connect to the server or to a pooler: PgBouncer works in transaction mode,
    too.

    Args:
        dsn: ``postgresql://user:password@host:port/database``. It is never shown.
        seal: Encrypts bodies that hold credentials of a payer, and their headers, such as the session id. Without
            *seal*, neither is kept: recovery cannot send that record; only a caller with the same request can. The
            server keeps old versions of a row in its files and backups. To wipe these, discard the key of the seal.
        unseal: Decrypts them.
        timeout: Seconds that one piece of work may take, including new connections, before `JournalUnavailable`.
        now: The clock of the leases, in seconds since the epoch; the same for all processes. By default, the clock of
            the database.

    Raises:
        RequestInvalid: *dsn* is not an address of PostgreSQL, or *timeout* is not above 0 and at most a day.
    """

    def __init__(
        self,
        dsn: str,
        *,
        seal: Seal | None = None,
        unseal: Seal | None = None,
        timeout: float = 5.0,
        now: Callable[[], float] | None = None,
    ) -> None:
        table = Table("paymentsdk_record", f"paymentsdk journal {SCHEMA}", (_SERVER_TABLE, _SERVER_INDEX))
        server = Postgres(dsn=dsn, timeout=timeout, table=table, now=now)
        super().__init__(server, seal, unseal)
