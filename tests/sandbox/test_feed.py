"""What happens in the sandbox is watched live."""

from __future__ import annotations

import asyncio
import json

import pytest

from paymentsdk.sandbox import FaultRule
from paymentsdk.sandbox._clock import ClockState
from paymentsdk.sandbox._feed import MOST_BEHIND, Changed, Event, Feed


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
    for _ in range(200):
        sandbox.platform.feed.publish(Event(kind="clock", tenant=None, document=sandbox.platform.clock.state))
        await asyncio.sleep(0)
    await until(lambda: not sandbox.platform.feed._watchers)

    assert [] == caplog.records


async def test_changes_from_elsewhere_are_told(session, sandbox, plain, until):
    """Whoever shows policies, rules or documents hears that they may be others now; not of rejections."""
    watching = asyncio.create_task(events(session, sandbox, 5))
    await until(lambda: sandbox.platform.feed._watchers)
    await plain("POST", "/_sandbox/snapshot")
    await plain("PATCH", "/_sandbox/policies", {"page_size": 7})
    await plain("PATCH", "/_sandbox/policies", {"page_size": 0})
    added = sandbox.faults.add(FaultRule(effect="hang"))
    added.remove()
    added.remove()
    await plain("DELETE", "/_sandbox/faults")
    await plain("POST", "/_sandbox/restore")

    received = await watching

    assert {"changed"} == {kind for kind, _ in received}
    assert ["policies", "faults", "faults", "faults", "everything"] == [
        data["document"]["what"] for _, data in received
    ]


async def test_a_stream_has_no_head(plain):
    """Asking for the headers alone is rejected, instead of hanging: 405."""
    assert 405 == (await plain("HEAD", "/_sandbox/events")).status


async def test_watching_ends_with_the_sandbox(start, session, until):
    """A stream does not keep the server from stopping."""
    sandbox = await start()
    watching = asyncio.create_task(events(session, sandbox, 1))
    await until(lambda: sandbox.platform.feed._watchers)

    await sandbox.stop()

    assert [] == await watching


async def test_a_watcher_who_missed_something_is_told_to_look_at_everything():
    """Memory is bounded: in place of more events than that comes one that says so, and then the newest."""
    feed = Feed()
    with feed.watch() as queue:
        for number in range(MOST_BEHIND + 5):
            feed.publish(Event(kind=str(number), tenant=None, document=ClockState()))
        await asyncio.sleep(0)

        received = [queue.get_nowait() for _ in range(queue.qsize())]

    assert ["changed", *map(str, range(MOST_BEHIND, MOST_BEHIND + 5))] == [event.kind for event in received]
    assert Changed("everything") == received[0].document
