"""What happens in the sandbox is watched live."""

from __future__ import annotations

import asyncio
import json

import pytest


async def events(session, sandbox, count: int) -> list[tuple[str, dict]]:
    """Watch the stream until *count* events have come."""
    received = []
    async with session.get(f"{sandbox.base_url}/_sandbox/events") as response:
        assert "text/event-stream" == response.content_type
        kind = ""
        async for line in response.content:
            text = line.decode().strip()
            if text.startswith("event: "):
                kind = text.removeprefix("event: ")
            elif text.startswith("data: "):
                received.append((kind, json.loads(text.removeprefix("data: "))))
                if len(received) == count:
                    break
    return received


async def test_orders_are_watched_live(session, sandbox, client, order, until):
    """Documents as they change, and requests as their responses go out; no tokens."""
    watching = asyncio.create_task(events(session, sandbox, 5))
    await until(lambda: sandbox.platform.feed._watchers)
    new_order = await client.orders.create(order())
    await client.oauth.exchange_code(sandbox.authorization_code)
    sandbox.buyer.pay(new_order)
    received = await watching

    assert ["orders", "requests", "requests", "orders", "merchant_orders"] == [kind for kind, _ in received]
    assert ["created", "processed"] == [
        data["document"]["order"]["status"] for kind, data in received if kind == "orders"
    ]
    assert sandbox.tenant.user_id == received[0][1]["tenant"]
    assert sandbox.authorization_code not in json.dumps(received)


@pytest.mark.control("paymentsdk.sandbox._app.has_gone", lambda request: False)
async def test_a_watcher_who_leaves_is_no_failure(session, sandbox, until, caplog):
    """Every page that is loaded anew leaves its stream: what is written to it then is nobody's, and not logged."""
    response = await session.get(f"{sandbox.base_url}/_sandbox/events")
    await until(lambda: sandbox.platform.feed._watchers)

    response.close()
    for number in range(200):
        sandbox.change_policies({"page_size": number + 1})
        await asyncio.sleep(0)
    await until(lambda: not sandbox.platform.feed._watchers)

    assert [] == caplog.records


async def test_watching_ends_with_the_sandbox(start, session, until):
    """A stream does not keep the server from stopping."""
    sandbox = await start()
    watching = asyncio.create_task(events(session, sandbox, 1))
    await until(lambda: sandbox.platform.feed._watchers)

    await sandbox.stop()

    assert [] == await watching
