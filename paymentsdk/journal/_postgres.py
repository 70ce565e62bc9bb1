"""A journal in PostgreSQL, for the processes of any number of machines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from paymentsdk._postgres import Connection, Lane, Postgres, Table, Values, do_each
from paymentsdk._validate import Seal
from paymentsdk.errors import JournalUnavailable
from paymentsdk.journal import _states as states
from paymentsdk.journal._states import Record, RecordState
from paymentsdk.journal._table import (
    CODES,
    SCHEMA,
    Codec,
    Columns,
    TableJournal,
    Work,
    id_of,
    response_column,
)

T = TypeVar("T")

_CREATE = """
CREATE TABLE paymentsdk_record (
    id bigint PRIMARY KEY, key text NOT NULL, seller text NOT NULL, state smallint NOT NULL, owner text NOT NULL,
    lease_until float8 NOT NULL, begun float8 NOT NULL, updated float8 NOT NULL, digest bytea NOT NULL,
    fixed bytea NOT NULL, headers bytea, body bytea, sealed smallint NOT NULL, reason text NOT NULL, response bytea
)
"""
_INDEX = "CREATE INDEX paymentsdk_record_open ON paymentsdk_record (seller, begun) WHERE state < 4"
TABLE = Table("paymentsdk_record", f"paymentsdk journal {SCHEMA}", (_CREATE, _INDEX))
#: The store time: that of the database, unless the journal was given a clock.
_NOW = "SELECT coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8)"
#: Of new rows, each with its lease in place of its end.
INSERT = """
INSERT INTO paymentsdk_record
SELECT id, key, seller, state, owner, now + lease_until, begun, now, digest, fixed, headers, body, sealed, reason,
    response
FROM (SELECT coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8) AS now) AS clock,
    unnest($2::paymentsdk_record[])
ON CONFLICT (id) DO NOTHING RETURNING id, updated
"""
#: Of rows that are held. That all of them are done may wait for the disk: its loss costs a replay, of what has a key,
#: and those who begin wait for no flush but their own.
SETTLE = """
UPDATE paymentsdk_record AS row
SET state = new.state, owner = '', lease_until = 0, updated = now, reason = new.reason, response = new.response
FROM (
    SELECT coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
    CASE WHEN $2 THEN set_config('synchronous_commit', 'off', true) END
) AS clock, unnest($3::bigint[], $4::text[], $5::smallint[], $6::smallint[], $7::text[], $8::bytea[])
AS new (id, owner, before, state, reason, response)
WHERE row.id = new.id AND row.owner = new.owner AND row.state = new.before RETURNING row.id, new.owner, updated
"""
#: With the store time, as a last column.
_READ = (
    "SELECT *, coalesce($2::float8, extract(epoch FROM clock_timestamp())::float8) FROM paymentsdk_record WHERE id = $1"
)
_LOAD = "SELECT * FROM paymentsdk_record WHERE id = $1 FOR UPDATE"
_CLAIM = """
SELECT * FROM paymentsdk_record
WHERE state < 4 AND seller = $1 AND (lease_until <= $2 OR owner = $3) AND body IS NOT NULL
ORDER BY begun LIMIT $4 FOR UPDATE SKIP LOCKED
"""
_LIST = "SELECT * FROM paymentsdk_record WHERE state = $1 ORDER BY begun LIMIT $2"
_REPLACE = """
UPDATE paymentsdk_record SET state = $1, owner = $2, lease_until = $3, begun = $4, updated = $5, fixed = $6,
headers = $7, body = $8, sealed = $9, reason = $10, response = $11 WHERE id = $12
"""
_PURGE = """
WITH purged AS (
    UPDATE paymentsdk_record SET headers = NULL, body = NULL, response = NULL WHERE state >= 4 AND begun < $1
    AND (headers IS NOT NULL OR body IS NOT NULL OR response IS NOT NULL) RETURNING id
) SELECT count(*) FROM purged
"""


class _Transaction:
    """The rows in one transaction."""

    def __init__(self, connection: Connection, codec: Codec, time: float | None) -> None:
        self._connection = connection
        self._codec = codec
        self._time = time

    async def now(self) -> float:
        """See `Transaction`."""
        return cast("float", await self._connection.fetchval(_NOW, self._time))

    async def load(self, key: str) -> Record | None:
        """See `Transaction`."""
        return next(iter(await self._select(_LOAD, id_of(key))), None)

    async def replace(self, rows: Sequence[Record]) -> None:
        """See `Transaction`."""
        written = [(*values[3:8], *values[9:], values[0]) for values in map(self._codec.values, rows)]
        await self._connection.executemany(_REPLACE, written)

    async def claimable(self, sellers: Sequence[str], owner: str, now: float, limit: int) -> list[Record]:
        """See `Transaction`."""
        return [row for seller in sellers for row in await self._select(_CLAIM, seller, now, owner, limit)]

    async def by_state(self, codes: Sequence[int], limit: int) -> list[Record]:
        """See `Transaction`."""
        return [row for code in codes for row in await self._select(_LIST, code, limit)]

    async def purge(self, before: float) -> int:
        """See `Transaction`."""
        return cast("int", await self._connection.fetchval(_PURGE, before))

    async def _select(self, statement: str, *values: object) -> list[Record]:
        rows = await self._connection.fetch(statement, *values)
        return [_record(self._codec, row) for row in rows]


def _record(codec: Codec, row: Values) -> Record:
    return codec.record(Columns._make(cast("tuple[object, ...]", row)))


class _New(Struct, frozen=True):
    """A row to insert."""

    values: Values
    record: Record
    lease: float


class _Settled(Struct, frozen=True):
    """What becomes of a row that is held."""

    values: Values
    row: Record
    otherwise: Work[Record]


class _Rows:
    """The table. New rows and settled ones are each collected, and written together on a connection of their own."""

    def __init__(self, server: Postgres, codec: Codec, now: Callable[[], float] | None) -> None:
        self._codec = codec
        self._now = now
        self._inserts = Lane(server, TABLE, self._insert, _unavailable)
        self._settles = Lane(server, TABLE, self._settle, _unavailable)
        self._works: Lane[Callable[[Connection], Awaitable[Any]], Any] = Lane(
            server, TABLE, do_each, _unavailable, most=1
        )
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def insert(self, record: Record, lease: float) -> Awaitable[Record | None]:
        """See `Rows`."""
        self._check()
        values = self._codec.values(structs.replace(record, lease_until=lease))
        return self._inserts.do(_New(values, record, lease))

    def settle(self, held: Record, row: Record, otherwise: Work[Record]) -> Awaitable[Record]:
        """See `Rows`."""
        self._check()
        state, response = CODES[row.state], response_column(row.response)
        values = (id_of(row.key), held.owner, CODES[held.state], state, row.reason, response)
        return self._settles.do(_Settled(values, row, otherwise))

    def read(self, key: str) -> Awaitable[tuple[Record | None, float]]:
        """See `Rows`."""
        self._check()

        async def found(connection: Connection) -> tuple[Record | None, float]:
            for *columns, now in await connection.fetch(_READ, id_of(key), self._time()):
                return _record(self._codec, columns), cast("float", now)
            return None, 0.0

        return self._works.do(found)

    def transact(self, work: Work[T]) -> Awaitable[T]:
        """See `Rows`."""
        self._check()
        return self._works.do(partial(self._transacted, work))

    async def aclose(self) -> None:
        """Wait for what is being written, and close the connections."""
        self._closed = True
        if self._process == os.getpid() and self._loop is asyncio.get_running_loop():
            for lane in (self._inserts, self._settles, self._works):
                await lane.aclose()

    def _check(self) -> None:
        """Look whether the connections may be used here.

        Raises:
            JournalUnavailable: The journal is closed, or belongs to another process or event loop.
        """
        if self._closed:
            raise JournalUnavailable("it is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._process != os.getpid() or self._loop is not loop:
            raise JournalUnavailable("it belongs to another process or event loop: open one in each")

    async def _transacted(self, work: Work[T], connection: Connection) -> T:
        async with connection.transaction():
            return await work(_Transaction(connection, self._codec, self._time()))

    async def _insert(self, connection: Connection, news: Sequence[_New]) -> list[Record | None]:
        found = await connection.fetch(INSERT, self._time(), in_order([new.values for new in news]))
        kept = dict(cast("list[tuple[object, float]]", found))
        # Of two with one key the first was kept.
        times = [kept.pop(new.values[0], None) for new in news]
        return [
            None if now is None else states.begin_record(None, new.record, now=now, lease=new.lease)[1]
            for new, now in zip(news, times, strict=True)
        ]

    async def _settle(self, connection: Connection, those: Sequence[_Settled]) -> list[Record | Exception]:
        rows = in_order([one.values for one in those])
        lazy = all(one.row.state is RecordState.DONE and one.row.keyed for one in those)
        found = await connection.fetch(SETTLE, self._time(), lazy, *zip(*rows, strict=True))
        times = {(number, owner): cast("float", now) for number, owner, now in found}
        written = [times.get((one.values[0], one.values[1])) for one in those]
        return [
            await self._settle_again(connection, one) if now is None else structs.replace(one.row, updated=now)
            for one, now in zip(those, written, strict=True)
        ]

    async def _settle_again(self, connection: Connection, one: _Settled) -> Record | Exception:
        try:
            return await self._transacted(one.otherwise, connection)
        except (LookupError, JournalUnavailable) as error:
            return error  # Of this row alone.

    def _time(self) -> float | None:
        return None if self._now is None else self._now()


def _unavailable(why: str) -> JournalUnavailable:
    return JournalUnavailable(f"PostgreSQL: {why}")


def in_order(rows: Sequence[Values]) -> list[Values]:
    """Return *rows* by their numbers: all processes lock them in one order, so that none waits in a circle."""
    return sorted(rows, key=itemgetter(0))


class PostgresJournal(TableJournal):
    """Keeps records in PostgreSQL, durable before they are sent; it needs the extra ``postgres``.

    Any number of processes on any number of machines may use one database. It makes its table, ``paymentsdk_record``,
    in the first schema of the search path. What waits is written together: up to three connections for each process.
    The leases count on the clock of the database.

    A connection that is lost is made anew, and what may have been committed is read back. Records are as durable as
    the server's commits: they outlive the loss of its machine only if a standby confirms each (synchronous
    replication). That a record is done may reach the disk up to a second later, if it has a key: a server that
    crashes before has it sent once more, with that key. Connect to the server itself, or to a pooler by session.

    Args:
        dsn: ``postgresql://user:password@host:port/database``. It is never shown.
        seal: Encrypts bodies that hold credentials of a payer. Without it such a body is not kept: recovery cannot send
            that record, only a caller that brings the same request again. The server keeps old versions of a row in its
            files and backups: only to discard the key of the seal wipes them.
        unseal: Undoes *seal*.
        timeout: Seconds that one piece of work may take, new connections included, before `JournalUnavailable`.
        now: The clock of the leases, in seconds since the epoch, in place of the database's; the same for all.

    Raises:
        RequestInvalid: *dsn* is no address of PostgreSQL, or *timeout* is not above 0 and at most a day.
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
        self._server_rows = _Rows(Postgres(dsn, timeout), Codec(seal, unseal), now)
        super().__init__(self._server_rows)

    async def aclose(self) -> None:
        """See `Journal.aclose`."""
        await self._server_rows.aclose()
