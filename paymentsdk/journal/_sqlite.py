"""A journal in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from paymentsdk.errors import JournalUnavailable
from paymentsdk.journal import _states as states
from paymentsdk.journal._states import Action, Record, RecordState, Resolution, StoredResponse

T = TypeVar("T")
Seal: TypeAlias = Callable[[bytes], bytes]
Work: TypeAlias = Callable[[sqlite3.Connection], T]

#: "paym", in the header of the file: another program's database is refused.
_APPLICATION = 0x7061796D
_SCHEMA = 1
#: Open states come first, so that ``state < 4`` finds them by their index.
_CODES = {state: code for code, state in enumerate(RecordState)}
_STATES = dict(enumerate(RecordState))
_TABLE = """
CREATE TABLE record (
    seq INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, key TEXT NOT NULL, seller TEXT NOT NULL,
    state INTEGER NOT NULL, owner TEXT NOT NULL,
    lease_until REAL NOT NULL, begun REAL NOT NULL, updated REAL NOT NULL, digest BLOB NOT NULL, fixed BLOB NOT NULL,
    headers BLOB, body BLOB, sealed INTEGER NOT NULL, reason TEXT NOT NULL, response BLOB
) STRICT
"""
_INDEX = "CREATE INDEX open_record ON record (seller, begun) WHERE state < 4"
_INSERT = "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
_SELECT = "SELECT * FROM record WHERE id = ?"
_CLAIM = (
    "SELECT * FROM record WHERE state < 4 AND seller = ? AND lease_until <= ? AND body IS NOT NULL "
    "ORDER BY begun LIMIT ?"
)
_LIST = "SELECT * FROM record WHERE state = ? ORDER BY begun LIMIT ?"
_REPLACE = (
    "UPDATE record SET state = ?, owner = ?, lease_until = ?, begun = ?, updated = ?, fixed = ?, headers = ?, "
    "body = ?, sealed = ?, reason = ?, response = ? WHERE id = ?"
)
_SETTLE = (
    "UPDATE record SET state = ?, owner = '', lease_until = 0, updated = ?, reason = ?, response = ? "
    "WHERE id = ? AND owner = ? AND state = ?"
)
_PURGE = (
    "UPDATE record SET headers = NULL, body = NULL, response = NULL WHERE state >= 4 AND begun < ? "
    "AND (headers IS NOT NULL OR body IS NOT NULL OR response IS NOT NULL)"
)


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


class _Row(NamedTuple):
    """The columns of the table, in its order."""

    seq: int | None
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


class _Job(msgspec.Struct, eq=False):
    work: Work[object]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]
    result: object = None
    error: Exception | None = None


_ENCODER = msgspec.msgpack.Encoder()
_FIXED = msgspec.msgpack.Decoder(_Fixed)
_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
_RESPONSE = msgspec.msgpack.Decoder(StoredResponse)


class SQLiteJournal:
    """Keeps records in one SQLite file (WAL, mode 0600), durable before they are sent.

    One thread writes; whatever waits for it is committed together. Several processes on one machine may use one file,
    not over a network file system. The leases count on the machine's clock.

    Args:
        path: The file; it is made if it is missing.
        seal: Encrypts bodies that hold credentials of a payer. Without it such a body is not kept: recovery cannot send
            that record, only a caller that brings the same request again.
        unseal: Undoes *seal*.
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
        if (seal is None) is not (unseal is None):
            raise TypeError("give seal and unseal, or neither")
        self._path = Path(path)
        self._seal = seal
        self._unseal = unseal
        self._busy_timeout = busy_timeout
        self._now = now
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._closed = False
        #: Rows that this process holds, so that settling one needs no read. Of the writing thread.
        self._held: dict[str, Record] = {}
        self._wiped = False

    # --- the methods of a journal -------------------------------------------------------------------------------------

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal.begin`."""
        return await self._do(lambda database: self._begin(database, record, lease))

    async def get(self, key: str) -> Record | None:
        """See `Journal.get`."""
        return await self._do(lambda database: self._load(database, key))

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """See `Journal.renew`."""
        return await self._do(
            lambda database: self._change(
                database, key, lambda row: states.renew(row, owner=owner, now=self._now(), lease=lease)
            )
        )

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """See `Journal.resolve`."""
        return await self._do(lambda database: self._settle(database, key, resolution, owner))

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, limit: int = 100) -> list[Record]:
        """See `Journal.claim`."""
        return await self._do(lambda database: self._claim(database, tuple(sellers), owner, lease, limit))

    async def records(self, among: Collection[RecordState], *, limit: int = 1000) -> list[Record]:
        """See `Journal`."""
        codes = tuple(_CODES[state] for state in among)
        return await self._do(lambda database: self._list(database, codes, limit))

    async def purge(self, before: float) -> int:
        """See `Journal.purge`."""
        return await self._do(lambda database: self._purge(database, before))

    async def aclose(self) -> None:
        """See `Journal.aclose`."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    # --- the writing thread -------------------------------------------------------------------------------------------

    async def _do(self, work: Work[T]) -> T:
        """Have the writing thread do *work*, and return its result once it is durable."""
        if self._closed:
            raise JournalUnavailable("it is closed")
        if self._process != os.getpid():
            raise JournalUnavailable("it belongs to another process: open one in each")
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="paymentsdk-journal", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._jobs.put(_Job(work, loop, future))
        return await future  # type: ignore[return-value]

    def _write(self) -> None:
        """Do what is waiting, together, until the journal is closed."""
        database: sqlite3.Connection | None = None
        last = False
        while not last:
            jobs, last = self._waiting()
            if jobs:
                try:
                    if database is None:
                        database = self._open()
                    _transact(database, jobs)
                except (sqlite3.Error, OSError) as error:
                    self._held.clear()
                    _drop(database)
                    database = None
                    for job in jobs:
                        job.error = JournalUnavailable(f"{self._path}: {error}")
                except JournalUnavailable as error:
                    for job in jobs:
                        job.error = error
                _deliver(jobs)
            if database is not None and self._wiped and (last or self._jobs.empty()):
                self._wiped = not _truncated(database)
        _drop(database)

    def _waiting(self) -> tuple[list[_Job], bool]:
        """Return what waits, at least one job, and whether the journal is to be closed then."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _open(self) -> sqlite3.Connection:
        # Made here, since SQLite would make it as the umask allows; its WAL gets the mode of the file.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        database = sqlite3.connect(self._path, timeout=self._busy_timeout, isolation_level=None)
        try:
            self._write_ahead(database)
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA secure_delete = ON").fetchall()
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _write_ahead(self, database: sqlite3.Connection) -> None:
        """Turn the write-ahead log on; SQLite does not wait by itself for another process that does the same."""
        end = time.monotonic() + self._busy_timeout
        while True:
            try:
                database.execute("PRAGMA journal_mode = WAL").fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.005)
            else:
                return

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the table in a new file; refuse a file of another program or version."""
        database.execute("BEGIN IMMEDIATE")
        application = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if (application, version) == (0, 0) and not database.execute("SELECT 1 FROM sqlite_schema").fetchone():
            for statement in (
                _TABLE,
                _INDEX,
                f"PRAGMA application_id = {_APPLICATION}",
                f"PRAGMA user_version = {_SCHEMA}",
            ):
                database.execute(statement)
            commit(database)
            return
        database.execute("ROLLBACK")
        if application != _APPLICATION:
            raise JournalUnavailable(f"{self._path} is the database of another program")
        if version != _SCHEMA:
            raise JournalUnavailable(f"{self._path} has schema {version}, this version of paymentsdk reads {_SCHEMA}")

    # --- what it does -------------------------------------------------------------------------------------------------

    def _begin(self, database: sqlite3.Connection, record: Record, lease: float) -> tuple[Action, Record]:
        now = self._now()
        action, row = states.begin(None, record, now=now, lease=lease)
        if not database.execute(_INSERT, self._row(row)).rowcount:
            known = self._load(database, record.key)
            action, row = states.begin(known, record, now=now, lease=lease)
            if row is not known:
                self._replace(database, row)
        if row.owner == record.owner:
            self._held[row.key] = row
        return action, row

    def _load(self, database: sqlite3.Connection, key: str) -> Record | None:
        columns = database.execute(_SELECT, (_id(key),)).fetchone()
        if columns is None:
            return None
        row = self._record(_Row._make(columns))
        if row.key != key:
            raise JournalUnavailable(f"the keys {key} and {row.key} cannot be told apart")
        return row

    def _change(self, database: sqlite3.Connection, key: str, change: Callable[[Record], Record]) -> Record:
        row = self._load(database, key)
        if row is None:
            raise LookupError(f"there is no record with the key {key}")
        changed = change(row)
        if changed is not row:
            self._replace(database, changed)
        return changed

    def _settle(self, database: sqlite3.Connection, key: str, resolution: Resolution, owner: str) -> Record:
        """Resolve a row: one that this process holds by a compare-and-set without a read."""
        now = self._now()
        held = self._held.pop(key, None)
        if held is not None and held.owner == owner and not held.sensitive:
            row = states.resolve(held, resolution, owner=owner, now=now)
            if row is not held:
                response = None if row.response is None else _ENCODER.encode(row.response)
                values = (_CODES[row.state], now, row.reason, response, _id(key), owner, _CODES[held.state])
                if database.execute(_SETTLE, values).rowcount:
                    return row
        return self._change(database, key, lambda row: states.resolve(row, resolution, owner=owner, now=now))

    def _claim(
        self, database: sqlite3.Connection, sellers: tuple[str, ...], owner: str, lease: float, limit: int
    ) -> list[Record]:
        now = self._now()
        rows = [
            self._record(_Row._make(columns))
            for seller in sellers
            for columns in database.execute(_CLAIM, (seller, now, limit))
        ]
        open_rows = sorted((row for row in rows if states.is_claimable(row, now)), key=lambda row: row.begun)
        taken = [states.take(row, owner=owner, now=now, lease=lease) for row in open_rows[:limit]]
        for row in taken:
            self._replace(database, row)
        return taken

    def _list(self, database: sqlite3.Connection, codes: tuple[int, ...], limit: int) -> list[Record]:
        rows = [row for code in codes for row in database.execute(_LIST, (code, limit))]
        return sorted((self._record(_Row._make(row)) for row in rows), key=lambda row: row.begun)[:limit]

    def _purge(self, database: sqlite3.Connection, before: float) -> int:
        count = database.execute(_PURGE, (before,)).rowcount
        self._wiped = self._wiped or count > 0
        return count

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _replace(self, database: sqlite3.Connection, row: Record) -> None:
        columns = self._row(row)
        database.execute(_REPLACE, (*columns[4:9], *columns[10:], columns.id))
        self._wiped = self._wiped or (columns.sealed == 1 and columns.body is None)

    def _row(self, record: Record) -> _Row:
        body, sealed = record.body, record.sensitive and self._seal is not None
        if body is not None and record.sensitive:
            body = None if self._seal is None else self._seal(body)
        return _Row(
            None,  # Numbered as they come, new rows fill one page after the other.
            _id(record.key),
            record.key,
            record.seller,
            _CODES[record.state],
            record.owner,
            record.lease_until,
            record.begun,
            record.updated,
            record.digest,
            _ENCODER.encode(_fixed(record)),
            _ENCODER.encode(record.headers) if record.headers else None,
            body,
            sealed,
            record.reason,
            None if record.response is None else _ENCODER.encode(record.response),
        )

    def _record(self, row: _Row) -> Record:
        what, body = _FIXED.decode(row.fixed), row.body
        if row.sealed and body is not None:
            body = None if self._unseal is None else self._unseal(body)
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


def _fixed(row: Record) -> _Fixed:
    return _Fixed(row.name, row.operation, row.base_url, row.account, row.path, row.sensitive, row.keyed, row.not_after)


def commit(database: sqlite3.Connection) -> None:
    """Make what was written durable. By this name, so that a test can kill the process before and after it."""
    database.execute("COMMIT")


def _id(key: str) -> int:
    """Return the number by which the row of *key* is found: its index is a third of one over the keys."""
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") >> 1


def _transact(database: sqlite3.Connection, jobs: list[_Job]) -> None:
    """Do *jobs* in one transaction.

    Raises:
        sqlite3.Error: Nothing of it was kept, unless the commit failed; then that is not known.
    """
    database.execute("BEGIN IMMEDIATE")
    for job in jobs:
        try:
            job.result = job.work(database)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - of one job; each looks before it writes
            job.error = error
    commit(database)


def _deliver(jobs: list[_Job]) -> None:
    """Wake those who wait, with one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, its_jobs in by_loop.items():
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(_wake, its_jobs)


def _wake(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _drop(database: sqlite3.Connection | None) -> None:
    """Close *database*: what came of a failed transaction is gone with it."""
    if database is not None:
        with suppress(sqlite3.Error):
            database.close()


def _truncated(database: sqlite3.Connection) -> bool:
    """Empty the WAL, which holds what was wiped; return whether nobody else was using it."""
    try:
        return not database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error:
        return False
