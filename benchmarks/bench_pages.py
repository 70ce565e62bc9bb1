"""Measures a walk over a search: the time with prefetched pages, and the memory.

The walk reads 200 pages of 100 merchant orders; each page takes 20 or 100 ms. The ideal time is pages / prefetch x
latency: the time of a client without a cost. *Of the ideal* is the ratio of the time of the walk to it. The second
result walks a million small rows without latency, and shows the memory of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import harness, payloads, server
from benchmarks.harness import Options, Result, Row, Trial
from paymentsdk import PaymentsClient

#: The numbers of pages in flight, by the latency in milliseconds. Long latencies have only large numbers, to save time.
PREFETCH: Mapping[int, Sequence[int]] = {20: (1, 2, 4, 8, 16), 100: (8, 16)}
PAGES = 200
PAGE_SIZE = 100
MILLION = 1_000_000
#: All walks take 15 s.
MOST_ROUNDS = 3
#: The limit in seconds for the walk over a million rows.
LONGEST = 120.0


def run(options: Options, pages: int = PAGES) -> Result:
    """Measure the walk for every latency and every prefetch."""
    latencies = [*PREFETCH]
    if options.quick:
        latencies, pages = latencies[:1], 16
    total = pages * PAGE_SIZE
    trials = []
    with contextlib.ExitStack() as stack:
        for latency in latencies:
            platform = stack.enter_context(server.pages(latency=latency / 1000, total=total))
            for prefetch in PREFETCH[latency]:
                key = {"latency, ms": latency, "prefetch": prefetch}
                trials.append(Trial(key, partial(walk, platform.plain, prefetch, latency / 1000, pages)))
        with harness.on_core(harness.cores()[0]):
            capped = msgspec.structs.replace(options, rounds=min(options.rounds, MOST_ROUNDS))
            trials[-1].run()  # One walk is enough to load everything for the other walks.
            rows = harness.take_turns(trials, capped, warm_up=False)
    return harness.result(
        "bench_pages", rows, capped, baseline={"prefetch": 1}, pages=pages, page_size=PAGE_SIZE, notes=[_SIZE]
    )


_SIZE = payloads.sizes()


def walk(base_url: str, prefetch: int, latency: float, pages: int) -> Mapping[str, float]:
    """Walk all rows once with a new client, and return the time of the walk with its connections."""

    async def walked() -> int:
        rows = 0
        async with PaymentsClient(payloads.TOKEN, base_url=base_url) as client:
            async for page in client.merchant_orders.search(page_size=PAGE_SIZE, prefetch=prefetch).pages():
                rows += len(page.items)
        return rows

    started, cpu = time.perf_counter(), time.process_time()
    rows = asyncio.run(walked())
    elapsed = time.perf_counter() - started
    if rows != pages * PAGE_SIZE:
        raise RuntimeError(f"{rows} rows")
    ideal = math.ceil(pages / prefetch) * latency
    return {
        "wall_ms": elapsed * 1e3,
        "to_ideal": elapsed / ideal,
        "cpu_ms": (time.process_time() - cpu) * 1e3,
    }


# --- a million rows ---------------------------------------------------------------------------------------------------


def memory(options: Options, total: int = MILLION) -> Result:
    """Measure the memory of a process that walks *total* rows."""
    if options.quick:
        total = 5_000
    with server.pages(latency=0, rows="small", total=total) as platform, harness.on_core(harness.cores()[0]):
        command = [sys.executable, "-m", "benchmarks.bench_pages", "--walk", platform.plain, str(total)]
        root = Path(__file__).parent.parent
        process = subprocess.run(command, check=True, capture_output=True, cwd=root, timeout=LONGEST)  # noqa: S603
    samples = msgspec.json.decode(process.stdout, type=list[dict[str, float]])
    rows = [
        Row({"rows": f"{int(sample.pop('rows')):,}"}, {name: [value] for name, value in sample.items()})
        for sample in samples
    ]
    return harness.result("bench_pages_memory", rows, options, page_size=PAGE_SIZE, prefetch=8)


async def _million(base_url: str, total: int) -> list[dict[str, float]]:
    """Walk *total* rows one by one, as a program does, and measure the memory ten times."""
    samples, rows = [], 0
    async with PaymentsClient(payloads.TOKEN, base_url=base_url) as client:
        async for _ in client.merchant_orders.search(page_size=PAGE_SIZE, prefetch=8):
            rows += 1
            if rows % (total // 10) == 0:
                samples.append(_sample(rows))
    return samples


def _sample(rows: int) -> dict[str, float]:
    """Return the memory and the CPU time so far."""
    return {"rows": rows, "rss_mib": harness.resident() / 2**20, "cpu_ms": time.process_time() * 1e3}


def main() -> None:
    """Measure, print and keep the results."""
    line = harness.parser(__doc__)
    line.add_argument("--walk", nargs=2, metavar=("URL", "ROWS"), help=argparse.SUPPRESS)
    arguments = line.parse_args()
    if arguments.walk:
        sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_million(arguments.walk[0], int(arguments.walk[1])))))
        return
    options = harness.options(arguments)
    if not options.only or "memory" in options.only:
        harness.finish(memory(options), arguments)
    if not options.only or "latency" in options.only:
        harness.finish(run(options), arguments)


if __name__ == "__main__":
    main()
