"""What became of a record whose time is over: recovery reads it, where it shows for certain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from decimal import Context, Decimal, localcontext
from pathlib import Path

import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, RequestInvalid, RetryPolicy
from paymentsdk.journal import Record, RecordState, SQLiteJournal
from paymentsdk.resources.orders import GET, REFUND, Order, OrderStatus, RefundRequest, RefundTransactionRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.journal.test_client import order

FIVE = Decimal("5.00")
LOST, FAILED = "lose_response_after_commit", "fail_before_commit"


class Seller:
    """A seller with a journal, and the platform."""

    def __init__(self, sandbox: Sandbox, client: PaymentsClient, journal: SQLiteJournal) -> None:
        self.sandbox, self.client, self.journal = sandbox, client, journal

    async def paid(self) -> Order:
        """An order of 10.50 that a buyer has paid."""
        made = await self.client.orders.create(order(), once="lunch")
        self.sandbox.buyer.pay(made.id)
        return await self.client.orders.get(made.id)

    async def refund(self, of: Order, name: str | None, effect: str | None = None, amount: Decimal = FIVE) -> None:
        """Refund a part, with or without a name; with *effect*, its outcome is in doubt."""
        if effect is not None:
            self.sandbox.faults.add(FaultRule(effect=effect, operation="orders.refund", times=1))
        with suppress(OutcomeUnknown):
            await self.client.orders.refund(of.id, payment_id=of.payment.id, amount=amount, once=name)

    async def create(self, name: str, effect: str) -> None:
        """Create an order whose outcome is in doubt."""
        self.sandbox.faults.add(FaultRule(effect=effect, operation="orders.create", times=1))
        with pytest.raises(OutcomeUnknown):
            await self.client.orders.create(order(), once=name)

    async def a_day_later(self) -> dict[str, Record]:
        """Recover when nothing may be sent any more; return the records by name."""
        self.sandbox.clock.advance(timedelta(hours=24))
        before = self.effects()
        await self.client.orders.create(order("other"), once="tells the time")
        await self.client.recover()
        assert before + 1 == self.effects(), "a recovery after the time has sent a write"
        return {row.name: row for row in await self.journal.records(tuple(RecordState))}

    def effects(self) -> int:
        """What the platform has done."""
        return sum(entry.kind in {"order_created", "refund"} for entry in self.sandbox.ledger())


@pytest.fixture
async def seller(tmp_path: Path) -> AsyncIterator[Seller]:
    """A seller without retries."""
    async with Sandbox() as sandbox:
        # The clock of the platform, by which the store counts, too: that of this machine does not pass a day.
        journal = SQLiteJournal(tmp_path / "payments.db", now=lambda: sandbox.clock.now().timestamp())
        async with PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, journal=journal, retry=RetryPolicy(attempts=1)
        ) as client:
            yield Seller(sandbox, client, journal)


async def test_an_order_and_a_partial_refund_are_for_a_person(seller: Seller) -> None:
    """Their outcome stays unknown after `not_after`, whatever the platform shows."""
    lunch = await seller.paid()
    await seller.refund(lunch, "refund", LOST)
    await seller.create("dinner", LOST)

    rows = await seller.a_day_later()

    assert {RecordState.UNKNOWN} == {rows[name].state for name in ("refund", "dinner")}


async def test_what_recovery_reads_is_no_result_of_a_call(seller: Seller) -> None:
    """Whoever runs it inside of `with_result` has made no call: the last order that it looked up is not the result."""
    lunch = await seller.paid()
    seller.sandbox.faults.add(FaultRule(effect=LOST, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="whole")
    seller.sandbox.clock.advance(timedelta(hours=24))
    await seller.client.orders.get(lunch.id)  # It tells the time.

    with pytest.raises(RequestInvalid, match="has made no call"):
        await seller.client.with_result(seller.client.recover)


@pytest.mark.parametrize(("effect", "state"), [(LOST, RecordState.DONE), (FAILED, RecordState.UNKNOWN)])
async def test_a_cancel_and_a_whole_refund_show_in_the_order(seller: Seller, effect: str, state: RecordState) -> None:
    """The state of the order says whether they took effect."""
    lunch = await seller.paid()
    dinner = await seller.client.orders.create(order("dinner"), once="dinner")
    for operation in ("orders.cancel", "orders.refund"):
        seller.sandbox.faults.add(FaultRule(effect=effect, operation=operation, times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.cancel(dinner.id, once="cancel")
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="refund")

    rows = await seller.a_day_later()

    assert {state} == {rows[name].state for name in ("cancel", "refund")}


@pytest.mark.parametrize("status", ["refunded", "processed"])
@pytest.mark.parametrize("detail", ["partially_refunded", "refunded"])
@pytest.mark.parametrize(("effect", "state"), [(LOST, RecordState.DONE), (FAILED, RecordState.UNKNOWN)])
async def test_a_part_that_went_back_is_no_whole_refund(
    seller: Seller, status: str, detail: str, effect: str, state: RecordState
) -> None:
    """The contract has `refunded` after a part, too: only when all that was paid went back, the whole is done."""
    seller.sandbox.platform.change_policies({"partial_refund_status": status, "partial_refund_detail": detail})
    lunch = await seller.paid()
    await seller.refund(lunch, "part")
    seller.sandbox.faults.add(FaultRule(effect=effect, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="whole")

    assert state is (await seller.a_day_later())["whole"].state


@pytest.mark.parametrize(
    ("payment", "refunds", "state"),
    [
        ('"paid_amount":"10.50","refunded_amount":"10.50"', "", RecordState.DONE),
        ('"paid_amount":"8.00","refunded_amount":"8.00"', "", RecordState.DONE),
        ('"refunded_amount":"8.00"', "", RecordState.UNKNOWN),
        ('"paid_amount":"10.50"', '{"id":"1","amount":"10.50","status":"processed"}', RecordState.DONE),
        ('"paid_amount":"10.50"', '{"id":"1","amount":"10.50","status":"failed"}', RecordState.UNKNOWN),
        ('"paid_amount":"10.50"', '{"id":"1","amount":"10.50","status":"processing"}', RecordState.UNKNOWN),
        ('"paid_amount":"10.50"', "", RecordState.UNKNOWN),
    ],
)
def test_what_went_back_is_counted(payment: str, refunds: str, state: RecordState) -> None:
    """By the payment, else by the refunds that moved money; where neither says it, nobody knows."""
    of = f'{{"payments":[{{"id":"PAY1","amount":"10.50",{payment}}}],"refunds":[{refunds}]}}'
    order, _ = GET.decode(f'{{"id":"ORD1","status":"refunded","transactions":{of}}}'.encode())

    assert (state is RecordState.DONE) == REFUND.took_effect(None, order)
    part = RefundRequest(transactions=[RefundTransactionRequest(id="PAY1", amount=FIVE)])
    assert not REFUND.took_effect(part, order)


def test_what_went_back_is_added_exactly_in_any_decimal_context() -> None:
    """A sum that the program's context would round up is not yet the whole."""
    part = '{"id":"%s","amount":"%s","status":"processed"}'
    refunds = f"{part % (1, '5.24')},{part % (2, '5.25')}"
    with localcontext(Context(prec=3)):
        test_what_went_back_is_counted('"paid_amount":"10.50"', refunds, RecordState.UNKNOWN)


async def test_a_read_that_fails_says_nothing(seller: Seller) -> None:
    """The record stays unknown, and the next recovery reads once more."""
    lunch = await seller.paid()
    seller.sandbox.faults.add(FaultRule(effect=LOST, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="in doubt")
    seller.sandbox.faults.add(FaultRule(effect="refuse", operation="orders.get", status=404, times=1))

    assert RecordState.UNKNOWN is (await seller.a_day_later())["in doubt"].state
    await seller.client.recover()
    again = await seller.client.orders.refund(lunch.id, once="in doubt")
    assert (OrderStatus.REFUNDED, 1) == (again.status, len(again.refunds))
