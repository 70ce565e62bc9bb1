"""What the sandbox costs a test suite: to start it in process, and to create, pay and refund an order in it.

Client and sandbox share a process and an event loop and talk over a real socket, as they do in a test. *CPU* is that of
both. An empty aiohttp server that is started and stopped shows how much of the start is the server's own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path

from aiohttp import web

from benchmarks import harness
from benchmarks.harness import Options, Result, Trial
from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import (
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    TransactionsRequest,
)
from paymentsdk.sandbox import Sandbox

#: Orders per sample; the first one, which opens the connection, is not counted.
LIVES = 50
AMOUNT = Decimal("50.00")


def run(options: Options) -> Result:
    """Measure the start, and the life of an order in memory and in a file."""
    lives = 2 if options.quick else LIVES
    with tempfile.TemporaryDirectory() as folder:
        files = (str(Path(folder, f"{number}.sqlite")) for number in range(1_000_000))
        trials = {
            "start, an empty aiohttp server": partial(_run, start_empty),
            "start": partial(_run, partial(start, lambda: None)),
            "start, with a file": partial(_run, partial(start, lambda: next(files))),
            "create, pay, refund": partial(_run, partial(lives_of_orders, lambda: None, lives)),
            "create, pay, refund, with a file": partial(_run, partial(lives_of_orders, lambda: next(files), lives)),
        }
        wanted = {what: once for what, once in trials.items() if not options.only or what in options.only}
        with harness.on_core(harness.cores()[0]):
            rows = harness.take_turns([Trial({"what": what}, once) for what, once in wanted.items()], options)
    return harness.result("bench_sandbox", rows, options, orders=lives)


def _run(measure: Callable[[], Awaitable[Mapping[str, float]]]) -> Mapping[str, float]:
    async def measured() -> Mapping[str, float]:
        return await measure()

    return asyncio.run(measured())


class _Watch:
    """Times what happens between its making and :meth:`per`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def per(self, count: int) -> Mapping[str, float]:
        """Return milliseconds so far, divided by *count*."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"wall_ms": wall / count * 1e3, "cpu_ms": cpu / count * 1e3}


async def start_empty() -> Mapping[str, float]:
    """Start a server without a route."""
    watch = _Watch()
    runner = web.AppRunner(web.Application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found = watch.per(1)
    await runner.cleanup()
    return found


async def start(db: Callable[[], str | None]) -> Mapping[str, float]:
    """Start a sandbox, with its first seller."""
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
    """Measure, print, keep."""
    given = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(given)), given)


if __name__ == "__main__":
    main()
