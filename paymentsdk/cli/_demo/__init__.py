"""``paymentsdk demo``: a day of a seller over HTTP on this machine, with faults, and how the books compare."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

from paymentsdk import OPERATIONS, PaymentsClient, RetryClass, RetryPolicy
from paymentsdk.cli._demo.books import Entry, Report, Step, compare, lines
from paymentsdk.cli._output import Output, counted, print_output, say
from paymentsdk.cli._parsing import count as count_of
from paymentsdk.errors import PaymentsError
from paymentsdk.events import AttemptEnded, Event
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.resources import merchant_orders, orders, preferences, release_reports
from paymentsdk.sandbox import FaultRule, Sandbox

T = TypeVar("T")
R = TypeVar("R")

_KEYED = [name for name, operation in OPERATIONS.items() if operation.keyed]
_UNKEYED = [name for name, operation in OPERATIONS.items() if operation.retry is RetryClass.UNKEYED]
#: What goes wrong meanwhile. The first request of every kind of keyed write takes effect and loses its response.
FAULTS = (
    *(FaultRule(effect="lose_response_after_commit", operation=name, nth=1) for name in _KEYED),
    FaultRule(effect="lose_response_after_commit", operation="orders.*", probability=0.05, seed=1),
    FaultRule(effect="fail_before_commit", operation="orders.*", probability=0.04, seed=2, status=503),
    FaultRule(effect="truncate", operation="orders.*", probability=0.02, seed=3),
    # What takes no key is sent again only because a 429 was not processed.
    *(FaultRule(effect="rate_limit", operation=name, nth=1, retry_after=1) for name in _UNKEYED),
    FaultRule(effect="reset", operation="merchant_orders.search", nth=1),
    FaultRule(effect="html", operation="merchant_orders.search", nth=2, status=502),
)
#: More attempts than usual, and shorter pauses: here, every tenth request is meant to fail.
RETRY = RetryPolicy(attempts=10, base_delay=0.05, max_delay=0.5)
#: How far the clock is moved, so that orders that nobody paid expire.
EXPIRY = "PT1H"
#: The number of the first sale of a till: those of the others are smaller.
FIRST = 50_000
#: Sales that it has under way.
AT_ONCE = 4
#: Seconds that have passed for the journal after the till was killed: its leases have ended.
LATER = 120.0
_NOTHING, _CENT = Decimal(0), Decimal("0.01")


def add_arguments(demo: ArgumentParser) -> None:
    """Add what `demo` takes."""
    demo.add_argument("--orders", type=count_of, default=300, metavar="N", help="orders to create (default: 300)")
    demo.add_argument("--concurrency", type=count_of, default=32, metavar="N", help="calls in flight (default: 32)")
    demo.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    demo.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    return demonstrate(number=options.orders, concurrency=options.concurrency, as_json=options.json)


def demonstrate(*, number: int, concurrency: int, as_json: bool) -> int:
    """Run the job, print what it came to, and return the exit code: 0 only if all books agree.

    Args:
        number: How many orders are created, 1 or more.
        concurrency: How many calls are in flight, 1 or more.
        as_json: Print one line of JSON.

    Raises:
        PaymentsError: A call failed for good; the books were not compared.
    """
    say(f"{counted(number, 'order')}, {counted(concurrency, 'call')} at a time, against a sandbox on this machine")
    try:
        report = asyncio.run(_work(number=number, concurrency=concurrency))
    except PaymentsError as error:
        raise PaymentsError(f"the job came to its end early: {type(error).__name__}: {error}") from error
    return print_output(Output(report, ["", *lines(report)], code=0 if report.clean else 1), as_json=as_json)


async def _work(*, number: int, concurrency: int) -> Report:
    sent: Counter[int] = Counter()

    def count(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            sent[event.number] += 1

    with TemporaryDirectory() as folder:
        journal = Path(folder) / "till.db"
        async with (
            Sandbox() as sandbox,
            PaymentsClient(
                base_url=sandbox.base_url,
                client_id=sandbox.client_id,
                client_secret=sandbox.client_secret,
                retry=RETRY,
                observers=[count],
                journal=SQLiteJournal(journal, now=lambda: time.time() + LATER),
            ) as client,
        ):
            faults = [sandbox.faults.add(rule) for rule in FAULTS]
            seller, diary = Seller(client, sandbox.external_pos_id), _Diary(client, concurrency)
            unpaid = await _trade(sandbox, seller, diary, number)
            unpaid += await _survive_kill(sandbox, seller, diary, journal, max(4, number // 10))
            found = await diary.walk("merchant orders walked", seller.walk_merchant_orders())
            sandbox.clock.advance(EXPIRY)
            await diary.each("orders seen to expire", seller.see_expired, unpaid)
            fired: Counter[str] = Counter()
            for fault in faults:
                fired[fault.rule.effect] += fault.hits
            ledger = compare(seller.believed, (Entry(row.kind, row.id, row.amount) for row in sandbox.ledger()))
            search = compare(seller.sold, _shown(found))
            clean = ledger.clean and search.clean
            return Report(clean, diary.steps, fired, sent[1], sent.total(), ledger, search)


async def _trade(sandbox: Sandbox, seller: Seller, diary: _Diary, number: int) -> list[orders.Order]:
    """Sell, refund and cancel; return the orders that nobody paid. The last digit of its number is an order's fate."""

    async def be_paid(order: orders.Order) -> orders.Order:
        sandbox.buyer.pay(order)
        return await seller.see_paid(order)

    await diary.each("signed in (OAuth)", seller.sign_in, [sandbox.authorization_code])
    created = await diary.each("orders created", seller.create_order, range(number))
    paid = await diary.each("orders paid and read", be_paid, (o for i, o in enumerate(created) if i % 10 not in {8, 9}))
    await diary.each("refunded in full", seller.refund, paid[1::8])
    await diary.each("refunded in part", seller.refund_half, paid[2::8])
    await diary.each("orders canceled", seller.cancel, created[8::10])
    await diary.each("preferences", seller.create_preference, ["demo-preference"])
    await diary.walk("report schedules ended", seller.end_reports())
    return created[9::10]


async def _survive_kill(
    sandbox: Sandbox, seller: Seller, diary: _Diary, journal: Path, sales: int
) -> list[orders.Order]:
    """Kill a till in the middle of its sales, recover them, and make all of them once more; return their orders."""
    await diary.walk("sold by a till that is killed", sell_and_die(sandbox, seller.access_token, journal, sales))
    await diary.walk("recovered", seller.recover())
    return await diary.each("sold again by name", seller.sell_once, range(FIRST, FIRST + sales))


class _Diary:
    """Does the parts of the job, and keeps how long each took."""

    def __init__(self, client: PaymentsClient, concurrency: int) -> None:
        self.steps: list[Step] = []
        self._client = client
        self._concurrency = concurrency

    async def each(self, name: str, do: Callable[[T], Awaitable[R]], things: Iterable[T]) -> list[R]:
        """Do something to all things, and return the results in their order."""

        async def done() -> list[R]:
            outcomes = self._client.map(do, things, concurrency=self._concurrency)
            return [outcome.value async for outcome in outcomes]

        return await self.walk(name, done())

    async def walk(self, name: str, rows: Awaitable[list[R]]) -> list[R]:
        """Await a list, and count its rows."""
        began = time.perf_counter()
        results = await rows
        step = Step(name, len(results), time.perf_counter() - began)
        self.steps.append(step)
        say(f"{step.name}: {step.done:,} in {step.seconds:.2f} s")
        return results


# --- the seller ---------------------------------------------------------------------------------------------------


class Seller:
    """One seller, who works with the platform and trusts nothing but its responses.

    Args:
        client: Calls the platform.
        external_pos_id: The point of sale that orders are paid at.
    """

    def __init__(self, client: PaymentsClient, external_pos_id: str) -> None:
        self.believed: list[Entry] = []
        """What happened, as far as the responses say; each entry as the platform's ledger should have it."""
        self.sold: list[Entry] = []
        """What each sale came to: what a search of merchant orders should show."""
        self.access_token: str = ""
        """What it works with, once it has signed in."""
        self._client = client
        self._external_pos_id = external_pos_id

    async def sign_in(self, code: str) -> None:
        """Exchange *code* for a token, and work with that from now on."""
        token = await self._client.oauth.exchange_code(code)
        self._note("token_created", token.user_id)
        self.access_token = token.access_token
        self._client = self._client.with_options(access_token=token.access_token)

    async def create_order(self, number: int, *, once: str | None = None) -> orders.Order:
        """Create the order *number*."""
        amount = Decimal(1_000 + number * 137 % 9_000) * _CENT
        qr = orders.QRConfigRequest(external_pos_id=self._external_pos_id, mode="dynamic")
        request = orders.OrderRequest(
            external_reference=f"demo-{number:05}",
            total_amount=amount,
            description="A sale of the demonstration",
            config=orders.OrderConfigRequest(qr=qr),
            transactions=orders.TransactionsRequest(payments=[orders.PaymentRequest(amount=amount)]),
        )
        order = await self._client.orders.create(request, once=once)
        self._note("order_created", order.id)
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
            self._note("payment", payment.id, payment.paid_amount)
            self._sold("paid", order, payment.paid_amount)
        return order

    async def see_expired(self, order: orders.Order) -> None:
        """Ask whether nobody has paid *order* in time."""
        order = await self._client.orders.get(order.id)
        if order.status == orders.OrderStatus.EXPIRED:
            self._note("order_expired", order.id)

    async def refund(self, order: orders.Order, payment_id: str | None = None, amount: Decimal | None = None) -> None:
        """Give back all of *order*, or a part of its payment."""
        answer = await self._client.orders.refund(order.id, payment_id=payment_id, amount=amount)
        for refund in answer.refunds:
            self._note("refund", refund.id, -(refund.amount or _NOTHING))
            self._sold("refunded", order, refund.amount)

    async def refund_half(self, order: orders.Order) -> None:
        """Give back a half of *order*, which is paid, rounded to a cent."""
        if payment := order.payment:
            await self.refund(order, payment.id, ((payment.paid_amount or _NOTHING) / 2).quantize(_CENT))

    async def cancel(self, order: orders.Order) -> None:
        """Cancel *order*, which nobody has paid."""
        self._note("order_canceled", (await self._client.orders.cancel(order.id)).id)

    async def create_preference(self, reference: str) -> None:
        """Create a preference, which a buyer pays in a browser."""
        item = preferences.PreferenceItemRequest(id="book", title="A book", quantity=2, unit_price=Decimal("12.50"))
        request = preferences.PreferenceRequest(items=[item], external_reference=reference)
        self._note("preference_created", (await self._client.preferences.create(request)).id)

    async def end_reports(self) -> list[release_reports.ReleaseReport]:
        """Have the platform make no more release reports."""
        report = await self._client.release_reports.disable_schedule()
        self._note("schedule_disabled", report.id)
        return [report]

    async def walk_merchant_orders(self) -> list[merchant_orders.MerchantOrder]:
        """Return what all sales have come to, as a search shows it."""
        return await self._client.merchant_orders.search(page_size=50, prefetch=4).collect()

    def _note(self, what: str, of: object, amount: Decimal | None = None) -> None:
        self.believed.append(Entry(what, str(of), amount or _NOTHING))

    def _sold(self, what: str, order: orders.Order, amount: Decimal | None) -> None:
        self.sold.append(Entry(what, str(order.external_reference), amount or _NOTHING))


def _shown(found: Iterable[merchant_orders.MerchantOrder]) -> Iterator[Entry]:
    """Yield what a search shows, as a seller keeps it in ``sold``."""
    for order in found:
        reference = str(order.external_reference)
        yield Entry("paid", reference, order.paid_amount or _NOTHING)
        if order.refunded_amount:
            yield Entry("refunded", reference, order.refunded_amount)


# --- a till, in a process of its own ------------------------------------------------------------------------------

_PROGRAM = f"import asyncio; from {__name__} import sell; asyncio.run(sell())"


async def sell_and_die(sandbox: Sandbox, token: str, journal: Path, sales: int) -> list[bytes]:
    """Start a till, kill it in the middle of *sales*, and return the ids of those that it has made known."""
    environment = {"PAYMENTSDK_BASE_URL": sandbox.base_url, "PAYMENTSDK_ACCESS_TOKEN": token}
    till = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, str(journal), sandbox.external_pos_id, str(sales)),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    said = cast("asyncio.StreamReader", till.stdout)
    try:
        return [await said.readline() for _ in range(sales // 2)]
    finally:
        till.kill()
        # Reads on: what it has said since was not heard by anybody.
        await till.communicate()


async def sell() -> None:
    """Sell as the arguments say (the journal, the point of sale, the number of sales), and print a line for each."""
    journal, external_pos_id, sales = sys.argv[1:]
    async with PaymentsClient.from_env(journal=SQLiteJournal(journal)) as client:
        sell_once, numbers = Seller(client, external_pos_id).sell_once, range(FIRST, FIRST + int(sales))
        async for sold in client.map(sell_once, numbers, concurrency=AT_ONCE):
            print(sold.value.id, flush=True)
