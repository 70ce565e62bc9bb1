"""The document of the control API: valid, whole, and true to what the sandbox sends, notifications included."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from paymentsdk import OPERATIONS
from paymentsdk.sandbox import Sandbox, WebhookRequest
from tests.sandbox_openapi.test_document import check, document, suits_generators

ORDER, PREFERENCE = OPERATIONS["orders.create"].example, OPERATIONS["preferences.create"].example


class Http:
    """Sends requests to a sandbox, and remembers the responses of its control API."""

    def __init__(self, session: aiohttp.ClientSession, sandbox: Sandbox) -> None:
        self._session, self._sandbox = session, sandbox
        self.responses: dict[tuple[str, str], tuple[str, Any]] = {}

    async def __call__(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self._sandbox.access_token}", "X-Idempotency-Key": f"{method}{path}"}
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._session.request(method, self._sandbox.base_url + path, headers=headers, **sent) as response:
            assert response.status < 300, (method, path, await response.text())
            content = await response.read()
            return msgspec.json.decode(content) if response.content_type == "application/json" else content

    async def control(self, method: str, path: str, body: object = None, query: str = "", **ids: object) -> Any:
        """Send a request of the control API, which is declared with *method* and *path*."""
        response = await self(method, f"/_sandbox/{path.format(**ids)}{query}", body)
        self.responses[method, path] = response
        return response


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    """A client of a sandbox."""
    async with Sandbox(seed=1) as sandbox, aiohttp.ClientSession() as session:
        yield Http(session, sandbox)


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The document as a program reads it."""
    return document("/_sandbox/openapi.json")


def properties(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each member of each schema."""
    for name, schema in described["components"]["schemas"].items():
        for member, rule in schema.get("properties", {}).items():
            yield f"{name}.{member}", rule


def test_it_is_whole(described: dict[str, Any]):
    """Every request is in it under a name of its own, and every member has a text."""
    paths = described["paths"].values()
    names = [operation["operationId"] for methods in paths for operation in methods.values()]
    assert len(names) == len(set(names))
    assert [] == [name for name, rule in properties(described) if "$ref" not in rule and not rule.get("description")]
    assert suits_generators(described)


async def test_responses_follow_it(http: Http, described: dict[str, Any]):
    """Real responses of every request; a response with a member of another type does not pass."""
    await send_all(http)

    wrong = {}
    for (method, path), response in http.responses.items():
        [content] = described["paths"][f"/_sandbox/{path}"][method.lower()]["responses"]["200"]["content"].values()
        value = response.decode("latin-1") if isinstance(response, bytes) else response
        if errors := check(described, content["schema"], value):
            wrong[method, path] = errors
    assert {} == wrong
    documented = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    sent = {(method, f"/_sandbox/{path}") for method, path in http.responses}
    assert documented - {("GET", "/_sandbox/events")} == sent
    assert check(described, {"$ref": "#/components/schemas/Seller"}, {"user_id": "1"})


async def send_all(http: Http) -> None:
    """Send every request of the control API."""
    control = http.control
    for name in ("health", "state", "clock", "codes", "policies", "faults"):
        await control("GET", name)
    seller = await control("POST", "tenants", {"access_token": "TEST-two", "external_pos_ids": ["TILL"]})
    first, _ = await control("GET", "tenants")
    user = {"id": first["user_id"]}
    await control("POST", "tenants/{id}/authorize", **user)
    webhook = await control("POST", "tenants/{id}/webhooks", {"url": "http://127.0.0.1:9/"}, **user)
    await control("GET", "webhooks")
    order = await http("POST", "/v1/orders", ORDER)
    await control("POST", "scan", {"code": order["id"]})
    await control("POST", "orders/{id}/pay", id=order["id"])
    preference = await http("POST", "/checkout/preferences", PREFERENCE)
    await control("POST", "preferences/{id}/open", id=preference["id"])
    merchant_order = await control("POST", "preferences/{id}/pay", id=preference["id"])
    await control("POST", "merchant_orders/{id}/refund", {"amount": "1.50"}, id=merchant_order["id"])
    await control("POST", "provision", {"orders": 1})
    plan = await control("POST", "plans", {"reason": "A plan", "auto_recurring": {"transaction_amount": "5.00"}})
    subscription = await control("POST", "subscriptions", {"plan_id": plan["id"]})
    await control("POST", "clock/freeze")
    await control("POST", "clock/advance", {"duration": "P31D"})
    await control("POST", "clock/resume")
    await control("GET", "tenants/{id}/clock", **user)
    await control("POST", "tenants/{id}/clock/advance", {"duration": "PT1M"}, **user)
    for name in ("preferences", "orders", "merchant_orders", "plans", "subscriptions", "invoices", "ledger"):
        await control("GET", name)
    invoice = http.responses["GET", "invoices"][-1]["invoice"]
    await control("POST", "invoices/{id}/payment", {"status": "refunded"}, id=invoice["id"])
    await control("POST", "subscriptions/{id}/cancel", id=subscription["id"])
    delivery, *_ = await control("GET", "deliveries")
    await control("POST", "deliveries/{id}/redeliver", id=delivery["id"])
    await control("DELETE", "webhooks/{id}", id=webhook["id"])
    fault = await control("POST", "faults", {"effect": "reset", "tenant": seller["user_id"]})
    await control("DELETE", "faults/{id}", id=fault["id"])
    await control("DELETE", "faults")
    await control("PATCH", "policies", {"page_size": 5})
    await control("POST", "snapshot", {})
    await control("POST", "restore", {})
    await control("POST", "tokens/revoke", {"token": seller["access_token"]})
    await control("GET", "requests")
    await control("GET", "requests.har")
    saved = await control("GET", "snapshot/file")
    await control("POST", "snapshot/file", saved)


@pytest.mark.parametrize("template", ["standard", "cloudevents", "hint"])
async def test_notifications_follow_it(described: dict[str, Any], template: str, until: Callable):
    """Each template has a webhook in the document, and the body and the headers are as it says."""
    bodies: list[tuple[object, str]] = []
    headers: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        bodies.append((msgspec.json.decode(await request.read()), request.content_type))
        headers.extend(name.lower() for name in request.headers)
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with Sandbox() as sandbox, aiohttp.ClientSession() as session:
        sandbox.webhooks.add(WebhookRequest(url=url, template=template))
        client = Http(session, sandbox)
        await client("POST", "/v1/orders", ORDER)
        await until(lambda: bodies)
    await runner.cleanup()

    notification = described["webhooks"][template]["post"]
    [(media, content)] = notification["requestBody"]["content"].items()
    [(body, content_type)] = bodies
    assert media == content_type
    assert [] == check(described, content["schema"], body)
    assert body.keys() == content["schema"]["examples"][0].keys()
    assert {parameter["name"] for parameter in notification["parameters"]} <= set(headers)
    assert notification["x-beyond-contract"] is True
