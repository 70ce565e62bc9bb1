"""Measures a walk that proves that it is complete: CPU, calls, latency, memory, and repeated calls after a kill.

The walk reads the orders of 20 sellers over 30 days, half of them in bursts, from memory in pages of 100. The CPU of
serving is left out. The bench compares calls with the number of full pages. Its rows are:

- *bare*: only decodes the same orders, in pages by offset. It proves and writes nothing.
- *bare, written*: also converts the rows for pyarrow, and writes them.
- *search*: the ordinary search, which decodes each whole order.
- *waiting*: an event loop of virtual time, where computing takes no time, so that only round trips count.
- *model*: the model of tests/reconcile, a thousand times.
- *diff*: compares a book with the files of a walk. *read* only reads both.
- *loaded*: dlt loads the same orders from the same server.
- *executors*: walk one seller with latency, and count rows per second from the first commit on. *waiting* executors use
  virtual time, and no processes.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import json
import os
import resource
import signal
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct, structs

from benchmarks import harness, payloads, reconcile_files
from benchmarks.harness import Options, Result, Row
from benchmarks.virtual_time import LoopClock, VirtualLoop
from paymentsdk import OPERATIONS, FlowControl, PaymentsClient, Request, Response
from paymentsdk._paging.proof import EPOCH, MILLISECOND
from paymentsdk.reconcile import DaskExecutor, Executor, walk
from paymentsdk.reconcile._merchant_orders import MerchantOrderPage, Rows, write
from paymentsdk.reconcile._run import Job, do
from paymentsdk.reconcile._walk import MOST_PENDING

MILLION = 1_000_000
SELLERS = 20
PAGE = 100
DAY = 86_400
END = datetime(2026, 11, 1, tzinfo=UTC)
BEGIN = END - timedelta(days=30)
#: The time of the walk: all windows have settled, and the search still returns all orders.
HEADERS = {"Date": "Sun, 08 Nov 2026 00:00:00 GMT"}
#: Latency in seconds, calls in flight, and the rate limit in calls per second, if any.
LATENCIES = ((0.05, 8, 0), (0.05, 16, 0), (0.1, 8, 0), (0.1, 16, 0), (0.05, 16, 100))
ROOT = Path(__file__).parent.parent


class Serving:
    """A transport that serves the orders of all sellers from memory."""

    def __init__(
        self, rows: int, *, latency: float = 0.0, limit: int = 0, tally: Path | None = None, sellers: int = SELLERS
    ) -> None:
        self.dates = {f"s{i}": _dates(i, rows // sellers) for i in range(sellers)}
        self.latency = latency
        self.limit = limit
        self.rejected = 0
        self._windows = Counter[int]()
        self.cpu = 0.0
        self.calls = 0
        self.first = 0.0
        self._tally = None if tally is None else os.open(tally, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        body = json.loads(payloads.merchant_orders(1))["elements"][0]
        text = json.dumps({**body, "id": "%ID%", "date_created": "%DATE%", "external_reference": "r-%ID%"})
        self._parts = text.replace('"%ID%"', "%ID%").replace("{", "{{").replace("}", "}}")
        self._parts = self._parts.replace("%ID%", "{0}").replace("%DATE%", "{1}")

    async def send(self, request: Request) -> Response:
        self.calls += 1
        self.first = self.first or time.perf_counter()
        if self._tally is not None:
            os.write(self._tally, b".")
        await asyncio.sleep(self.latency)
        if self.limit:
            window = int(asyncio.get_running_loop().time())
            self._windows[window] += 1
            if self._windows[window] > self.limit:
                self.rejected += 1
                return Response(429, {"Retry-After": "1"}, b"{}")
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
        pass


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _iso(moment: int) -> str:
    return (EPOCH + moment * MILLISECOND).isoformat(timespec="milliseconds")


def _dates(seller: int, count: int) -> array[int]:
    """Return the times of the orders of *seller*: half of them in 60 bursts, which are densest at the beginning."""
    begin, span = int(BEGIN.timestamp() * 1000), 30 * DAY * 1000
    even = [(i * 2_654_435_761 + seller * 977_231) % span for i in range(count - count // 2)]
    peaks = [(i * 40_503_001 + seller * 7_919) * 104_729 % (span - 4_000_000) for i in range(60)]
    bursts = [peaks[i % 60] + (i * 48_271 % 1_900) ** 2 for i in range(count // 2)]
    return array("q", sorted(begin + moment for moment in (*even, *bursts)))


def _own(name: str) -> str:
    return name


def _client(serving: Serving) -> PaymentsClient:
    if serving.limit:
        flow = FlowControl(adaptive=True)
        return PaymentsClient(base_url="https://x", accounts=_own, transport=serving, flow=flow, clock=LoopClock())
    return PaymentsClient(base_url="https://x", accounts=_own, transport=serving)


def connect(rows: int, latency: float) -> PaymentsClient:
    """Make the client of a worker process."""
    return _client(Serving(rows, latency=latency, sellers=1))


async def walked(serving: Serving, out: str, in_flight: int = 8, sellers: int = SELLERS) -> int:
    accounts = list(serving.dates)[:sellers]
    async with _client(serving) as client:
        report = await walk(client, created=(BEGIN, END), accounts=accounts, out=out, in_flight=in_flight)
    return report.rows


async def bare(serving: Serving, out: str = "") -> int:
    search = OPERATIONS["merchant_orders.search"].returning(MerchantOrderPage)
    count = 0
    async with _client(serving) as client:
        for name, dates in serving.dates.items():
            seller, rows = client.account(name), Rows(name)
            for offset in range(0, len(dates), PAGE):
                page = await seller.call(search, query={"offset": offset, "limit": 1000})
                count += len(page.value.elements or ())
                if out:
                    rows.add_page(page, "date_created")
                if len(rows) >= MOST_PENDING or (out and offset + PAGE >= len(dates)):
                    write([rows], Path(out, f"{name}-{offset}.parquet"))
                    rows = Rows(name)
    return count


async def loaded(url: str, out: str, serving: Serving) -> int:
    """Walk over a socket."""
    async with PaymentsClient(base_url=url, accounts=_own) as client:
        return (await walk(client, created=(BEGIN, END), accounts=serving.dates, out=out)).rows


async def searched(serving: Serving) -> int:
    count = 0
    async with _client(serving) as client:
        for name in serving.dates:
            async for page in client.account(name).merchant_orders.search().pages():
                count += len(page.items)
    return count


# --- in a process of its own ------------------------------------------------------------------------------------------


class Task(Struct):
    """The measurements of a process."""

    what: str
    rows: int
    latency: float = 0.0
    in_flight: int = 8
    out: str = ""
    kill_ms: int = 0
    limit: int = 0
    is_virtual: bool = False
    """Measures only latency: waiting costs no time."""
    url: str = ""


def child(task: Task) -> dict[str, float]:
    tally = Path(task.out, "calls") if task.out else None
    serving = Serving(task.rows, latency=task.latency, limit=task.limit, tally=tally)
    # A single seller shows the cost of latency. Several sellers each have calls in flight.
    sellers = 1 if task.latency else SELLERS
    if task.kill_ms:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, task.kill_ms / 1000)
    cpu, wall, before = _cpu(), time.perf_counter(), _peak()
    with tempfile.TemporaryDirectory() as directory:
        out = str(Path(task.out or directory, "run"))
        whole = partial(walked, out=out, in_flight=task.in_flight, sellers=sellers)
        runs = {"bare": bare, "bare, written": partial(bare, out=directory), "search": searched, "walk": whole}
        runs["socket"] = partial(loaded, task.url, out)
        names = list(serving.dates)
        if task.what == "dlt":
            count = import_module("benchmarks.dlt_loading").load(task.url, names, PAGE)
        else:
            with asyncio.Runner(loop_factory=VirtualLoop if task.is_virtual else None) as runner:
                count = runner.run(runs[task.what](serving))
                slept = runner.get_loop().time()
    begun, wall = wall, slept if task.is_virtual else time.perf_counter() - wall
    counts = [len(dates) for dates in serving.dates.values()][:sellers]
    if count != sum(counts):
        raise SystemExit(f"{count} of {sum(counts)} rows")
    ideal = sum(-(-count // PAGE) for count in counts)
    sample = {
        "cpu_ms": (cpu := (_cpu() - cpu - serving.cpu) * 1e3),
        "rows_per_cpu_s": count / cpu * 1e3,
        "wall_ms": wall * 1e3,
        "peak_mib": _peak(),
        "serving_mib": before,
    }
    if task.url:
        return sample
    sample |= {"calls": serving.calls, "calls_to_ideal": serving.calls / ideal, "first_call_s": serving.first - begun}
    if task.limit:
        served = serving.calls - serving.rejected
        return {
            **sample,
            "refused_pct": 100 * serving.rejected / serving.calls,
            "goodput": served / (task.limit * wall),
        }
    return {**sample, "to_ideal": wall / (ideal * task.latency / task.in_flight)} if task.latency else sample


def _cpu() -> float:
    """Return the CPU seconds of this process and its child processes."""
    process, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return process.ru_utime + process.ru_stime + children.ru_utime + children.ru_stime


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _in_child(task: Task | reconcile_files.Comparing) -> bytes:
    text = msgspec.json.encode(task).decode()
    module = ("benchmarks.bench_reconcile", "--child") if isinstance(task, Task) else ("benchmarks.reconcile_files",)
    command = (sys.executable, "-m", *module, text)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0]


def measured(task: Task | reconcile_files.Comparing) -> dict[str, float]:
    return msgspec.json.decode(asyncio.run(_in_child(task)), type=dict[str, float])


def run(options: Options, rows: int = MILLION) -> Result:
    """Measure the walk, the bare walk, and both with a tenth of the orders."""
    rows, rounds = (2_000, 1) if options.quick else (rows, min(options.rounds, 3))
    samples_of: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for kind in ("bare", "bare, written", "search", "walk"):
            for count in (rows // 10, rows):
                samples_of.setdefault((kind, count), []).append(measured(Task(kind, count)))
    table = [
        Row({"what": variant, "orders": f"{count:,}"}, _columns(samples))
        for (variant, count), samples in samples_of.items()
    ]
    return harness.result("bench_reconcile", table, options, baseline={"what": "bare"}, page_size=PAGE)


def waiting(options: Options) -> Result:
    """Measure the walk of one seller against latency, and against a limit of 100 calls per second."""
    rows = SELLERS * (300 if options.quick else 100_000)
    table = [
        Row(
            {"latency, ms": f"{latency * 1e3:g}", "in flight": in_flight, "limit": limit},
            _columns([measured(Task("walk", rows, latency, in_flight, limit=limit, is_virtual=True))]),
        )
        for latency, in_flight, limit in (LATENCIES[:1] if options.quick else LATENCIES)
    ]
    return harness.result("bench_reconcile_waiting", table, options, page_size=PAGE)


def killed(options: Options) -> Result:
    """Kill a walk with SIGKILL in the middle, run it to the end, and count the repeated calls."""
    rows, latency = SELLERS * (2_000 if options.quick else 40_000), 0.02
    task = Task("walk", rows, latency)
    once = measured(task)
    with tempfile.TemporaryDirectory() as out:
        asyncio.run(_in_child(structs.replace(task, out=out, kill_ms=int(once["wall_ms"] / 2) + 1)))
        before = Path(out, "calls").stat().st_size
        after = measured(structs.replace(task, out=out))
    again = before + after["calls"] - once["calls"]
    samples = {"calls_again": again, "s_again": again * latency / 8, "of_calls": once["calls"]}
    samples["first_call_s"] = after["first_call_s"]
    row = Row({"what": "killed"}, {name: [value] for name, value in samples.items()})
    return harness.result("bench_reconcile_killed", [row], options, page_size=PAGE)


def model(options: Options, runs: int = 1_000) -> Result:
    """Run the model of a drifting platform, and count lost rows, duplicates and false alarms."""
    judged = import_module("tests.reconcile.model").judged
    seeds = range(20 if options.quick else runs)
    sums = sum((judged(seed) for seed in seeds), Counter())
    naive = sum(judged(seed, naively=True)["lost"] > 0 for seed in seeds)
    samples = {name: [float(sums[name])] for name in ("lost", "twice", "loud")}
    row = Row({"runs": sums["runs"]}, {**samples, "lossy_naive_runs": [float(naive)]})
    return harness.result("bench_reconcile_model", [row], options)


def loading(options: Options) -> Result:
    """Load the same orders from the same server into Parquet files, with dlt and with a walk."""
    count = 2_000 if options.quick else 100_000
    server = import_module("benchmarks.reconcile_server")
    with server.running(server.orders, count) as url:
        table = [
            Row({"what": kind, "orders": f"{count:,}"}, _columns([measured(Task(kind, count, url=url))]))
            for kind in ("socket", "dlt")
            if kind == "socket" or find_spec("dlt") is not None
        ]
    return harness.result("bench_reconcile_loaded", table, options, baseline={"what": "dlt"}, page_size=PAGE)


def comparing(options: Options) -> Result:
    """Compare a book with the files of a walk, and only read both."""
    count = 10_000 if options.quick else MILLION
    table = []
    with tempfile.TemporaryDirectory() as directory:
        planted = count // reconcile_files.RARE
        measured(reconcile_files.Comparing("write", directory, count))
        for kind in ("read", "diff"):
            sample = measured(reconcile_files.Comparing(kind, directory, planted))
            table.append(Row({"what": kind, "orders": f"{count:,}"}, _columns([sample])))
    return harness.result("bench_reconcile_diff", table, options, baseline={"what": "read"})


def sharing(options: Options) -> Result:
    """Walk one seller with latency: on one event loop, and on one and two workers of Dask."""
    # Latency dominates at this speed, even on a busy machine.
    count, latency = 3_000 if options.quick else 70_000, 0.25
    make = partial(connect, count, latency)
    table = []
    server = import_module("benchmarks.reconcile_server")
    with server.running(server.dask, 1) as one_worker, server.running(server.dask, 2) as two:
        executors = {
            "event loop": None,
            "Dask, 1 worker": DaskExecutor(make, one_worker, in_flight=8),
            "Dask, 2 workers": DaskExecutor(make, two, in_flight=8),
        }
        for name, executor in executors.items():
            rate = asyncio.run(_rate(make, executor))
            table.append(Row({"executor": name}, {"rows_s": [rate]}))
    for workers in (1, 2, 4):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            rate = runner.run(_rate(make, Waiting(make, workers)))
        table.append(Row({"executor": f"{workers} waiting"}, {"rows_s": [rate]}))
    return harness.result("bench_reconcile_executors", table, options, baseline={"executor": "event loop"})


class Waiting:
    """Workers that only wait: each has its own client and calls in flight, on one event loop of virtual time."""

    def __init__(self, make: Callable[[], PaymentsClient], workers: int, in_flight: int = 8) -> None:
        self._make = make
        self._in_flight = in_flight
        self._budgets = [asyncio.Semaphore(in_flight) for _ in range(workers)]
        self._clients: list[PaymentsClient] = []
        self._load = [0] * workers

    @property
    def slots(self) -> int:
        return 4 * len(self._load)

    async def run(self, job: Job) -> Job:
        i = self._load.index(min(self._load))
        self._load[i] += 1
        try:
            return await do(job, self._clients[i], self._in_flight, self._budgets[i])
        finally:
            self._load[i] -= 1

    async def __aenter__(self) -> Self:
        self._clients = [self._make() for _ in self._load]
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.aclose()


async def _rate(make: Callable[[], PaymentsClient], executor: Executor | None) -> float:
    """Return the rows per second of a walk from its first commit on, without the start of processes."""
    reports: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as out:
        async with make() as client:
            await walk(
                client,
                created=(BEGIN, END),
                accounts=["s0"],
                out=out,
                executor=executor,
                progress=lambda progress: reports.append((loop.time(), progress.rows)),
            )
    (begun, before), (ended, rows) = reports[0], reports[-1]
    return (rows - before) / max(ended - begun, 0.001)


def _columns(samples: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [sample[name] for sample in samples] for name in samples[0]}


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
    parts: dict[str, Callable[[Options], Result]] = {
        "walk": partial(run, rows=arguments.rows),
        "waiting": waiting,
        "killed": killed,
        "model": model,
        "diff": comparing,
        "loaded": loading,
        "executors": sharing,
    }
    for name, part in parts.items():
        if not options.only or name in options.only:
            harness.finish(part(options), arguments)


if __name__ == "__main__":
    main()
