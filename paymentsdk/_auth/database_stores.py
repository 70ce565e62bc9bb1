"""Token pairs of many sellers in one database: a SQLite file, or PostgreSQL for any number of machines."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import cache
from hashlib import sha256
from typing import TypeVar, cast

import msgspec
from msgspec import structs

from paymentsdk._auth.token_store import LONGEST_LOCK, LOOK_AGAIN, TokenPair, check_pair, file_lock
from paymentsdk._database import Connection, Driver, Kind, Row, is_of_database, reason_of, shared
from paymentsdk._postgres import Postgres, Table
from paymentsdk._secrets import masked
from paymentsdk._sqlite import SQLite
from paymentsdk._validate import Seal, check_path, check_seals
from paymentsdk.errors import RequestInvalid, tellable

T = TypeVar("T")

_LOAD = "SELECT pair FROM paymentsdk_token WHERE name = %s"
_NAMES = "SELECT name FROM paymentsdk_token WHERE pair IS NOT NULL"
_SAVE = (
    "INSERT INTO paymentsdk_token (name, pair) VALUES (%s, %s) "
    "ON CONFLICT (name) DO UPDATE SET pair = excluded.pair, refresh_began = NULL, refresh_of = NULL"
)
#: It changes the row each time: SQLite does not write a row that stays the same.
_PREPARE = (
    "INSERT INTO paymentsdk_token (name, refresh_began) VALUES (%s, {now}) "
    "ON CONFLICT (name) DO UPDATE SET refresh_began = excluded.refresh_began"
)
#: The key includes this table, since another schema has its own sellers.
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 'paymentsdk_token'::regclass::oid::int8))"
_COLUMNS = "paymentsdk_token (name text PRIMARY KEY, pair {bytes}, refresh_began {seconds}, refresh_of text)"
_FILE_TABLE = f"CREATE TABLE IF NOT EXISTS {_COLUMNS.format(bytes='BLOB', seconds='REAL')} STRICT"
_SERVER_TABLE = f"CREATE TABLE {_COLUMNS.format(bytes='bytea', seconds='float8')}"
#: The most refreshes of one process that hold a PostgreSQL connection at once: many servers allow a hundred
#: connections.
_MOST_LOCKS = 8
#: Seconds after which an unused connection is closed: a pair lives for months.
IDLE = 10.0


class _DatabaseTokenStore:
    """One row of a table of pairs."""

    __slots__ = ("_driver", "_name", "_seal", "_unseal")

    def __init__(self, driver: Driver, name: str, seal: Seal | None, unseal: Seal | None) -> None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise RequestInvalid("name", "must be a string that is not empty")
        check_seals(seal, unseal)
        self._driver = driver
        self._name = name
        self._seal = seal
        self._unseal = unseal

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={getattr(self, '_name', None)!r})"

    def _run(self, statement: str, *values: object, kind: Kind = Kind.WRITES) -> Awaitable[list[Row]]:
        """Run one durable statement on the connection that all stores of the database share."""
        return shared(self._driver, _unavailable, IDLE).run(lambda lane: lane.fetch(statement, *values), kind)

    async def load(self) -> TokenPair | None:
        """See `TokenStore.load`."""
        rows = await self._run(_LOAD, self._name, kind=Kind.READS)
        if not rows or rows[0][0] is None:
            return None
        content = masked(bytes(rows[0][0]))
        return msgspec.json.decode(content if self._unseal is None else self._unseal(content), type=TokenPair)

    async def names(self) -> list[str]:
        """Return the sorted names of all sellers with a pair in the database."""
        return sorted(str(name) for (name,) in await self._run(_NAMES, kind=Kind.READS))

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore.save`."""
        pair = masked(pair)
        check_pair(pair)
        content = masked(msgspec.json.encode(pair))
        await self._run(_SAVE, self._name, content if self._seal is None else self._seal(content))

    async def prepare(self) -> None:
        """See `PreparingTokenStore.prepare`."""
        await self._run(_PREPARE, self._name)


class SQLiteTokenStore(_DatabaseTokenStore):
    """Keeps the pair of one seller in a SQLite file with the pairs of all sellers, for the processes of one machine.

    Only the owner can read the file (mode 0600). Processes that share it refresh a seller's pair one after the other,
    and use the pair that another process has saved. They lock an empty file in a folder named like the file with
    ``-locks`` appended. No refresh begins if the file cannot be written.

    Args:
        path: The file, on a local disk. It is made if it is missing, but its folder is not. Use one file for all
            sellers.
        name: The name of the seller.
        seal: Encrypts the pair. By default the pair is not encrypted.
        unseal: Decrypts what *seal* has encrypted.

    Raises:
        RequestInvalid: *name* is not a string, or is empty.
    """

    __slots__ = ("_path",)

    def __init__(
        self, path: str | os.PathLike[str], name: str, *, seal: Seal | None = None, unseal: Seal | None = None
    ) -> None:
        self._path = check_path("path", path)
        settings = ("synchronous = FULL", "secure_delete = ON")
        super().__init__(
            SQLite(path=self._path, table="paymentsdk_token", create=(_FILE_TABLE,), settings=settings),
            name,
            seal,
            unseal,
        )

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """See `LockingTokenStore.lock`. A process that dies releases its lock.

        Raises:
            TimeoutError: Another process has held the lock for two minutes.
        """
        folder = self._path.with_name(f"{self._path.name}-locks")
        folder.mkdir(mode=0o700, exist_ok=True)
        async with file_lock(str(folder / sha256(self._name.encode()).hexdigest()[:32])):
            yield


class PostgresTokenStore(_DatabaseTokenStore):
    """Keeps the pair of one seller in PostgreSQL, for any number of machines; it needs the extra ``postgres``.

    It makes its table, ``paymentsdk_token``, in the first schema of the search path. Processes that share it refresh a
    seller's pair one after the other, with an advisory lock, and use the pair that another process has saved. A process
    that dies releases the lock. No refresh begins if the lock was lost or the table cannot be written. All stores of a
    process for one server share a connection. It is opened again if it was lost, and closed after ten unused seconds. A
    refresh holds a second connection, up to eight at once. PgBouncer works, also in transaction mode.

    Args:
        dsn: ``postgresql://user:password@host:port/database``. It is never shown.
        name: The name of the seller.
        seal: Encrypts the pair. By default the pair is not encrypted.
        unseal: Decrypts what *seal* has encrypted.
        timeout: The most seconds for one statement, including a new connection.

    Raises:
        RequestInvalid: *name* is not a string or is empty, *dsn* is not a PostgreSQL address, or *timeout* is not above
            0 and at most a day.
    """

    __slots__ = ("_held", "_server")

    def __init__(
        self, dsn: str, name: str, *, seal: Seal | None = None, unseal: Seal | None = None, timeout: float = 10.0
    ) -> None:
        table = Table("paymentsdk_token", "paymentsdk tokens 1", (_SERVER_TABLE,))
        self._server = Postgres(dsn=dsn, timeout=timeout, table=table)
        super().__init__(self._server, name, seal, unseal)
        #: While the lock is held, `prepare` uses its connection, and fails with it.
        self._held: _Lock | None = None

    async def prepare(self) -> None:
        """See `PreparingTokenStore.prepare`."""
        if self._held is None:
            return await super().prepare()
        return await self._held.run(self._held.write)

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """See `LockingTokenStore.lock`. A process that dies releases its lock.

        Raises:
            TimeoutError: Another process has held the lock for two minutes.
        """
        lock = _Lock(self._server, self._name)
        try:
            async with asyncio.timeout(LONGEST_LOCK):
                while not await lock.run(lock.acquire):  # noqa: ASYNC110 - another process sets no event
                    await asyncio.sleep(LOOK_AGAIN)
            self._held = lock
            yield
        finally:
            if self._held is lock:  # Another task may hold its own lock through this store.
                self._held = None
            lock.release()


class _Lock:
    """The lock of one seller: an open transaction with its own connection and its own thread."""

    def __init__(self, server: Postgres, name: str) -> None:
        self._server = server
        self._name = name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="paymentsdk-lock")
        self._turns = _turns(os.getpid())
        self._has_turn = False
        self._connection: Connection | None = None

    async def run(self, step: Callable[[], T]) -> T:
        """Run *step* in the thread.

        Raises:
            ConnectionError: The server did not do it.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, step)
        except Exception as error:
            if isinstance(error, TimeoutError) or not is_of_database(error):
                raise
            reason = reason_of(error)
        raise _unavailable(f"PostgreSQL: {reason}")

    def acquire(self) -> bool:
        """Try to take the lock, and return whether it is held."""
        self._has_turn = self._has_turn or self._turns.acquire(blocking=False)
        if not self._has_turn:
            return False
        deadline = time.monotonic() + self._server.timeout
        if self._connection is None:
            self._connection = structs.replace(self._server, timeout=LONGEST_LOCK).connect(deadline)
        self._connection.begin(Kind.WRITES, deadline)
        [(is_held,)] = self._connection.fetch(_LOCK, self._name)
        if not is_held:
            self._connection.commit()
        return bool(is_held)

    def write(self) -> None:
        """Write the row and undo it: without the lock, or without write access, the refresh token must not be spent."""
        connection = cast("Connection", self._connection)
        connection.begin(Kind.STATEMENT, time.monotonic() + self._server.timeout)
        for statement, *values in (("SAVEPOINT written",), (_PREPARE, self._name), ("ROLLBACK TO written",)):
            connection.fetch(statement, *values)

    def release(self) -> None:
        """Release the lock after the thread's other work, without waiting for that."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # If the connection was lost, the lock is released already.
                self._connection.commit()
            self._connection.close()
        if self._has_turn:
            self._turns.release()


def _unavailable(reason: str) -> ConnectionError:
    return tellable(ConnectionError(reason))


@cache
def _turns(process: int) -> threading.Semaphore:  # noqa: ARG001 - each process has its own
    """Return the semaphore for the locks of a process; a forked child holds none of its parent's locks."""
    return threading.Semaphore(_MOST_LOCKS)
