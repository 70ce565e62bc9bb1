"""Preferences: what they are made with, and what of them is rejected."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

import msgspec
import pytest

from paymentsdk import BadRequest
from paymentsdk.resources import preferences
from paymentsdk.resources.preferences import PreferenceRequest

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
        "date_created": "2026-01-01",
        "authentication_type": "Gmail",
        "registration_date": "2020-01-18",
        "is_prime_user": True,
        "is_first_purchase_online": False,
        "last_purchase": "2026-01-01",
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
    """Nothing that the response has a member for is lost, and items and payer come back as they were."""
    new_preference = (await plain("POST", "/checkout/preferences", EVERYTHING)).json

    members = set(preferences.Preference.__struct_fields__)
    assert EVERYTHING.keys() & members <= new_preference.keys()
    assert EVERYTHING["metadata"] == new_preference["metadata"]
    assert EVERYTHING["shipments"] == new_preference["shipments"]
    assert EVERYTHING["payer"] == new_preference["payer"]
    assert EVERYTHING["items"] == new_preference["items"]


async def test_a_date_comes_back(plain, client):
    """Without a time, or with one; where the contract asks for a date-time, a date alone is none."""
    route = {"departure_date_time": "2026-12-31", "arrival_date_time": "2027-01-01T10:00:00.000Z"}
    items = [{**ITEM, "event_date": "2026-12-31", "category_descriptor": {"route": route}}]
    days = ("2026-01-01", "2026-01-02", "2026-01-02T03:04:05.000Z")
    payer = dict(zip(("date_created", "registration_date", "last_purchase"), days, strict=True))
    body = {"items": items, "payer": payer}

    new_preference = (await plain("POST", "/checkout/preferences", body)).json
    read = await client.preferences.create(msgspec.convert(body, PreferenceRequest))
    refused = await plain("POST", "/checkout/preferences", {**body, "expiration_date_to": "2027-01-01"})

    assert body == {"items": new_preference["items"], "payer": new_preference["payer"]}
    assert datetime(2026, 12, 31, tzinfo=UTC) == read.items[0].event_date
    assert date(2026, 12, 31) == read.items[0].category_descriptor.route.departure_date_time
    assert (400, "invalid_expiration_date_to") == (refused.status, refused.code)


@pytest.mark.parametrize("policy", ["left_out", "empty"])
@pytest.mark.parametrize(
    "moment", ["2026-01-01", "2015-06-02T12:58:41.425-04:00", "2015-06-02T12:58:41Z", "2026-01-01T00:00:00.000Z"]
)
async def test_a_moment_of_the_buyer_or_the_journey_comes_back_as_it_came(start, plain_to, moment, policy):
    """In its own form and offset: only the moments of the platform itself are in UTC."""
    plain = plain_to(await start(policies={"unset_strings": policy}))
    route = {"departure": "GRU", "departure_date_time": moment, "arrival_date_time": moment}
    passenger = {"first_name": "A", "identification_number": "1"}
    items = [{**ITEM, "category_descriptor": {"passenger": passenger, "route": route}}]
    payer = {"date_created": moment, "registration_date": moment, "last_purchase": moment}

    new_preference = (await plain("POST", "/checkout/preferences", {"items": items, "payer": payer})).json

    assert (items, payer) == (new_preference["items"], new_preference["payer"])


async def test_an_unset_string_can_be_empty(start, plain_to, connect):
    """By a policy, as on some platforms; the client reads an empty date as none. What was set comes as ever."""
    responses = {}
    for policy in ("left_out", "empty"):
        sandbox = await start(seed=7, frozen_at=datetime(2026, 1, 1, tzinfo=UTC), policies={"unset_strings": policy})
        for body in ({"items": [ITEM]}, EVERYTHING):
            sent = await plain_to(sandbox)("POST", "/checkout/preferences", body)
            responses[policy, len(body)] = {
                name: value for name, value in sent.json.items() if "init_point" not in name
            }
    async with connect(sandbox) as client:
        read = await client.preferences.create(preference(external_reference="basket-1"))

    left_out, empty = responses["left_out", 1], responses["empty", 1]
    strings = {name for name, member in responses["empty", len(EVERYTHING)].items() if isinstance(member, str)}
    assert responses["left_out", len(EVERYTHING)] == responses["empty", len(EVERYTHING)]
    assert {**left_out, **dict.fromkeys(strings - left_out.keys(), "")} == empty
    assert len(empty) > len(left_out)
    assert ("", None, "basket-1") == (read.auto_return, read.expiration_date_to, read.external_reference)


async def test_a_preference_says_whose_it_is_and_where_it_is_paid(client, sandbox):
    """`<collector_id>-<uuid>`, the seller, the application, and two addresses on the sandbox itself."""
    new_preference = await client.preferences.create(preference())
    collector, _, uuid = new_preference.id.partition("-")

    assert str(sandbox.tenant.user_id) == collector == str(new_preference.collector_id)
    assert str(UUID(uuid)) == uuid
    assert (
        f"{sandbox.base_url}/checkout/{new_preference.id}"
        == new_preference.init_point
        == new_preference.sandbox_init_point
    )
    assert ("regular_payment", sandbox.client_id) == (new_preference.operation_type, new_preference.client_id)
    assert new_preference.date_created == sandbox.clock.now()


async def test_a_preference_may_be_a_request_of_money(client):
    """`operation_type` is honoured; without one it is a regular payment."""
    transfer, plain = [
        await client.preferences.create(preference(operation_type=kind)) for kind in ("money_transfer", None)
    ]

    assert ("money_transfer", "regular_payment") == (transfer.operation_type, plain.operation_type)


@pytest.mark.parametrize("quantities", [(2.0, 1), (1, 2.0), (1, 2), (2.0, 1.0)])
async def test_a_repaired_item_is_kept_with_the_others(plain, quantities):
    """`2.0` is a whole number in JSON, in whichever of the items it stands."""
    items = [{**ITEM, "quantity": quantity} for quantity in quantities]

    response = await plain("POST", "/checkout/preferences", {"items": items})

    assert (201, [*quantities]) == (response.status, [item["quantity"] for item in response.json["items"]])


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
    response = await plain("POST", "/checkout/preferences", {"items": items, "marketplace_fee": fee})

    assert 201 == response.status
    assert fee == sandbox.buyer.open_checkout(response.json["id"])[1].merchant_order.total_amount


async def test_a_member_without_a_code_is_named_all_the_same(plain):
    """The contract has no code for the payer; the cause says where it is, and no item is blamed."""
    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "payer": {"email": 5}})

    assert (400, "bad_request") == (response.status, response.code)
    assert "item" not in response.json["message"]
    assert response.json["cause"][0]["data"].startswith("payer.email: ")


@pytest.mark.parametrize(("body", "code"), [({}, "invalid_items"), ([], "bad_request"), (b"{", "bad_request")])
async def test_a_body_without_items_is_told_from_no_body(plain, body, code):
    """Missing items have their own code; a body that is not an object has the general code."""
    response = await plain("POST", "/checkout/preferences", body)

    assert (400, code) == (response.status, response.code)


async def test_what_the_contract_does_not_know_is_taken(plain):
    """Extra members, a trailing slash and any case of header names do no harm."""
    body = {"items": [{**ITEM, "colour": "red"}], "surprise": {"a": 1}, "payer": {"nickname": "x"}}

    response = await plain("POST", "/checkout/preferences/", body, headers={"x-tracking-id": "1", "aCCept": "*/*"})

    assert 201 == response.status
    assert "surprise" not in response.json


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
    body = {"items": [ITEM], "sponsor_id": sandbox.create_tenant().user_id}
    assert 201 == (await plain("POST", "/checkout/preferences", body)).status


async def test_a_sponsor_of_many_digits_is_unknown(start, plain_to):
    """A sponsor of thousands of digits is rejected like any unknown user."""
    plain = plain_to(await start(policies={"sponsors": "known"}))

    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": "9" * 5000})

    assert (400, "invalid_sponsor_id") == (response.status, response.code)


@pytest.mark.parametrize("written", ["{}", "00{}"])
async def test_a_sponsor_is_from_the_same_country(plain, sandbox, written):
    """`sponsor_id site must be the same as collector_id`, however the number is written."""
    sponsor = sandbox.create_tenant(country="BR").user_id

    response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": written.format(sponsor)})

    assert (400, "sponsor_id site must be the same as collector_id") == (response.status, response.code)
