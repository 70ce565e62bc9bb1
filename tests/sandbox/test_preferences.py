"""Preferences: what they are made with, and what of them is rejected."""

from __future__ import annotations

import json
from uuid import UUID

import msgspec
import pytest

from paymentsdk import BadRequest
from paymentsdk.resources import preferences
from paymentsdk.resources.preferences import PreferenceRequest
from tests.resources.request_rules import WHOLE

ITEM = {"id": "sku-1", "title": "Lamp", "quantity": 2, "unit_price": 10.25}


EVERYTHING = json.loads(WHOLE["preferences.create"])


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


async def test_a_moment_of_the_buyer_or_the_journey_comes_back_as_it_came(plain):
    """In its own form and offset: only the moments of the platform itself are in UTC."""
    for moment in ("2026-01-01", "2015-06-02T12:58:41.425-04:00", "2015-06-02T12:58:41Z"):
        route = {"departure": "GRU", "departure_date_time": moment, "arrival_date_time": moment}
        items = [{**ITEM, "category_descriptor": {"route": route}}]
        payer = {"date_created": moment, "registration_date": moment, "last_purchase": moment}

        new_preference = (await plain("POST", "/checkout/preferences", {"items": items, "payer": payer})).json

        assert (items, payer) == (new_preference["items"], new_preference["payer"])


async def test_an_unset_string_can_be_empty(start, plain_to, connect):
    """By a policy, as on some platforms; the client reads an empty date as none. What was set comes as ever."""
    sandbox = await start(policies={"unset_strings": "empty"})
    sent, whole = [
        (await plain_to(sandbox)("POST", "/checkout/preferences", body)).json
        for body in ({"items": [ITEM]}, EVERYTHING)
    ]
    async with connect(sandbox) as client:
        read = await client.preferences.create(preference(external_reference="basket-1"))

    assert "" not in whole.values()
    strings = "auto_return notification_url statement_descriptor additional_info external_reference"
    moments = "expiration_date_from expiration_date_to date_of_expiration"
    assert {*strings.split(), *moments.split()} == {name for name in sent if sent[name] == ""}
    assert ("", None, "basket-1") == (read.auto_return, read.expiration_date_to, read.external_reference)


async def test_a_preference_says_whose_it_is_and_where_it_is_paid(client, sandbox):
    """`<collector_id>-<uuid>`, the seller, the application, and two addresses on the sandbox itself."""
    new_preference = await client.preferences.create(preference())
    collector, _, uuid = new_preference.id.partition("-")

    assert str(sandbox.tenant.user_id) == collector == str(new_preference.collector_id)
    assert str(UUID(uuid)) == uuid
    address = f"{sandbox.base_url}/checkout/{new_preference.id}"
    assert (address, address) == (new_preference.init_point, new_preference.sandbox_init_point)
    assert ("regular_payment", sandbox.client_id) == (new_preference.operation_type, new_preference.client_id)
    assert new_preference.date_created == sandbox.clock.now()


async def test_a_repaired_item_is_kept_with_the_others(plain):
    """`2.0` is a whole number in JSON, in whichever of the items it stands."""
    for quantities in ([2.0, 1], [1, 2.0]):
        items = [{**ITEM, "quantity": quantity} for quantity in quantities]
        response = await plain("POST", "/checkout/preferences", {"items": items})

        assert (201, quantities) == (response.status, [item["quantity"] for item in response.json["items"]])


RULES = [
    ({"items": []}, "invalid_items"),
    ({"items": [{**ITEM, "unit_price": "10.25"}]}, "invalid_items"),
    ({"payer": {"email": 5}}, "bad_request"),
    ({"back_urls": []}, "invalid_back_urls"),
    ({"back_urls": {"failure": "http://shop.example:x"}}, "invalid_back_urls"),
    ({"payment_methods": {"default_installments": 7, "installments": 6}}, "invalid_payment_methods"),
    ({"shipments": {"cost": "5"}}, "invalid_shipments"),
    ({"binary_mode": "true"}, "invalid_binary_mode"),
    ({"operation_type": "gift"}, "invalid_operation_type"),
    ({"items": [{**ITEM, "currency_id": "USD"}, {**ITEM, "currency_id": "ARS"}]}, "invalid_items"),
    ({"items": [{"unit_price": 10}, ITEM], "marketplace_fee": 30.51}, "invalid_marketplace_fee"),
    ({"expiration_date_from": "yesterday"}, "invalid_expiration_date_from"),
    ({"expiration_date_to": "2026-01-01T00:00:00"}, "invalid_expiration_date_to"),
    ({"expiration_date_from": "2026-02-01T00:00:00Z", "expiration_date_to": "2026-01-01T00:00:00Z"},
     "invalid_expiration_date_to"),
    ({"date_of_expiration": 5}, "invalid_date"),
    ({"sponsor_id": "somebody"}, "invalid_sponsor_id"),
]  # fmt: skip


async def test_a_broken_rule_is_rejected_with_the_code_of_its_member(plain):
    """The table of preference codes, by member."""
    for members, code in RULES:
        response = await plain("POST", "/checkout/preferences", {"items": [ITEM], **members})

        assert (400, code) == (response.status, response.code), members
        assert response.json["cause"][0]["data"].startswith([*members][-1])


async def test_a_fee_may_be_all_that_is_paid(plain, sandbox):
    """A quantity that is not said is 1, for the fee as for the buyer."""
    for items, fee in (([ITEM], 20.50), ([{"unit_price": 10}, ITEM], 30.50), ([{"quantity": 3}], 0)):
        response = await plain("POST", "/checkout/preferences", {"items": items, "marketplace_fee": fee})

        assert 201 == response.status
        assert fee == sandbox.buyer.open_checkout(response.json["id"])[1].merchant_order.total_amount


async def test_a_body_without_items_is_told_from_no_body(plain):
    """Missing items have their own code; a body that is not an object has the general code."""
    answers = [await plain("POST", "/checkout/preferences", body) for body in ({}, [], b"{")]

    assert [(400, "invalid_items"), *[(400, "bad_request")] * 2] == [(answer.status, answer.code) for answer in answers]


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
    known = sandbox.create_tenant().user_id
    statuses = [
        (await plain_to(sandbox)("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": sponsor})).status
        for sponsor in (7, "9" * 5000, known)
    ]

    assert [status, status, 201] == statuses


async def test_a_sponsor_is_from_the_same_country(plain, sandbox):
    """`sponsor_id site must be the same as collector_id`, however the number is written."""
    sponsor = sandbox.create_tenant(country="BR").user_id
    for written in (f"{sponsor}", f"00{sponsor}"):
        response = await plain("POST", "/checkout/preferences", {"items": [ITEM], "sponsor_id": written})

        assert (400, "sponsor_id site must be the same as collector_id") == (response.status, response.code)
        assert "sponsor_id" == response.json["cause"][0]["data"]
