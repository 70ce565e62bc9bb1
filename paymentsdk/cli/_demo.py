"""``paymentsdk demo``: a seller's day over HTTP on this machine, with faults; at the end, both ledgers are compared."""

from __future__ import annotations

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from decimal import Decimal
from typing import TypeAlias, TypeVar

from paymentsdk import PaymentsClient, RetryPolicy
from paymentsdk.cli._output import counted, say
from paymentsdk.cli._parsing import DONE, FAILED, count
from paymentsdk.errors import PaymentsError
from paymentsdk.resources import orders
from paymentsdk.sandbox import FaultRule, Sandbox

T = TypeVar("T")
R = TypeVar("R")
#: A line of a ledger: what happened, the id of the order, payment or refund, and the amount that moved.
Entry: TypeAlias = tuple[str, str, Decimal]

#: The faults of the demo. The first write of each kind takes effect, but its response is lost.
FAULTS = (
    FaultRule(effect="lose_response_after_commit", operation="orders.create", nth=1),
    FaultRule(effect="lose_response_after_commit", operation="orders.cancel", nth=1),
    FaultRule(effect="lose_response_after_commit", operation="orders.refund", nth=1),
    FaultRule(effect="lose_response_after_commit", operation="orders.*", probability=0.05, seed=1),
    FaultRule(effect="fail_before_commit", operation="orders.*", probability=0.04, seed=2, status=503),
    FaultRule(effect="truncate", operation="orders.*", probability=0.02, seed=3),
    FaultRule(effect="rate_limit", operation="orders.get", nth=1, retry_after=1),
)
#: More attempts and shorter pauses than usual, because the faults make every tenth request fail.
RETRY = RetryPolicy(attempts=10, base_delay=0.05, max_delay=0.5)
#: Calls in flight.
CONCURRENCY = 32
#: The maximum of printed differences of a kind.
SHOWN = 5
_NOTHING, _CENT = Decimal(0), Decimal("0.01")


def add_arguments(demo: ArgumentParser) -> None:
    """Add the arguments of `demo`."""
    demo.add_argument("--orders", type=count, default=300, metavar="N", help="orders to create (default: 300)")
    demo.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    """Run the demo, print its result, and return the exit code: 0 only if both ledgers agree.

    Raises:
        PaymentsError: A call failed after all its attempts; the ledgers were not compared.
    """
    say(f"{counted(options.orders, 'order')}, up to {CONCURRENCY} calls at a time, against a sandbox on this machine")
    try:
        expected, recorded = asyncio.run(_work(options.orders))
    except PaymentsError as error:
        raise PaymentsError(f"the demo ended early: {type(error).__name__}: {error}") from error
    # An entry that differs only in its amount is in both lists.
    differences = {"double": recorded - expected, "lost": expected - recorded}
    for kind, entries in differences.items():
        for entry in sorted(entries.elements())[:SHOWN]:
            print("  {}: {} of {}, {}".format(kind, *entry))
    agreed = counted((expected & recorded).total(), "entry", "entries")
    result = ", ".join(f"{entries.total():,} {kind}" for kind, entries in differences.items())
    passed = expected == recorded
    print(f"{'passed' if passed else 'failed'}: client and sandbox agree on {agreed}: {result}")
    return DONE if passed else FAILED


async def _work(number: int) -> tuple[Counter[Entry], Counter[Entry]]:
    """Run a seller's day with *number* orders, and return the entries of the client and of the sandbox."""
    async with (
        Sandbox() as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, retry=RETRY) as client,
    ):
        faults = [sandbox.faults.add(rule) for rule in FAULTS]
        seller = Seller(client, sandbox)
        created = await seller.each("orders created", seller.create_order, range(number))
        await seller.each("orders canceled", seller.cancel, created[8::10])
        del created[8::10]
        paid = await seller.each("orders paid and read", seller.see_paid, created)
        await seller.each("orders refunded", seller.refund, paid[1::8])
        recorded = Counter((row.kind, row.id, row.amount) for row in sandbox.ledger())
    say(f"faults that fired: {sum(fault.hits for fault in faults):,}")
    return Counter(seller.ledger), recorded


class Seller:
    """A seller who keeps a ledger from the platform's responses alone.

    Args:
        client: The client of the seller.
        sandbox: The platform, on which buyers pay.
    """

    def __init__(self, client: PaymentsClient, sandbox: Sandbox) -> None:
        self.ledger: list[Entry] = []
        """The entries according to the responses; the ledger of the sandbox should have the same entries."""
        self._client = client
        self._sandbox = sandbox

    async def each(self, name: str, call: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
        """Make a call for each of *items*, print how long that took, and return the results in the same order."""
        began = time.perf_counter()
        results = [outcome.value async for outcome in self._client.map(call, items, concurrency=CONCURRENCY)]
        say(f"{name}: {len(results):,} in {time.perf_counter() - began:.2f} s")
        return results

    async def create_order(self, number: int) -> orders.Order:
        """Create the order *number*."""
        amount = Decimal(1_000 + number * 137 % 9_000) * _CENT
        payments = orders.TransactionsRequest(payments=[orders.PaymentRequest(amount=amount)])
        reference = f"demo-{number:05}"
        request = orders.OrderRequest(external_reference=reference, total_amount=amount, transactions=payments)
        order = await self._client.orders.create(request)
        self.ledger.append(("order_created", order.id, _NOTHING))
        return order

    async def see_paid(self, order: orders.Order) -> orders.Order:
        """Let a buyer pay *order*, read it, and enter its payment into the ledger."""
        self._sandbox.buyer.pay(order)
        order = await self._client.orders.get(order.id)
        if payment := order.payment:
            self.ledger.append(("payment", payment.id, payment.paid_amount or _NOTHING))
        return order

    async def refund(self, order: orders.Order) -> None:
        """Refund *order*."""
        response = await self._client.orders.refund(order.id)
        self.ledger += [("refund", refund.id, -(refund.amount or _NOTHING)) for refund in response.refunds]

    async def cancel(self, order: orders.Order) -> None:
        """Cancel *order*, which is unpaid."""
        self.ledger.append(("order_canceled", (await self._client.orders.cancel(order.id)).id, _NOTHING))
