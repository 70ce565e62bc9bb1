"""A service of many sellers that was written from the documentation alone: it sells once, and hears of each change."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import httpx
import marketplace
import pytest
import uvicorn

from paymentsdk.sandbox import FaultRule, Sandbox, WebhookRequest
from tests.postgres import free_port


class World:
    """The platform with three sellers, and the service on a real socket."""

    def __init__(self, sandbox: Sandbox, database: Path, http: httpx.AsyncClient) -> None:
        self.sandbox = sandbox
        self.database = database
        self.http = http

    async def sell(self, seller: str, name: str, amount: str = "24.90") -> httpx.Response:
        """Ask for a sale."""
        return await self.http.post(f"/{seller}/sales", json={"name": name, "amount": amount})

    def sales(self) -> list[tuple[str, str, str]]:
        """What the shop has written."""
        with closing(sqlite3.connect(self.database)) as file:
            return sorted(file.execute("SELECT seller, id, status FROM sale"))


@pytest.fixture
async def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], object]], Awaitable[None]]
) -> AsyncIterator[World]:
    """Three sellers, each with a webhook of its own."""
    database, port = tmp_path / "shop.db", free_port()
    async with Sandbox() as sandbox:
        tenants = {f"shop-{number}": sandbox.create_tenant() for number in (1, 2, 3)}
        sellers = {}
        for name, tenant in tenants.items():
            url = f"http://127.0.0.1:{port}/{name}/notifications"
            webhook = sandbox.webhooks.add(WebhookRequest(url=url), tenant=tenant)
            sellers[name] = {"token": tenant.access_token, "secret": webhook.secret}
        (tmp_path / "sellers.json").write_text(json.dumps(sellers))
        monkeypatch.setenv("SHOP", str(database))
        monkeypatch.setenv("SELLERS", str(tmp_path / "sellers.json"))
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
        server = uvicorn.Server(uvicorn.Config(marketplace.app, port=port, log_level="warning", lifespan="on"))
        serving = asyncio.ensure_future(server.serve())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            await until(lambda: server.started)
            yield World(sandbox, database, http)
        server.should_exit = True
        await serving


async def test_each_seller_sells_once_and_each_state_is_written_once(
    world: World, until: Callable[[Callable[[], object]], Awaitable[None]]
) -> None:
    """A sale that is sent twice, over responses that are lost, is one order; its payment and refund are written."""
    world.sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.create", times=3))
    orders = {}
    for name in ("shop-1", "shop-2", "shop-3", "shop-1"):
        answer = await world.sell(name, f"{name}-table-7")
        assert 201 == answer.status_code, answer.text
        assert orders.setdefault(name, answer.json()["order"]) == answer.json()["order"]
    for order in orders.values():
        await asyncio.to_thread(world.sandbox.buyer.pay, order)
    await until(lambda: 3 == len([sale for sale in world.sales() if sale[2] == "processed"]))

    sales = world.sales()
    assert sorted(orders.items()) == [sale[:2] for sale in sales if sale[2] == "processed"]
    assert len(sales) == len({*sales})
    metrics = (await world.http.get("/metrics")).text
    assert 'calls_total{operation="orders.create",outcome="succeeded"} 3\n' in metrics


async def test_what_cannot_be_sold_has_a_status_of_its_own(world: World) -> None:
    """A caller learns whether to correct a sale or to send it again; a stranger's notification is not taken."""
    world.sandbox.faults.add(FaultRule(effect="fail_before_commit", operation="orders.create"))

    wrong = await world.sell("shop-1", "a", amount="0.001")
    unknown = await world.sell("shop-9", "b")
    down = await world.sell("shop-2", "c")
    forged = await world.http.post("/shop-1/notifications", content=b"{}")

    assert [422, 400, 503, 401] == [answer.status_code for answer in (wrong, unknown, down, forged)]
