"""``paymentsdk demo``: a day of a seller over HTTP on this machine, with faults, and how the books compare."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from paymentsdk import OPERATIONS, PaymentsClient, RetryClass, RetryPolicy
from paymentsdk.cli._demo.books import Entry, Report, Step, compare, lines
from paymentsdk.cli._demo.seller import FIRST, LATER, Seller, sell_and_die, shown
from paymentsdk.cli._output import Output, counted, print_output
from paymentsdk.errors import PaymentsError
from paymentsdk.events import AttemptEnded, Event, Observer
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.resources.orders import Order
from paymentsdk.sandbox import FaultRule, Sandbox

T = TypeVar("T")
R = TypeVar("R")

#: What goes wrong meanwhile. The first request of every kind of keyed write takes effect and loses its response.
FAULTS = (
    *(
        FaultRule(effect="lose_response_after_commit", operation=name, nth=1)
        for name, operation in OPERATIONS.items()
        if operation.keyed
    ),
    FaultRule(effect="lose_response_after_commit", operation="orders.*", probability=0.05, seed=1),
    FaultRule(effect="fail_before_commit", operation="orders.*", probability=0.04, seed=2, status=503),
    FaultRule(effect="truncate", operation="orders.*", probability=0.02, seed=3),
    # What takes no key is sent again only because a 429 was not processed.
    *(
        FaultRule(effect="rate_limit", operation=name, nth=1, retry_after=1)
        for name, operation in OPERATIONS.items()
        if operation.retry is RetryClass.UNKEYED
    ),
    FaultRule(effect="reset", operation="merchant_orders.search", nth=2),
    FaultRule(effect="html", operation="merchant_orders.search", nth=3, status=502),
)
#: More attempts than usual, and shorter pauses: here, every tenth request is meant to fail.
RETRY = RetryPolicy(attempts=10, base_delay=0.05, max_delay=0.5)
#: How far the clock is moved, so that orders that nobody paid expire.
EXPIRY = "PT1H"


def demonstrate(*, orders: int, concurrency: int, as_json: bool) -> int:
    """Run the job, print what it came to, and return the exit code: 0 only if all books agree.

    Args:
        orders: How many orders are created, 1 or more.
        concurrency: How many calls are in flight, 1 or more.
        as_json: Print one line of JSON.

    Raises:
        PaymentsError: A call failed for good; the books were not compared.
    """
    _say(f"{counted(orders, 'order')}, {counted(concurrency, 'call')} at a time, against a sandbox on this machine")
    try:
        report = asyncio.run(_work(orders=orders, concurrency=concurrency))
    except PaymentsError as error:
        raise PaymentsError(f"the job came to its end early: {type(error).__name__}: {error}") from error
    return print_output(Output(report, ["", *lines(report)], code=0 if report.clean else 1), as_json=as_json)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
        _say(f"{step.name}: {step.done:,} in {step.seconds:.2f} s")
        return results


async def _work(*, orders: int, concurrency: int) -> Report:
    sent: Counter[int] = Counter()

    def count(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            sent[event.number] += 1

    async with (
        Sandbox() as sandbox,
        PaymentsClient(
            base_url=sandbox.base_url,
            client_id=sandbox.client_id,
            client_secret=sandbox.client_secret,
            retry=RETRY,
            observers=[count],
        ) as client,
    ):
        faults = [sandbox.faults.add(rule) for rule in FAULTS]
        seller, diary = Seller(client, sandbox.external_pos_id), _Diary(client, concurrency)
        unpaid = await _trade(sandbox, seller, diary, orders=orders)
        unpaid += await _survive_kill(sandbox, seller, diary, sales=max(4, orders // 10), observer=count)
        found = await diary.walk("merchant orders walked", seller.walk_merchant_orders())
        sandbox.clock.advance(EXPIRY)
        await diary.each("orders seen to expire", seller.see_expired, unpaid)
        fired: Counter[str] = Counter()
        for fault in faults:
            fired[fault.rule.effect] += fault.hits
        ledger = compare(seller.believed, (Entry(row.kind, row.id, row.amount) for row in sandbox.ledger()))
        search = compare(seller.sold, shown(found))
    clean = ledger.clean and search.clean
    return Report(clean, diary.steps, fired, calls=sent[1], requests=sent.total(), ledger=ledger, search=search)


async def _trade(sandbox: Sandbox, seller: Seller, diary: _Diary, *, orders: int) -> list[Order]:
    """Sell, refund and cancel; return the orders that nobody paid. The last digit of its number is an order's fate."""

    async def be_paid(order: Order) -> Order:
        sandbox.buyer.pay(order)
        return await seller.see_paid(order)

    await diary.each("signed in (OAuth)", seller.sign_in, [sandbox.authorization_code])
    created = await diary.each("orders created", seller.create_order, range(orders))
    paid = await diary.each("orders paid and read", be_paid, (o for i, o in enumerate(created) if i % 10 not in {8, 9}))
    await diary.each("refunded in full", seller.refund, paid[1::8])
    await diary.each("refunded in part", seller.refund_half, paid[2::8])
    await diary.each("orders canceled", seller.cancel, created[8::10])
    [preference] = await diary.each("preferences", seller.create_preference, ["demo-preference"])
    sandbox.buyer.pay_preference(preference)
    await diary.each("preferences paid and read", seller.see_preference_paid, [preference])
    await diary.each("report schedules ended", lambda _: seller.end_reports(), [None])
    return created[9::10]


async def _survive_kill(
    sandbox: Sandbox, seller: Seller, diary: _Diary, *, sales: int, observer: Observer
) -> list[Order]:
    """Kill a till in the middle of its sales, recover them, and make all of them once more; return their orders."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "till.db"
        await diary.walk("sold by a till that is killed", sell_and_die(sandbox, seller.access_token, path, sales))
        async with PaymentsClient(
            seller.access_token,
            base_url=sandbox.base_url,
            retry=RETRY,
            observers=[observer],
            journal=SQLiteJournal(path, now=lambda: time.time() + LATER),
        ) as client:
            await diary.walk("recovered", _recovered(client))
            next_till = Seller(client, sandbox.external_pos_id)
            made = await diary.each("sold again by name", next_till.sell_once, range(FIRST, FIRST + sales))
    seller.believed += next_till.believed
    return made


async def _recovered(client: PaymentsClient) -> list[RecordState]:
    """Recover, and return the states of the records that were open."""
    return list(Counter((await client.recover()).resolved).elements())
