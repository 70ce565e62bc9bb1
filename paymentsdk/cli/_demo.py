"""``paymentsdk demo``: a day of a seller over HTTP on this machine, with faults, and whether both ledgers match."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar, cast

from paymentsdk import PaymentsClient, RetryPolicy
from paymentsdk.cli._output import counted, say
from paymentsdk.cli._parsing import DONE, FAILED, count
from paymentsdk.errors import PaymentsError
from paymentsdk.events import AttemptEnded, Event
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.resources import merchant_orders, orders
from paymentsdk.sandbox import FaultRule, Sandbox

T = TypeVar("T")
R = TypeVar("R")

#: What goes wrong meanwhile. The first write of each kind takes effect and loses its response.
FAULTS = (
    FaultRule(effect="lose_response_after_commit", operation="orders.create", nth=1),
    FaultRule(effect="lose_response_after_commit", operation="orders.cancel", nth=1),
    FaultRule(effect="lose_response_after_commit", operation="orders.refund", nth=1),
    FaultRule(effect="lose_response_after_commit", operation="orders.*", probability=0.05, seed=1),
    FaultRule(effect="fail_before_commit", operation="orders.*", probability=0.04, seed=2, status=503),
    FaultRule(effect="truncate", operation="orders.*", probability=0.02, seed=3),
    FaultRule(effect="rate_limit", operation="orders.get", nth=1, retry_after=1),
    FaultRule(effect="reset", operation="merchant_orders.search", nth=1),
    FaultRule(effect="html", operation="merchant_orders.search", nth=2, status=502),
)
#: More attempts than usual, and shorter pauses: here, every tenth request is meant to fail.
RETRY = RetryPolicy(attempts=10, base_delay=0.05, max_delay=0.5)
#: Calls in flight.
CONCURRENCY = 32
#: The number of the first sale of a till: those of the others are smaller.
FIRST = 50_000
#: Sales that a till has under way.
AT_ONCE = 4
#: Seconds that have passed for the journal after the till was killed: its leases have ended.
LATER = 120.0
#: Of so many things at a time, a part of the day says that they are done.
TOLD = 1_000
#: Differences of a kind that are printed.
SHOWN = 5
_NOTHING, _CENT = Decimal(0), Decimal("0.01")


def add_arguments(demo: ArgumentParser) -> None:
    """Add what `demo` takes."""
    demo.add_argument("--orders", type=count, default=300, metavar="N", help="orders to create (default: 300)")
    demo.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    """Run the demo, print what it came to, and return the exit code: 0 only if all books agree.

    Raises:
        PaymentsError: A call failed for good; the books were not compared.
    """
    say(f"{counted(options.orders, 'order')}, up to {CONCURRENCY} calls at a time, against a sandbox on this machine")
    try:
        comparisons = asyncio.run(_work(options.orders))
    except PaymentsError as error:
        raise PaymentsError(f"the demo came to its end early: {type(error).__name__}: {error}") from error
    for name, one in comparisons.items():
        print(f"client and {name} agree on {counted(one.agreed, 'entry', 'entries')}: {_differing(one)}")
        for kind, entries in (("double", one.double), ("lost", one.lost)):
            for entry in entries[:SHOWN]:
                print(f"  {kind}: {entry}")
    clean = not any(one.double or one.lost for one in comparisons.values())
    print(f"{'passed' if clean else 'failed'}: {_differing(*comparisons.values())}")
    return DONE if clean else FAILED


async def _work(number: int) -> dict[str, Comparison]:
    """Do the day of a seller with so many orders, and return what the books of the client were compared with."""
    sent: Counter[int] = Counter()

    def count_attempt(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            sent[event.number] += 1

    with TemporaryDirectory() as folder:
        file = Path(folder) / "till.db"
        journal = SQLiteJournal(file, now=lambda: time.time() + LATER)
        async with (
            Sandbox() as sandbox,
            PaymentsClient(
                sandbox.access_token,
                base_url=sandbox.base_url,
                retry=RETRY,
                observers=[count_attempt],
                journal=journal,
            ) as client,
        ):
            faults = [sandbox.faults.add(rule) for rule in FAULTS]
            seller = Seller(client, sandbox.tenant.external_pos_id)
            await _trade(sandbox, seller, number)
            await _survive_kill(sandbox, seller, file, max(4, number // 10))
            found = await _step("merchant orders found", seller.search())
            fired: Counter[str] = Counter()
            for fault in faults:
                fired[fault.rule.effect] += fault.hits
            recorded = (Entry(row.kind, row.id, row.amount) for row in sandbox.ledger())
            ledger, searches = compare(seller.ledger, recorded), compare(seller.sales, _shown(found))
    say(f"faults that fired: {', '.join(f'{hits:,} {effect}' for effect, hits in fired.items())}")
    say(f"{counted(sent[1], 'call')}, {counted(sent.total(), 'request')}")
    return {"ledger": ledger, "searches": searches}


async def _trade(sandbox: Sandbox, seller: Seller, number: int) -> None:
    """Sell, refund and cancel."""

    async def be_paid(order: orders.Order) -> orders.Order:
        sandbox.buyer.pay(order)
        return await seller.see_paid(order)

    created = await _step("orders created", seller.each(seller.create_order, range(number)))
    await _step("orders canceled", seller.each(seller.cancel, created[8::10]))
    del created[8::10]
    paid = await _step("orders paid and read", seller.each(be_paid, created))
    await _step("refunded in full", seller.each(seller.refund, paid[1::8]))
    await _step("refunded in part", seller.each(seller.refund_half, paid[2::8]))


async def _survive_kill(sandbox: Sandbox, seller: Seller, journal: Path, sales: int) -> None:
    """Kill a till in the middle of its sales, recover them, and make all of them once more."""
    await _step("sold by a till that is killed", sell_and_die(sandbox, journal, sales))
    await _step("recovered", seller.recover())
    await _step("sold again by name", seller.each(seller.sell_once, range(FIRST, FIRST + sales)))


async def _step(name: str, rows: Awaitable[list[R]]) -> list[R]:
    """Await what a part of the day comes to, say how long that took, and return it."""
    began = time.perf_counter()
    results = await rows
    say(f"{name}: {len(results):,} in {time.perf_counter() - began:.2f} s")
    return results


# --- the books ----------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One thing that happened."""

    what: str
    """``"payment"``, ``"refund"``, ..."""
    of: str
    """The id of what it happened to."""
    amount: Decimal = _NOTHING
    """How much money; zero where none moved."""

    def __str__(self) -> str:
        return f"{self.what} of {self.of}" + (f", {self.amount}" if self.amount else "")


class Comparison(NamedTuple):
    """Where two books differ."""

    agreed: int
    """How many entries are in both."""
    double: list[Entry]
    """What was recorded and is not believed: done twice, or done behind the caller's back."""
    lost: list[Entry]
    """What is believed and was not recorded."""


def compare(believed: Iterable[Entry], recorded: Iterable[Entry]) -> Comparison:
    """Compare what a client believes with what the platform recorded, entry by entry.

    An entry that differs in its amount alone is in both lists: once lost, and once done unasked.
    """
    ours, theirs = Counter(believed), Counter(recorded)
    double, lost = theirs - ours, ours - theirs
    return Comparison((ours & theirs).total(), sorted(double.elements()), sorted(lost.elements()))


def _differing(*comparisons: Comparison) -> str:
    double = sum(len(one.double) for one in comparisons)
    lost = sum(len(one.lost) for one in comparisons)
    return f"{double:,} double, {lost:,} lost"


# --- the seller ---------------------------------------------------------------------------------------------------


class Seller:
    """One seller, who works with the platform and trusts nothing but its responses.

    Args:
        client: Calls the platform.
        external_pos_id: The point of sale that orders are paid at.
    """

    def __init__(self, client: PaymentsClient, external_pos_id: str) -> None:
        self.ledger: list[Entry] = []
        """What happened, as far as the responses say; each entry as the platform's ledger should have it."""
        self.sales: list[Entry] = []
        """What each sale came to: what a search of merchant orders should show."""
        self._client = client
        self._external_pos_id = external_pos_id

    async def each(self, do: Callable[[T], Awaitable[R]], things: Iterable[T]) -> list[R]:
        """Do something to all things, say from time to time how far that is, and return the results in their order."""
        results = []
        async for outcome in self._client.map(do, things, concurrency=CONCURRENCY):
            results.append(outcome.value)
            if len(results) % TOLD == 0:
                say(f"  {len(results):,} are done")
        return results

    async def create_order(self, number: int, *, once: str | None = None) -> orders.Order:
        """Create the order *number*."""
        amount = Decimal(1_000 + number * 137 % 9_000) * _CENT
        qr = orders.QRConfigRequest(external_pos_id=self._external_pos_id, mode="dynamic")
        request = orders.OrderRequest(
            external_reference=f"demo-{number:05}",
            total_amount=amount,
            config=orders.OrderConfigRequest(qr=qr),
            transactions=orders.TransactionsRequest(payments=[orders.PaymentRequest(amount=amount)]),
        )
        order = await self._client.orders.create(request, once=once)
        self.ledger.append(Entry("order_created", order.id))
        return order

    async def sell_once(self, number: int) -> orders.Order:
        """Create the order *number* under a name: once, also if the process that does so is killed."""
        return await self.create_order(number, once=f"demo/{number}")

    async def recover(self) -> list[RecordState]:
        """Finish what was open in the journal, and return the state of each such record."""
        return list(Counter((await self._client.recover()).resolved).elements())

    async def see_paid(self, order: orders.Order) -> orders.Order:
        """Ask whether *order* was paid, and how much."""
        order = await self._client.orders.get(order.id)
        if payment := order.payment:
            self.ledger.append(Entry("payment", payment.id, payment.paid_amount or _NOTHING))
            self._sold("paid", order, payment.paid_amount)
        return order

    async def refund(self, order: orders.Order, payment_id: str | None = None, amount: Decimal | None = None) -> None:
        """Give back all of *order*, or a part of its payment."""
        response = await self._client.orders.refund(order.id, payment_id=payment_id, amount=amount)
        for refund in response.refunds:
            self.ledger.append(Entry("refund", refund.id, -(refund.amount or _NOTHING)))
            self._sold("refunded", order, refund.amount)

    async def refund_half(self, order: orders.Order) -> None:
        """Give back a half of *order*, which is paid, rounded to a cent."""
        if payment := order.payment:
            await self.refund(order, payment.id, ((payment.paid_amount or _NOTHING) / 2).quantize(_CENT))

    async def cancel(self, order: orders.Order) -> None:
        """Cancel *order*, which nobody has paid."""
        self.ledger.append(Entry("order_canceled", (await self._client.orders.cancel(order.id)).id))

    async def search(self) -> list[merchant_orders.MerchantOrder]:
        """Return what all sales have come to, as a search shows it."""
        return await self._client.merchant_orders.search(page_size=50, prefetch=4).collect()

    def _sold(self, what: str, order: orders.Order, amount: Decimal | None) -> None:
        self.sales.append(Entry(what, str(order.external_reference), amount or _NOTHING))


def _shown(found: Iterable[merchant_orders.MerchantOrder]) -> Iterator[Entry]:
    """Yield what a search shows, as a seller keeps it in ``sales``."""
    for order in found:
        reference = str(order.external_reference)
        yield Entry("paid", reference, order.paid_amount or _NOTHING)
        if order.refunded_amount:
            yield Entry("refunded", reference, order.refunded_amount)


# --- a till, in a process of its own ------------------------------------------------------------------------------

_PROGRAM = f"import asyncio; from {__name__} import sell; asyncio.run(sell())"


async def sell_and_die(sandbox: Sandbox, journal: Path, sales: int) -> list[bytes]:
    """Start a till, kill it in the middle of *sales*, and return the ids of those that it has made known."""
    access = {"PAYMENTSDK_BASE_URL": sandbox.base_url, "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token}
    till = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, str(journal), sandbox.tenant.external_pos_id, str(sales)),
        env={**os.environ, **access},
        stdout=asyncio.subprocess.PIPE,
    )
    said = cast("asyncio.StreamReader", till.stdout)
    try:
        return [line for _ in range(sales // 2) if (line := await said.readline())]
    finally:
        with suppress(ProcessLookupError):  # It has died by itself.
            till.kill()
        # Reads on: what it has said since was not heard by anybody.
        await till.communicate()


async def sell() -> None:
    """Sell as the arguments say (the journal, the point of sale, the number of sales), and print a line for each."""
    journal, external_pos_id, sales = sys.argv[1:]
    token, base_url = os.environ["PAYMENTSDK_ACCESS_TOKEN"], os.environ["PAYMENTSDK_BASE_URL"]
    async with PaymentsClient(token, base_url=base_url, journal=SQLiteJournal(journal)) as client:
        sell_once, numbers = Seller(client, external_pos_id).sell_once, range(FIRST, FIRST + int(sales))
        async for sold in client.map(sell_once, numbers, concurrency=AT_ONCE):
            print(sold.value.id, flush=True)
