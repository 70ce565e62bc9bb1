"""The ledger: what a line says of its effect, for whoever checks their own books against it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext

import pytest

from paymentsdk.resources import wallet_payments
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest, ShipmentsRequest
from paymentsdk.sandbox import PlanRequest, RecurringRequest


@pytest.fixture
def lines(sandbox):
    """Returns the lines: kind, amount, what moved, what that belongs to, the integrator's name of it, and the key."""
    return lambda: [
        (entry.kind, entry.amount, entry.id, entry.order_id, entry.external_reference, entry.idempotency_key)
        for entry in sandbox.ledger()
    ]


async def test_a_line_of_an_order_names_it_and_what_moved(client, sandbox, order, lines):
    """The payment or the refund, the order, its reference and the key; what expires has no key."""
    paid, unpaid, spared = [
        (await client.orders.create(order(external_reference=name), idempotency_key=f"make-{name}")).id
        for name in ("paid", "left", "spared")
    ]
    payment = sandbox.buyer.pay(paid).payment
    refund = await client.orders.refund(paid, payment_id=payment.id, amount=Decimal("20.00"), idempotency_key="back")
    await client.orders.cancel(spared, idempotency_key="stop")
    sandbox.clock.advance("PT15M")

    assert [
        ("order_created", 0, paid, paid, "paid", "make-paid"),
        ("order_created", 0, unpaid, unpaid, "left", "make-left"),
        ("order_created", 0, spared, spared, "spared", "make-spared"),
        ("payment", 50, payment.id, paid, "paid", None),
        ("refund", -20, refund.refunds[0].id, paid, "paid", "back"),
        ("order_canceled", 0, spared, spared, "spared", "stop"),
        ("order_expired", 0, unpaid, unpaid, "left", None),
    ] == lines()


async def test_a_line_of_a_sale_names_its_preference(client, sandbox, lines):
    """The payment is the one that was approved; it and what went back of it have the reference of the preference."""
    item = PreferenceItemRequest(unit_price=Decimal(5))
    new_preference = await client.preferences.create(PreferenceRequest(items=[item], external_reference="basket"))
    sandbox.buyer.pay_preference(new_preference, outcome="rejected")
    _, payment = sandbox.buyer.pay_preference(new_preference).payments
    [paid] = await client.merchant_orders.search().collect()
    sandbox.buyer.refund_merchant_order(paid.id, Decimal(2))

    created, sold, back = lines()
    assert ("preference_created", 0, new_preference.id, new_preference.id, "basket", None) == created
    assert ("payment", 5, str(payment.id), new_preference.id, "basket", None) == sold
    assert ("refund", -2, new_preference.id, "basket", None) == (*back[:2], *back[3:])


async def test_a_line_of_an_invoice_names_it_and_its_payment(client, sandbox, lines):
    """Under the reference of the subscription, when it is collected and when the money goes back."""
    subscription = sandbox.buyer.subscribe(external_reference="member-1")
    sandbox.clock.advance("P1D")
    _, invoice = await client.invoices.search(preapproval_id=subscription.id).collect()
    sandbox.buyer.change_invoice_payment(invoice.id, "charged_back")

    about = (str(invoice.payment.id), str(invoice.id), "member-1", None)
    assert [("invoice_payment", Decimal("99.90"), *about), ("invoice_payment", Decimal("-99.90"), *about)] == lines()


async def _money_moves(sandbox, client, order) -> None:
    """Have every kind of movement take place."""
    for name in ("paid", "canceled"):
        new_order = await client.orders.create(order("12345.67", external_reference=name))
        payment = sandbox.buyer.pay(new_order).payment
        await client.orders.refund(new_order.id, payment_id=payment.id, amount=Decimal("1000.01"))
        await (client.orders.refund if name == "paid" else client.orders.cancel)(new_order.id)
    item, shipments = PreferenceItemRequest(unit_price=Decimal("12345.67")), ShipmentsRequest(cost=Decimal("100.01"))
    sale = sandbox.buyer.pay_preference(
        await client.preferences.create(PreferenceRequest(items=[item], shipments=shipments))
    )
    assert Decimal("12345.67") == sale.payments[0].transaction_amount
    sandbox.buyer.refund_merchant_order(sale.id, Decimal("1000.01"))
    sandbox.buyer.refund_merchant_order(sale.id)
    charge = wallet_payments.WalletChargeRequest(
        transaction_amount=Decimal("12345.67"), discount=wallet_payments.WalletDiscount(amount=Decimal("1.01"))
    )
    wallet = wallet_payments.WalletPayerRequest(token="token", type_token="wallet")
    await client.wallet_payments.create(wallet_payments.WalletPaymentRequest(wallet_payment=charge, payer=wallet))
    recurring = RecurringRequest(
        transaction_amount=Decimal("12345.67"), billing_day=11, billing_day_proportional=True, repetitions=1
    )
    sandbox.buyer.subscribe(sandbox.create_plan(PlanRequest(reason="Gym", auto_recurring=recurring)).id)
    sandbox.clock.advance("P10D")
    [invoice] = await client.invoices.search().collect()
    sandbox.buyer.change_invoice_payment(invoice.id, "refunded")


@pytest.mark.control("paymentsdk.money.EXACTLY", Context(prec=3))
async def test_no_movement_is_rounded(start, connect, order):
    """However few digits a program keeps of its own amounts, all that was paid goes back, and no more."""
    with localcontext(prec=3):
        sandbox = await start(seed=7, frozen=True, policies={"cancel_from": "any", "discount_promise": "unchecked"})
        sandbox.clock.freeze(datetime(2027, 3, 1, tzinfo=UTC))
        async with connect(sandbox) as client:
            await _money_moves(sandbox, client, order)

    moved = [f"{entry.amount}" for entry in sandbox.ledger() if entry.amount]
    order_movements = ["12345.67", "-1000.01", "-11345.66"]
    assert [
        *order_movements,
        *order_movements,
        *("12445.68", "-1000.01", "-11445.67"),
        "12344.66",
        *("4115.22", "-4115.22"),
    ] == moved
