"""Token pairs of many sellers in one database: a file of SQLite, or PostgreSQL for any number of machines."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from hashlib import sha256
from typing import TypeAlias, TypeVar, cast

import msgspec

from paymentsdk._auth.token_store import (
    LONGEST_LOCK,
    TokenPair,
    check_pair,
    file_lock,
)
from paymentsdk._files import make_private
from paymentsdk._postgres import Connection, Lane, Postgres, Table, do_each, is_error, reason_of
from paymentsdk._secrets import masked
from paymentsdk._validate import Seal, check_path, check_seals
from paymentsdk.errors import RequestInvalid, tellable

T = TypeVar("T")
Row: TypeAlias = Sequence[object]

#: Both databases take these: SQLite has `$1` for a name.
_LOAD = "SELECT pair FROM paymentsdk_token WHERE name = $1"
_SAVE = (
    "INSERT INTO paymentsdk_token (name, pair) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET pair = excluded.pair, refresh_began = NULL, refresh_of = NULL"
)
#: It changes the row each time: SQLite does not write a row that stays as it is.
_PREPARE = (
    "INSERT INTO paymentsdk_token (name, refresh_began) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET refresh_began = excluded.refresh_began"
)
#: Of this table: another schema has sellers of its own.
_LOCK = "SELECT pg_advisory_lock(hashtextextended($1, 'paymentsdk_token'::regclass::oid::int8))"
#: With the types of bytes and of seconds.
_CREATE = "paymentsdk_token (name text PRIMARY KEY, pair {}, refresh_began {}, refresh_of text)"
_TABLE = Table("paymentsdk_token", "paymentsdk tokens 1", (f"CREATE TABLE {_CREATE.format('bytea', 'float8')}",))
#: Seconds to wait for another process that writes.
_BUSY = 5.0
#: Refreshes of one process that hold a connection to PostgreSQL at once: a server has a hundred, as a rule.
_MOST_LOCKS = 8
#: Seconds after which a connection to PostgreSQL is closed that nobody uses: a pair lives for months.
IDLE = 10.0


class _DatabaseTokenStore(ABC):
    """One row of a table of pairs."""

    __slots__ = ("_name", "_seal", "_unseal")

    def __init__(self, name: str, seal: Seal | None, unseal: Seal | None) -> None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise RequestInvalid("name", "must be a string that is not empty")
        check_seals(seal, unseal)
        self._name = name
        self._seal = seal
        self._unseal = unseal

    @abstractmethod
    async def _run(self, statement: str, *values: object) -> Sequence[Row]:
        """Run one statement, durable when it returns."""

    @abstractmethod
    def _lock(self) -> AbstractAsyncContextManager[None]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={getattr(self, '_name', None)!r})"

    async def load(self) -> TokenPair | None:
        """See `TokenStore.load`."""
        rows = await self._run(_LOAD, self._name)
        if not rows or rows[0][0] is None:
            return None
        content = masked(cast("bytes", rows[0][0]))
        return msgspec.json.decode(content if self._unseal is None else self._unseal(content), type=TokenPair)

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore.save`."""
        pair = masked(pair)
        check_pair(pair)
        content = masked(msgspec.json.encode(pair))
        await self._run(_SAVE, self._name, content if self._seal is None else self._seal(content))

    def lock(self) -> AbstractAsyncContextManager[None]:
        """See `LockingTokenStore.lock`. A process that dies releases its lock.

        Raises:
            TimeoutError: Another process has held it for two minutes.
        """
        return self._lock()

    async def prepare(self) -> None:
        """See `PreparingTokenStore.prepare`."""
        await self._run(_PREPARE, self._name, time.time())


class SQLiteTokenStore(_DatabaseTokenStore):
    """Keeps the pair of one seller in a SQLite file that has those of all, for the processes of one machine.

    The file is made for its owner alone (mode 0600). Processes that share it renew the pair of a seller one after the
    other, and take over a pair that another one has saved: they lock an empty file in the folder named like the file
    with ``-locks`` appended. No refresh begins if the file cannot be written.

    Args:
        path: The file, on a local disk; it is made if it is missing, its folder is not. Of all sellers the same.
        name: Of the seller.
        seal: Encrypts the pair; without it, it is kept as it is.
        unseal: Undoes *seal*.

    Raises:
        RequestInvalid: *name* is empty or no text.
    """

    __slots__ = ("_path",)

    def __init__(
        self, path: str | os.PathLike[str], name: str, *, seal: Seal | None = None, unseal: Seal | None = None
    ) -> None:
        super().__init__(name, seal, unseal)
        self._path = check_path("path", path)

    async def _run(self, statement: str, *values: object) -> Sequence[Row]:
        # Named as the statements name them, from 1 on.
        given = {str(place): value for place, value in enumerate(values, 1)}
        return await asyncio.to_thread(self._execute, statement, given)

    def _execute(self, statement: str, values: dict[str, object]) -> Sequence[Row]:
        """Open the file, and run a statement: a connection must not outlive a fork."""
        try:
            make_private(self._path)
            with closing(sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = FULL")
                database.execute("PRAGMA secure_delete = ON").fetchall()
                database.execute(f"CREATE TABLE IF NOT EXISTS {_CREATE.format('BLOB', 'REAL')} STRICT")
                return database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            error.args = (f"{self._path}: {error}",)
            tellable(error)  # No statement has a value in it.
            raise

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[None]:
        folder = self._path.with_name(f"{self._path.name}-locks")
        folder.mkdir(mode=0o700, exist_ok=True)
        async with file_lock(str(folder / sha256(self._name.encode()).hexdigest()[:32])):
            yield


class PostgresTokenStore(_DatabaseTokenStore):
    """Keeps the pair of one seller in PostgreSQL, for any number of machines; it needs the extra ``postgres``.

    It makes its table, ``paymentsdk_token``, in the first schema of the search path. Processes that share it renew the
    pair of a seller one after the other, by an advisory lock, and take over a pair that another one has saved. A
    process that dies lets go of the lock, unless a child lives that it forked during the refresh. No refresh begins if
    the lock was lost or the table cannot be written. All stores of an event loop for one server
    share a connection, which is made anew after it was lost, and closed when nobody has used it for ten seconds, or
    when the loop ends. Beside it a refresh takes one for as long as it lasts, up to eight at once.

    Args:
        dsn: ``postgresql://user:password@host:port/database``. It is never shown.
        name: Of the seller.
        seal: Encrypts the pair; without it, it is kept as it is.
        unseal: Undoes *seal*.
        timeout: Seconds that one statement may take, new connections included.

    Raises:
        RequestInvalid: *name* is empty or no text, *dsn* is no address of PostgreSQL, or *timeout* is not above 0 and
            at most a day.
    """

    __slots__ = ("_locked", "_server")

    def __init__(
        self, dsn: str, name: str, *, seal: Seal | None = None, unseal: Seal | None = None, timeout: float = 10.0
    ) -> None:
        self._server = Postgres(dsn, timeout)
        super().__init__(name, seal, unseal)
        #: Has the lock: while it is held, `prepare` writes there, and fails with it.
        self._locked: Connection | None = None

    async def _run(self, statement: str, *values: object) -> Sequence[Row]:
        if statement is _PREPARE and self._locked is not None:
            # Whoever has lost the lock must not spend the refresh token.
            async with asyncio.timeout(self._server.timeout):
                return await _told(self._locked.fetch(statement, *values))
        return await _shared(self._server).lane.do(lambda connection: connection.fetch(statement, *values))

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[None]:
        async with asyncio.timeout(LONGEST_LOCK) as end, _shared(self._server).locks:
            connection = await _told(self._server.connect(_TABLE, longest=LONGEST_LOCK))
            try:
                await _told(connection.execute(_LOCK, self._name))
                end.reschedule(None)
                self._locked = connection
                yield
            finally:
                if self._locked is connection:  # And not that of another task, which waits no longer.
                    self._locked = None
                connection.terminate()


class _Shared:
    """What all stores of an event loop use of one server: the connection for statements, and the turns of refreshes."""

    def __init__(self, server: Postgres) -> None:
        self.locks: asyncio.Semaphore = asyncio.Semaphore(_MOST_LOCKS)
        self.lane: Lane[Callable[[Connection], Awaitable[Sequence[Row]]], Sequence[Row]] = Lane(
            server, _TABLE, do_each, _not_done, most=1, idle=IDLE
        )


#: A process that was forked has none of those of its parent.
_SHARED: dict[tuple[int, asyncio.AbstractEventLoop, Postgres], _Shared] = {}


def _shared(server: Postgres) -> _Shared:
    """Return what the stores of this event loop share."""
    key = os.getpid(), asyncio.get_running_loop(), server
    if (known := _SHARED.get(key)) is not None:
        return known
    for other in tuple(_SHARED):  # Other threads have loops of their own, which begin and end meanwhile.
        if other[1].is_closed():
            _SHARED.pop(other, None)
    made = _SHARED[key] = _Shared(server)
    return made


def _not_done(why: str) -> ConnectionError:
    return tellable(ConnectionError(f"PostgreSQL: {why}"))


async def _told(work: Awaitable[T]) -> T:
    """Return what *work* returns.

    Raises:
        ConnectionError: The server did not do it. The error of the library has values of tokens in its frames.
    """
    try:
        return await work
    except Exception as error:
        if isinstance(error, TimeoutError | ImportError) or not is_error(error):
            raise
        why = reason_of(error)
    raise _not_done(why)
