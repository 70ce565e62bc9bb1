"""What clients of other makes send: the sandbox takes what a real platform takes, beyond what this client sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import aiohttp
import pytest

from paymentsdk.sandbox import Sandbox

ITEM = {"title": "Lamp", "quantity": 1, "unit_price": 10}


class Foreign:
    """A client of another make: it knows paths and JSON, and none of the rules."""

    def __init__(self, session: aiohttp.ClientSession, sandbox: Sandbox) -> None:
        self._session = session
        self._sandbox = sandbox
        self._keys = 0

    async def post(self, path: str, body: object = None, **headers: str) -> tuple[int, dict]:
        """Send *body* with a content type even where there is none, and with a key on everything."""
        self._keys += 1
        fields = {
            "authorization": f"Bearer {self._sandbox.access_token}",
            "Content-type": "application/json",
            "x-idempotency-key": f"key-{self._keys}",
            "User-Agent": "another client (x64)",
            "X-Product-Id": "p",
            **headers,
        }
        data = None if body is None else aiohttp.JsonPayload(body)
        async with self._session.post(self._sandbox.base_url + path, data=data, headers=fields) as response:
            return response.status, await response.json()

    async def preference(self, **members: object) -> tuple[int, dict]:
        return await self.post("/checkout/preferences", {"items": [ITEM], **members})

    async def paid_order(self) -> Mapping[str, object]:
        _, order = await self.post("/v1/orders", self.order())
        self._sandbox.buyer.pay(order["id"])
        return order

    def order(self, **members: object) -> dict[str, object]:
        return {
            "type": "qr",
            "total_amount": "50.00",
            "external_reference": f"basket-{self._keys}",
            "config": {"qr": {"external_pos_id": self._sandbox.tenant.external_pos_id, "mode": "dynamic"}},
            "transactions": {"payments": [{"amount": "50.00"}]},
            **members,
        }


@pytest.fixture
async def foreign() -> AsyncIterator[Foreign]:
    """Such a client, with a sandbox of its own."""
    async with Sandbox() as sandbox, aiohttp.ClientSession() as session:
        yield Foreign(session, sandbox)


@pytest.mark.parametrize("sent", ["Gmail", "Facebook", "Native web", "Other", None])
async def test_a_buyer_is_known_in_a_listed_way(foreign, sent):
    """The contract names four ways, one of them `Other`."""
    status, created = await foreign.preference(payer={"authentication_type": sent})
    assert (201, sent) == (status, created.get("payer", {}).get("authentication_type"))


@pytest.mark.parametrize("sent", ["MOBILE", "", "gmail", "native web", 5])
async def test_any_other_way_is_rejected(foreign, sent):
    """A client that sends its own words hears of it here, and not from the platform."""
    status, rejection = await foreign.preference(payer={"authentication_type": sent})
    assert 400 == status
    assert rejection["cause"][0]["data"].startswith("payer.authentication_type: ")


@pytest.mark.parametrize("quantity", [2, 2.0])
async def test_an_integer_may_be_written_with_a_fraction_of_zero(foreign, quantity):
    """`2.0` is an integer in JSON; languages with one kind of number write it so."""
    status, created = await foreign.preference(items=[{**ITEM, "quantity": quantity}])
    assert (201, 2) == (status, created["items"][0]["quantity"])
    item = {"title": "Lamp", "unit_price": "25.00", "quantity": quantity, "unit_measure": "unit"}
    status, created = await foreign.post("/v1/orders", foreign.order(items=[item]))
    assert (201, 2) == (status, created["items"][0]["quantity"])


@pytest.mark.parametrize("quantity", [1.5, -1.0, 0.0, 1e300, True, "2"])
async def test_what_is_no_such_integer_is_rejected(foreign, quantity):
    """A fraction, a number out of range, a boolean and a text are no quantities."""
    status, rejection = await foreign.preference(items=[{**ITEM, "quantity": quantity}])
    assert (400, "invalid_items") == (status, rejection["error"])


@pytest.mark.parametrize("body", [None, {}, {"transactions": None}])
async def test_a_full_refund_has_no_body_or_an_empty_one(foreign, body):
    """Some clients send nothing, some `{}`, some a null; each gives everything back."""
    order = await foreign.paid_order()
    status, refunded = await foreign.post(f"/v1/orders/{order['id']}/refund", body)
    assert (201, "refunded") == (status, refunded["status"])
    assert ["50.00"] == [refund["amount"] for refund in refunded["transactions"]["refunds"]]


async def test_an_order_is_canceled_without_a_body(foreign):
    """A cancel has a content type and no body."""
    _, order = await foreign.post("/v1/orders", foreign.order())
    status, canceled = await foreign.post(f"/v1/orders/{order['id']}/cancel")
    assert (200, "canceled") == (status, canceled["status"])


async def test_a_key_that_a_client_uses_for_two_calls_is_rejected(foreign):
    """A client that lets the key of one call leak into the next is told so; nothing is canceled by accident."""
    _, order = await foreign.post("/v1/orders", foreign.order(), **{"x-idempotency-key": "leaks"})
    status, rejection = await foreign.post(f"/v1/orders/{order['id']}/cancel", **{"x-idempotency-key": "leaks"})
    assert (409, "idempotency_key_already_used") == (status, rejection["errors"][0]["code"])
