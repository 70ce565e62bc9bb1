"""What a buyer makes of a preference: merchant orders, shipments, payments, and the end of its validity."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from paymentsdk.resources.preferences import PreferenceRequest
from paymentsdk.sandbox import Rejected

ITEM = {"id": "sku-1", "title": "Lamp", "quantity": 2, "unit_price": 10.25}


def preference(**members: object) -> PreferenceRequest:
    """Return a preference of one item."""
    return msgspec.convert({"items": [ITEM], **members}, PreferenceRequest)


async def test_opening_the_checkout_opens_a_merchant_order(client, sandbox):
    """Opened / payment_required, once however often it is looked at."""
    new_preference = await client.preferences.create(preference(shipments={"cost": 3}, marketplace="SHOPS"))

    assert [] == await client.merchant_orders.search().collect()
    for reference in (new_preference, new_preference.id, new_preference.init_point):
        sandbox.buyer.open_checkout(reference)
    [opened] = await client.merchant_orders.search(preference_id=new_preference.id).collect()

    assert ("opened", "payment_required") == (opened.status, opened.order_status)
    assert (Decimal("20.50"), 3, 0) == (opened.total_amount, opened.shipping_cost, opened.paid_amount)
    assert ((), "SHOPS") == (opened.payments, opened.marketplace)


async def test_paying_closes_it_and_a_refund_reverts_it(client, sandbox):
    """Closed / paid, then closed / reverted when all is back; a part leaves it paid."""
    new_preference = await client.preferences.create(preference(external_reference="b"))

    paid = sandbox.buyer.pay_preference(new_preference)
    part = sandbox.buyer.refund_merchant_order(paid.id, Decimal("0.50"))
    sandbox.buyer.refund_merchant_order(paid.id)
    [now] = await client.merchant_orders.search(external_reference="b").collect()

    assert ("closed", "paid", Decimal("20.50")) == (paid.status, paid.order_status, paid.paid_amount)
    assert ("approved", "accredited") == (paid.payments[0].status, paid.payments[0].status_detail)
    assert ("paid", Decimal("0.50")) == (part.order_status, part.refunded_amount)
    assert ("closed", "reverted", Decimal("20.50")) == (now.status, now.order_status, now.refunded_amount)
    assert ("approved", "accredited") == (part.payments[0].status, part.payments[0].status_detail)
    assert ("refunded", "refunded") == (now.payments[0].status, now.payments[0].status_detail)
    assert 0 == sum(entry.amount for entry in sandbox.ledger())
    with pytest.raises(Rejected, match=r"409 refund_amount_exceeds 0\S* is left"):
        sandbox.buyer.refund_merchant_order(paid.id)


@pytest.mark.parametrize(("free", "cost"), [(False, Decimal("3.50")), (True, 0)])
async def test_free_shipping_costs_the_buyer_nothing(client, sandbox, free, cost):
    """The payment says what part of it is the shipment, and the ledger has all of it."""
    new_preference = await client.preferences.create(preference(shipments={"cost": 3.5, "free_shipping": free}))
    paid = sandbox.buyer.pay_preference(new_preference)
    [payment] = paid.payments

    assert (cost, cost) == (paid.shipping_cost, payment.shipping_cost)
    assert (Decimal("20.50"), Decimal("20.50") + cost) == (payment.transaction_amount, payment.total_paid_amount)
    assert paid.paid_amount == payment.total_paid_amount == sum(entry.amount for entry in sandbox.ledger())


ADDRESS = {"zip_code": "1000", "street_name": "Main", "street_number": 5, "city_name": "Springfield"}
ADDRESS |= {"state_name": "North", "country_name": "AR"}
SENT = {
    "shipment_type": "shipping", "shipping_mode": "custom", "status": "pending", "id": 11, "service_id": 6,
    "sender_id": 9, "receiver_id": 9,
    "items": [{"id": "sku-1", "description": "Lamp", "quantity": 2}, {"id": 7, "description": "Cord", "quantity": 1}],
    "receiver_address": {
        "id": 10, "address_line": "Main 5", "street_name": {"en": "Main", "pt": "Main", "es": "Main"},
        "street_number": 5, "zip_code": "1000", "city": {"id": "SPRINGFI", "name": "Springfield"},
        "state": {"id": "NORTH", "name": "North"}, "country": {"id": "AR", "name": "AR"}, "latitude": -34.6,
        "longitude": -58.4, "comment": "ring twice", "contact": "Ana Lima", "phone": "5",
    },
    "shipping_option": {
        "id": 9, "cost": 3, "currency_id": "ARS", "shipping_method_id": 6, "name": "Standard", "list_cost": 3,
        "estimated_delivery": {"date": "2026-03-04T00:00:00.000Z"}, "speed": {"handling": 24, "shipping": 48},
    },
    **dict.fromkeys(("date_created", "last_modified", "date_first_printed"), "2026-03-01T00:00:00.000Z"),
}  # fmt: skip


async def test_what_is_sent_somewhere_is_a_shipment(plain, sandbox):
    """One, with what is known of it: it waits, where it goes, and what is in it. Of each new id, its length is said."""
    sandbox.clock.freeze(datetime(2026, 3, 1, tzinfo=UTC))
    body = {"items": [ITEM, {"id": 7, "description": "Cord"}], "additional_info": "ring twice"}
    body["payer"] = {"name": "Ana", "surname": "Lima", "phone": {"number": "5"}}
    body["shipments"] = {"mode": "custom", "cost": 3, "receiver_address": ADDRESS}
    sandbox.buyer.pay_preference((await plain("POST", "/checkout/preferences", body)).json["id"])

    found = (await plain("GET", "/merchant_orders/search")).raw.decode()
    [order] = json.loads(re.sub(r"(?<=:)[0-9]{6,}", lambda number: f"{len(number[0])}", found))["elements"]

    assert ([SENT], 11) == (order["shipments"], order["payments"][0]["id"])


async def test_nothing_is_no_amount_to_give_back(plain, client, sandbox):
    """400, whatever is left; all of it goes back where no amount is said."""
    paid = sandbox.buyer.pay_preference(await client.preferences.create(preference()))
    for amount in (0, "-0.01"):
        response = await plain("POST", f"/_sandbox/merchant_orders/{paid.id}/refund", {"amount": amount})

        assert (400, True) == (response.status, "must be above 0" in response.json["message"])
        with pytest.raises(Rejected, match="must be above 0"):
            sandbox.buyer.refund_merchant_order(paid.id, Decimal(amount))
    assert paid.paid_amount == sum(entry.amount for entry in sandbox.ledger())
    assert 200 == (await plain("POST", f"/_sandbox/merchant_orders/{paid.id}/refund")).status


async def test_a_sale_has_one_currency(plain, sandbox):
    """The one that an item names, or else the seller's: in the order, its payment, every line of the ledger."""
    names = {(None, None): "ARS", ("USD", "USD"): "USD", (None, "USD"): "USD", ("", None): "ARS"}
    for item_currencies, currency in names.items():
        items = [{**ITEM, **({} if name is None else {"currency_id": name})} for name in item_currencies]
        name = (await plain("POST", "/checkout/preferences", {"items": items})).json["id"]
        paid = sandbox.buyer.pay_preference(name)
        sandbox.buyer.refund_merchant_order(paid.id)

        assert {currency} == {part.currency_id for part in (*paid.items, *paid.payments)}
        assert [currency] * 3 == [entry.currency for entry in sandbox.ledger() if entry.order_id == name]


@pytest.mark.parametrize(
    ("binary", "statuses"), [(True, ["rejected", "rejected", "approved"]), (False, ["rejected", "approved"])]
)
async def test_an_attempt_that_fails_leaves_it_open(client, sandbox, binary, statuses):
    """A rejected payment is listed; in binary mode nothing stays pending; it is paid once, and only once."""
    new_preference = await client.preferences.create(preference(binary_mode=binary))

    rejected = sandbox.buyer.pay_preference(new_preference, outcome="rejected")
    waiting = sandbox.buyer.pay_preference(new_preference, outcome="in_review")
    paid = sandbox.buyer.pay_preference(new_preference)

    assert ("opened", "rejected") == (rejected.status, rejected.payments[0].status)
    assert ("opened", "rejected" if binary else "in_process") == (waiting.status, waiting.payments[1].status)
    assert ("closed", statuses) == (paid.status, [payment.status for payment in paid.payments])
    with pytest.raises(Rejected, match="409 already_paid the merchant order is closed"):
        sandbox.buyer.pay_preference(new_preference)


@pytest.mark.parametrize(("outcome", "status", "detail"), [
    ("approved", "approved", "accredited"),
    ("rejected", "rejected", "cc_rejected_other_reason"),
    ("in_review", "in_process", "pending_contingency"),
])  # fmt: skip
async def test_a_payment_in_review_is_decided(client, sandbox, outcome, status, detail):
    """The next attempt decides the same payment; no second payment appears."""
    new_preference = await client.preferences.create(preference())
    [waiting] = sandbox.buyer.pay_preference(new_preference, outcome="in_review").payments
    sandbox.clock.advance("PT1M")
    order = sandbox.buyer.pay_preference(new_preference, outcome=outcome)
    [decided] = order.payments

    now = sandbox.clock.now()
    assert waiting.id == decided.id
    assert (status, detail) == (decided.status, decided.status_detail)
    assert (waiting.date_created, now) == (decided.date_created, decided.last_modified)
    assert (now if outcome == "approved" else None) == decided.date_approved
    assert (order.paid_amount or 0) == sum(entry.amount for entry in sandbox.ledger())


async def test_a_review_may_last_beyond_the_end_of_the_preference(client, sandbox):
    """A payment that was made in time is decided after it, and once it was rejected no other is made."""
    end = (sandbox.clock.now() + timedelta(hours=1)).isoformat()
    new_preference = await client.preferences.create(preference(expires=True, expiration_date_to=end))
    sandbox.buyer.pay_preference(new_preference, outcome="in_review")
    sandbox.clock.advance("PT2H")

    [payment] = sandbox.buyer.pay_preference(new_preference, outcome="rejected").payments

    assert "rejected" == payment.status
    with pytest.raises(Rejected, match="preference_expired the"):
        sandbox.buyer.pay_preference(new_preference)


async def test_the_dates_of_validity_hold(client, sandbox):
    """With `expires`, a preference is paid from one date up to the other; without, the dates are words."""
    sandbox.clock.freeze(datetime(2026, 6, 1, tzinfo=UTC))
    dates = {"expiration_date_from": "2026-06-02T00:00:00Z", "expiration_date_to": "2026-06-03T00:00:00Z"}
    new_preference = await client.preferences.create(preference(expires=True, **dates))
    free = await client.preferences.create(preference(**dates))

    begin, end, moment = datetime(2026, 6, 2, tzinfo=UTC), datetime(2026, 6, 3, tzinfo=UTC), timedelta(milliseconds=1)
    for now, payable in ((begin - moment, False), (begin, True), (end - moment, True), (end, False)):
        sandbox.clock.freeze(now)
        if payable:
            assert sandbox.buyer.open_checkout(new_preference)
        else:
            with pytest.raises(Rejected, match="cannot be paid"):
                sandbox.buyer.open_checkout(new_preference)
    assert "closed" == sandbox.buyer.pay_preference(free).status


EXCLUDED = {
    "excluded_payment_types": [{"id": "account_money"}],
    "excluded_payment_methods": [{"id": "debvisa"}],
    "installments": 3,
    "default_installments": 3,
}


async def test_a_way_that_the_checkout_does_not_offer_is_rejected(plain, client, sandbox):
    """Excluded types and methods and the most installments hold for every buyer, wherever they pay."""
    new_preference = await client.preferences.create(preference(payment_methods=EXCLUDED))
    path = f"/_sandbox/preferences/{new_preference.id}/pay"
    cards = [{"payment_method": "credit_card", "installments": number} for number in (0, 4)]
    for choice in ({}, {"payment_method": "debit_card"}, *cards):
        assert 400 == (await plain("POST", path, choice)).status
        with pytest.raises(Rejected, match=r"can be paid|installments must be"):
            sandbox.buyer.pay_preference(new_preference, **choice)
    assert 200 == (await plain("POST", path, {"payment_method": "credit_card", "installments": 3})).status
    second = await client.preferences.create(preference(payment_methods=EXCLUDED))
    sandbox.buyer.pay_preference(second, payment_method="prepaid_card", installments=36)

    assert 2 == [entry.kind for entry in sandbox.ledger()].count("payment")
