"""The ledger: what a line says of its effect, for whoever checks their own books against it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest


@pytest.fixture
def lines(sandbox):
    """Returns the lines: kind, amount, what moved, what that belongs to, the integrator's name of it, and the key."""
    return lambda: [
        (one.kind, one.amount, one.id, one.order_id, one.external_reference, one.idempotency_key)
        for one in sandbox.ledger()
    ]


async def test_a_line_of_an_order_names_it_and_what_moved(client, sandbox, order, lines):
    """The payment or the refund, the order, its reference and the key; what expires has no key."""
    paid, left, spared = [
        (await client.orders.create(order(external_reference=name), idempotency_key=f"make-{name}")).id
        for name in ("paid", "left", "spared")
    ]
    payment = sandbox.buyer.pay(paid).payment
    refund = await client.orders.refund(paid, payment_id=payment.id, amount=Decimal("20.00"), idempotency_key="back")
    await client.orders.cancel(spared, idempotency_key="stop")
    sandbox.clock.advance("PT15M")

    assert [
        ("order_created", 0, paid, paid, "paid", "make-paid"),
        ("order_created", 0, left, left, "left", "make-left"),
        ("order_created", 0, spared, spared, "spared", "make-spared"),
        ("payment", 50, payment.id, paid, "paid", None),
        ("refund", -20, refund.refunds[0].id, paid, "paid", "back"),
        ("order_canceled", 0, spared, spared, "spared", "stop"),
        ("order_expired", 0, left, left, "left", None),
    ] == lines()


async def test_a_line_of_a_sale_names_its_preference(client, sandbox, lines):
    """The payment is the one that was approved; it and what went back of it have the reference of the preference."""
    item = PreferenceItemRequest(unit_price=Decimal(5))
    made = await client.preferences.create(PreferenceRequest(items=[item], external_reference="basket"))
    sandbox.buyer.pay_preference(made, outcome="rejected")
    _, payment = sandbox.buyer.pay_preference(made).payments
    [paid] = await client.merchant_orders.search().collect()
    sandbox.buyer.refund_merchant_order(paid.id, Decimal(2))

    created, sold, back = lines()
    assert ("preference_created", 0, made.id, made.id, "basket", None) == created
    assert ("payment", 5, str(payment.id), made.id, "basket", None) == sold
    assert ("refund", -2, made.id, "basket", None) == (*back[:2], *back[3:])


async def test_a_line_of_an_invoice_names_it_and_its_payment(client, sandbox, lines):
    """Under the reference of the subscription, when it is collected and when the money goes back."""
    subscription = sandbox.buyer.subscribe(external_reference="member-1")
    sandbox.clock.advance("P1D")
    _, invoice = await client.invoices.search(preapproval_id=subscription.id).collect()
    sandbox.buyer.change_invoice_payment(invoice.id, "charged_back")

    about = (str(invoice.payment.id), str(invoice.id), "member-1", None)
    assert [("invoice_payment", Decimal("99.90"), *about), ("invoice_payment", Decimal("-99.90"), *about)] == lines()


async def test_a_line_of_a_wallet_payment_names_it_and_its_part(plain, lines):
    """The part is what moved; the payment, its reference and the key are what it belongs to."""
    body = {
        "wallet_payment": {"transaction_amount": 80, "external_reference": "ride-7"},
        "payer": {"token": "token", "type_token": "wallet"},
    }
    made = (await plain("POST", "/v1/advanced_payments", body, key="k")).json

    assert [("wallet_payment", 80, str(made["payments"][0]["id"]), str(made["id"]), "ride-7", "k")] == lines()
