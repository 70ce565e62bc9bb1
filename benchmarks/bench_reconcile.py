"""Measures a walk that proves that it is complete, the comparison of a million orders, and workers of Dask.

The walk reads the orders of 20 sellers over 30 days, half of them in bursts, from memory in pages of 100. The CPU of
serving is left out. The bench compares calls with the number of full pages. Its rows are:

- *bare*: only decodes the same orders, in pages by offset. It proves and writes nothing.
- *search*: the ordinary search, which decodes each whole order.
- *diff*: compares a book with the files of a walk. *read* only reads both.
- *executors*: walk one seller with latency, and count rows per second from the first commit on.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import json
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Row
from paymentsdk import OPERATIONS, PaymentsClient, Request, Response
from paymentsdk._paging.proof import EPOCH, MILLISECOND
from paymentsdk.reconcile import DaskExecutor, Executor, walk
from paymentsdk.reconcile._merchant_orders import MerchantOrderPage

MILLION = 1_000_000
SELLERS = 20
PAGE = 100
DAY = 86_400
END = datetime(2026, 11, 1, tzinfo=UTC)
BEGIN = END - timedelta(days=30)
#: The time of the walk: all windows have settled, and the search still returns all orders.
HEADERS = {"Date": "Sun, 08 Nov 2026 00:00:00 GMT"}


class Serving:
    """A transport that serves the orders of all sellers from memory."""

    def __init__(self, rows: int, *, latency: float = 0.0, sellers: int = SELLERS) -> None:
        self.dates = {f"s{i}": _dates(i, rows // sellers) for i in range(sellers)}
        self.latency = latency
        self.cpu = 0.0
        self.calls = 0
        self.first = 0.0
        body = json.loads(payloads.rows("merchant_order", 1, 2))
        text = json.dumps({**body, "id": "%ID%", "date_created": "%DATE%", "external_reference": "r-%ID%"})
        self._parts = text.replace('"%ID%"', "%ID%").replace("{", "{{").replace("}", "}}")
        self._parts = self._parts.replace("%ID%", "{0}").replace("%DATE%", "{1}")

    async def send(self, request: Request) -> Response:
        """Respond to a search after the latency."""
        self.calls += 1
        self.first = self.first or time.perf_counter()
        await asyncio.sleep(self.latency)
        begun = time.thread_time()
        response = self.find(request.url, request.headers["Authorization"])
        self.cpu += time.thread_time() - begun
        return response

    def find(self, url: str, authorization: str) -> Response:
        """Return the requested page."""
        query = dict(parse_qsl(urlsplit(url).query))
        dates = self.dates[authorization.removeprefix("Bearer ")]
        first, last = 0, len(dates)
        if "date_created_from" in query:
            first = bisect.bisect_left(dates, _ms(query["date_created_from"]))
            last = bisect.bisect_right(dates, _ms(query["date_created_to"]))
        start = min(first + int(query["offset"]), last)
        rows = [self._parts.format(10**10 + i, _iso(dates[i])) for i in range(start, min(start + PAGE, last))]
        body = f'{{"elements":[{",".join(rows)}],"next_offset":0,"total":{last - first}}}'
        return Response(200, HEADERS, body.encode())

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


def _ms(text: str) -> int:
    """Return the moment *text* in milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _iso(moment: int) -> str:
    """Return *moment* as the platform writes it."""
    return (EPOCH + moment * MILLISECOND).isoformat(timespec="milliseconds")


def _dates(seller: int, count: int) -> array[int]:
    """Return the times of the orders of *seller*: half of them in 60 bursts, which are densest at the beginning."""
    begin, span = int(BEGIN.timestamp() * 1000), 30 * DAY * 1000
    even = [(i * 2_654_435_761 + seller * 977_231) % span for i in range(count - count // 2)]
    peaks = [(i * 40_503_001 + seller * 7_919) * 104_729 % (span - 4_000_000) for i in range(60)]
    bursts = [peaks[i % 60] + (i * 48_271 % 1_900) ** 2 for i in range(count // 2)]
    return array("q", sorted(begin + moment for moment in (*even, *bursts)))


def _own(name: str) -> str:
    """Return the name of an account as its token."""
    return name


def _client(serving: Serving) -> PaymentsClient:
    """Return a client of all sellers."""
    return PaymentsClient(base_url="https://x", accounts=_own, transport=serving)


def connect(rows: int, latency: float) -> PaymentsClient:
    """Make the client of a worker process."""
    return _client(Serving(rows, latency=latency, sellers=1))


async def walked(serving: Serving, out: str) -> int:
    """Walk all sellers, and return the number of orders."""
    async with _client(serving) as client:
        return (await walk(client, created=(BEGIN, END), accounts=serving.dates, out=out)).rows


async def bare(serving: Serving, _out: str) -> int:
    """Decode all orders, and return their number."""
    search = OPERATIONS["merchant_orders.search"].returning(MerchantOrderPage)
    count = 0
    async with _client(serving) as client:
        for name, dates in serving.dates.items():
            for offset in range(0, len(dates), PAGE):
                page = await client.account(name).call(search, query={"offset": offset, "limit": 1000})
                count += len(page.value.elements or ())
    return count


async def searched(serving: Serving, _out: str) -> int:
    """Search all orders, and return their number."""
    count = 0
    async with _client(serving) as client:
        for name in serving.dates:
            async for page in client.account(name).merchant_orders.search().pages():
                count += len(page.items)
    return count


# --- in a process of its own ------------------------------------------------------------------------------------------


class Task(Struct):
    """The measurement of a process: a walk over so many orders, or work on the files in a directory."""

    what: str
    number: int
    directory: str = ""


def child(task: Task) -> dict[str, float]:
    """Measure *task* in this process."""
    if task.directory:
        files = import_module("benchmarks.reconcile_files")
        cpu, wall = time.process_time(), time.perf_counter()
        wrong = float(files.TASKS[task.what](Path(task.directory), task.number))
        return {**_sample(time.process_time() - cpu, time.perf_counter() - wall), "wrong": wrong}
    serving = Serving(task.number)
    cpu, wall, before = time.process_time(), time.perf_counter(), _peak()
    with tempfile.TemporaryDirectory() as directory:
        count = asyncio.run(WALKS[task.what](serving, str(Path(directory, "run"))))
    sample = _sample(cpu := time.process_time() - cpu - serving.cpu, time.perf_counter() - wall)
    counts = [len(dates) for dates in serving.dates.values()]
    if count != sum(counts):
        raise SystemExit(f"{count} of {sum(counts)} rows")
    ideal = sum(-(-count // PAGE) for count in counts)
    return {
        **sample,
        "rows_per_cpu_s": count / cpu,
        "serving_mib": before,
        "calls": serving.calls,
        "calls_to_ideal": serving.calls / ideal,
        "first_call_s": serving.first - wall,
    }


WALKS = {"bare": bare, "search": searched, "walk": walked}


def _sample(cpu: float, wall: float) -> dict[str, float]:
    """Return the metrics of every task."""
    return {"cpu_ms": cpu * 1e3, "wall_ms": wall * 1e3, "peak_mib": _peak()}


def _peak() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(task: Task) -> dict[str, list[float]]:
    """Measure *task* in a new process."""
    command = [sys.executable, "-m", "benchmarks.bench_reconcile", "--child", msgspec.json.encode(task).decode()]
    root = Path(__file__).parent.parent
    output = subprocess.run(command, check=True, cwd=root, stdout=subprocess.PIPE).stdout  # noqa: S603 - ours
    return {metric: [value] for metric, value in msgspec.json.decode(output, type=dict[str, float]).items()}


def run(options: Options, rows: int = MILLION) -> Result:
    """Measure the walk, the bare walk and the search, and all with a tenth of the orders."""
    rows, rounds = (2_000, 1) if options.quick else (rows, min(options.rounds, 3))
    table = [Row({"what": kind, "orders": f"{n:,}"}, {}) for kind in WALKS for n in (rows // 10, rows)]
    for _ in range(rounds):
        for row in table:
            task = Task(str(row.key["what"]), int(str(row.key["orders"]).replace(",", "")))
            for metric, samples in measured(task).items():
                row.samples.setdefault(metric, []).extend(samples)
    return harness.result("bench_reconcile", table, options, baseline={"what": "bare"}, page_size=PAGE)


def comparing(options: Options) -> Result:
    """Compare a book with the files of a walk, and only read both."""
    count = 10_000 if options.quick else MILLION
    with tempfile.TemporaryDirectory() as directory:
        measured(Task("write", count, directory))
        table = [
            Row({"what": kind, "orders": f"{count:,}"}, measured(Task(kind, count, directory)))
            for kind in ("read", "diff")
        ]
    return harness.result("bench_reconcile_diff", table, options, baseline={"what": "read"})


def sharing(options: Options) -> Result:
    """Walk one seller with latency: on one event loop, and on one and two workers of Dask."""
    # Latency dominates at this speed, even on a busy machine.
    make = partial(connect, 3_000 if options.quick else 70_000, 0.25)
    cluster = import_module("benchmarks.reconcile_cluster").running
    with cluster(1) as one_worker, cluster(2) as two:
        executors = {
            "event loop": None,
            "Dask, 1 worker": DaskExecutor(make, one_worker, in_flight=8),
            "Dask, 2 workers": DaskExecutor(make, two, in_flight=8),
        }
        table = [
            Row({"executor": name}, {"rows_s": [asyncio.run(_rate(make, executor))]})
            for name, executor in executors.items()
        ]
    return harness.result("bench_reconcile_executors", table, options, baseline={"executor": "event loop"})


async def _rate(make: Callable[[], PaymentsClient], executor: Executor | None) -> float:
    """Return the rows per second of a walk from its first commit on, without the start of processes."""
    reports: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as out:
        async with make() as client:
            await walk(
                client,
                created=(BEGIN, END),
                accounts=["s0"],
                out=out,
                executor=executor,
                progress=lambda progress: reports.append((time.monotonic(), progress.rows)),
            )
    (begun, before), (ended, rows) = reports[0], reports[-1]
    return (rows - before) / max(ended - begun, 0.001)


def main() -> None:
    """Measure, print and keep the results."""
    line = harness.parser(__doc__)
    line.add_argument("--child", help=argparse.SUPPRESS)
    line.add_argument("--rows", type=int, default=MILLION, help="orders of all sellers (%(default)s)")
    arguments = line.parse_args()
    if arguments.child:
        sys.stdout.buffer.write(msgspec.json.encode(child(msgspec.json.decode(arguments.child, type=Task))))
        return
    options = harness.options(arguments)
    parts = {"walk": partial(run, rows=arguments.rows), "diff": comparing, "executors": sharing}
    for name, part in parts.items():
        if not options.only or name in options.only:
            harness.finish(part(options), arguments)


if __name__ == "__main__":
    main()
