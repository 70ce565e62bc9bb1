"""PostgreSQL, as far as this package uses it: a connection, and which errors mean that it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar

from msgspec import Struct, structs

from paymentsdk._secrets import HiddenRepr, masked
from paymentsdk._validate import check_seconds
from paymentsdk.errors import RequestInvalid, install_extra, tellable, visible

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")
Values: TypeAlias = Sequence[object]

#: Classes of SQLSTATE after which the same may succeed on a new connection: connections, operators who stop the server,
#: transactions that were rolled back because of others.
_PASSING = ("08", "57", "40")
#: What the library raises of a connection that was lost beforehand, or in the middle of its own work.
_LOST = frozenset({"InterfaceError", "InternalClientError", "ProtocolError"})
#: Too many connections.
_FULL = "53300"
#: Every statement finds its rows by an index; a plan that was made while the table was small would read all of it.
_SETTINGS = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    # Where there is no index, that makes a plan look so dear that the server would compile it, for half a second.
    "jit": "off",
    # Seconds until the server lets go of the locks of a machine that is gone, if it dies without a word.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
#: Seconds between two tries to connect.
_PAUSE = 0.05
#: Seconds after which the server ends a statement that its client has given up: behind a table that somebody has locked
#: one after the other would wait there, until there are no connections left for anybody.
_GRACE = 1.0


class Database(Protocol):
    """Runs statements; also a transaction of a journal that is kept elsewhere does."""

    async def fetch(self, query: str, *args: object) -> list[Any]:
        """Run a statement, and return its rows."""
        ...

    async def executemany(self, command: str, args: Iterable[Values]) -> None:
        """Run one statement for each of *args*, all or none."""
        ...


class Connection(Database, Protocol):
    """What this package uses of `asyncpg.Connection`."""

    async def execute(self, query: str, *args: object) -> str:
        """Run statements, and return what the server says of the last."""
        ...

    async def fetchval(self, query: str, *args: object) -> object:
        """Run a statement, and return the first value of its first row."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Commit at the end, or roll back."""
        ...

    async def close(self) -> None:
        """Say goodbye, and close it."""
        ...

    def terminate(self) -> None:
        """Close it at once."""
        ...


class ForeignTableError(Exception):
    """A table is another program's, or of another version of this one: it stays so on every connection."""


class Table(Struct, frozen=True):
    """A table of this package."""

    name: str
    version: str
    """What its comment says: whose it is, and of which version."""
    statements: tuple[str, ...]
    """Make it."""
    is_durable: bool = True
    """Whether a commit has to be on the disk."""

    async def prepare(self, connection: Connection) -> None:
        """Make it unless it is there.

        Raises:
            ForeignTableError: It cannot be used.
        """
        comment = "SELECT coalesce(obj_description(to_regclass($1), 'pg_class'), '') WHERE to_regclass($1) IS NOT NULL"
        found = await connection.fetchval(comment, self.name)
        if found != self.version:
            # Two that create it at once would collide in the catalog, and who looks on can see a table without its
            # comment. The lock comes before the transaction: inside of one, a server does not see what another has
            # just created.
            await connection.execute("SELECT pg_advisory_lock(hashtext($1))", self.name)
            async with connection.transaction():
                if (found := await connection.fetchval(comment, self.name)) is None:
                    for statement in (*self.statements, f"COMMENT ON TABLE {self.name} IS '{self.version}'"):
                        await connection.execute(statement)
                    found = self.version
            await connection.execute("SELECT pg_advisory_unlock(hashtext($1))", self.name)
        if found != self.version:
            whose = found or "of another program"
            raise ForeignTableError(f"the table {self.name} is {whose!r}, not {self.version!r}")


class Postgres(Struct, frozen=True):
    """Where a server is, and how to connect to it.

    Raises:
        RequestInvalid: *dsn* is no address of PostgreSQL, or *timeout* is not above 0 and at most a day.
    """

    dsn: str
    """``postgresql://user:password@host:port/database``. It is never shown."""
    timeout: float
    """Seconds that a piece of work may take, with all new connections that it needs."""

    def __post_init__(self) -> None:
        if not is_dsn(self.dsn):
            raise RequestInvalid("dsn", "must be postgresql://user:password@host:port/database")
        structs.force_setattr(self, "dsn", masked(self.dsn))
        structs.force_setattr(self, "timeout", float(check_seconds("timeout", self.timeout)))

    async def connect(self, table: Table, *, longest: float | None = None) -> Connection:
        """Return a new connection on which *table* can be used.

        Args:
            table: It is made if it is missing.
            longest: Seconds that a statement may take; by default those of a piece of work.

        Raises:
            ImportError: asyncpg is not installed; the message says how to get it.
            ForeignTableError: The table is another program's.
        """
        try:
            library = import_module("asyncpg")
        except ImportError:
            raise tellable(ImportError(f"PostgreSQL needs asyncpg: {install_extra('postgres')}")) from None
        connect: Callable[..., Awaitable[Connection]] = library.connect
        # `str`: the library hands it to the parser of the standard library.
        name = {"application_name": "paymentsdk"}
        connection = await connect(str.__str__(self.dsn), timeout=self.timeout, server_settings=name)
        settings = _SETTINGS | {"statement_timeout": f"{1000 * ((longest or self.timeout) + _GRACE):.0f}"}
        try:
            # Not as the connection is made: PgBouncer rejects there what it does not know.
            chosen = (f"set_config('{name}', '{value}', false)" for name, value in settings.items())
            commit = await connection.fetchval(f"SELECT current_setting('synchronous_commit'), {', '.join(chosen)}")
            if not table.is_durable or commit == "off":
                await connection.execute(f"SET synchronous_commit = {'on' if table.is_durable else 'off'}")
            await table.prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection


class _Job(HiddenRepr, Struct, Generic[A, B], eq=False):
    """A piece of work that waits."""

    item: A
    future: asyncio.Future[B]
    end: float
    """Until when, by the clock of the loop: however long others had the connection before."""


class Lane(HiddenRepr, Struct, Generic[A, B], eq=False):
    """A connection, and what waits for it: it is done together. It is made when it is needed, and anew after a loss."""

    server: Postgres
    """Where to connect to."""
    table: Table
    """What is used there."""
    run: Callable[[Connection, Sequence[A]], Awaitable[Sequence[B | Exception]]]
    """Does a number of items at once, and returns one result for each, or its own error. After a connection was lost it
    is called again, with what it may have done already."""
    unavailable: Callable[[str], Exception]
    """Makes the error of work that the database could not do."""
    most: int = 1000
    """Items that are done together at most."""
    idle: float | None = None
    """Seconds without work after which the connection is closed, if nobody has to close it."""
    connection: Connection | None = None
    waiting: list[_Job[A, B]] = []
    failed: Exception | None = None
    """Why the work before could not be done: in the end only the time runs out; what came first says why."""
    task: asyncio.Task[None] | None = None
    rest: asyncio.TimerHandle | None = None
    """Closes the connection when it has been idle."""
    end: AsyncGenerator[None, None] | None = None
    """Closes it when the event loop ends, whoever had to close it."""
    has_ended: bool = False
    """Whether the loop ends: a connection that is made now is closed by nobody."""

    def do(self, item: A) -> asyncio.Future[B]:
        """Return what gets the result of *item*, which is done also if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[B] = loop.create_future()
        self.waiting.append(_Job(item, future, loop.time() + self.server.timeout))
        if self.task is None:
            self._stir()
            task = asyncio.create_task(self._work())
            self.task = None if task.done() else task  # A loop may run it at once.
        return future

    async def aclose(self) -> None:
        """Wait for what is to be done, and close the connection."""
        if self.task is not None:
            await asyncio.wait((self.task,))
        self._stir()
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Exception):  # It is closed all the same: at once, where the server does not say goodbye.
                async with asyncio.timeout(self.server.timeout):
                    await connection.close()
        if self.end is not None and not self.has_ended:  # What the loop ends last cannot wait for it any more.
            end, self.end = self.end, None
            await end.aclose()

    def _stir(self) -> None:
        """Keep the connection, however long it has been idle."""
        if self.rest is not None:
            self.rest.cancel()
            self.rest = None

    def _drop(self) -> None:
        """Close the connection at once."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        """Wait for the event loop to end, which closes the generators that it has begun."""
        try:
            yield
        finally:
            if self.end is not None:
                self.has_ended = True
                await self.aclose()

    async def _work(self) -> None:
        try:
            if self.end is None:
                self.end = self._until_the_end()
                await anext(self.end)  # Which does not wait.
            while self.waiting:
                jobs, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
                await self._together(jobs)
        finally:
            self.task = None
            if self.idle is not None:
                self.rest = asyncio.get_running_loop().call_later(self.idle, self._drop)

    async def _together(self, jobs: Sequence[_Job[A, B]]) -> None:
        """Do *jobs*; those that may succeed on a new connection, and have time left, wait for their turn once more."""
        again: Sequence[_Job[A, B]] = ()
        try:
            results = await self.attempt([job.item for job in jobs], jobs[0].end)
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            failure = error
        else:
            self.failed = None
            for job, result in zip(jobs, results, strict=True):
                if isinstance(result, Exception):
                    _fail(job, result)
                elif not job.future.done():
                    job.future.set_result(result)
            return
        if is_passing(failure):
            failure = self.failed = (self.failed if isinstance(failure, TimeoutError) else None) or failure
            soon = asyncio.get_running_loop().time() + _PAUSE
            again, jobs = [job for job in jobs if job.end > soon], [job for job in jobs if job.end <= soon]
            self.waiting[:0] = again
        elif is_of_values(failure) and len(jobs) > 1:
            # Of one of them: the others have not failed.
            for job in jobs:
                await self._together([job])
            return
        for job in jobs:
            # Each its own, outside of the handler: the library's error has values in its frames.
            _fail(job, self.unavailable(reason_of(failure)) if is_error(failure) else failure)
        if again:
            await asyncio.sleep(_PAUSE)

    async def attempt(self, items: Sequence[A], end: float) -> Sequence[B | Exception]:
        """Do *items* until *end*, by the clock of the loop."""
        if asyncio.get_running_loop().time() >= end:
            raise TimeoutError  # The connection, which others may have been using all the time, is left alone.
        try:
            async with asyncio.timeout_at(end):
                if self.connection is None:
                    self.connection = await self.server.connect(self.table)
                return await self.run(self.connection, items)
        except BaseException as error:
            if not isinstance(error, Exception) or is_error(error):
                self._drop()
            raise


def _fail(job: _Job[A, B], error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)


async def do_each(connection: Connection, works: Sequence[Callable[[Connection], Awaitable[T]]]) -> list[T]:
    """Do *works*, one after the other."""
    return [await work(connection) for work in works]


def reason_of(error: Exception) -> str:
    """Return what *error* says in its first line: what follows may be the row that the server has rejected.

    Of a value that was rejected, that line goes on with the value, which may hold a token.
    """
    why = str(error).partition("\n")[0]
    if is_of_values(error):
        why = why.partition(":")[0]
    return visible(why or f"{type(error).__name__}: it took too long")


def is_dsn(text: object) -> TypeGuard[str]:
    """Whether *text* is the address of a PostgreSQL server."""
    return isinstance(text, str) and text.startswith(("postgresql://", "postgres://"))


def is_passing(error: BaseException) -> bool:
    """Whether the same may succeed on a new connection; what was committed before *error* is not known."""
    if isinstance(error, OSError | TimeoutError | asyncio.IncompleteReadError):
        return True
    state = _state(error)
    return state.startswith(_PASSING) or state == _FULL or type(error).__name__ in _LOST


def is_of_values(error: BaseException) -> bool:
    """Whether a value of one row was rejected, such as a text with a NUL: other rows have not failed."""
    return _state(error).startswith("22") or isinstance(error, UnicodeEncodeError)


def is_error(error: BaseException) -> bool:
    """Whether *error* comes of the database."""
    return is_passing(error) or bool(_state(error)) or isinstance(error, ImportError | ForeignTableError)


def _state(error: BaseException) -> str:
    """Return the SQLSTATE of an error of asyncpg; it is of no class that can be named without importing it."""
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""
