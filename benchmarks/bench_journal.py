"""A journaled call: `orders.create(..., once=name)` over a transport in memory, on both journals.

The engine is included, and so is what the caller does not wait for: that the record is done. *steps* counts per call
what is forced to the disk (SQLite) or sent to the server (PostgreSQL, a round trip each). The server is started here,
and forces each commit to the disk, but for those that only say that records are done; without PostgreSQL on the
machine, its rows are missing. *cpu_us* is that of this whole process; the server's is not in it.

*engine* is the same call without a journal, in the same round. *by hand* is what the database takes without us for the
same statements with the same values in the same transactions: the standard library's sqlite3 in a thread, which wakes
the event loop once for each transaction, or asyncpg. No journal on that database can take less than both together;
*journal* is what is left. What the journal writes is noted in a run of its own: to keep it all costs memory and time.

*calls to bar* are the calls/s over those that are promised: 5,000, and 8,000 of 128 on PostgreSQL; of 16 on SQLite the
lower of 5,000 and 0.8 x 16 / the time of one forced write, measured on the same disk in the same round.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Trial
from paymentsdk import PaymentsClient, Request, Response, _postgres
from paymentsdk._postgres import Values
from paymentsdk.journal import Journal, PostgresJournal, SQLiteJournal, _sqlite
from paymentsdk.journal import _postgres as journal_postgres
from paymentsdk.testing import MemoryTransport
from tests import postgres

CALLS = {1: 150, 16: 2_000, 128: 3_000}
_REQUEST = payloads.order_request()
#: Values of a row that is settled.
_SETTLED = 6
#: Rows to write in one transaction, and what is told when they are.
_Batch: TypeAlias = tuple[Sequence[_sqlite.Job], asyncio.Future[None]]


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


def _with_shares(found: Mapping[str, float], by_hand_us: float, in_flight: int, calls: int) -> dict[str, float]:
    """Return *found*, and what of its CPU time is the engine's, the database's and the journal's."""
    engine_us = asyncio.run(_calls(None, in_flight, calls, []))["cpu_us"]
    ours = found["cpu_us"] - engine_us - by_hand_us
    return {**found, "engine_us": engine_us, "by_hand_us": by_hand_us, "journal_us": ours}


def _to_bar(found: dict[str, float], in_flight: int, promised: Mapping[int, float]) -> Mapping[str, float]:
    """Return *found*, with its calls/s over those that are *promised*."""
    return {**found, "calls_to_bar": found["calls_s"] / promised[in_flight]} if in_flight in promised else found


def _keep(path: Path, waiting: queue.SimpleQueue[_Batch | None]) -> None:
    """Write what is *waiting*, each batch in a transaction, and say so."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _sqlite.TABLE, _sqlite.INDEX):
        database.execute(statement)
    while (batch := waiting.get()) is not None:
        jobs, written = batch
        database.execute("BEGIN IMMEDIATE")
        for statement in (_sqlite.SETTLE, _sqlite.INSERT):
            database.executemany(statement, [job.values for job in jobs if job.statement is statement])
        database.execute("COMMIT")
        written.get_loop().call_soon_threadsafe(written.set_result, None)
    database.close()


async def _sqlite3_by_hand(path: Path, batches: Iterable[Sequence[_sqlite.Job]], calls: int) -> float:
    """Return the CPU time per call of what a journal wrote, by the standard library alone, in microseconds."""
    waiting: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
    writing = threading.Thread(target=_keep, args=(path, waiting))
    writing.start()
    cpu = time.process_time()
    for jobs in batches:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.put((jobs, written))
        await written
    cpu = time.process_time() - cpu
    waiting.put(None)
    writing.join()
    return cpu / calls * harness.MICRO


def on_sqlite(in_flight: int, calls: int) -> Mapping[str, float]:
    """Make so many calls, so many at a time, on a file."""
    steps, commit, transact, batches = list[None](), _sqlite.commit, _sqlite.transact, list[list[_sqlite.Job]]()
    with tempfile.TemporaryDirectory() as folder:
        before = forced_write(Path(folder))
        with patch.object(_sqlite, "commit", lambda database: (steps.append(None), commit(database))):
            found = asyncio.run(_calls(SQLiteJournal(Path(folder) / "journal.db"), in_flight, calls, steps))
        forced = (before + forced_write(Path(folder))) / 2
        with patch.object(_sqlite, "transact", lambda *given: (batches.append(given[-1]), transact(*given))):
            asyncio.run(_calls(SQLiteJournal(Path(folder) / "noted.db"), in_flight, calls, []))
        by_hand_us = asyncio.run(_sqlite3_by_hand(Path(folder) / "by hand.db", batches, calls))
    found = _with_shares(found, by_hand_us, in_flight, calls)
    return _to_bar(found, in_flight, {16: min(5_000.0, 0.8 * 16 / forced), 128: 5_000.0})


async def _asyncpg_by_hand(server: postgres.Server, batches: Iterable[Sequence[Values]], calls: int) -> float:
    """Return the CPU time per call of what a journal wrote, by asyncpg alone, in microseconds."""
    connection = await _postgres.Postgres(await server.new(), 30.0).connect(journal_postgres.TABLE)
    cpu = time.process_time()
    for rows in batches:
        if len(rows[0]) == _SETTLED:
            done = [None, True, *zip(*rows, strict=True)]
            await connection.fetch(journal_postgres.SETTLE, *done)
        else:
            await connection.fetch(journal_postgres.INSERT, None, rows)
    cpu = time.process_time() - cpu
    await connection.close()
    return cpu / calls * harness.MICRO


def on_postgres(server: postgres.Server, in_flight: int, calls: int) -> Mapping[str, float]:
    """Make so many calls, so many at a time, on a table of their own."""
    steps, run, in_order, sent = (
        list[None](),
        _postgres.Lane.attempt,
        journal_postgres.in_order,
        list[Sequence[Values]](),
    )

    async def measured() -> Mapping[str, float]:
        return await _calls(PostgresJournal(await server.new()), in_flight, calls, steps)

    with patch.object(_postgres.Lane, "attempt", lambda *work: (steps.append(None), run(*work))[1]):
        found = asyncio.run(measured())
    with patch.object(journal_postgres, "in_order", lambda rows: sent.append(rows) or in_order(rows)):
        asyncio.run(measured())
    by_hand_us = asyncio.run(_asyncpg_by_hand(server, sent, calls))
    found = _with_shares(found, by_hand_us, in_flight, calls)
    return _to_bar(found, in_flight, {16: 5_000.0, 128: 8_000.0})


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
