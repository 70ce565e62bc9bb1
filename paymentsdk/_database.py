"""One lane to a database: a thread owns the connection, and does all waiting work together.

The steps of `Database.run`: the caller's work waits in a queue. The thread takes all waiting works, forms groups, does
each group in one transaction, and wakes the callers once that is durable. A work is a plain function of a `Connection`.

Both drivers, `SQLite` in `_sqlite.py` and `Postgres` in `_postgres.py`, take the same statements. ``%s`` is a value.
The driver replaces these words: ``{table}``; ``{now}``, the store time; ``{rows}``, see `Connection.each`;
``{position}``, a function that returns the position of the bytes y in the bytes x, or 0; ``{locked}`` and
``{skip_locked}``, which end a SELECT that locks its rows.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import groupby
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import visible

T = TypeVar("T")
Values: TypeAlias = Sequence[object]
Row: TypeAlias = tuple[Any, ...]
#: Columns of rows that are written together, with their types in PostgreSQL.
Columns: TypeAlias = Mapping[str, str]

#: Seconds before another try after a connection was lost, or could not be made.
_PAUSE = 0.05


class Kind(Enum):
    """The kind of a work, which tells the driver which transaction the work needs."""

    WRITES = "several statements in one transaction"
    STATEMENT = "one statement, which may be a transaction of its own"
    READS = "only reads, and may see what others write in between"


class Trouble(Enum):
    """The meaning of an error for the work that raised it."""

    PASSING = "the same work may succeed on a new connection"
    LOCKED = "another process has locked a row; the other works can go on"
    VALUE = "a value of one work was rejected; the other works have not failed"
    LASTING = "the work fails"


class Connection(Protocol):
    """The part of a connection that a work uses."""

    has_wiped: bool
    """Whether bytes were wiped that a log of the database may still hold."""

    def fetch(self, statement: str, *values: object) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    def each(self, statement: str, columns: Columns, rows: Sequence[Values], *, durable: bool = True) -> list[Row]:
        """Run a statement for *rows*; return the rows that the statement returns.

        The statement reads *rows* as ``{rows}``: the table ``new`` with *columns* and ``now``, the store time.
        If *durable* is false, the commit need not wait for the disk.
        """
        ...

    def begin(self, kind: Kind, deadline: float) -> None:
        """Begin a transaction. Work that is not done at *deadline*, by the monotonic clock, fails."""
        ...

    def commit(self) -> None:
        """Commit the transaction durably, unless a work has allowed a delay."""
        ...

    def roll_back(self) -> None:
        """Roll back the transaction, if one is open."""
        ...

    def rest(self) -> None:
        """Do the housekeeping while no work waits."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Driver(Hashable, Protocol):
    """Connects to one database for one purpose."""

    @property
    def timeout(self) -> float:
        """Seconds that a work may wait and take."""
        ...

    @property
    def place(self) -> str:
        """The name of the database, without credentials: it begins the reason of each error."""
        ...

    @property
    def joins(self) -> bool:
        """Whether different works are committed together."""
        ...

    def connect(self, deadline: float) -> Connection:
        """Return a new connection on which the table can be used."""
        ...

    def trouble(self, error: Exception) -> Trouble:
        """Return the meaning of *error*."""
        ...


#: Does its waiting items together; returns a result, or an error, for each item.
Work: TypeAlias = Callable[[Connection, Sequence[Any]], Sequence[object]]


class _Job(HiddenRepr, Struct, eq=False):
    """A piece of work that waits."""

    work: Work
    item: object
    kind: Kind
    end: float
    """The monotonic time at which the work fails."""
    future: asyncio.Future[Any]
    result: object = None


class Instead(HiddenRepr, Struct, frozen=True, eq=False):
    """The result of an item that needs another work, in its own transaction."""

    work: Callable[[Connection], object]


class DatabaseError(Exception):
    """The database cannot be used in this way, on any connection; the text says why."""


class Database:
    """A lane to one database: a queue, and a thread with a connection. Any event loop and process can use it.

    Args:
        driver: Connects.
        unavailable: Makes the error of works that the database could not do.
        idle: Seconds without work after which the connection is closed and the thread ends. `None` for a lane with one
            owner: only the process that made it can use it, and only until it is closed.
    """

    def __init__(self, driver: Driver, unavailable: Callable[[str], Exception], *, idle: float | None = None) -> None:
        self._driver = driver
        self._unavailable = unavailable
        self._idle = idle
        self._closed = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[Connection], T], kind: Kind = Kind.WRITES) -> Awaitable[T]:
        """Do *work*; return an awaitable of its result, which is ready once that is durable.

        The work is done even if its caller is cancelled. If it is unknown whether the work was committed, the work is
        done once more: *work* must find out itself what it has done.
        """
        return self.run_together(do_each, work, kind)

    def run_together(self, work: Work, item: object, kind: Kind = Kind.WRITES) -> Awaitable[Any]:
        """Do *work* for all items that wait for the same *work*; return an awaitable of the result for *item*."""
        if self._closed:
            raise self._unavailable("it is closed")
        if self._process != os.getpid():  # A forked child has no thread, and must not use the connection.
            if self._idle is None:
                raise self._unavailable("it belongs to another process: open one in each")
            self._begin_anew()
        future = asyncio.get_running_loop().create_future()
        job = _Job(work, item, kind, time.monotonic() + self._driver.timeout, future)
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="paymentsdk-database", daemon=True)
                thread.start()  # If it raises, `_thread` stays `None`, so that no caller waits for the thread.
                self._thread = thread
            self._jobs.put(job)
        return future

    async def aclose(self) -> None:
        """Finish the waiting works, and close the connection."""
        self._closed, thread = self._idle is None, self._thread
        if thread is not None and self._process == os.getpid():
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        lane, is_ending = _Lane(self._driver, self._unavailable), False
        while True:
            jobs, ends = self._waiting(lane.again)
            is_ending, lane.again = is_ending or ends, []
            for group in self._groups(jobs):
                lane.do(group)
            is_idle = not lane.again and self._jobs.empty()
            if is_idle and lane.connection is not None:
                lane.connection.rest()
            with self._lock:
                if is_ending and not lane.again and self._jobs.empty():
                    self._thread = None
                    break
        lane.drop()

    def _waiting(self, again: list[_Job]) -> tuple[list[_Job], bool]:
        """Wait for work; return the waiting jobs, and whether the lane ends after them."""
        jobs: list[_Job | None] = [*again]
        if not jobs:
            try:
                jobs.append(self._jobs.get(timeout=self._idle))
            except queue.Empty:
                return [], True
        while not self._jobs.empty():  # Only this thread takes jobs out.
            jobs.append(self._jobs.get())
        works = [job for job in jobs if job is not None]
        return works, len(works) < len(jobs)

    def _groups(self, jobs: list[_Job]) -> list[list[_Job]]:
        """Return *jobs* grouped by transaction; groups that only read come last."""
        groups: dict[object, list[_Job]] = defaultdict(list)
        for job in sorted(jobs, key=lambda job: job.kind is Kind.READS):
            apart = job if job.work is do_each else job.work
            groups[job.kind is Kind.READS, None if self._driver.joins else apart].append(job)
        return [*groups.values()]


class _Lane:
    """The state of the thread of a `Database`: the connection, and the jobs to repeat."""

    def __init__(self, driver: Driver, unavailable: Callable[[str], Exception]) -> None:
        self.connection: Connection | None = None
        self.again: list[_Job] = []
        self._driver = driver
        self._unavailable = unavailable
        self._first_reason = ""  # The last error is only a timeout; the first error gives the reason.

    def do(self, jobs: list[_Job]) -> None:
        """Do *jobs* in one transaction, and wake their callers."""
        try:
            self._attempt(jobs)
        except Exception as error:  # noqa: BLE001 - also after a defect: the callers would wait for ever
            trouble, reason = self._driver.trouble(error), reason_of(error)
            if trouble in (Trouble.PASSING, Trouble.LASTING):
                self.drop()
            if isinstance(error, TimeoutError):
                reason = self._first_reason or reason
            elif trouble is Trouble.PASSING:
                self._first_reason = reason
        else:
            self._first_reason = ""
            return _deliver(self._ended(jobs))
        if trouble in (Trouble.VALUE, Trouble.LOCKED) and len(jobs) > 1:
            for job in jobs:
                self.do([job])
            return None
        if trouble in (Trouble.PASSING, Trouble.LOCKED):
            jobs = self._postponed(jobs, trouble)
        # Each caller gets its own error, made outside of the handler: frames of the library hold values of rows.
        for job in jobs:
            job.result = self._unavailable(f"{self._driver.place}: {reason}")
        return _deliver(jobs)

    def _attempt(self, jobs: list[_Job]) -> None:
        deadline = min(job.end for job in jobs)
        if time.monotonic() >= deadline:
            raise TimeoutError
        if self.connection is None:
            self.connection = self._driver.connect(deadline)
        works: dict[Work, list[_Job]] = defaultdict(list)
        for job in jobs:
            works[job.work].append(job)
        self.connection.begin(jobs[0].kind, deadline)
        try:
            for work, its_jobs in works.items():
                results = work(self.connection, [job.item for job in its_jobs])
                for job, result in zip(its_jobs, results, strict=True):
                    job.result = result
            self.connection.commit()
        except BaseException:
            self.connection.roll_back()
            raise

    def _ended(self, jobs: list[_Job]) -> list[_Job]:
        """Return the *jobs* that have a result; the other jobs are repeated with their new work."""
        for job in jobs:
            if isinstance(job.result, Instead):
                job.work, job.item, job.kind, job.result = do_each, job.result.work, Kind.WRITES, None
                self.again.append(job)
        return [job for job in jobs if job not in self.again] if self.again else jobs

    def _postponed(self, jobs: list[_Job], trouble: Trouble) -> list[_Job]:
        """Keep the *jobs* that have time for another try; return the others."""
        soon = time.monotonic() + _PAUSE
        again = [job for job in jobs if job.end > soon]
        self.again += again
        if again and trouble is Trouble.PASSING:
            time.sleep(_PAUSE)
        return [job for job in jobs if job.end <= soon]

    def drop(self) -> None:
        """Close the connection, which also ends a failed transaction."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


#: Lanes that close themselves.
_SHARED: dict[tuple[Driver, float], Database] = {}


def shared(driver: Driver, unavailable: Callable[[str], Exception], idle: float) -> Database:
    """Return the lane that all users of *driver* share; its connection is closed after *idle* seconds without work."""
    return _SHARED.setdefault((driver, idle), Database(driver, unavailable, idle=idle))


async def close_shared() -> None:
    """Close the connections of all shared lanes now, for tests."""
    for lane in [*_SHARED.values()]:
        await lane.aclose()


def do_each(connection: Connection, works: Sequence[Callable[[Connection], object]]) -> list[object]:
    """Do *works* one after the other. Any error except a database error is the result of that work alone."""
    results: list[object] = []
    for work in works:
        try:
            results.append(work(connection))
        except Exception as error:
            if is_of_database(error):
                raise
            results.append(error)  # Each work reads before it writes, so it has written nothing.
    return results


def is_of_database(error: Exception) -> bool:
    """Return whether *error* comes from the database or the way to it; psycopg may not be installed."""
    return isinstance(error, sqlite3.Error | OSError | DatabaseError) or hasattr(error, "sqlstate")


def reason_of(error: Exception) -> str:
    """Return the first line of *error*: other lines may show the row that the server has rejected."""
    return visible(str(error).partition("\n")[0] or f"{type(error).__name__}: it took too long")


def _deliver(jobs: list[_Job]) -> None:
    """Wake the callers, with one call for consecutive jobs of the same event loop."""
    for loop, its_jobs in groupby(jobs, lambda job: job.future.get_loop()):
        try:
            loop.call_soon_threadsafe(_wake, list(its_jobs))
        except RuntimeError:  # The loop is closed, so no caller waits.
            continue


def _wake(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.result, Exception):
            job.future.set_exception(job.result)
        else:
            job.future.set_result(job.result)
