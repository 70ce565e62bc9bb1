"""A journaled call: `orders.create(..., once=name)` over a transport in memory, on both journals.

The engine is included, and so is what the caller does not wait for: that the record is done. *steps* counts per call
what is forced to the disk (SQLite) or sent to the server (PostgreSQL, a round trip each). The server is started here,
and forces each commit to the disk; without PostgreSQL on the machine, its rows are missing. *cpu_us* is that of this
whole process; the server's is not in it.

*to bar* and *CPU to bar* hold a row against what is promised, and are 1 or more where it holds: for one call at a time
steps (2.2 for SQLite, 2.5 for PostgreSQL), for 16 calls/s (5,000; of SQLite the lower of that and 0.8 x 16 / the time
of one forced write, measured on the same disk in the same round), for 128 calls/s (5,000 and 8,000); CPU per call (60
and 80 us).

*engine_us* is the same call without a journal, in the same round. *database_us* is what the standard library's sqlite3,
or asyncpg, takes by itself for the same statements with the same values in the same transactions: no journal on that
database can take less than both together.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from email.utils import formatdate
from functools import partial
from pathlib import Path
from unittest.mock import patch

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Trial
from paymentsdk import PaymentsClient, Request, Response, _postgres
from paymentsdk._postgres import Values
from paymentsdk.journal import Journal, PostgresJournal, SQLiteJournal, _sqlite
from paymentsdk.journal import _postgres as journal_postgres
from paymentsdk.testing import MemoryTransport
from tests import postgres

CALLS = {1: 150, 16: 2_000, 128: 4_000}
_REQUEST = payloads.order_request()
#: Values of a row that is settled.
_SETTLED = 6


def forced_write(folder: Path, times: int = 20) -> float:
    """Return the seconds that the disk takes to keep 4 KiB more, in the mean."""
    with (folder / "probe").open("ab", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(times):
            file.write(bytes(4096))
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / times


async def _make(client: PaymentsClient, numbers: Iterator[int], *, journaled: bool) -> None:
    for number in numbers:
        await client.orders.create(_REQUEST, once=f"table-7/{number}" if journaled else None)


async def _calls(journal: Journal | None, in_flight: int, calls: int, steps: list[None]) -> Mapping[str, float]:
    body, headers = payloads.created_order(), {"Date": formatdate()}

    def respond(request: Request) -> Response:
        # The client reads a page first, for the time of the platform.
        return Response(
            201,
            headers,
            body if request.method == "POST" else b'{"results":[],"paging":{"total":0,"limit":1,"offset":0}}',
        )

    transport = MemoryTransport(respond)
    async with PaymentsClient(
        "TEST-app-1-241983636", transport=transport, base_url="http://127.0.0.1", journal=journal
    ) as client:
        make = partial(_make, client, journaled=journal is not None)
        await make(iter(range(-10, 0)))  # Connects, and learns the time.
        transport.requests.clear()
        steps.clear()
        start, cpu = time.perf_counter(), time.process_time()
        numbers = iter(range(calls))
        await asyncio.gather(*(make(numbers) for _ in range(in_flight)))
        await client.aclose()
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"calls_s": calls / wall, "cpu_us": cpu / calls * harness.MICRO, "steps": len(steps) / calls}


def _to_bar(
    found: Mapping[str, float], in_flight: int, *, steps: float, calls_s: float, cpu_us: float
) -> dict[str, float]:
    reached = steps / found["steps"] if in_flight == 1 else found["calls_s"] / calls_s
    return {**found, "to bar": reached, "CPU to bar": cpu_us / found["cpu_us"]}


def _engine(in_flight: int, calls: int) -> float:
    """Return the CPU time of one call without a journal, in microseconds."""
    return asyncio.run(_calls(None, in_flight, calls, []))["cpu_us"]


def _sqlite3_alone(path: Path, batches: Iterable[Sequence[_sqlite.Job]], calls: int) -> float:
    """Return the CPU time per call of what a journal wrote, by the standard library alone, in microseconds."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _sqlite.TABLE, _sqlite.INDEX):
        database.execute(statement)
    cpu = time.process_time()
    for jobs in batches:
        database.execute("BEGIN IMMEDIATE")
        for statement in (_sqlite.SETTLE, _sqlite.INSERT):
            database.executemany(statement, [job.values for job in jobs if job.statement is statement])
        database.execute("COMMIT")
    cpu = time.process_time() - cpu
    database.close()
    return cpu / calls * harness.MICRO


def on_sqlite(in_flight: int, calls: int) -> Mapping[str, float]:
    """Make so many calls, so many at a time, on a file."""
    steps, commit, transact, batches = list[None](), _sqlite.commit, _sqlite.transact, list[list[_sqlite.Job]]()
    with tempfile.TemporaryDirectory() as folder:
        before = forced_write(Path(folder))
        with (
            patch.object(_sqlite, "commit", lambda database: (steps.append(None), commit(database))),
            patch.object(_sqlite, "transact", lambda rows, jobs: (batches.append(jobs), transact(rows, jobs))),
        ):
            found = asyncio.run(_calls(SQLiteJournal(Path(folder) / "journal.db"), in_flight, calls, steps))
        forced = (before + forced_write(Path(folder))) / 2
        database_us = _sqlite3_alone(Path(folder) / "alone.db", batches, calls)
    found = {**found, "engine_us": _engine(in_flight, calls), "database_us": database_us}
    calls_s = min(5_000.0, 0.8 * 16 / forced) if in_flight == 16 else 5_000.0
    return _to_bar(found, in_flight, steps=2.2, calls_s=calls_s, cpu_us=60.0)


async def _asyncpg_alone(server: postgres.Server, batches: Iterable[Sequence[Values]], calls: int) -> float:
    """Return the CPU time per call of what a journal wrote, by the library alone, in microseconds."""
    connection = await _postgres.Postgres(await server.new(), timeout=30.0).connect(journal_postgres.prepare)
    cpu = time.process_time()
    for rows in batches:
        statement = journal_postgres.SETTLE if len(rows[0]) == _SETTLED else journal_postgres.INSERT
        await connection.fetch(statement, None, *zip(*rows, strict=True))
    cpu = time.process_time() - cpu
    await connection.close()
    return cpu / calls * harness.MICRO


def on_postgres(server: postgres.Server, in_flight: int, calls: int) -> Mapping[str, float]:
    """Make so many calls, so many at a time, on a table of their own."""
    steps, run, arrays, sent = list[None](), _postgres.Line.run, journal_postgres.arrays, list[Sequence[Values]]()

    async def measured() -> Mapping[str, float]:
        return await _calls(PostgresJournal(await server.new()), in_flight, calls, steps)

    with (
        patch.object(_postgres.Line, "run", lambda line, work: (steps.append(None), run(line, work))[1]),
        patch.object(journal_postgres, "arrays", lambda rows: sent.append(rows) or arrays(rows)),
    ):
        found = asyncio.run(measured())
    database_us = asyncio.run(_asyncpg_alone(server, sent, calls))
    found = {**found, "engine_us": _engine(in_flight, calls), "database_us": database_us}
    return _to_bar(found, in_flight, steps=2.5, calls_s=5_000.0 if in_flight == 16 else 8_000.0, cpu_us=80.0)


def run(options: Options) -> Result:
    """Measure one call at a time, sixteen, and many."""
    counts = {width: width * 2 if options.quick else calls for width, calls in CALLS.items()}
    with ExitStack() as stack:
        trials = [
            Trial({"journal": "SQLite", "in flight": width}, partial(on_sqlite, width, calls))
            for width, calls in counts.items()
        ]
        if postgres.BIN is not None:
            server = stack.enter_context(postgres.running())
            trials += [
                Trial({"journal": "PostgreSQL", "in flight": width}, partial(on_postgres, server, width, calls))
                for width, calls in counts.items()
            ]
        return harness.result("bench_journal", harness.take_turns(trials, options), options)


def main() -> None:
    """Measure, print, keep."""
    given = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(given)), given)


if __name__ == "__main__":
    main()
