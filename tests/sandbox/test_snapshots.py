"""Snapshots while the sandbox works: nothing is half in one, and nothing of them is on the disk."""

from __future__ import annotations

import asyncio

import pytest

from paymentsdk.sandbox import Sandbox


@pytest.fixture(params=[True, False], ids=["file", "memory"])
async def busy(request, start, tmp_path):
    """A sandbox with some hundred pages to copy."""
    sandbox = await start(db=str(tmp_path / "sandbox.db") if request.param else None)
    sandbox.provision(orders=150, days=1)
    return sandbox


async def test_snapshots_are_taken_while_requests_are_handled(busy, plain_to, connect, order):
    """What these do is in one as a whole or not at all: every payment of its ledger has its merchant order."""
    plain, found = plain_to(busy), []

    async def take() -> None:
        for number in range(5):
            assert 200 == (await plain("POST", "/_sandbox/snapshot", {"name": str(number)})).status

    async with connect(busy) as client:
        taken = asyncio.ensure_future(take())
        while not taken.done():
            busy.buyer.pay(await client.orders.create(order()))
        await taken
    for number in range(5):
        busy.platform.restore(str(number))
        paid = [entry.kind for entry in busy.ledger()].count("payment")
        found.append((paid, (await plain("GET", "/merchant_orders/search?limit=1")).json["total"]))

    assert sorted(found) == found
    assert all(150 <= paid == sold for paid, sold in found)


async def test_a_snapshot_is_replaced_by_the_next_of_its_name(busy, plain_to):
    """It has the documents and the policies of that moment."""
    for size in (7, 8):
        busy.create_tenant()
        busy.platform.change_policies({"page_size": size})
        busy.platform.snapshot()
    busy.create_tenant()
    busy.platform.change_policies({"page_size": 9})
    busy.platform.restore()

    assert (3, 8) == (len((await plain_to(busy)("GET", "/_sandbox/tenants")).json), busy.policies.page_size)


async def test_snapshots_are_in_memory(tmp_path, plain_to):
    """Nothing is beside the file of a sandbox, and a later start has no snapshot."""
    path = tmp_path / "sandbox.db"
    async with Sandbox(db=str(path)) as sandbox:
        sandbox.snapshot()
        sandbox.restore()
    async with Sandbox(db=str(path)) as sandbox:
        assert 404 == (await plain_to(sandbox)("POST", "/_sandbox/restore")).status

    assert [path] == list(tmp_path.iterdir())
