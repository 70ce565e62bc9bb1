"""Wallet payments: what the payer's token decides."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from paymentsdk.resources.wallet_payments import WalletPaymentRequest

CHARGE = {"transaction_amount": 80, "description": "Taxi", "external_reference": "ride-7"}


def payment(token: str = "token", charge: dict | None = None, **members: object) -> dict:
    """Return the body of a wallet payment."""
    return {"wallet_payment": charge or CHARGE, "payer": {"token": token, "type_token": "wallet"}, **members}


async def test_a_payment_is_approved_and_echoed(client, sandbox):
    """Every member of the response; the money is in the ledger."""
    request = msgspec.convert(payment(binary_mode=True, capture=True), WalletPaymentRequest)
    result = await client.wallet_payments.create(request, session_id="device", idempotency_key="k")

    [part] = result.payments
    assert ("accredited", Decimal(80), "Taxi", True, "ride-7", 1) == (
        part.status_detail,
        part.transaction_amount,
        part.description,
        part.capture,
        part.external_reference,
        part.installments,
    )
    assert ("ride-7", Decimal(80)) == (
        result.wallet_payment.external_reference,
        result.wallet_payment.transaction_amount,
    )
    assert sandbox.tenant.user_id == result.disbursements[0].collector_id
    assert ("AR", True) == (result.site_id, result.binary_mode)
    assert result.date_created == result.date_last_updated == sandbox.clock.now()
    [entry] = sandbox.ledger()
    assert ("wallet_payment", 80, "k", str(result.id)) == (
        entry.kind,
        entry.amount,
        entry.idempotency_key,
        entry.order_id,
    )


@pytest.mark.parametrize(
    ("body", "detail", "kind"),
    [
        (payment("reject-it"), "cc_rejected_other_reason", "wallet_payment_rejected"),
        (payment("pending-it"), "pending_contingency", "wallet_payment_pending"),
        (payment("pending-it", binary_mode=True), "cc_rejected_other_reason", "wallet_payment_rejected"),
        (payment(capture=False), "pending_capture", "wallet_payment_authorized"),
    ],
)
async def test_other_outcomes_move_no_money(plain, sandbox, body, detail, kind):
    """Rejected, pending (never in binary mode), reserved: the ledger has the line, and 0."""
    response = await plain("POST", "/v1/advanced_payments", body, key="k")

    assert (201, detail) == (response.status, response.json["payments"][0]["status_detail"])
    assert [(kind, 0)] == [(entry.kind, entry.amount) for entry in sandbox.ledger()]


async def test_a_discount_is_taken_off_and_echoed(plain, sandbox):
    """The payment is what is left; the charge says what it was, in the two members of the contract."""
    discount = {
        "amount": 5.5,
        "code": "SPRING",
        "description": "d",
        "detail": {"cap": 10, "type": "fixed", "value": 5.5},
    }
    sandbox.promise_discount("SPRING")
    response = await plain("POST", "/v1/advanced_payments", payment(charge={**CHARGE, "discount": discount}), key="k")

    assert {"amount": 5.5, "code": "SPRING"} == response.json["wallet_payment"]["discount"]
    assert 74.5 == response.json["payments"][0]["transaction_amount"]
    assert Decimal("74.50") == sandbox.ledger()[0].amount


@pytest.mark.parametrize(("code", "status"), [("SPRING", 201), ("AUTUMN", 400), (None, 400)])
async def test_a_discount_must_be_promised_under_a_policy(start, plain_to, code, status):
    """`discount_promise=required`: only the codes that the seller was made with."""
    sandbox = await start(policies={"discount_promise": "required"})
    tenant = sandbox.create_tenant(discount_promises=["SPRING"])
    body = payment(charge={**CHARGE, "discount": {"amount": 1, "code": code}})

    response = await plain_to(sandbox)("POST", "/v1/advanced_payments", body, key="k", token=tenant.access_token)

    assert status == response.status


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"wallet_payment": {}},
        payment(charge={"description": "Taxi"}),
        payment(charge={"transaction_amount": None}),
        payment(charge={"transaction_amount": "80"}),
        payment(charge={"transaction_amount": 0}),
        payment(charge={"transaction_amount": 1.005}),
        payment(charge={"transaction_amount": 1, "discount": {"amount": 2}}),
        payment(""),
        payment(binary_mode="yes"),
    ],
)
async def test_a_broken_rule_is_rejected(plain, sandbox, body):
    """400, naming the place, and nothing is done."""
    response = await plain("POST", "/v1/advanced_payments", body, key="k")

    assert (400, "bad_request") == (response.status, response.code)
    assert response.json["cause"][0]["data"]
    assert [] == sandbox.ledger()


async def test_an_amount_is_optional_under_a_policy(start, plain_to):
    """`wallet_amount=optional`: the contract does not show which members are required."""
    plain = plain_to(await start(policies={"wallet_amount": "optional"}))

    response = await plain("POST", "/v1/advanced_payments", payment(charge={"description": "Taxi"}), key="k")

    assert (201, 0) == (response.status, response.json["payments"][0]["transaction_amount"])


async def test_a_used_key_is_told_as_such(plain, sandbox):
    """409 with the code and the words that the Orders API has for it."""
    await plain("POST", "/v1/advanced_payments", payment(), key="k")

    again = await plain("POST", "/v1/advanced_payments", payment("another"), key="k")

    assert (409, "idempotency_key_already_used") == (again.status, again.code)
    assert "the key went with another request" in again.json["message"]
    assert 80 == sum(entry.amount for entry in sandbox.ledger())


async def test_everything_about_a_sub_merchant_comes_back(plain):
    """forward_data is echoed, free-form telephone included."""
    merchant = {
        **dict.fromkeys(("sub_merchant_id", "mcc", "country", "address_door_number", "zip", "document_number"), "1"),
        **dict.fromkeys(("city", "address_street", "legal_name", "region_code_iso", "region_code", "url"), "x"),
        "document_type": "CNPJ",
        "phone": {"area": 11, "any": None},
    }
    body = payment(charge={**CHARGE, "forward_data": {"sub_merchant": merchant}})

    response = await plain("POST", "/v1/advanced_payments", body, key="k")

    assert merchant == response.json["wallet_payment"]["forward_data"]["sub_merchant"]


async def test_a_discount_must_have_been_promised(plain, sandbox):
    """Promised first, used then (4.4); the control API promises as well."""
    charge = payment(charge={**CHARGE, "discount": {"amount": 5, "code": "SUMMER"}})

    before = await plain("POST", "/v1/advanced_payments", charge, key="one")
    await plain("POST", f"/_sandbox/tenants/{sandbox.tenant.user_id}/discounts", {"code": "SUMMER"})
    after = await plain("POST", "/v1/advanced_payments", charge, key="two")

    assert [400, 200] == [before.status, after.status // 100 * 100]
