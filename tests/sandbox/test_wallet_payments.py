"""Wallet payments: what the payer's token decides."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from paymentsdk.resources import wallet_payments
from tests.sandbox.orders import members

CHARGE = {"transaction_amount": 80, "description": "Taxi", "external_reference": "ride-7"}


def payment(token: str = "token", charge: dict | None = None, **members: object) -> dict:
    """Return the body of a wallet payment."""
    return {"wallet_payment": charge or CHARGE, "payer": {"token": token, "type_token": "wallet"}, **members}


async def test_a_payment_is_approved_and_echoed(client, sandbox):
    """Every member of the response; the money is in the ledger."""
    request = msgspec.convert(payment(binary_mode=True, capture=True), wallet_payments.WalletPaymentRequest)
    result = await client.wallet_payments.create(request, session_id="device", idempotency_key="k")

    [part] = result.payments
    assert ("accredited", Decimal(80), "Taxi", True, "ride-7", 1) == members(
        part, "status_detail transaction_amount description capture external_reference installments"
    )
    assert ("ride-7", Decimal(80)) == members(result.wallet_payment, "external_reference transaction_amount")
    assert sandbox.tenant.user_id == result.disbursements[0].collector_id
    assert ("AR", True) == (result.site_id, result.binary_mode)
    assert result.date_created == result.date_last_updated == sandbox.clock.now()
    assert [10, 11, 9] == [len(str(new)) for new in (result.id, part.id, result.payer.id)]
    [entry] = sandbox.ledger()
    assert ("wallet_payment", 80, "k", str(result.id)) == members(entry, "kind amount idempotency_key order_id")


@pytest.mark.parametrize(("body", "detail", "kind"), [
    (payment("reject-it"), "cc_rejected_other_reason", "wallet_payment_rejected"),
    (payment("pending-it"), "pending_contingency", "wallet_payment_pending"),
    (payment("pending-it", binary_mode=True), "cc_rejected_other_reason", "wallet_payment_rejected"),
    (payment(capture=False), "pending_capture", "wallet_payment_authorized"),
])  # fmt: skip
async def test_other_outcomes_move_no_money(plain, sandbox, body, detail, kind):
    """Rejected, pending (never in binary mode), reserved: the ledger has the line, and 0."""
    response = await plain("POST", "/v1/advanced_payments", body, key="k")

    assert (201, detail) == (response.status, response.json["payments"][0]["status_detail"])
    assert [(kind, 0)] == [(entry.kind, entry.amount) for entry in sandbox.ledger()]


async def test_a_discount_is_taken_off_and_echoed(plain, sandbox):
    """The payment is what is left; the charge says what it was, in the two members of the contract."""
    discount = {"amount": 5.5, "code": "SPRING", "detail": {"cap": 10, "type": "fixed", "value": 5.5}}
    sandbox.promise_discount("SPRING")
    response = await plain("POST", "/v1/advanced_payments", payment(charge={**CHARGE, "discount": discount}), key="k")

    assert {"amount": 5.5, "code": "SPRING"} == response.json["wallet_payment"]["discount"]
    assert 74.5 == response.json["payments"][0]["transaction_amount"]
    assert Decimal("74.50") == sandbox.ledger()[0].amount


async def test_a_discount_must_be_promised_under_a_policy(start, plain_to):
    """`discount_promise=required`: only the codes that the seller was made with, or that were promised since."""
    sandbox = await start(policies={"discount_promise": "required"})
    tenant = sandbox.create_tenant(discount_promises=["SPRING"])

    async def status(code: str | None) -> int:
        body = payment(charge={**CHARGE, "discount": {"amount": 1, "code": code}})
        path = "/v1/advanced_payments"
        return (await plain_to(sandbox)("POST", path, body, key=f"{code}", token=tenant.access_token)).status

    assert [201, 400, 400] == [await status(code) for code in ("SPRING", "AUTUMN", None)]
    sandbox.promise_discount("AUTUMN", tenant)
    assert 201 == await status("AUTUMN")


BROKEN = [
    ({"description": "Taxi"}, ".transaction_amount"),
    ({"transaction_amount": "80"}, ".transaction_amount"),
    ({"transaction_amount": 1, "discount": {"amount": 1}}, ".discount.code"),
    ({"transaction_amount": 1, "discount": {"amount": 2, "code": "SPRING"}}, ".discount"),
]


async def test_a_broken_rule_is_rejected(plain, sandbox):
    """400, naming the place, and nothing is done."""
    sandbox.promise_discount("SPRING")
    bodies = [(payment(charge=charge), f"wallet_payment{place}") for charge, place in BROKEN]
    for body, place in (*bodies, (payment(""), "payer.token"), ({}, "body")):
        response = await plain("POST", "/v1/advanced_payments", body, key="k")

        assert (400, "bad_request") == (response.status, response.code)
        assert place == response.json["cause"][0]["data"].partition(":")[0]
    assert [] == sandbox.ledger()


async def test_an_amount_is_optional_under_a_policy(start, plain_to):
    """`wallet_amount=optional`: the contract does not show which members are required."""
    plain = plain_to(await start(policies={"wallet_amount": "optional"}))

    response = await plain("POST", "/v1/advanced_payments", payment(charge={"description": "Taxi"}), key="k")

    assert (201, 0) == (response.status, response.json["payments"][0]["transaction_amount"])
