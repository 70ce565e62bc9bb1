"""Refunds of orders: whole and in parts, at once and slowly, and what they leave to do."""

from __future__ import annotations

from decimal import Decimal

import pytest

from paymentsdk import BadRequest, Conflict, OutcomeUnknown
from tests.sandbox.orders import bring, members, payment


async def test_no_more_goes_back_than_was_paid(client, sandbox, order):
    """With a discount, what can be refunded is what the buyer paid."""
    new_order = await client.orders.create(
        order(discounts={"payment_methods": [{"type": "debit_card", "new_total_amount": "40.00"}]})
    )
    sandbox.buyer.pay(new_order, payment_method="debit_card")

    with pytest.raises(BadRequest) as refused:
        await client.orders.refund(new_order.id, payment_id=payment(new_order).id, amount=Decimal("40.01"))
    await client.orders.refund(new_order.id)

    assert "refund_amount_exceeds" == refused.value.code
    assert 0 == sum(entry.amount for entry in sandbox.ledger())


async def test_a_full_refund_gives_everything_back(client, sandbox, order):
    """Processed -> refunded / refunded; the refund is an entry of its own."""
    new_order = await client.orders.create(order())
    sandbox.buyer.pay(new_order)

    response = await client.orders.refund(new_order.id)
    now = await client.orders.get(new_order.id)

    assert ("refunded", "refunded") == (response.status, response.status_detail) == (now.status, now.status_detail)
    assert ("refunded", "refunded") == (payment(now).status, payment(now).status_detail)
    assert Decimal("50.00") == payment(now).refunded_amount
    [refund] = now.transactions.refunds
    assert (refund,) == response.transactions.refunds
    assert ("REF", 29, 12) == (refund.id[:3], len(refund.id), len(refund.reference_id))
    assert (payment(new_order).id, 50, "processed") == members(refund, "transaction_id amount status")
    assert None is response.total_amount


async def test_a_refund_is_of_one_payment(client, plain, sandbox, order):
    """A list of none or of several breaks a rule; the contract has the codes for that at creation alone."""
    new_order = await client.orders.create(order())
    sandbox.buyer.pay(new_order)
    part = {"id": payment(new_order).id, "amount": "10.00"}
    for parts in ([], [part] * 2, [{**part, "id": "PAY" + "0" * 26}]):
        response = await plain("POST", f"/v1/orders/{new_order.id}/refund", {"transactions": parts}, key="k")

        assert (400, "property_value") == (response.status, response.code)
    assert "transactions[0].id" in response.json["errors"][0]["details"][0]
    assert "processed" == (await client.orders.get(new_order.id)).status


@pytest.mark.parametrize(("status", "detail"), [("refunded", "partially_refunded"), ("processed", "accredited")])
@pytest.mark.control(
    "paymentsdk.sandbox._handlers.orders.refundable", lambda payment: payment.paid_amount, raises=pytest.fail.Exception
)
async def test_parts_go_back_until_nothing_is_left(start, connect, order, status, detail):
    """A part leads to the state of the policies, the last part to refunded; then nothing can be refunded."""
    sandbox = await start(policies={"partial_refund_status": status, "partial_refund_detail": detail})
    async with connect(sandbox) as client:
        new_order = await client.orders.create(order())
        sandbox.buyer.pay(new_order)
        first = await client.orders.refund(new_order.id, payment_id=payment(new_order).id, amount=Decimal("20.00"))
        between = await client.orders.get(new_order.id)
        last = await client.orders.refund(new_order.id, payment_id=payment(new_order).id, amount=Decimal("30.00"))
        refunded = await client.orders.get(new_order.id)
        with pytest.raises(Conflict) as refused:
            await client.orders.refund(new_order.id)

    assert (status, detail) == (first.status, first.status_detail) == (between.status, between.status_detail)
    assert Decimal("20.00") == payment(between).refunded_amount
    assert ("refunded", "refunded") == (last.status, last.status_detail)
    assert [Decimal("20.00"), Decimal("30.00")] == [refund.amount for refund in refunded.transactions.refunds]
    assert "order_already_refunded" == refused.value.code


async def test_a_refund_can_take_its_time(start, connect, order):
    """Under `refund_seconds` a refund is processing and the order unchanged: no other, and no cancellation, can begin.

    Otherwise the money would go back twice.
    """
    sandbox = await start(frozen=True, policies={"refund_seconds": 60, "cancel_from": "any"})
    async with connect(sandbox) as client:
        new_order = await client.orders.create(order())
        sandbox.buyer.pay(new_order)
        response = await client.orders.refund(new_order.id)
        with pytest.raises(OutcomeUnknown) as refused:
            await client.orders.refund(new_order.id)
        with pytest.raises(OutcomeUnknown) as locked:
            await client.orders.cancel(new_order.id)
        [happening] = sandbox.clock.advance("PT60S")
        refunded = await client.orders.get(new_order.id)

    assert ("processed", "processing") == (response.status, response.transactions.refunds[0].status)
    assert (409, "refund_in_progress") == (refused.value.last_error.status, refused.value.last_error.code)
    assert (423, "resource_locked") == (locked.value.last_error.status, locked.value.last_error.code)
    assert ("refund.processed", new_order.id) == (happening.kind, happening.id)
    assert ("refunded", "processed") == (refunded.status, refunded.transactions.refunds[0].status)
    assert 0 == sum(entry.amount for entry in sandbox.ledger())


@pytest.mark.parametrize("seconds", [0, 60])
async def test_a_refund_can_fail_and_be_tried_again(start, connect, order, seconds):
    """Under `refund_outcome=failed` no money moves and only the list of refunds changes; another key tries it again."""
    sandbox = await start(frozen=True, policies={"refund_seconds": seconds, "refund_outcome": "failed"})
    async with connect(sandbox) as client:
        new_order = await client.orders.create(order("50.00"))
        paid = sandbox.buyer.pay(new_order)
        part = {"payment_id": new_order.transactions.payments[0].id, "amount": Decimal("20.00")}
        response = await client.orders.refund(new_order.id, **part, idempotency_key="first")
        happened = sandbox.clock.advance("PT60S")
        failed, [before] = await client.orders.get(new_order.id), await client.merchant_orders.search().collect()
        sandbox.platform.change_policies({"refund_outcome": "processed"})
        assert response == await client.orders.refund(new_order.id, **part, idempotency_key="first")
        await client.orders.refund(new_order.id, **part, idempotency_key="second")
        sandbox.clock.advance("PT60S")
        refunded, [after] = await client.orders.get(new_order.id), await client.merchant_orders.search().collect()

    assert ("processing" if seconds else "failed") == response.transactions.refunds[0].status
    assert (["refund.failed"] if seconds else []) == [event.kind for event in happened]
    unchanged = "status status_detail transactions.payments"
    assert members(paid, unchanged) == members(failed, unchanged)
    assert (0, 20) == (before.refunded_amount, after.refunded_amount)
    assert ["failed", "processed"] == [refund.status for refund in refunded.transactions.refunds]
    assert Decimal("20.00") == refunded.transactions.payments[0].refunded_amount
    moved = [(entry.kind, entry.amount, entry.idempotency_key) for entry in sandbox.ledger() if "refund" in entry.kind]
    assert [("refund_failed", 0, "first"), ("refund", -20, "second")] == moved


@pytest.mark.control("paymentsdk.sandbox._handlers.orders.refundable", lambda payment: payment.paid_amount)
async def test_the_rest_of_a_half_refunded_order_goes_back_when_it_is_canceled(start, connect, order):
    """The cancellation gives back what the refund left, and is none itself: `refunded_amount` is of refunds alone."""
    sandbox = await start(frozen=True, policies={"cancel_from": "any"})
    async with connect(sandbox) as client:
        new_order = await bring(client, sandbox, order, "processed")
        await client.orders.refund(new_order.id, payment_id=new_order.payment.id, amount=Decimal("20.00"))
        canceled = await client.orders.cancel(new_order.id)
        sold = await client.merchant_orders.search().first()

    assert (Decimal("20.00"), Decimal("20.00")) == (canceled.payment.refunded_amount, canceled.refunds[0].amount)
    assert [Decimal("-20.00"), Decimal("-30.00")] == [entry.amount for entry in sandbox.ledger()][-2:]
    assert ("reverted", Decimal("50.00")) == (sold.order_status, sold.refunded_amount)


async def test_only_a_paid_order_can_be_refunded(client, sandbox, order):
    """There is nothing to give back."""
    for state in ("created", "canceled", "expired"):
        new_order = await bring(client, sandbox, order, state)
        with pytest.raises(Conflict) as refused:
            await client.orders.refund(new_order.id)

        assert "cannot_refund_order" == refused.value.code
