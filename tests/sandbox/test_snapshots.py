"""Snapshots while the sandbox works: nothing is half in one, and nothing of them is on the disk."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from paymentsdk import RateLimited
from paymentsdk.sandbox import FaultRule

MIB = 1024 * 1024


@pytest.fixture
async def busy(start, tmp_path):
    """A sandbox with some hundred pages to copy."""
    sandbox = await start(db=str(tmp_path / "sandbox.db"))
    sandbox.provision(orders=100, days=1)
    return sandbox


async def test_snapshots_are_taken_while_requests_are_handled(busy, plain_to, connect, order):
    """What these do is in one as a whole or not at all: every payment of its ledger has its merchant order."""
    plain, counts = plain_to(busy), []

    async def take() -> None:
        for number in range(5):
            assert 200 == (await plain("POST", "/_sandbox/snapshot", {"name": str(number)})).status

    async with connect(busy) as client:
        snapshots = asyncio.ensure_future(take())
        while not snapshots.done():
            busy.buyer.pay(await client.orders.create(order()))
        await snapshots
    for number in range(5):
        busy.platform.restore(str(number))
        paid = [entry.kind for entry in busy.ledger()].count("payment")
        counts.append((paid, (await plain("GET", "/merchant_orders/search?limit=1")).json["total"]))

    assert sorted(counts) == counts
    assert all(100 <= paid == sold for paid, sold in counts)


# --- in a file ---------------------------------------------------------------------------------------------------

FILE = "/_sandbox/snapshot/file"


async def test_a_snapshot_in_a_file_goes_into_another_sandbox(busy, start, plain_to, order, connect):
    """With sellers and tokens, clocks, policies and faults; what was in the other sandbox is gone."""
    busy.advance(busy.tenant, "P1D")
    busy.platform.change_policies({"page_size": 7})
    busy.faults.add(FaultRule(effect="rate_limit", operation="orders.get"))
    async with connect(busy) as client:
        new_order = await client.orders.create(order(), idempotency_key="key")
    saved = await plain_to(busy)("GET", FILE)
    second_sandbox = await start(policies={"page_size": 9})

    loaded = await plain_to(second_sandbox)("POST", FILE, saved.raw)

    assert (200, 200, "application/octet-stream") == (saved.status, loaded.status, saved.headers["Content-Type"])
    assert (busy.access_token, busy.tenant.user_id) == (second_sandbox.access_token, second_sandbox.tenant.user_id)
    assert (7, timedelta(days=1)) == (second_sandbox.policies.page_size, second_sandbox.ahead(second_sandbox.tenant))
    async with connect(second_sandbox) as client:
        assert new_order.id == (await client.orders.create(order(), idempotency_key="key")).id
        with pytest.raises(RateLimited):
            await client.orders.get(new_order.id)
        assert 100 == (await plain_to(second_sandbox)("GET", "/merchant_orders/search?limit=1")).json["total"]


async def test_a_file_that_is_no_snapshot_changes_nothing(start, plain_to, tmp_path):
    """It is rejected whole: cut, of another version, of another program, or the database of a sandbox."""
    sandbox = await start(db=str(tmp_path / "shop.db"))
    plain = plain_to(sandbox)
    whole = (await plain("GET", FILE)).raw
    older = bytearray(whole)
    older[60:64] = (5).to_bytes(4, "big")  # where SQLite keeps the version of the schema
    unmarked = whole.replace(b"snapshot", b"snapshop")
    files = [b"{}", b"\0" * 5000, whole[:-4096], whole[: len(whole) // 2], bytes(older), unmarked]

    rejected = [await plain("POST", FILE, content) for content in files]

    assert [400] * len(files) == [response.status for response in rejected]
    assert all("cannot load the snapshot: " in response.json["message"] for response in rejected)
    assert "schema 5" in rejected[4].json["message"]
    assert 200 == (await plain("GET", "/preapproval_plan/search")).status


async def test_a_large_snapshot_comes_back(start, plain_to):
    """A file may be larger than the body of a request to an operation; there is an end all the same."""
    sandbox = await start()
    sandbox.provision(orders=700, days=1)
    content = sandbox.save()

    loaded = await plain_to(sandbox)("POST", FILE, content)

    assert (200, True) == (loaded.status, len(content) > MIB)
    assert 700 == (await plain_to(sandbox)("GET", "/merchant_orders/search?limit=1")).json["total"]
