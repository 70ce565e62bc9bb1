"""What became of a record whose time is over: recovery reads it, where it shows for certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from paymentsdk import OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal
from paymentsdk.resources.orders import CREATE, GET, REFUND, Order, Orders
from paymentsdk.resources.plans import SEARCH
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
        created = await self.client.orders.create(order(), once="lunch")
        self.sandbox.buyer.pay(created.id)
        return await self.client.orders.get(created.id)

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

    async def a_day_later(self, **options: object) -> dict[str, Record]:
        """Recover when nothing may be sent any more; return the records by name."""
        self.sandbox.clock.advance(timedelta(hours=24))
        before = self.effects()
        await self.client.orders.create(order("other"), once="tells the time")
        await self.client.recover(**options)
        assert before + 1 == self.effects(), "a recovery after the time has sent a write"
        return {row.name: row for row in await self.journal.records(tuple(RecordState))}

    def effects(self) -> int:
        """What the platform has done."""
        return sum(entry.kind in {"order_created", "refund"} for entry in self.sandbox.ledger())


@pytest.fixture
async def seller(tmp_path: Path) -> AsyncIterator[Seller]:
    """A seller without retries."""
    async with Sandbox(beyond="reads") as sandbox:
        # The clock of the platform, by which the store counts, too: that of this machine does not pass a day.
        journal = SQLiteJournal(tmp_path / "payments.db", now=lambda: sandbox.clock.now().timestamp())
        async with PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, journal=journal, retry=RetryPolicy(attempts=1)
        ) as client:
            yield Seller(sandbox, client, journal)


def refund_of(row: Record) -> str:
    """The refund that a record stands for."""
    return REFUND.decode(row.response.body)[0].refunds[-1].id


async def test_a_partial_refund_shows_in_its_order(seller: Seller) -> None:
    """What took effect is done, if no other record refunds as much of the payment; its refund comes last."""
    lunch = await seller.paid()
    await seller.refund(lunch, "in doubt", LOST)
    await seller.refund(lunch, "last", amount=Decimal("4.00"))

    rows = await seller.a_day_later()

    assert {RecordState.DONE} == {rows[name].state for name in ("in doubt", "last")}
    refund_ids = [entry.id for entry in seller.sandbox.ledger() if entry.kind == "refund"]
    assert refund_ids == [refund_of(rows[name]) for name in ("in doubt", "last")]
    again = await seller.client.orders.refund(lunch.id, payment_id=lunch.payment.id, amount=FIVE, once="in doubt")
    assert refund_ids[0] == again.refunds[-1].id


@pytest.mark.parametrize("effect", [LOST, FAILED])
async def test_a_refund_of_another_record_proves_nothing(seller: Seller, effect: str) -> None:
    """Of equal refunds it does not show which record made which: a person says so."""
    lunch = await seller.paid()
    await seller.refund(lunch, "first")
    await seller.refund(lunch, "in doubt", effect)

    assert RecordState.UNKNOWN is (await seller.a_day_later())["in doubt"].state


async def _with_another_amount(seller: Seller, lunch: Order) -> None:
    await seller.refund(lunch, "of another amount", amount=Decimal("4.00"))


async def _outside(seller: Seller, lunch: Order) -> None:
    await seller.refund(lunch, None)
    await seller.refund(lunch, None, amount=Decimal("0.50"))


async def _purged(seller: Seller, lunch: Order) -> None:
    for _ in range(2):
        await seller.refund(lunch, "first")
    await seller.journal.purge(2e9)


async def _with_the_refund_of_another(seller: Seller, lunch: Order) -> None:
    for _ in range(2):  # The second waits until it is kept as done.
        await seller.refund(lunch, "first", amount=Decimal("4.00"))
    (first,) = [row for row in await seller.journal.records([RecordState.DONE]) if row.name == "first"]
    odd = structs.replace(first, key="odd", name="odd", body=first.body.replace(b"4.00", b"5.00"), owner="p/1")
    await seller.journal.begin(odd, lease=60.0)
    resolution = Resolution(state=RecordState.DONE, response=first.response)
    await seller.journal.resolve("odd", resolution, owner="p/1")


async def _whole(seller: Seller, lunch: Order) -> None:
    seller.sandbox.faults.add(FaultRule(effect=FAILED, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="whole")


@pytest.mark.parametrize(
    ("before", "effect", "state"),
    [
        (_with_another_amount, LOST, RecordState.DONE),
        (_with_another_amount, FAILED, RecordState.UNKNOWN),
        (_outside, LOST, RecordState.UNKNOWN),
        (_purged, LOST, RecordState.UNKNOWN),
        (_with_the_refund_of_another, LOST, RecordState.UNKNOWN),
        (_whole, LOST, RecordState.UNKNOWN),
    ],
)
async def test_what_may_be_anothers_stays_unknown(
    seller: Seller, before: Callable[[Seller, Order], object], effect: str, state: RecordState
) -> None:
    """A refund of another amount is not the one in doubt; one from outside, a purged or a whole one may be."""
    lunch = await seller.paid()
    await before(seller, lunch)
    await seller.refund(lunch, "in doubt", effect)

    assert state is (await seller.a_day_later())["in doubt"].state


async def test_an_order_that_was_paid_is_done(seller: Seller) -> None:
    """Its id is not known, so a call with its name says that it is done and has no value."""
    await seller.create("lunch", LOST)
    (order_id,) = [entry.id for entry in seller.sandbox.ledger() if entry.kind == "order_created"]
    seller.sandbox.buyer.pay(order_id)

    rows = await seller.a_day_later()

    assert (RecordState.DONE, None) == (rows["lunch"].state, rows["lunch"].response)
    with pytest.raises(OutcomeUnknown, match="it is done"):
        await seller.client.orders.create(order(), once="lunch")


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


@pytest.mark.parametrize(("effect", "state"), [(LOST, RecordState.DONE), (FAILED, RecordState.UNKNOWN)])
async def test_a_part_that_went_back_is_no_whole_refund(seller: Seller, effect: str, state: RecordState) -> None:
    """The contract has `refunded` after a part, too: only when all that was paid went back, the whole is done."""
    policies = {"partial_refund_status": "refunded", "partial_refund_detail": "refunded"}
    seller.sandbox.platform.change_policies(policies)
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
async def test_what_went_back_is_counted(
    seller: Seller, monkeypatch: pytest.MonkeyPatch, payment: str, refunds: str, state: RecordState
) -> None:
    """By the payment, else by the refunds that moved money; where neither says it, nobody knows."""
    lunch = await seller.paid()
    seller.sandbox.faults.add(FaultRule(effect=FAILED, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="whole")
    of = f'{{"payments":[{{"id":"PAY1","amount":"10.50",{payment}}}],"refunds":[{refunds}]}}'
    content = f'{{"id":"{lunch.id}","status":"refunded","transactions":{of}}}'.encode()

    async def get(orders: Orders, order_id: str) -> Order:
        return GET.decode(content)[0]

    monkeypatch.setattr(Orders, "get", get)

    assert state is (await seller.a_day_later())["whole"].state


@pytest.mark.parametrize(("order_id", "state"), [(None, RecordState.UNKNOWN), ("ORD-7", RecordState.DONE)])
async def test_an_operation_of_your_own_brings_its_look_up(
    seller: Seller, order_id: str | None, state: RecordState
) -> None:
    """It gets a client of the seller, the record and the other records; what it returns is the result of the name."""
    look_ups: list[tuple[str, int]] = []

    async def look_up(client: Any, record: Record, other_records: Callable[..., Any]) -> Order | None:
        look_ups.append((record.name, len(await other_records(path=record.path))))
        await client.call(SEARCH, query={"limit": 1})
        return None if order_id is None else Order(id=order_id)

    seller.client.own_operations = (replace(CREATE, look_up=look_up, resend_window=timedelta(minutes=15)),)
    await seller.create("lunch", LOST)

    rows = await seller.a_day_later()

    assert state is rows["lunch"].state
    assert [("lunch", 1)] == look_ups
    if order_id is not None:
        assert order_id == (await seller.client.orders.create(order(), once="lunch")).id


async def test_a_read_that_fails_says_nothing(seller: Seller) -> None:
    """The record stays unknown, and the next recovery reads once more."""
    lunch = await seller.paid()
    await seller.refund(lunch, "in doubt", LOST)
    seller.sandbox.faults.add(FaultRule(effect="refuse", operation="orders.get", status=404, times=1))

    assert RecordState.UNKNOWN is (await seller.a_day_later())["in doubt"].state
    await seller.client.recover()
    await seller.client.orders.refund(lunch.id, payment_id=lunch.payment.id, amount=FIVE, once="in doubt")
    (row,) = [row for row in await seller.journal.records([RecordState.DONE]) if row.name == "in doubt"]
    assert row.response is not None
