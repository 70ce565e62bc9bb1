"""A clock per seller: parallel tests share one server, and each moves the time of its own seller."""

from __future__ import annotations

from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from paymentsdk import AuthenticationFailed
from paymentsdk.sandbox import WebhookRequest

QUARTER = timedelta(minutes=15)


@pytest.fixture
def tenants(sandbox):
    """Two sellers of one sandbox."""
    return sandbox.tenant, sandbox.create_tenant()


async def test_an_order_expires_by_the_clock_of_its_seller(plain, sandbox, tenants, data):
    """The order of another seller does not, and the clock of the sandbox does not move."""
    first, second = tenants
    tokens = [sandbox.describe(tenant).access_token for tenant in tenants]
    orders = [(await plain("POST", "/v1/orders", data(), key="k", token=token)).json for token in tokens]
    path = f"/_sandbox/tenants/{second.user_id}/clock"

    moved = (await plain("POST", f"{path}/advance", {"duration": "PT15M"})).json
    pairs = zip(orders, tokens, strict=True)
    read = [await plain("GET", f"/v1/orders/{order['id']}", token=token) for order, token in pairs]
    clock = (await plain("GET", path)).json

    assert ["created", "expired"] == [response.json["status"] for response in read]
    assert [(second.user_id, "order.expired", orders[1]["id"])] == [
        (event["tenant"], event["kind"], event["id"]) for event in moved["happened"]
    ]
    assert moved["now"] == moved["happened"][0]["at"] == read[1].json["last_updated_date"] == clock["now"]
    assert sandbox.now(first) == sandbox.clock.now() == sandbox.now(second) - QUARTER
    assert [sandbox.now(tenant).replace(microsecond=0) for tenant in tenants] == [
        parsedate_to_datetime(response.headers["Date"]) for response in read
    ]


async def test_tokens_keys_and_windows_follow(connect, sandbox, tenants, order):
    """A key is forgotten after 24 hours, a sale leaves the search after 90 days, a token ends after 180."""
    first, second = tenants
    async with connect(sandbox, first) as still, connect(sandbox, second) as moved:
        orders_by_seller = [[await client.orders.create(order(), idempotency_key="key")] for client in (still, moved)]
        for orders in orders_by_seller:
            sandbox.buyer.pay(orders[0])
        sandbox.advance(second, "P1D")
        for client, orders in ((still, orders_by_seller[0]), (moved, orders_by_seller[1])):
            orders.append(await client.orders.create(order(), idempotency_key="key"))
        sandbox.advance(second, "P90D")
        counts = [len(await client.merchant_orders.search().collect()) for client in (still, moved)]
        sandbox.advance(second, "P90D")
        with pytest.raises(AuthenticationFailed, match="has expired"):
            await moved.orders.get(orders_by_seller[1][0].id)
        renewed = moved.with_options(access_token=sandbox.describe(second).access_token)

        assert [1, 0] == counts
        assert orders_by_seller[0][0].id == orders_by_seller[0][1].id
        assert orders_by_seller[1][0].id != orders_by_seller[1][1].id
        assert "processed" == (await renewed.orders.get(orders_by_seller[1][0].id)).status
        assert "processed" == (await still.orders.get(orders_by_seller[0][0].id)).status


async def test_it_survives_a_restart_and_a_restore(start, connect, order, tmp_path):
    """What waits stays due by the clock of its seller."""
    file = str(tmp_path / "shop.db")
    sandbox = await start(db=file, frozen=True)
    sandbox.advance(sandbox.tenant, "P1D")
    sandbox.webhooks.add(WebhookRequest(url="http://127.0.0.1:9/"))
    async with connect(sandbox) as client:
        await client.orders.create(order())
    await sandbox.stop()
    sandbox = await start(db=file, frozen=True)
    seller = sandbox.tenant
    sandbox.snapshot()
    sandbox.advance(seller, "P1D")

    sandbox.restore()

    assert timedelta(days=1) == sandbox.ahead(seller)
    assert ["order.expired"] == [event.kind for event in sandbox.advance(seller, QUARTER)]
