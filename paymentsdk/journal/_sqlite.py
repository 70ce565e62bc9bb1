"""A journal in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field, structs

from paymentsdk._files import make_private
from paymentsdk._secrets import HiddenRepr
from paymentsdk._validate import Seal, check_path
from paymentsdk.errors import JournalUnavailable
from paymentsdk.journal import _states as states
from paymentsdk.journal._states import Record
from paymentsdk.journal._table import CODES, SCHEMA, TableJournal, Transaction, Values, Work, id_of, response_column

T = TypeVar("T")

#: "paym", in the header of the file: another program's database is rejected.
_APPLICATION = 0x7061796D
TABLE = """
CREATE TABLE record (
    seq INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, key TEXT NOT NULL, seller TEXT NOT NULL,
    state INTEGER NOT NULL, owner TEXT NOT NULL,
    lease_until REAL NOT NULL, begun REAL NOT NULL, updated REAL NOT NULL, digest BLOB NOT NULL, fixed BLOB NOT NULL,
    headers BLOB, body BLOB, sealed INTEGER NOT NULL, reason TEXT NOT NULL, response BLOB
) STRICT
"""
INDEX = "CREATE INDEX open_record ON record (seller, begun) WHERE state < 4"
_CREATE = (TABLE, INDEX, f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {SCHEMA}")
INSERT = (
    "INSERT INTO record VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING RETURNING 1"
)
SETTLE = (
    "UPDATE record SET state = ?, owner = '', lease_until = 0, updated = ?, reason = ?, response = ? "
    "WHERE id = ? AND owner = ? AND state = ? RETURNING 1"
)


class Job(HiddenRepr, Struct, eq=False):
    """What waits for the writing thread: one row that a statement writes, or else work on any rows."""

    statement: str = ""
    values: Values = ()
    result: object = None
    """Of a statement that has written its row; in the end of the job, or its error."""
    work: Work[object] | None = None
    reads: bool = False
    """Whether the work writes nothing: it may take long, and must not keep other processes from writing."""
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class _File:
    """The database, as a transaction of the writing thread uses it: none of its methods waits."""

    connection: sqlite3.Connection
    opened: os.stat_result

    async def fetch(self, query: str, *args: object) -> list[Any]:
        """See `Database`."""
        return self.connection.execute(_in_sqlite(query), args).fetchall()

    async def executemany(self, command: str, args: Iterable[Sequence[object]]) -> None:
        """See `Database`."""
        self.connection.executemany(_in_sqlite(command), args)


@lru_cache
def _in_sqlite(statement: str) -> str:
    """Return *statement*, which names its values once and in order, for the table of the file.

    A transaction has locked all of it.
    """
    unlocked = statement.partition(" FOR UPDATE")[0].replace("paymentsdk_record", "record")
    return re.sub(r"\$\d+", "?", unlocked)


class SQLiteJournal(TableJournal):
    """Keeps records in one SQLite file (WAL, mode 0600), durable before they are sent.

    One thread writes; whatever waits for it is committed together. Several processes on one machine may use one file,
    not over a network file system. The leases count on the machine's clock. Where the file is removed or replaced while
    it is in use, what waits fails with `JournalUnavailable`, and what comes next goes to the file that is there then.

    Args:
        path: The file; it is made if it is missing.
        seal: Encrypts bodies that hold credentials of a payer, and the headers that belong to them, such as the session
            id. Without it neither is kept: recovery cannot send that record, only a caller that brings the same request
            again.
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
        super().__init__(seal, unseal)
        self._path = check_path("path", path)
        self._busy_timeout = busy_timeout
        self._now = now
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def aclose(self) -> None:
        """See `Journal.aclose`."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    async def _insert(self, record: Record, lease: float) -> Record | None:
        # The lease counts from here, not from the commit: its owner counts it from before this, too.
        _, row = states.begin_record(None, record, now=self._now(), lease=lease)
        try:
            new: Record | None = await self._do(Job(INSERT, self._codec.values(row), row))
        except JournalUnavailable:
            if await self.get(record.key) is None:
                raise
            return None  # What is known for good is returned from a read-only file, or a full disk.
        return new

    def _settle(self, held: Record, row: Record, otherwise: Work[Record]) -> Awaitable[Record]:
        row = structs.replace(row, updated=self._now())
        changed = (CODES[row.state], row.updated, row.reason, response_column(row))
        values = (*changed, id_of(row.key), held.owner, CODES[held.state])
        return self._do(Job(SETTLE, values, row, otherwise))

    def _transact(self, work: Work[T], *, reads: bool = False) -> Awaitable[T]:
        return self._do(Job(work=work, reads=reads))

    async def _store_time(self) -> float:
        return self._now()

    def _do(self, job: Job) -> Awaitable[Any]:
        """Have the writing thread do *job*; return what gets the result once that is durable."""
        self._check()
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="paymentsdk-journal", daemon=True)
            thread.start()  # Or it raises: then nobody may wait for it.
            self._thread = thread
        self._jobs.put(job)
        return job.future

    # --- the writing thread -------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Do what is waiting, together, until the journal is closed."""
        database: sqlite3.Connection | None = None
        file, last = _File(), False
        rows = Transaction(file, self._codec, self._store_time)
        while not last:
            waiting, last = self._waiting()
            for jobs in waiting:
                try:
                    if database is None:
                        file.connection = database = self._open()
                        file.opened = self._path.stat()
                    check_in_place(self._path, file.opened)
                    transact(database, rows, jobs)
                except Exception as error:  # noqa: BLE001 - a defect, too: those who wait would do so for ever
                    _drop(database)
                    database, known = None, isinstance(error, JournalUnavailable)
                    for job in jobs:
                        job.result = error if known else JournalUnavailable(f"{self._path}: {error}")
                _deliver(jobs)
            if database is not None and rows.wiped and (last or self._jobs.empty()):
                rows.wiped = not _truncated(database)
        _drop(database)

    def _waiting(self) -> tuple[list[list[Job]], bool]:
        """Wait; return what waits, what writes before what reads, and whether the journal is to be closed then."""
        found = [self._jobs.get()]
        while not self._jobs.empty():
            found.append(self._jobs.get())
        jobs = [job for job in found if job is not None]
        parts = [[job for job in jobs if job.reads is reads] for reads in (False, True)]
        return [part for part in parts if part], len(jobs) < len(found)

    def _open(self) -> sqlite3.Connection:
        make_private(self._path)  # Its WAL gets its mode.
        database = sqlite3.connect(self._path, timeout=self._busy_timeout, isolation_level=None)
        try:
            database.row_factory = sqlite3.Row
            database.text_factory = partial(str, encoding="utf-8", errors="replace")  # One damaged row hides no other.
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
        """Make the table in a new file; reject a file of another program or version."""
        if _version(database) == (0, 0):
            database.execute("BEGIN IMMEDIATE")  # And not for one that is there, which may be read-only.
            if not database.execute("SELECT 1 FROM sqlite_schema").fetchone():
                for statement in _CREATE:
                    database.execute(statement)
            commit(database)
        application, version = _version(database)
        if application != _APPLICATION:
            raise JournalUnavailable(f"{self._path} is the database of another program")
        if version != SCHEMA:
            raise JournalUnavailable(f"{self._path} has schema {version}, this version of paymentsdk reads {SCHEMA}")


def _version(database: sqlite3.Connection) -> tuple[int, int]:
    """Return whose file it is, and the version of its table."""
    names = ("application_id", "user_version")
    application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return application, version


def check_in_place(path: Path, opened: os.stat_result) -> None:
    """Reject a file that is not the one that was *opened*: nobody would find what is written to that.

    Raises:
        FileNotFoundError: It was removed, or another has taken its place.
    """
    in_place = False
    with suppress(FileNotFoundError):
        in_place = os.path.samestat(path.stat(), opened)
    if not in_place:
        raise FileNotFoundError("it was removed or replaced while it was in use")


def commit(database: sqlite3.Connection) -> None:
    """Make what was written durable. By this name, so that a test can kill the process before and after it."""
    database.execute("COMMIT")


def transact(database: sqlite3.Connection, rows: Transaction, jobs: list[Job]) -> None:
    """Do *jobs*, all of which write or all of which read, in one transaction.

    Raises:
        sqlite3.Error: Nothing of it was kept, unless the commit failed; then that is not known.
    """
    database.execute("BEGIN" if jobs[0].reads else "BEGIN IMMEDIATE")
    for job in jobs:
        try:
            # Not `rowcount`: in some locales, Python 3.11 does not see that an INSERT writes.
            if not job.statement or not database.execute(job.statement, job.values).fetchall():
                job.result = None if job.work is None else finish(job.work(rows))
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - of one job; each looks before it writes
            job.result = error
    commit(database)


def finish(work: Awaitable[T]) -> T:
    """Return what *work* returns, which never waits."""
    try:
        next(work.__await__())
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError("the writing thread cannot wait")


def _deliver(jobs: list[Job]) -> None:
    """Wake those who wait, with one call for all of an event loop that follow each other."""
    for loop, its_jobs in groupby(jobs, lambda job: job.future.get_loop()):
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(_wake, list(its_jobs))


def _wake(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.result, Exception):
            job.future.set_exception(job.result)
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
