"""Measures the start of a sandbox, the life of an order in it, and its requests compared with a plain aiohttp handler.

Client and sandbox share a process and an event loop, and use a real socket, as in a test. *CPU* covers both. The plain
handler returns the same bytes. For requests, each server has a process, and *CPU* covers only the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from decimal import Decimal
from functools import partial
from itertools import product

from benchmarks import harness, sandbox_server
from benchmarks.harness import Once, Options, Result, Trial
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


def run(options: Options) -> Result:
    """Measure start, requests and the life of an order."""
    lives, number = (2, 20) if options.quick else (LIVES, REQUESTS)
    with sandbox_server.running() as sandbox, sandbox_server.running(sandbox.answers()) as plain:
        runs: dict[str, Once] = {"start": partial(_run, start), "create, pay, refund": partial(_run, orders, lives)}
        for kind, (name, server) in product(("GET", "create"), (("plain ", plain), ("", sandbox))):
            runs[f"{name}{kind}"] = partial(server.per_request, kind, number, IN_FLIGHT)
        trials = [Trial({"what": name}, once) for name, once in runs.items() if name in (options.only or runs)]
        with harness.on_core(harness.cores()[0]):
            rows = harness.take_turns(trials, options)
    return harness.result("bench_sandbox", rows, options, orders=lives)


def _run(measure: Callable[..., Coroutine[None, None, Mapping[str, float]]], *values: int) -> Mapping[str, float]:
    """Run *measure* on a new event loop."""
    return asyncio.run(measure(*values))


class _Watch:
    """Measures the time from its creation to :meth:`per`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def per(self, count: int) -> Mapping[str, float]:
        """Return milliseconds so far, divided by *count*."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"wall_ms": wall / count * 1e3, "cpu_ms": cpu / count * 1e3}


async def start() -> Mapping[str, float]:
    """Start a sandbox with its first seller."""
    watch = _Watch()
    async with Sandbox():
        return watch.per(1)


async def orders(count: int) -> Mapping[str, float]:
    """Create, pay and refund *count* orders, one after the other."""
    async with Sandbox() as sandbox, PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        await _live(sandbox, client, 0)
        watch = _Watch()
        for number in range(1, count + 1):
            await _live(sandbox, client, number)
        return watch.per(count)


async def _live(sandbox: Sandbox, client: PaymentsClient, number: int) -> None:
    """Create, pay and refund one order."""
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
