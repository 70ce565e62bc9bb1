"""Measures the sandbox in a test suite: import, start, requests, and the life of an order.

Client and sandbox share a process and an event loop, and use a real socket, as in a test. *CPU* covers both. The start
and stop of an empty aiohttp server shows the share of the server in the start. The bench also compares requests over
raw sockets with a plain aiohttp handler that returns the same bytes. There each server has a process, and *CPU* covers
only the server. The notes compare the ratios with the bars.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path

from aiohttp import web

from benchmarks import harness, sandbox_server
from benchmarks.bench_import import process
from benchmarks.harness import Options, Result, Row, Trial
from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import (
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    TransactionsRequest,
)
from paymentsdk.sandbox import Sandbox

#: Orders per sample. The first order, which opens the connection, does not count.
LIVES = 50
AMOUNT = Decimal("50.00")
#: Requests per sample of each kind, and requests in flight.
REQUESTS, IN_FLIGHT = 400, 16
IMPORT, EMPTY_IMPORT, FIRST_START = "import", "import of aiohttp.web", "first start"
_IMPORTS = {EMPTY_IMPORT: "import aiohttp.web", IMPORT: "import paymentsdk.sandbox"}
#: A program that starts its first sandbox, and prints the time.
_FIRST = """
import asyncio, time
from paymentsdk.sandbox import Sandbox
async def first():
    wall, cpu = time.perf_counter(), time.process_time()
    async with Sandbox():
        print(time.perf_counter() - wall, time.process_time() - cpu)
asyncio.run(first())
"""
#: Texts around the name of a request: to the plain handler, in memory, in a file.
_PLACES = (("plain ", ""), ("", ""), ("", ", with a file"))
#: Both sides of a comparison, the metric, and the highest allowed ratio. Throughput is the time of one request.
BARS = (
    ("GET", "plain GET", "cpu_ms", 3.2),
    ("create", "plain create", "cpu_ms", 6.0),
    ("create, with a file", "create", "wall_ms", 2.0),
    ("GET, with a file", "GET", "wall_ms", 2.0),
    (IMPORT, EMPTY_IMPORT, "cpu_ms", None),
    (FIRST_START, EMPTY_IMPORT, "cpu_ms", None),
)


def run(options: Options) -> Result:
    """Measure import, start, requests and the life of an order, in memory and in a file."""
    lives = 2 if options.quick else LIVES
    with tempfile.TemporaryDirectory() as folder, harness.compiled() as environment, ExitStack() as stack:
        files = (str(Path(folder, f"{number}.sqlite")) for number in range(1_000_000))
        trials: dict[str, Callable[[], Mapping[str, float]]] = {
            "start, an empty aiohttp server": partial(_run, start_empty),
            "start": partial(_run, partial(start, lambda: None)),
            "start, with a file": partial(_run, partial(start, lambda: next(files))),
            "create, pay, refund": partial(_run, partial(lives_of_orders, lambda: None, lives)),
            "create, pay, refund, with a file": partial(_run, partial(lives_of_orders, lambda: next(files), lives)),
            **{name: partial(process, code, environment) for name, code in _IMPORTS.items()},
            FIRST_START: partial(first_start, environment),
        }
        if not options.only or set(options.only) & _REQUESTS:
            trials |= requests(stack, str(Path(folder, "served.sqlite")), 20 if options.quick else REQUESTS)
        chosen = {name: once for name, once in trials.items() if not options.only or name in options.only}
        with harness.on_core(harness.cores()[0]):
            rows = harness.take_turns([Trial({"what": name}, once) for name, once in chosen.items()], options)
    return harness.result("bench_sandbox", rows, options, notes=[*ratios(rows)], orders=lives)


_REQUESTS = {f"{place[0]}{kind}{place[1]}" for kind in ("GET", "create") for place in _PLACES}


def requests(stack: ExitStack, db: str, number: int) -> Mapping[str, Callable[[], Mapping[str, float]]]:
    """Start the servers until *stack* closes; return functions that send each of them *number* requests."""
    memory, file = stack.enter_context(sandbox_server.sandbox()), stack.enter_context(sandbox_server.sandbox(db))
    file.answers()
    plain = stack.enter_context(sandbox_server.plain(memory.answers()))
    return {
        f"{before}{kind}{after}": partial(server.per_request, kind, number, IN_FLIGHT)
        for kind in ("GET", "create")
        for (before, after), server in zip(_PLACES, (plain, memory, file), strict=True)
    }


def first_start(environment: dict[str, str]) -> Mapping[str, float]:
    """Start a sandbox in a new process."""
    command = [sys.executable, "-c", _FIRST]
    ended = subprocess.run(  # noqa: S603 - our own
        command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent, env=environment
    )
    wall, cpu = map(float, ended.stdout.split())
    return {"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3}


def ratios(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each bar."""
    by_name = {row.key["what"]: row for row in rows}
    for name, base, metric, most in BARS:
        if name in by_name and base in by_name:
            times = harness.ratio(by_name[name], by_name[base], metric)
            bar = "" if most is None else f" (bar {most}: {'holds' if times <= most else 'MISSED'})"
            yield f"{name}: {times:.2f} times {base}, {metric.removesuffix('_ms')}{bar}"


def _run(measure: Callable[[], Awaitable[Mapping[str, float]]]) -> Mapping[str, float]:
    async def measured() -> Mapping[str, float]:
        return await measure()

    return asyncio.run(measured())


class _Watch:
    """Measures the time from its creation to :meth:`per`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def per(self, count: int) -> Mapping[str, float]:
        """Return milliseconds so far, divided by *count*."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"wall_ms": wall / count * 1e3, "cpu_ms": cpu / count * 1e3}


async def start_empty() -> Mapping[str, float]:
    """Start a server without routes."""
    watch = _Watch()
    runner = web.AppRunner(web.Application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    values = watch.per(1)
    await runner.cleanup()
    return values


async def start(db: Callable[[], str | None]) -> Mapping[str, float]:
    """Start a sandbox with its first seller."""
    watch = _Watch()
    async with Sandbox(db=db()):
        return watch.per(1)


async def lives_of_orders(db: Callable[[], str | None], count: int) -> Mapping[str, float]:
    """Create, pay and refund *count* orders, one after the other."""
    async with (
        Sandbox(db=db()) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
        await _live(sandbox, client, 0)
        watch = _Watch()
        for number in range(1, count + 1):
            await _live(sandbox, client, number)
        return watch.per(count)


async def _live(sandbox: Sandbox, client: PaymentsClient, number: int) -> None:
    request = OrderRequest(
        external_reference=f"bench-{number}",
        total_amount=AMOUNT,
        transactions=TransactionsRequest(payments=[PaymentRequest(amount=AMOUNT)]),
        config=OrderConfigRequest(qr=QRConfigRequest(external_pos_id=sandbox.external_pos_id, mode="dynamic")),
    )
    order = await client.orders.create(request)
    sandbox.buyer.pay(order)
    refunded = await client.orders.refund(order.id)
    if refunded.status != "refunded":
        raise RuntimeError(refunded.status)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
