"""What it costs to keep a record: begin it, durable, and write down that it is done while the next one goes on.

A call of this bench is that much of a journaled call and nothing else: no engine, no transport. *commits* counts per
call what is forced to the disk; *to bar* is the throughput against the bar of the design, the lower of 5,000 calls/s
and 0.8 x 16 / the time of one forced write, which is measured on the same disk in the same round. *cpu_us* is that of
the whole process; *writer_us* that of the writing thread, for each row that it writes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Trial
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal, StoredResponse, derive_key
from paymentsdk.journal import _sqlite as store
from paymentsdk.journal._states import digest

CALLS = {1: 200, 16: 3_000, 128: 8_000}
_BODY = payloads.order(next(payloads.order_ids()))
_DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {"X-Request-Id": "r-1"}, _BODY))


def _record(number: int) -> Record:
    name = f"table-7/{number}"
    return Record(
        key=derive_key("http://127.0.0.1", "77", "orders.create", name),
        name=name,
        operation="orders.create",
        base_url="http://127.0.0.1",
        seller="77",
        path="/v1/orders",
        body=_BODY,
        digest=digest("POST", "/v1/orders", _BODY),
        begun=0.0,
        not_after=600.0,
        owner=f"bench/{number}",
    )


def forced_write(folder: Path, times: int = 20) -> float:
    """Return the seconds that the disk takes to keep 4 KiB more, in the mean."""
    with (folder / "probe").open("ab", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(times):
            file.write(bytes(4096))
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / times


async def _keep(journal: SQLiteJournal, numbers: Iterator[int], late: set[asyncio.Task[Record]]) -> None:
    for number in numbers:
        _, row = await journal.begin(_record(number), lease=60.0)
        work: Coroutine[object, object, Record] = journal.resolve(row.key, _DONE, owner=row.owner)
        task = asyncio.create_task(work)
        late.add(task)
        task.add_done_callback(late.discard)


async def _calls(path: Path, in_flight: int, calls: int) -> Mapping[str, float]:
    journal, late, writer = SQLiteJournal(path), set(), list[float]()
    commits, commit = 0, store.commit

    def counting(database: sqlite3.Connection) -> None:
        nonlocal commits
        commits += 1
        commit(database)
        writer.append(time.thread_time() if threading.current_thread() is not threading.main_thread() else 0.0)

    store.commit = counting
    try:
        await journal.begin(_record(-1), lease=60.0)  # Opens the file.
        commits, start, cpu, first = 0, time.perf_counter(), time.process_time(), writer[-1]
        numbers = iter(range(calls))
        await asyncio.gather(*(_keep(journal, numbers, late) for _ in range(in_flight)))
        await asyncio.gather(*late)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    finally:
        store.commit = commit
        await journal.aclose()
    return {
        "calls_s": calls / wall,
        "cpu_us": cpu / calls * harness.MICRO,
        "writer_us": (writer[-1] - first) / (2 * calls) * harness.MICRO,
        "commits": commits / calls,
    }


def kept(in_flight: int, calls: int) -> Mapping[str, float]:
    """Keep so many records, so many at a time."""
    with tempfile.TemporaryDirectory() as folder:
        before = forced_write(Path(folder))
        found = dict(asyncio.run(_calls(Path(folder) / "journal.db", in_flight, calls)))
        forced = (before + forced_write(Path(folder))) / 2
    bar = min(5_000.0, 0.8 * 16 / forced)
    return {**found, "forced_us": forced * harness.MICRO, "to bar": found["calls_s"] / bar}


def run(options: Options) -> Result:
    """Measure one call at a time, sixteen, and many."""
    trials = [
        Trial({"in flight": in_flight}, partial(kept, in_flight, in_flight * 2 if options.quick else calls))
        for in_flight, calls in CALLS.items()
    ]
    return harness.result("bench_journal", harness.take_turns(trials, options), options)


def main() -> None:
    """Measure, print, keep."""
    given = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(given)), given)


if __name__ == "__main__":
    main()
