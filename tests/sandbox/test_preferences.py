"""Preferences, and what a buyer makes of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest

from paymentsdk import BadRequest
from paymentsdk.resources import preferences
from paymentsdk.resources.merchant_orders import StreetName
from paymentsdk.resources.preferences import PreferenceRequest
from paymentsdk.sandbox import Rejected

ITEM = {"id": "sku-1", "title": "Lamp", "quantity": 2, "unit_price": 10.25}
EVERYTHING = {
    "items": [
        {
            **ITEM,
            "description": "d",
            "picture_url": "https://x.example.com/p.png",
            "category_id": "travels",
            "currency_id": "ARS",
            "type": "t",
            "warranty": True,
            "event_date": "2026-12-31T20:00:00.000-03:00",
            "category_descriptor": {
                "passenger": {
                    "first_name": "A",
                    "last_name": "B",
                    "identification_type": "DNI",
                    "identification_number": "1",
                },
                "route": {
                    "departure": "GRU",
                    "destination": "EZE",
                    "departure_date_time": "2026-12-31T20:00:00.000-03:00",
                    "arrival_date_time": "2026-12-31T23:00:00.000-03:00",
                    "company": "c",
                },
            },
        }
    ],
    "payer": {
        "name": "A",
        "surname": "B",
        "first_name": "A",
        "last_name": "B",
        "email": "a@example.com",
        "phone": {"area_code": 11, "number": 123456},
        "identification": {"type": "DNI", "number": "1", "identification_type": "DNI", "identification_number": "1"},
        "address": {"zip_code": "1", "street_name": "s", "street_number": 5},
        "date_created": "2026-01-01T00:00:00.000Z",
        "authentication_type": "Gmail",
        "registration_date": "2020-01-18",
        "is_prime_user": True,
        "is_first_purchase_online": False,
        "last_purchase": "2026-01-01T00:00:00.000Z",
    },
    "payment_methods": {
        "excluded_payment_methods": [{"id": "x"}],
        "excluded_payment_types": [{"id": "ticket"}],
        "default_payment_method_id": "visa",
        "installments": 36,
        "default_installments": 1,
    },
    "shipments": {
        "mode": "custom",
        "local_pickup": False,
        "dimensions": "30x30x30,500",
        "default_shipping_method": 5,
        "free_methods": [{"id": 5}],
        "cost": 3.5,
        "free_shipping": False,
        "express_shipment": True,
        "receiver_address": {"zip_code": "1", "street_name": "s", "city_name": "c", "street_number": 5},
    },
    "back_urls": {"success": "https://x.example.com/s"},
    "notification_url": "https://x.example.com/n",
    "statement_descriptor": "SHOP",
    "additional_info": "i",
    "auto_return": "approved",
    "external_reference": "basket-1",
    "expires": True,
    "expiration_date_from": "2026-01-01T00:00:00.000Z",
    "expiration_date_to": "2099-01-01T00:00:00.000Z",
    "date_of_expiration": "2099-01-01T00:00:00.000Z",
    "marketplace": "M",
    "marketplace_fee": 1.5,
    "differential_pricing": {"id": 1},
    "tracks": [{"type": "google_ad", "values": {"conversion_id": "1"}}],
    "binary_mode": True,
    "sponsor_id": 12,
    "metadata": {"a": [1, None, {"b": 2.5}]},
}


def preference(**members: object) -> PreferenceRequest:
    """Return a preference of one item."""
    return msgspec.convert({"items": [ITEM], **members}, PreferenceRequest)


async def test_every_member_comes_back(plain, sandbox):
    """Nothing that the response has a member for is lost; dates and free-form data come back as they were sent."""
    made = (await plain("POST", "/checkout/preferences", EVERYTHING)).json

    shown = set(preferences.Preference.__struct_fields__)
    assert EVERYTHING.keys() & shown <= made.keys()
    assert EVERYTHING["metadata"] == made["metadata"]
    assert EVERYTHING["shipments"] == made["shipments"]
    assert EVERYTHING["payer"] == made["payer"]
    assert "2026-12-31T20:00:00.000-03:00" == made["items"][0]["event_date"]
    assert EVERYTHING["items"][0].keys() == made["items"][0].keys()


async def test_a_date_comes_back_as_it_was_sent(plain, client):
    """Without a time, or with one; where the contract asks for a date-time, a date alone is none."""
    route = {"departure_date_time": "2026-12-31", "arrival_date_time": "2027-01-01T10:00:00.000-03:00"}
    items = [{**ITEM, "event_date": "2026-12-31", "category_descriptor": {"route": route}}]
    days = ("2026-01-01", "2026-01-02", "2026-01-02T03:04:05.000Z")
    payer = dict(zip(("date_created", "registration_date", "last_purchase"), days, strict=True))
    body = {"items": items, "payer": payer}

    made = (await plain("POST", "/checkout/preferences", body)).json
    read = await client.preferences.create(msgspec.convert(body, PreferenceRequest))
    refused = await plain("POST", "/checkout/preferences", {**body, "expiration_date_to": "2027-01-01"})

    assert body == {"items": made["items"], "payer": made["payer"]}
    assert datetime(2026, 12, 31, tzinfo=UTC) == read.items[0].event_date
    assert date(2026, 12, 31) == read.items[0].category_descriptor.route.departure_date_time
    assert (400, "invalid_expiration_date_to") == (refused.status, refused.code)


async def test_a_preference_says_whose_it_is_and_where_it_is_paid(client, sandbox):
    """`<collector_id>-<uuid>`, the seller, the application, and two addresses on the sandbox itself."""
    made = await client.preferences.create(preference())
    collector, _, uuid = made.id.partition("-")

    assert str(sandbox.tenant.user_id) == collector == str(made.collector_id)
    assert str(UUID(uuid)) == uuid
    assert f"{sandbox.base_url}/checkout/{made.id}" == made.init_point == made.sandbox_init_point
    assert ("regular_payment", sandbox.client_id) == (made.operation_type, made.client_id)
    assert made.date_created == sandbox.clock.now()


async def test_a_preference_may_be_a_request_of_money(client):
    """`operation_type` is honoured; without one it is a regular payment."""
    asked, plain = [
        await client.preferences.create(preference(operation_type=kind)) for kind in ("money_transfer", None)
    ]

    assert ("money_transfer", "regular_payment") == (asked.operation_type, plain.operation_type)


@pytest.mark.parametrize("quantities", [(2.0, 1), (1, 2.0), (1, 2), (2.0, 1.0)])
async def test_what_is_repaired_in_one_item_is_kept_beside_the_others(plain, quantities):
    """`2.0` is a whole number in JSON, in whichever of the items it stands."""
    items = [{**ITEM, "quantity": quantity} for quantity in quantities]

    made = await plain("POST", "/checkout/preferences", {"items": items})

    assert (201, [*quantities]) == (made.status, [item["quantity"] for item in made.json["items"]])


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"items": []}, "invalid_items"),
        ({"items": None}, "invalid_items"),
        ({"items": [{**ITEM, "unit_price": "10.25"}]}, "invalid_items"),
        ({"payer": {"email": 5}}, "bad_request"),
        ({"payer": {"authentication_type": "MOBILE"}}, "bad_request"),
        ({"tracks": {}}, "bad_request"),
        ({"auto_return": "all"}, "bad_request"),
        ({"items": [{**ITEM, "unit_price": -1}]}, "invalid_items"),
        ({"items": [{**ITEM, "unit_price": 1.005}]}, "invalid_items"),
        ({"items": [{**ITEM, "quantity": 0}]}, "invalid_items"),
        ({"items": [{**ITEM, "quantity": 1.5}]}, "invalid_items"),
        ({"back_urls": {"success": "shop"}}, "invalid_back_urls"),
        ({"back_urls": []}, "invalid_back_urls"),
        ({"back_urls": {"success": "http://[::1"}}, "invalid_back_urls"),
        ({"back_urls": {"failure": "http://shop.example:x"}}, "invalid_back_urls"),
        ({"payment_methods": {"installments": 0}}, "invalid_payment_methods"),
        ({"payment_methods": {"installments": 37}}, "invalid_payment_methods"),
        ({"payment_methods": {"installments": "6"}}, "invalid_payment_methods"),
        ({"payment_methods": {"default_installments": 37}}, "invalid_payment_methods"),
        ({"payment_methods": {"default_installments": 0}}, "invalid_payment_methods"),
        ({"payment_methods": {"default_installments": 7, "installments": 6}}, "invalid_payment_methods"),
        ({"shipments": {"cost": "5"}}, "invalid_shipments"),
        ({"shipments": {"cost": True}}, "invalid_shipments"),
        ({"shipments": {"local_pickup": "yes"}}, "invalid_shipments"),
        ({"binary_mode": "true"}, "invalid_binary_mode"),
        ({"operation_type": "gift"}, "invalid_operation_type"),
        ({"operation_type": 1}, "invalid_operation_type"),
        ({"items": [{**ITEM, "currency_id": "USD"}, {**ITEM, "currency_id": "ARS"}]}, "invalid_items"),
        ({"marketplace_fee": 20.51}, "invalid_marketplace_fee"),
        ({"marketplace_fee": "1"}, "invalid_marketplace_fee"),
        ({"items": [{"unit_price": 10}], "marketplace_fee": 10.01}, "invalid_marketplace_fee"),
        ({"items": [{"quantity": 3}], "marketplace_fee": 0.01}, "invalid_marketplace_fee"),
        ({"items": [{"unit_price": 10}, ITEM], "marketplace_fee": 30.51}, "invalid_marketplace_fee"),
        ({"expiration_date_from": "yesterday"}, "invalid_expiration_date_from"),
        ({"expiration_date_to": "2026-01-01T00:00:00"}, "invalid_expiration_date_to"),
        (
            {"expiration_date_from": "2026-02-01T00:00:00Z", "expiration_date_to": "2026-01-01T00:00:00Z"},
            "invalid_expiration_date_to",
        ),
        ({"date_of_expiration": 5}, "invalid_date"),
        ({"sponsor_id": -5}, "invalid_sponsor_id"),
        ({"sponsor_id": "somebody"}, "invalid_sponsor_id"),
        ({"sponsor_id": "000"}, "invalid_sponsor_id"),
        ({"sponsor_id": "\uff11\uff12"}, "invalid_sponsor_id"),
        ({"sponsor_id": {}}, "invalid_sponsor_id"),
    ],
)
async def test_a_broken_rule_is_rejected_with_the_code_of_its_member(plain, members, code):
    """The table of preference codes, by member."""
    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], **members})

    assert (400, code) == (response.status, response.code)


@pytest.mark.parametrize(
    ("items", "fee"),
    [([ITEM], 20.50), ([{"unit_price": 10}], 10), ([{"unit_price": 10}, ITEM], 30.50), ([{"quantity": 3}], 0)],
)
async def test_a_fee_may_be_all_that_is_paid(plain, sandbox, items, fee):
    """A quantity that is not said is 1, for the fee as for the buyer."""
    made = await plain("POST", "/checkout/preferences", {"items": items, "marketplace_fee": fee})

    assert 201 == made.status
    assert fee == sandbox.buyer.open_checkout(made.json["id"])[1].merchant_order.total_amount


async def test_a_member_without_a_code_is_named_all_the_same(plain):
    """The contract has no code for the payer; the cause says where it is, and no item is blamed."""
    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "payer": {"email": 5}})

    assert (400, "bad_request") == (response.status, response.code)
    assert "item" not in response.json["message"]
    assert response.json["cause"][0]["data"].startswith("payer.email: ")


@pytest.mark.parametrize(("body", "code"), [({}, "invalid_items"), ([], "bad_request"), (b"{", "bad_request")])
async def test_a_body_without_items_is_told_from_no_body(plain, body, code):
    """Missing items are about items; what is no object at all is not."""
    response = await plain("POST", "/checkout/preferences", body)

    assert (400, code) == (response.status, response.code)


async def test_what_the_contract_does_not_know_is_taken(plain):
    """Extra members, a trailing slash and any case of header names do no harm."""
    body = {"items": [{**ITEM, "colour": "red"}], "surprise": {"a": 1}, "payer": {"nickname": "x"}}

    response = await plain("POST", "/checkout/preferences/", body, headers={"x-tracking-id": "1", "aCCept": "*/*"})

    assert 201 == response.status
    assert "surprise" not in response.json


async def test_numbers_as_text_are_a_policy(start, plain_to):
    """`numbers_as_text=accept` takes `"10.25"` for an amount."""
    sandbox = await start(policies={"numbers_as_text": "accept"})

    response = await plain_to(sandbox)("POST", "/checkout/preferences", {"items": [{**ITEM, "unit_price": "10.25"}]})

    assert (201, 10.25) == (response.status, response.json["items"][0]["unit_price"])


async def test_a_seller_must_comply(connect, sandbox):
    """`collector_does_not_comply_with_current_regulation`."""
    async with connect(sandbox, sandbox.create_tenant(compliant=False)) as client:
        with pytest.raises(BadRequest) as refused:
            await client.preferences.create(preference())

    assert "collector_does_not_comply_with_current_regulation" == refused.value.code


@pytest.mark.parametrize(("policy", "status"), [("any", 201), ("known", 400)])
async def test_a_sponsor_must_be_known_under_a_policy(start, plain_to, policy, status):
    """Nobody else's users are known to a sandbox, so that any number is taken unless it is told otherwise."""
    sandbox = await start(policies={"sponsors": policy})
    plain = plain_to(sandbox)

    assert status == (await plain("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": 7})).status
    known = {"items": [ITEM], "sponsor_id": sandbox.create_tenant().user_id}
    assert 201 == (await plain("POST", "/checkout/preferences", known)).status


async def test_a_sponsor_of_many_digits_is_nobody(start, plain_to):
    """Thousands of digits, of which Python makes no number, are rejected like every user that there is not."""
    plain = plain_to(await start(policies={"sponsors": "known"}))

    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": "9" * 5000})

    assert (400, "invalid_sponsor_id") == (response.status, response.code)


@pytest.mark.parametrize("written", ["{}", "00{}"])
async def test_a_sponsor_is_from_the_same_country(plain, sandbox, written):
    """`sponsor_id site must be the same as collector_id`, however the number is written."""
    sponsor = sandbox.create_tenant(country="BR").user_id

    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": written.format(sponsor)})

    assert (400, "sponsor_id site must be the same as collector_id") == (response.status, response.code)


async def test_opening_the_checkout_opens_a_merchant_order(client, sandbox):
    """Opened / payment_required, once however often it is looked at."""
    made = await client.preferences.create(preference(shipments={"cost": 3}, marketplace="SHOPS"))

    assert [] == await client.merchant_orders.search().collect()
    for way in (made, made.id, made.init_point):
        sandbox.buyer.open_checkout(way)
    [opened] = await client.merchant_orders.search(preference_id=made.id).collect()

    assert ("opened", "payment_required") == (opened.status, opened.order_status)
    assert (Decimal("20.50"), 3, 0) == (opened.total_amount, opened.shipping_cost, opened.paid_amount)
    assert ((), "SHOPS") == (opened.payments, opened.marketplace)


async def test_what_is_no_order_is_not_paid_as_one(client, sandbox):
    """Who takes a checkout for an order is told the way."""
    made = await client.preferences.create(preference())

    with pytest.raises(Rejected, match="pay it with pay_preference"):
        sandbox.buyer.pay(made.init_point)
    with pytest.raises(TypeError, match="as a string, got Preference"):
        sandbox.buyer.pay(made)


async def test_paying_closes_it_and_a_refund_reverts_it(client, sandbox):
    """Closed / paid, then closed / reverted when all is back; a part leaves it paid."""
    made = await client.preferences.create(preference(external_reference="b"))

    paid = sandbox.buyer.pay_preference(made)
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
    with pytest.raises(Rejected, match="is left"):
        sandbox.buyer.refund_merchant_order(paid.id)


@pytest.mark.parametrize(
    ("shipments", "cost"),
    [
        ({"cost": 3.5}, Decimal("3.50")),
        ({"cost": 3.5, "free_shipping": False}, Decimal("3.50")),
        ({"cost": 3.5, "free_shipping": True}, 0),
        ({"free_shipping": True}, 0),
        ({}, 0),
    ],
)
async def test_free_shipping_costs_the_buyer_nothing(client, sandbox, shipments, cost):
    """The payment says what part of it is the shipment, and the ledger has all of it."""
    made = await client.preferences.create(preference(shipments=shipments))
    paid = sandbox.buyer.pay_preference(made)
    [payment] = paid.payments

    assert (cost, cost) == (paid.shipping_cost, payment.shipping_cost)
    assert (Decimal("20.50"), Decimal("20.50") + cost) == (payment.transaction_amount, payment.total_paid_amount)
    assert paid.paid_amount == payment.total_paid_amount == sum(entry.amount for entry in sandbox.ledger())


ADDRESS = {
    "zip_code": "1000",
    "street_name": "Main",
    "street_number": 5,
    "city_name": "Springfield",
    "state_name": "North",
    "country_name": "AR",
}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (
            ADDRESS,
            {
                "zip_code": "1000",
                "street_name": {"en": "Main", "pt": "Main", "es": "Main"},
                "street_number": 5,
                "city": {"id": "SPRINGFI", "name": "Springfield"},
                "state": {"id": "NORTH", "name": "North"},
                "country": {"id": "AR", "name": "AR"},
            },
        ),
        ({"zip_code": 1000}, {"zip_code": 1000}),
    ],
)
async def test_what_is_sent_somewhere_is_a_shipment(plain, sandbox, address, shown):
    """One, with what is known of it: it waits, where it goes, and what is in it."""
    shipments = {"mode": "custom", "cost": 3, "receiver_address": address}
    made = (await plain("POST", "/checkout/preferences", {"items": [ITEM, {"id": 7}], "shipments": shipments})).json
    sandbox.buyer.pay_preference(made["id"])

    [order] = (await plain("GET", "/merchant_orders/search")).json["elements"]
    [shipment] = order["shipments"]

    assert ("pending", "custom", shown) == (
        shipment["status"],
        shipment["shipping_mode"],
        {name: shipment["receiver_address"][name] for name in shown},
    )
    assert [{"id": "sku-1", "description": "Lamp", "quantity": 2}, {"id": 7, "quantity": 1}] == shipment["items"]


@pytest.mark.parametrize(("policies", "street"), [
    ({}, StreetName(en="Main", pt="Main", es="Main")), ({"street_names": "text"}, "Main"),
])  # fmt: skip
async def test_a_street_is_read_in_either_form(start, connect, policies, street):
    """`street_names`: in the contract it has a name in each language; real traffic has a string as well."""
    sandbox = await start(policies=policies)
    async with connect(sandbox) as client:
        shipped = preference(shipments={"receiver_address": ADDRESS})
        sandbox.buyer.pay_preference(await client.preferences.create(shipped))
        found = await client.merchant_orders.search().first()

    assert street == found.shipments[0].receiver_address.street_name


@pytest.mark.parametrize("members", [{}, {"shipments": {"mode": "custom", "cost": 3}}])
async def test_what_is_sent_nowhere_has_no_shipment(plain, sandbox, members):
    """An empty list, and not an empty shipment."""
    made = (await plain("POST", "/checkout/preferences", {"items": [ITEM], **members})).json
    sandbox.buyer.pay_preference(made["id"])

    [order] = (await plain("GET", "/merchant_orders/search")).json["elements"]

    assert [] == order["shipments"]


@pytest.mark.parametrize("amount", [0, -1, "0.00", "-0.01"])
async def test_nothing_is_no_amount_to_give_back(plain, client, sandbox, amount):
    """400, whatever is left; all of it goes back where no amount is said."""
    paid = sandbox.buyer.pay_preference(await client.preferences.create(preference()))

    response = await plain("POST", f"/_sandbox/merchant_orders/{paid.id}/refund", {"amount": amount})

    assert 400 == response.status
    assert "must be above 0" in response.json["message"]
    with pytest.raises(Rejected, match="must be above 0"):
        sandbox.buyer.refund_merchant_order(paid.id, Decimal(amount))
    assert paid.paid_amount == sum(entry.amount for entry in sandbox.ledger())
    assert 200 == (await plain("POST", f"/_sandbox/merchant_orders/{paid.id}/refund")).status


@pytest.mark.parametrize(
    ("named", "currency"), [((None, None), "ARS"), (("USD", "USD"), "USD"), ((None, "USD"), "USD"), (("", None), "ARS")]
)
async def test_a_sale_has_one_currency(plain, sandbox, named, currency):
    """The one that an item names, or else the seller's: in the order, its payment, every line of the ledger."""
    items = [{**ITEM, **({} if name is None else {"currency_id": name})} for name in named]
    made = (await plain("POST", "/checkout/preferences", {"items": items})).json
    paid = sandbox.buyer.pay_preference(made["id"])
    sandbox.buyer.refund_merchant_order(paid.id)

    assert {currency} == {one.currency_id for one in (*paid.items, *paid.payments)}
    assert [currency] * 3 == [entry.currency for entry in sandbox.ledger() if entry.order_id == made["id"]]


@pytest.mark.parametrize(
    ("binary", "kept"),
    [(True, ["rejected", "rejected", "approved"]), (False, ["rejected", "approved"])],
)
async def test_an_attempt_that_fails_leaves_it_open(client, sandbox, binary, kept):
    """A rejected payment is listed; in binary mode nothing stays pending; it is paid once, and only once."""
    made = await client.preferences.create(preference(binary_mode=binary))

    rejected = sandbox.buyer.pay_preference(made, outcome="rejected")
    waiting = sandbox.buyer.pay_preference(made, outcome="in_review")
    paid = sandbox.buyer.pay_preference(made)

    assert ("opened", "rejected") == (rejected.status, rejected.payments[0].status)
    assert ("opened", "rejected" if binary else "in_process") == (waiting.status, waiting.payments[1].status)
    assert ("closed", kept) == (paid.status, [payment.status for payment in paid.payments])
    with pytest.raises(Rejected, match="closed"):
        sandbox.buyer.pay_preference(made)


@pytest.mark.parametrize(
    ("outcome", "status", "detail"),
    [
        ("approved", "approved", "accredited"),
        ("rejected", "rejected", "cc_rejected_other_reason"),
        ("in_review", "in_process", "pending_contingency"),
    ],
)
async def test_a_payment_in_review_is_decided(client, sandbox, outcome, status, detail):
    """By the next attempt: it is the same payment, with what became of it, and there is no second."""
    made = await client.preferences.create(preference())
    [waiting] = sandbox.buyer.pay_preference(made, outcome="in_review").payments
    sandbox.clock.advance("PT1M")
    order = sandbox.buyer.pay_preference(made, outcome=outcome)
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
    made = await client.preferences.create(preference(expires=True, expiration_date_to=end))
    sandbox.buyer.pay_preference(made, outcome="in_review")
    sandbox.clock.advance("PT2H")

    [payment] = sandbox.buyer.pay_preference(made, outcome="rejected").payments

    assert "rejected" == payment.status
    with pytest.raises(Rejected, match="preference_expired"):
        sandbox.buyer.pay_preference(made)


async def test_a_purchase_that_was_declined_after_a_review_is_paid_anew(client, sandbox):
    """What was decided stays: the next payment is another one."""
    made = await client.preferences.create(preference())
    for outcome in ("in_review", "rejected", "approved"):
        paid = sandbox.buyer.pay_preference(made, outcome=outcome)

    assert ["rejected", "approved"] == [payment.status for payment in paid.payments]


@pytest.mark.parametrize("outcome", ["approved", "rejected", "in_review"])
async def test_what_was_paid_is_not_tried_again(client, sandbox, outcome):
    """However it would come out: the payment of a closed order stays the last one, and is the one that goes back."""
    made = await client.preferences.create(preference())
    paid = sandbox.buyer.pay_preference(made)

    with pytest.raises(Rejected, match="closed"):
        sandbox.buyer.pay_preference(made, outcome=outcome)

    assert ["refunded"] == [one.status for one in sandbox.buyer.refund_merchant_order(paid.id).payments]


async def test_the_dates_of_validity_hold(client, sandbox):
    """With `expires`, a preference is paid from one date up to the other; without, the dates are words."""
    sandbox.clock.freeze(datetime(2026, 6, 1, tzinfo=UTC))
    dates = {"expiration_date_from": "2026-06-02T00:00:00Z", "expiration_date_to": "2026-06-03T00:00:00Z"}
    made = await client.preferences.create(preference(expires=True, **dates))
    free = await client.preferences.create(preference(**dates))

    begin, end, moment = datetime(2026, 6, 2, tzinfo=UTC), datetime(2026, 6, 3, tzinfo=UTC), timedelta(milliseconds=1)
    for now, payable in ((begin - moment, False), (begin, True), (end - moment, True), (end, False)):
        sandbox.clock.freeze(now)
        if payable:
            assert sandbox.buyer.open_checkout(made)
        else:
            with pytest.raises(Rejected, match="cannot be paid"):
                sandbox.buyer.open_checkout(made)
    assert "closed" == sandbox.buyer.pay_preference(free).status


@pytest.mark.parametrize(
    ("date", "before", "after"), [("expiration_date_from", False, True), ("expiration_date_to", True, False)]
)
async def test_one_date_of_validity_is_enough(client, sandbox, date, before, after):
    """A preference with a beginning alone has no end, and one with an end alone can be paid at once."""
    sandbox.clock.freeze()
    moment = (sandbox.clock.now() + timedelta(days=1)).isoformat()
    made = await client.preferences.create(preference(expires=True, **{date: moment}))

    seen = []
    for _ in range(2):
        try:
            seen.append(bool(sandbox.buyer.open_checkout(made)))
        except Rejected:
            seen.append(False)
        sandbox.clock.advance("P2D")

    assert [before, after] == seen


@pytest.mark.control("paymentsdk.sandbox._handlers.preferences._within", lambda begin, now, end: now <= end)
async def test_a_preference_and_an_order_end_at_the_same_moment(client, sandbox, order):
    """At the moment that both are to be paid before, neither can be."""
    sandbox.clock.freeze()
    end = (sandbox.clock.now() + timedelta(minutes=5)).isoformat()
    made = await client.preferences.create(preference(expires=True, expiration_date_to=end))
    waiting = await client.orders.create(order(expiration_time="PT5M"))
    sandbox.clock.advance("PT5M")

    with pytest.raises(Rejected, match="the order is expired"):
        sandbox.buyer.pay(waiting)
    with pytest.raises(Rejected, match="cannot be paid"):
        sandbox.buyer.pay_preference(made)


async def test_nobody_pays_what_is_not_there(sandbox):
    """An id that nobody made."""
    with pytest.raises(Rejected, match="there is no"):
        sandbox.buyer.pay_preference("1-2")


EXCLUDED = {
    "excluded_payment_types": [{"id": "account_money"}],
    "excluded_payment_methods": [{"id": "debvisa"}],
    "installments": 3,
}


@pytest.mark.parametrize(
    ("way", "taken"),
    [
        ({}, False),
        ({"payment_method": "account_money"}, False),
        ({"payment_method": "debit_card"}, False),
        ({"payment_method": "credit_card", "installments": 0}, False),
        ({"payment_method": "credit_card", "installments": 4}, False),
        ({"payment_method": "credit_card", "installments": 3}, True),
        ({"payment_method": "prepaid_card"}, True),
        ({"payment_method": "prepaid_card", "installments": 36}, True),
    ],
)
async def test_a_way_that_the_checkout_does_not_offer_is_rejected(plain, client, sandbox, way, taken):
    """Excluded types and methods and the most installments hold for every buyer, wherever they pay."""
    over_http, in_python = [await client.preferences.create(preference(payment_methods=EXCLUDED)) for _ in range(2)]

    response = await plain("POST", f"/_sandbox/preferences/{over_http.id}/pay", way)
    if taken:
        sandbox.buyer.pay_preference(in_python, **way)
    else:
        with pytest.raises(Rejected, match="can be paid"):
            sandbox.buyer.pay_preference(in_python, **way)

    assert (200 if taken else 400) == response.status
    assert (2 if taken else 0) == [entry.kind for entry in sandbox.ledger()].count("payment")


def places(value: object, at: str = "") -> set[str]:
    """Return the places of all that stands in *value*."""
    if isinstance(value, dict):
        return {place for name, inner in value.items() for place in places(inner, f"{at}.{name}")}
    if isinstance(value, list):
        return {place for inner in value for place in places(inner, f"{at}[]")}
    return {at}


SHIPMENT = """
    .id .shipment_type .shipping_mode .status .items[].id .items[].description .items[].quantity .items[].dimensions
    .date_created .last_modified .date_first_printed .service_id .sender_id .receiver_id .receiver_address.id
    .receiver_address.address_line .receiver_address.city.id .receiver_address.city.name .receiver_address.state.id
    .receiver_address.state.name .receiver_address.country.id .receiver_address.country.name
    .receiver_address.latitude .receiver_address.longitude .receiver_address.comment .receiver_address.contact
    .receiver_address.phone .receiver_address.zip_code .receiver_address.street_name.en
    .receiver_address.street_name.pt .receiver_address.street_name.es .receiver_address.street_number
    .shipping_option.id .shipping_option.cost .shipping_option.currency_id .shipping_option.shipping_method_id
    .shipping_option.estimated_delivery.date .shipping_option.name .shipping_option.list_cost
    .shipping_option.speed.handling .shipping_option.speed.shipping
"""


async def test_a_shipment_has_every_member_of_the_contract(plain, sandbox):
    """What a client can read in production it can read here."""
    address = {"zip_code": "1414", "street_name": "Av. Libertador", "street_number": 10, "city_name": "Buenos Aires"}
    address |= {"state_name": "CABA", "country_name": "Argentina"}
    shipments = {"mode": "me2", "dimensions": "30x30x30,500", "cost": 3, "receiver_address": address}
    payer = {"name": "Ana", "surname": "Gomez", "phone": {"area_code": "11", "number": "444"}}
    body = {"items": [ITEM], "shipments": shipments, "payer": payer, "additional_info": "Ring twice"}
    made = (await plain("POST", "/checkout/preferences", body)).json
    sandbox.buyer.pay_preference(made["id"])
    [order] = (await plain("GET", f"/merchant_orders/search?preference_id={made['id']}")).json["elements"]

    assert set(SHIPMENT.split()) == places(order["shipments"][0])
