"""Measures a journaled call: `orders.create(..., once=name)` over a transport in memory, on both journals.

The time includes the engine, and the write of `done`, which the caller does not wait for. *steps* counts the forced
writes (SQLite) or round trips (PostgreSQL) per call. The bench starts the PostgreSQL server. The server forces each
commit to the disk, except commits that only set records to `done`. The rows are missing on a machine without
PostgreSQL. *cpu_us* covers this process, but not the server.

*engine* is the same call without a journal, in the same round; *journal* is the difference.

*calls to bar* is the ratio of calls/s to the promised rate. The promised rate is 5,000, and 8,000 for 128 calls on
PostgreSQL. For 16 calls on SQLite it is the lower of 5,000 and 0.8 x 16 / the time of one forced write, measured on the
same disk in the same round.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from email.utils import formatdate
from functools import partial
from pathlib import Path
from unittest.mock import patch

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Trial
from paymentsdk import PaymentsClient, Request, Response, _psycopg, _sqlite
from paymentsdk.journal import Journal, PostgresJournal, SQLiteJournal
from paymentsdk.testing import MemoryTransport
from tests import postgres

CALLS = {1: 150, 16: 2_000, 128: 3_000}
_REQUEST = payloads.order_request()


def forced_write(folder: Path, times: int = 20) -> float:
    """Return the mean time in seconds of a forced write of 4 KiB."""
    with (folder / "probe").open("ab", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(times):
            file.write(bytes(4096))
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / times


async def _make(client: PaymentsClient, numbers: Iterator[int], *, journaled: bool) -> None:
    """Create an order for each number."""
    for number in numbers:
        await client.orders.create(_REQUEST, once=f"table-7/{number}" if journaled else None)


async def _calls(journal: Journal | None, in_flight: int, calls: int, steps: list[None]) -> Mapping[str, float]:
    """Create so many orders, so many at a time."""
    body, headers = payloads.response("created_order"), {"Date": formatdate()}

    def respond(request: Request) -> Response:
        # The client first reads a page for the time of the platform.
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
        await make(iter(range(-10, 0)))  # This connects and learns the time.
        transport.requests.clear()
        steps.clear()
        start, cpu = time.perf_counter(), time.process_time()
        numbers = iter(range(calls))
        await asyncio.gather(*(make(numbers) for _ in range(in_flight)))
        await client.aclose()
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"calls_s": calls / wall, "cpu_us": cpu / calls * harness.MICRO, "steps": len(steps) / calls}


def _with_shares(measured: Mapping[str, float], in_flight: int, calls: int) -> dict[str, float]:
    """Return *measured* with the shares of the engine and the journal in its CPU time."""
    engine_us = asyncio.run(_calls(None, in_flight, calls, []))["cpu_us"]
    return {**measured, "engine_us": engine_us, "journal_us": measured["cpu_us"] - engine_us}


def _to_bar(measured: dict[str, float], in_flight: int, promised: Mapping[int, float]) -> Mapping[str, float]:
    """Return *measured* with the ratio of its calls/s to the *promised* rate."""
    return (
        {**measured, "calls_to_bar": measured["calls_s"] / promised[in_flight]} if in_flight in promised else measured
    )


def on_sqlite(in_flight: int, calls: int) -> Mapping[str, float]:
    """Make so many calls on a file, so many at a time."""
    steps, commit = list[None](), _sqlite.commit
    with tempfile.TemporaryDirectory() as folder:
        before = forced_write(Path(folder))
        with patch.object(_sqlite, "commit", lambda database: (steps.append(None), commit(database))):
            measured = asyncio.run(_calls(SQLiteJournal(Path(folder) / "journal.db"), in_flight, calls, steps))
        forced = (before + forced_write(Path(folder))) / 2
    measured = _with_shares(measured, in_flight, calls)
    return _to_bar(measured, in_flight, {16: min(5_000.0, 0.8 * 16 / forced), 128: 5_000.0})


def on_postgres(server: postgres.Server, in_flight: int, calls: int) -> Mapping[str, float]:
    """Make so many calls on a new table, so many at a time."""
    steps, rows = list[None](), _psycopg.Link.rows

    async def measured() -> Mapping[str, float]:
        return await _calls(PostgresJournal(await server.new()), in_flight, calls, steps)

    with patch.object(_psycopg.Link, "rows", lambda link: (steps.append(None), rows(link))[1]):
        shares = _with_shares(asyncio.run(measured()), in_flight, calls)
    return _to_bar(shares, in_flight, {16: 5_000.0, 128: 8_000.0})


def run(options: Options) -> Result:
    """Measure one, sixteen and many concurrent calls."""
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
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
