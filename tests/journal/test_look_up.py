"""What became of a record whose time is over: recovery reads it, where it shows for certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from paymentsdk import OutcomeUnknown, PaymentsClient, RequestInvalid, RetryPolicy
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal, StoredResponse
from paymentsdk.resources.orders import CREATE, GET, REFUND, Order, Orders, RefundRequest
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


async def test_what_recovery_reads_is_no_result_of_a_call(seller: Seller) -> None:
    """Whoever runs it inside of `with_result` has made no call: the last order that it looked up is not the result."""
    lunch = await seller.paid()
    await seller.refund(lunch, "in doubt", LOST)
    seller.sandbox.clock.advance(timedelta(hours=24))
    await seller.client.orders.get(lunch.id)  # It tells the time.

    with pytest.raises(RequestInvalid, match="made no call"):
        await seller.client.with_result(seller.client.recover)


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


async def _with_a_response_of_another_version(seller: Seller, lunch: Order) -> None:
    for _ in range(2):  # The second waits until it is kept as done.
        await seller.refund(lunch, "first")
    (first,) = [row for row in await seller.journal.records([RecordState.DONE]) if row.name == "first"]
    unreadable = StoredResponse(201, {}, b"of another form")
    await seller.journal.begin(structs.replace(first, key="odd", name="odd", response=unreadable), lease=60.0)


async def _whole(seller: Seller, lunch: Order) -> None:
    seller.sandbox.faults.add(FaultRule(effect=FAILED, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.orders.refund(lunch.id, once="whole")


async def _whole_by_an_empty_object(seller: Seller, lunch: Order) -> None:
    seller.sandbox.faults.add(FaultRule(effect=FAILED, operation="orders.refund", times=1))
    with pytest.raises(OutcomeUnknown):
        await seller.client.call(REFUND, RefundRequest(), order_id=lunch.id, once="whole")


@pytest.mark.parametrize(
    ("before", "effect", "state"),
    [
        (_with_another_amount, LOST, RecordState.DONE),
        (_with_another_amount, FAILED, RecordState.UNKNOWN),
        (_outside, LOST, RecordState.UNKNOWN),
        (_purged, LOST, RecordState.UNKNOWN),
        (_with_the_refund_of_another, LOST, RecordState.UNKNOWN),
        (_with_a_response_of_another_version, LOST, RecordState.UNKNOWN),
        (_whole, LOST, RecordState.UNKNOWN),
        (_whole_by_an_empty_object, LOST, RecordState.UNKNOWN),
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


@pytest.mark.parametrize("second", [LOST, FAILED])
async def test_equal_refunds_in_doubt_stay_unknown(seller: Seller, second: str) -> None:
    """However many of them show."""
    lunch = await seller.paid()
    await seller.refund(lunch, "one", LOST)
    await seller.refund(lunch, "two", second)

    rows = await seller.a_day_later()

    assert {RecordState.UNKNOWN} == {rows[name].state for name in ("one", "two")}


@pytest.mark.parametrize("is_dated", [False, True])
async def test_an_order_that_was_paid_is_done(seller: Seller, is_dated: bool) -> None:
    """Its id is not known, so a call with its name says that it is done and has no value.

    Its beginning is known in the platform's time, or follows from its age.
    """
    if is_dated:
        await seller.client.plans.search().first()
    await seller.create("lunch", LOST)
    (order_id,) = [entry.id for entry in seller.sandbox.ledger() if entry.kind == "order_created"]
    seller.sandbox.buyer.pay(order_id)

    rows = await seller.a_day_later()

    assert (RecordState.DONE, None) == (rows["lunch"].state, rows["lunch"].response)
    with pytest.raises(OutcomeUnknown, match="it is done"):
        await seller.client.orders.create(order(), once="lunch")


@pytest.mark.parametrize("effect", [LOST, FAILED])
async def test_an_unpaid_order_does_not_show(seller: Seller, effect: str) -> None:
    """Whether it was made is for a person to say."""
    await seller.create("lunch", effect)

    assert RecordState.UNKNOWN is (await seller.a_day_later())["lunch"].state


async def test_a_record_of_a_later_version_proves_nothing(seller: Seller) -> None:
    """What this version cannot read may have made the order that was paid; the recovery of the others goes on."""
    await seller.create("lunch", LOST)
    (order_id,) = [entry.id for entry in seller.sandbox.ledger() if entry.kind == "order_created"]
    seller.sandbox.buyer.pay(order_id)
    (row,) = await seller.journal.records([RecordState.UNKNOWN])
    odd = structs.replace(
        row, key="odd", name="odd", body=b'{"member_of_tomorrow":1,' + row.body[1:], state=RecordState.PENDING
    )
    await seller.journal.begin(odd, lease=0.0)

    assert RecordState.UNKNOWN is (await seller.a_day_later())["lunch"].state


async def test_an_order_of_another_record_proves_nothing(seller: Seller) -> None:
    """The control: the same ticket was sold and paid under another name."""
    await seller.paid()
    await seller.create("lunch/2", FAILED)

    assert RecordState.UNKNOWN is (await seller.a_day_later())["lunch/2"].state


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


class CountingJournal(SQLiteJournal):
    """Counts the records that it was asked for."""

    count = 0

    async def records(self, among: Collection[RecordState], **which: Any) -> list[Record]:
        """Count what is returned."""
        rows = await super().records(among, **which)
        self.count += len(rows)
        return rows


async def test_a_look_up_reads_no_other_records(tmp_path: Path) -> None:
    """However long the journal is: those alone may have done what is seen that are of the order, or its reference."""
    journal = CountingJournal(tmp_path / "payments.db")
    async with (
        Sandbox() as sandbox,
        PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, journal=journal, retry=RetryPolicy(attempts=1)
        ) as client,
    ):
        seller = Seller(sandbox, client, journal)
        lunch = await seller.paid()
        for number in range(20):
            second = await client.orders.create(order(f"other-{number}"), once=f"other-{number}")
            await client.orders.cancel(second.id, once=f"cancel-{number}")
        await seller.refund(lunch, "in doubt", LOST)
        await seller.create("dinner", LOST)
        sandbox.clock.advance(timedelta(hours=24))
        await client.plans.search().collect()  # It tells the time.
        journal.count = 0

        await client.recover()

    # All that is open, before and after; and of the look-ups each its own, and the order of the same reference.
    assert journal.count <= 2 * 2 + 3


class FullJournal(SQLiteJournal):
    """Returns as many records as it may, whenever it is asked for those of a path."""

    async def records(self, among: Collection[RecordState], *, limit: int = 1000, **which: Any) -> list[Record]:
        """Repeat what is there."""
        rows = await super().records(among, limit=limit, **which)
        return (rows * limit)[:limit] if which.get("path") else rows


@pytest.mark.parametrize(("kind", "state"), [(SQLiteJournal, RecordState.DONE), (FullJournal, RecordState.UNKNOWN)])
async def test_more_records_than_are_read_prove_nothing(
    tmp_path: Path, kind: type[SQLiteJournal], state: RecordState
) -> None:
    """If the records that were read may not be all, another record may have done what the order shows."""
    async with Sandbox() as sandbox:
        journal = kind(tmp_path / "payments.db", now=lambda: sandbox.clock.now().timestamp())
        async with PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, journal=journal, retry=RetryPolicy(attempts=1)
        ) as client:
            seller = Seller(sandbox, client, journal)
            await seller.refund(await seller.paid(), "in doubt", LOST)

            assert state is (await seller.a_day_later())["in doubt"].state


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


async def test_what_went_back_is_added_exactly_in_any_decimal_context(
    seller: Seller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that the program's context would round up is not yet the whole."""
    part = '{"id":"%s","amount":"%s","status":"processed"}'
    refunds = f"{part % (1, '5.24')},{part % (2, '5.25')}"
    with localcontext(Context(prec=3)):
        await test_what_went_back_is_counted(seller, monkeypatch, '"paid_amount":"10.50"', refunds, RecordState.UNKNOWN)


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
