"""One lane to a database: what waits is done together, by one thread that owns the connection.

The steps of `Database.run`: the caller's work waits in a queue; the thread takes all that waits, forms groups, does
each group in one transaction, and wakes the callers once that is durable. A work is a plain function of a `Connection`.

Both drivers, `SQLite` in `_sqlite.py` and `Postgres` in `_postgres.py`, take the same statements. ``%s`` is a value.
Words of the driver are ``{table}``, ``{now}`` (the store time), ``{rows}`` (see `Connection.each`), ``{position}`` (a
function: where in the bytes x are the bytes y, 0 for nowhere), and ``{locked}`` or ``{skip_locked}`` after a SELECT
whose rows nobody else may change meanwhile.
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

#: Seconds between two tries after a connection was lost, or could not be made.
_PAUSE = 0.05


class Kind(Enum):
    """What a work does, so that the driver knows which transaction it needs."""

    WRITES = "several statements in one transaction"
    STATEMENT = "one statement, which may be a transaction of its own"
    READS = "only reads, and may see what others write in between"


class Trouble(Enum):
    """What an error means for the work that it ended."""

    PASSING = "the same work may succeed on a new connection"
    LOCKED = "another process has locked a row; the other works can go on"
    VALUE = "a value of one work was rejected; the other works have not failed"
    LASTING = "the work fails"


class Connection(Protocol):
    """What a work uses of a connection."""

    has_wiped: bool
    """Whether bytes were wiped that a log of the database may still hold."""

    def fetch(self, statement: str, *values: object) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    def each(self, statement: str, columns: Columns, rows: Sequence[Values], *, durable: bool = True) -> list[Row]:
        """Run a statement for *rows*; return what it returns.

        The statement reads them as ``{rows}``: the table ``new`` of *columns* and of ``now``, the store time.
        Where it need not be *durable*, its commit may wait for the disk.
        """
        ...

    def begin(self, kind: Kind, deadline: float) -> None:
        """Begin a transaction. What is not done at *deadline*, by the monotonic clock, fails."""
        ...

    def commit(self) -> None:
        """Make what was done durable, unless a work has said that it may wait."""
        ...

    def roll_back(self) -> None:
        """Undo what was done since `begin`, if a transaction is still open."""
        ...

    def rest(self) -> None:
        """Do what is done when nothing waits."""
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
        """Begins the reason of each error: which database it is. Without credentials."""
        ...

    @property
    def joins(self) -> bool:
        """Whether different works are committed together."""
        ...

    def connect(self, deadline: float) -> Connection:
        """Return a new connection on which the table can be used."""
        ...

    def trouble(self, error: Exception) -> Trouble:
        """Return what *error* means."""
        ...


#: Does what waits for it together; returns a result, or an error, for each item.
Work: TypeAlias = Callable[[Connection, Sequence[Any]], Sequence[object]]


class _Job(HiddenRepr, Struct, eq=False):
    """A piece of work that waits."""

    work: Work
    item: object
    kind: Kind
    end: float
    """The monotonic time at which its caller gives up."""
    future: asyncio.Future[Any]
    result: object = None


class Instead(HiddenRepr, Struct, frozen=True, eq=False):
    """What a work of several items returns for one of them that needs another work, in a transaction of its own."""

    work: Callable[[Connection], object]


class DatabaseError(Exception):
    """The database cannot be used in this way, on any connection: the text says why."""


class Database:
    """A lane to one database: a queue, and a thread with a connection. It can be used in any event loop and process.

    Args:
        driver: Connects.
        unavailable: Makes the error of works that the database could not do.
        idle: Seconds without work after which the connection is closed and the thread ends; `None` for a lane with one
            owner: it belongs to the process that has made it, and does nothing more once it is closed.
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
        """Do *work*; return what gets its result once that is durable. It is done even if nobody waits any more.

        If nobody can tell whether it was committed, it is done once more: *work* has to find out what it has done.
        """
        return self.run_together(do_each, work, kind)

    def run_together(self, work: Work, item: object, kind: Kind = Kind.WRITES) -> Awaitable[Any]:
        """Do *work* for *item* and for all items that wait for the same *work*; return what gets the item's result."""
        if self._closed:
            raise self._unavailable("it is closed")
        if self._process != os.getpid():  # A child has neither the thread nor the right to the connection.
            if self._idle is None:
                raise self._unavailable("it belongs to another process: open one in each")
            self._begin_anew()
        future = asyncio.get_running_loop().create_future()
        job = _Job(work, item, kind, time.monotonic() + self._driver.timeout, future)
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="paymentsdk-database", daemon=True)
                thread.start()  # If it raises, nobody waits for the thread.
                self._thread = thread
            self._jobs.put(job)
        return future

    async def aclose(self) -> None:
        """Finish what waits, and close the connection."""
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
        """Wait; return what waits, and whether the lane ends once that is done."""
        jobs: list[_Job | None] = [*again]
        if not jobs:
            try:
                jobs.append(self._jobs.get(timeout=self._idle))
            except queue.Empty:
                return [], True
        while not self._jobs.empty():  # Only this thread takes any out.
            jobs.append(self._jobs.get())
        works = [job for job in jobs if job is not None]
        return works, len(works) < len(jobs)

    def _groups(self, jobs: list[_Job]) -> list[list[_Job]]:
        """Return *jobs* by transaction, those that only read last."""
        writes, reads = list[_Job](), list[_Job]()
        for job in jobs:
            (reads if job.kind is Kind.READS else writes).append(job)
        groups = [group for group in (writes, reads) if group]
        if self._driver.joins:
            return groups
        apart: dict[object, list[_Job]] = defaultdict(list)
        for group in groups:
            for job in group:
                apart[job.kind is Kind.READS, job if job.work is do_each else job.work].append(job)
        return [*apart.values()]


class _Lane:
    """What the thread of a `Database` has: the connection, and what is to be done once more."""

    def __init__(self, driver: Driver, unavailable: Callable[[str], Exception]) -> None:
        self.connection: Connection | None = None
        self.again: list[_Job] = []
        self._driver = driver
        self._unavailable = unavailable
        self._first_reason = ""  # In the end only the time runs out; what came first says why.

    def do(self, jobs: list[_Job]) -> None:
        """Do *jobs* in one transaction, and wake those who wait."""
        try:
            self._attempt(jobs)
        except Exception as error:  # noqa: BLE001 - a defect, too: those who wait would do so for ever
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
        # Each caller gets an error of its own, made outside of the handler: frames of the library have values in them.
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
        """Return those of *jobs* that have a result; the others are done in another way next."""
        for job in jobs:
            if isinstance(job.result, Instead):
                job.work, job.item, job.kind, job.result = do_each, job.result.work, Kind.WRITES, None
                self.again.append(job)
        return [job for job in jobs if job not in self.again] if self.again else jobs

    def _postponed(self, jobs: list[_Job], trouble: Trouble) -> list[_Job]:
        """Keep those of *jobs* that have time left for another try; return the others."""
        soon = time.monotonic() + _PAUSE
        again = [job for job in jobs if job.end > soon]
        self.again += again
        if again and trouble is Trouble.PASSING:
            time.sleep(_PAUSE)
        return [job for job in jobs if job.end <= soon]

    def drop(self) -> None:
        """Close the connection: what came of a failed transaction is gone with it."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


#: Lanes that nobody has to close.
_SHARED: dict[tuple[Driver, float], Database] = {}


def shared(driver: Driver, unavailable: Callable[[str], Exception], idle: float) -> Database:
    """Return the lane that all users of *driver* share; its connection is closed after *idle* seconds without work."""
    return _SHARED.setdefault((driver, idle), Database(driver, unavailable, idle=idle))


async def close_shared() -> None:
    """Close the connections of all shared lanes now, as tests do."""
    for lane in [*_SHARED.values()]:
        await lane.aclose()


def do_each(connection: Connection, works: Sequence[Callable[[Connection], object]]) -> list[object]:
    """Do *works* one after the other. An error that is not the database's is the result of that work alone."""
    results: list[object] = []
    for work in works:
        try:
            results.append(work(connection))
        except Exception as error:
            if is_of_database(error):
                raise
            results.append(error)  # Each work looks before it writes.
    return results


def is_of_database(error: Exception) -> bool:
    """Whether *error* comes of the database or of the way to it; psycopg may not be installed."""
    return isinstance(error, sqlite3.Error | OSError | DatabaseError) or hasattr(error, "sqlstate")


def reason_of(error: Exception) -> str:
    """Return the first line of *error*: what follows may be the row that the server has rejected."""
    return visible(str(error).partition("\n")[0] or f"{type(error).__name__}: it took too long")


def _deliver(jobs: list[_Job]) -> None:
    """Wake those who wait, with one call for all of an event loop that follow each other."""
    for loop, its_jobs in groupby(jobs, lambda job: job.future.get_loop()):
        try:
            loop.call_soon_threadsafe(_wake, list(its_jobs))
        except RuntimeError:  # The loop is closed: nobody waits any more.
            continue


def _wake(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.result, Exception):
            job.future.set_exception(job.result)
        else:
            job.future.set_result(job.result)
