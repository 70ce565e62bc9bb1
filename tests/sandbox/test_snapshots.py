"""Snapshots while the sandbox works: nothing is half in one, and nothing is left of one that failed."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from paymentsdk.sandbox import Sandbox, _snapshots
from paymentsdk.sandbox._records import ORDERS, TENANTS


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


async def test_a_snapshot_is_replaced_by_the_next_of_its_name(busy):
    """It has the documents and the policies of that moment."""
    for size in (7, 8):
        busy.create_tenant()
        busy.platform.change_policies({"page_size": size})
        busy.platform.snapshot()
    busy.create_tenant()
    busy.platform.change_policies({"page_size": 9})
    busy.platform.restore()

    assert (3, 8) == (busy.platform.store.count(TENANTS, None), busy.policies.page_size)


async def test_a_database_in_memory_has_its_snapshots_there(tmp_path, monkeypatch):
    """As SQLite calls it: nobody expects a file of that name, nor finds it."""
    monkeypatch.chdir(tmp_path)

    async with Sandbox(db=":memory:") as sandbox:
        sandbox.snapshot()
        sandbox.restore()

    assert [] == list(tmp_path.iterdir())


async def test_a_start_after_a_restore_makes_identifiers_of_its_own(tmp_path, connect, order):
    """With a seed and a clock that stands still they would come again, and new orders replace earlier ones."""
    options = {"db": str(tmp_path / "sandbox.db"), "seed": 7, "frozen_at": datetime(2026, 1, 31, tzinfo=UTC)}
    async with Sandbox(**options) as sandbox:
        sandbox.snapshot()
    async with Sandbox(**options) as sandbox, connect(sandbox) as client:
        sandbox.restore()
        await client.orders.create(order("1.00"))
    async with Sandbox(**options) as sandbox, connect(sandbox) as client:
        await client.orders.create(order("2.00"))

        assert [Decimal(1), Decimal(2)] == [record.order.total_amount for record in sandbox.store.find(ORDERS, None)]


@pytest.mark.control("paymentsdk.sandbox._snapshots._remove", lambda path: path.unlink(missing_ok=True))
def test_nothing_is_left_beside_a_snapshot_that_failed(tmp_path):
    """SQLite leaves its log there where it cannot write all of it into the file, as on a full disk."""

    def fail() -> None:
        with _snapshots.Snapshots(str(tmp_path / "sandbox.db")).new("cut") as copy:
            copy.executescript("PRAGMA journal_mode = WAL; CREATE TABLE half (done);")
            # As long as another connection is open, the log stays as well.
            reader.append(sqlite3.connect(tmp_path / "sandbox.db.cut.snapshot.unfinished"))
            reader[0].execute("SELECT * FROM half")
            raise RuntimeError("the disk is full")

    reader: list[sqlite3.Connection] = []
    with pytest.raises(RuntimeError):
        fail()
    left = list(tmp_path.iterdir())
    reader[0].close()

    assert [] == left
