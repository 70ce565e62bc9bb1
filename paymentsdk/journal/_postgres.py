"""A journal in PostgreSQL, for the processes of any number of machines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, cast

from msgspec import structs

from paymentsdk._postgres import Connection, Lane, Postgres, Table, Values, do_each
from paymentsdk._validate import Seal
from paymentsdk.errors import JournalUnavailable
from paymentsdk.journal import _states as states
from paymentsdk.journal._states import Record, RecordState
from paymentsdk.journal._table import CODES, SCHEMA, TableJournal, Transaction, Work, checked, id_of, response_column

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
#: With the store time.
_READ = """
SELECT *, coalesce($2::float8, extract(epoch FROM clock_timestamp())::float8) AS now FROM paymentsdk_record
WHERE id = $1
"""


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
        seal: Encrypts bodies that hold credentials of a payer, and the headers that belong to them, such as the session
            id. Without it neither is kept: recovery cannot send that record, only a caller that brings the same request
            again. The server keeps old versions of a row in its
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
        super().__init__(seal, unseal)
        self._server = Postgres(dsn, timeout)
        self._now = now
        self._connect_anew()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _connect_anew(self) -> None:
        """Make new connections when they are needed."""
        #: New rows and settled ones are each collected, and written together on a connection of their own.
        self._inserts = Lane(self._server, TABLE, self._insert_all, _unavailable)
        self._settles = Lane(self._server, TABLE, self._settle_all, _unavailable)
        self._works: Lane[Callable[[Connection], Awaitable[Any]], Any] = Lane(
            self._server, TABLE, do_each, _unavailable, most=1
        )

    async def aclose(self) -> None:
        """See `Journal.aclose`."""
        self._closed = True
        if self._process == os.getpid() and self._loop is asyncio.get_running_loop():
            for lane in (self._inserts, self._settles, self._works):
                await lane.aclose()

    def _check(self) -> None:
        super()._check()
        if self._loop is (loop := asyncio.get_running_loop()):
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                raise JournalUnavailable("it belongs to another event loop: open one in each")
            self._connect_anew()
        self._loop = loop

    def _time(self) -> float | None:
        return None if self._now is None else self._now()

    def _insert(self, record: Record, lease: float) -> Awaitable[Record | None]:
        self._check()
        return self._inserts.do((self._codec.values(structs.replace(record, lease_until=lease)), record, lease))

    def _settle(self, held: Record, row: Record, otherwise: Work[Record]) -> Awaitable[Record]:
        self._check()
        state, response = CODES[row.state], response_column(row)
        values = (id_of(row.key), held.owner, CODES[held.state], state, row.reason, response)
        return self._settles.do((values, row, otherwise))

    def _transact(self, work: Work[T], *, reads: bool = False) -> Awaitable[T]:
        self._check()
        return self._works.do(partial(self._run if reads else self._transacted, work))

    async def _transacted(self, work: Work[T], connection: Connection) -> T:
        async with connection.transaction():
            return await self._run(work, connection)

    async def _run(self, work: Work[T], connection: Connection) -> T:
        return await work(Transaction(connection, self._codec, partial(self._store_time, connection)))

    async def _store_time(self, connection: Connection) -> float:
        return cast("float", await connection.fetchval(_NOW, self._time()))

    async def _read(self, key: str) -> tuple[Record | None, float]:
        self._check()
        for row in await self._works.do(lambda server: server.fetch(_READ, id_of(key), self._time())):
            return checked(self._codec.record(row), (key,)), row["now"]
        return None, 0.0

    async def _insert_all(
        self, connection: Connection, new: Sequence[tuple[Values, Record, float]]
    ) -> list[Record | None]:
        written = in_order([values for values, _, _ in new])
        kept: dict[object, float] = dict(await connection.fetch(INSERT, self._time(), written))
        # Of two with one key the first was kept.
        times = (kept.pop(values[0], None) for values, _, _ in new)
        return [
            None if now is None else states.begin_record(None, row, now=now, lease=lease)[1]
            for (_, row, lease), now in zip(new, times, strict=True)
        ]

    async def _settle_all(
        self, connection: Connection, those: Sequence[tuple[Values, Record, Work[Record]]]
    ) -> list[Record | Exception]:
        rows = in_order([values for values, _, _ in those])
        lazy = all(row.state is RecordState.DONE and row.keyed for _, row, _ in those)
        found = await connection.fetch(SETTLE, self._time(), lazy, *zip(*rows, strict=True))
        times = {(number, owner): now for number, owner, now in found}
        results: list[Record | Exception] = []
        for (number, owner, *_), row, otherwise in those:
            now = times.get((number, owner))
            try:
                again = self._transacted(otherwise, connection) if now is None else None
                results.append(structs.replace(row, updated=now) if again is None else await again)
            except (LookupError, JournalUnavailable) as error:
                results.append(error)  # Of this row alone.
        return results
