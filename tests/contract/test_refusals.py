"""What the client rejects before it is sent, the sandbox rejects as well, and both blame the same place.

The rules are those of the table in tests/resources: whoever adds one there has it tested here.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from urllib.parse import urlencode

import aiohttp
import pytest

from paymentsdk import OPERATIONS, PaymentsClient, RequestInvalid
from paymentsdk.sandbox import Sandbox, Tenant
from tests.contract.calls import arguments_of
from tests.resources.request_rules import BROKEN, WHOLE, put


@pytest.fixture
def tenant(sandbox: Sandbox) -> Tenant:
    """A seller who may do everything that a whole request asks for."""
    return sandbox.create_tenant(external_pos_ids=["POS1", "POS001"])


@pytest.fixture
async def send(sandbox: Sandbox, tenant: Tenant) -> AsyncIterator[object]:
    """Sends what no client would, as the seller who went through OAuth; returns the status and the body."""
    info = sandbox.describe(tenant)
    grant = {"client_id": info.client_id, "client_secret": info.client_secret}
    async with aiohttp.ClientSession() as session:

        async def send(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, object]:
            headers = {"Authorization": f"Bearer {token}", "X-Idempotency-Key": "k", **headers}
            headers = {**headers, "Content-Type": "application/json"}
            async with session.request(method, sandbox.base_url + path, data=body, headers=headers) as response:
                return response.status, await response.json()

        token = info.access_token
        code = {**grant, "grant_type": "authorization_code", "code": info.authorization_code}
        token = (await send("POST", "/oauth/token", json.dumps(code).encode()))[1]["access_token"]
        yield send


def whole(name: str, sandbox: Sandbox, tenant: Tenant) -> dict[str, object]:
    """The request of the table with every member, its credentials those of *tenant*."""
    request = copy.deepcopy(json.loads(WHOLE[name]))
    if name == "oauth.token":
        info = sandbox.describe(tenant)
        code = sandbox.authorize(tenant)
        request |= {"client_id": info.client_id, "client_secret": info.client_secret, "code": code}
    return request


async def path_of(name: str, sandbox: Sandbox, tenant: Tenant, request: dict[str, object]) -> str:
    """The path of an operation; for a refund that of a paid order, whose payment goes into *request*."""
    if name == "wallet_payments.create":
        sandbox.promise_discount(request["wallet_payment"]["discount"]["code"], tenant)
    async with PaymentsClient(sandbox.describe(tenant).access_token, base_url=sandbox.base_url) as client:
        arguments = await arguments_of(name, sandbox, client)
    if name == "orders.refund":
        request["transactions"][0]["id"] = arguments["body"].transactions[0].id
    return OPERATIONS[name].path.format_map(arguments)


@pytest.mark.parametrize("name", WHOLE)
async def test_a_request_with_every_member_is_taken(name, sandbox, tenant, send):
    """The control of the table: what is rejected below is rejected for its one broken rule."""
    request = whole(name, sandbox, tenant)
    path = await path_of(name, sandbox, tenant, request)

    status, answer = await send(OPERATIONS[name].method, path, json.dumps(request).encode())

    assert OPERATIONS[name].status == status, answer


async def test_both_sides_reject_the_same_and_blame_the_same_place(sandbox, tenant, send):
    """Every rule of the table: a 400 with a documented code of the operation that names the place."""
    for name, member, value, *_ in BROKEN:
        operation = OPERATIONS[name]
        request = whole(name, sandbox, tenant)
        put(request, member, value)
        body = json.dumps(request).encode()
        with pytest.raises(RequestInvalid) as here:
            operation.encoder.decode(body)

        status, there = await send("POST", operation.path.format(order_id="ORD" + "0" * 26), body)

        assert (name, member, 400) == (name, member, status)
        assert code_of(there) in {error.code for error in operation.errors if error.status == 400}
        place = here.value.path.removeprefix("$").removeprefix(".") or "body"
        assert re.search(rf"(^|[\s\"]){re.escape(place)}: ", json.dumps(there, ensure_ascii=False)), (place, there)


def code_of(answer: dict[str, object]) -> str:
    """The code of a rejection, in whatever shape it came."""
    if "errors" in answer:
        return answer["errors"][0]["code"]
    return str(answer["cause"][0]["code"]) if answer["cause"] else answer["error"]


#: Texts that Python reads as numbers, and no platform does.
ODD_AMOUNTS = ["5_0.00", "\u0665\u0660.00", " 50.00", "+50.00", "5e1", "500e-1", "50.0", "50.", ".5", "NaN", "0x32", ""]


async def test_an_amount_is_digits_with_two_decimals_or_none(sandbox, tenant, send):
    """Any other notation of a decimal string is rejected at its place; the client sends none."""
    request = whole("orders.create", sandbox, tenant)
    for amount in ODD_AMOUNTS:
        request["total_amount"] = request["transactions"]["payments"][0]["amount"] = amount

        status, there = await send("POST", "/v1/orders", json.dumps(request).encode())

        assert (amount, 400, "property_value") == (amount, status, code_of(there))
        assert "amount: " in there["errors"][0]["details"][0]


QUERIES = [
    ("plans.search", "limit", 0, "0"),
    ("plans.search", "limit", "many", "many"),
    ("merchant_orders.search", "limit", 0, "0"),
    ("merchant_orders.search", "date_created_from", datetime(2026, 1, 1), "2026-01-01T00:00:00"),  # noqa: DTZ001
    ("merchant_orders.search", "date_created_to", "yesterday", "yesterday"),
]


async def test_both_sides_reject_the_same_filters(send):
    """A position out of bounds, a moment without a zone or that is none: rejected here, and there with the name."""
    for name, filter_, value, text in QUERIES:
        operation = OPERATIONS[name]
        with pytest.raises(RequestInvalid) as here:
            operation.query_encoder.encode({filter_: value})

        status, there = await send("GET", f"{operation.path}?{urlencode({filter_: text})}")

        assert (400, f"$query.{filter_}") == (status, here.value.path)
        assert code_of(there) in operation.meanings
        assert f"{filter_}: " in json.dumps(there)
