"""Customers, and the numbers that they are rejected with."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from paymentsdk import BadRequest
from paymentsdk.resources.customers import Customer, CustomerRequest
from tests.resources.request_rules import WHOLE

EVERYTHING = json.loads(WHOLE["customers.create"])


async def test_every_member_comes_back(plain, sandbox):
    """With an id that is text, no cards, no addresses, and the moment of its making."""
    response = await plain("POST", "/v1/customers", EVERYTHING)
    customer = response.json

    members = (EVERYTHING.keys() & set(Customer.__struct_fields__)) - {"date_registered"}  # In UTC: see below.
    assert 201 == response.status
    assert {name: EVERYTHING[name] for name in members} == {name: customer[name] for name in members}
    assert re.fullmatch(r"[0-9]{9}-[0-9a-f]{16}", customer["id"])
    assert ([], [], False) == (customer["cards"], customer["addresses"], customer["live_mode"])
    assert msgspec.convert(customer["date_created"], type(sandbox.clock.now())) == sandbox.clock.now()


async def test_a_date_comes_back(plain):
    """Without a time, or with one, in UTC; cards that were sent are not those that the customer has."""
    dates = {"2021-10-20": "2021-10-20", "2021-10-20T11:37:30.000-04:00": "2021-10-20T15:37:30.000Z"}
    for number, (day, expected) in enumerate(dates.items()):
        body = {**EVERYTHING, "email": f"{number}@example.com", "date_registered": day, "cards": [{"id": 1}]}
        customer = (await plain("POST", "/v1/customers", body)).json

        assert (expected, []) == (customer["date_registered"], customer["cards"])


async def test_a_seller_has_one_customer_per_email(client, connect, sandbox):
    """101, whatever the case; another seller may have the same one."""
    await client.customers.create(CustomerRequest(email="ana@example.com"))
    with pytest.raises(BadRequest) as rejected:
        await client.customers.create(CustomerRequest(email="ANA@example.com"))
    async with connect(sandbox, sandbox.create_tenant()) as second_client:
        assert await second_client.customers.create(CustomerRequest(email="ana@example.com"))

    assert ("101", ("email",)) == (rejected.value.code, rejected.value.details[0].details)
    assert "the customer already exists" == rejected.value.meaning
    assert ["customer_created"] * 2 == [entry.kind for entry in sandbox.ledger()]


RULES = [
    ({"phone": 5}, 103),
    ({"first_name": "a" * 256}, 104),
    ({"email": "nobody"}, 106),
    ({"first_name": 5}, 107),
    ({"last_name": ["x"]}, 108),
    ({"phone": {"area_code": True}}, 109),
    ({"phone": {"number": 1.5}}, 110),
    ({"identification": {"type": 5}}, 111),
    ({"identification": {"number": {}}}, 112),
    ({"address": {"zip_code": []}}, 113),
    ({"address": {"street_name": 5}}, 114),
    ({"date_registered": "yesterday"}, 115),
    ({"date_registered": "2021-10-20T11:37:30"}, 115),
    ({"description": 5}, 116),
    ({"metadata": "x"}, 117),
    ({"default_card": 1.5}, 121),
    ({"email": None}, 125),
    ({"default_address": 1.5}, 125),
]


async def test_a_broken_rule_has_the_number_of_its_member(plain):
    """In `cause[0].code`, as a number; 118 is for what is no object."""
    for members, code in RULES:
        response = await plain("POST", "/v1/customers", {"email": "ana@example.com", **members})
        assert (400, code) == (response.status, response.json["cause"][0]["code"]), members
    for body in (b"", b"[]", b"5", b"{", b"null", b"\xff"):
        response = await plain("POST", "/v1/customers", body)
        assert (400, "118") == (response.status, response.code)


async def test_five_members_can_be_required(start, plain_to):
    """`customer_required=five`: the contract marks five as required, and does not name them."""
    plain = plain_to(await start(policies={"customer_required": "five"}))
    for missing in ("first_name", "last_name", "phone", "identification", "email"):
        body = {name: value for name, value in EVERYTHING.items() if name != missing}
        response = await plain("POST", "/v1/customers", body)

        assert (400, "125") == (response.status, response.code)
        assert missing in response.json["cause"][0]["data"]
    assert 201 == (await plain("POST", "/v1/customers", EVERYTHING)).status


async def test_emails_can_be_restricted_to_test_users(start, plain_to):
    """`test_emails=test_payer`: 128 for any other."""
    plain = plain_to(await start(policies={"test_emails": "test_payer"}))
    emails = ("test_payer_1@testuser.com", "test_payer_12345678901@t.com", "a@b.com")

    accepted, *rejected = [await plain("POST", "/v1/customers", {"email": email}) for email in emails]

    assert 201 == accepted.status
    assert [(400, "128", True)] * 2 == [
        (answer.status, answer.code, b'"data":"email"' in answer.raw) for answer in rejected
    ]
