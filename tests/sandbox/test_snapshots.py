"""Snapshots while the sandbox works: others go on, nothing is half in one, and a stop does not wait for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from itertools import count
from types import SimpleNamespace

import pytest

from paymentsdk.sandbox import _snapshots
from paymentsdk.sandbox._records import TENANTS


@pytest.fixture(params=[True, False], ids=["file", "memory"])
async def busy(request, start, tmp_path, monkeypatch):
    """A sandbox with some hundred pages to copy, in many steps."""
    if _snapshots._STEP > 0:
        monkeypatch.setattr(_snapshots, "_STEP", 12)  # More than a request adds, or the rest is copied at once.
    sandbox = await start(db=str(tmp_path / "sandbox.db") if request.param else None)
    sandbox.provision(orders=150, days=1)
    return sandbox


@pytest.mark.parametrize("busy", [True], ids=["file"], indirect=True)
@pytest.mark.control("paymentsdk.sandbox._snapshots._STEP", -1)
async def test_requests_are_handled_while_a_snapshot_is_taken(busy, plain_to, connect, order, monkeypatch):
    """And what they do is in it as a whole or not at all: every payment of its ledger has its merchant order."""
    plain, handled, pauses = plain_to(busy), threading.Semaphore(0), count()
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def pause(_: float) -> None:
        loop.call_soon_threadsafe(begun.set)
        if next(pauses) < 5:
            handled.acquire()

    monkeypatch.setattr(_snapshots, "time", SimpleNamespace(sleep=pause))
    async with connect(busy) as client:
        taken = asyncio.ensure_future(plain("POST", "/_sandbox/snapshot"))
        taken.add_done_callback(lambda _: begun.set())
        await begun.wait()
        for _ in range(5):
            busy.buyer.pay(await client.orders.create(order()))
            meanwhile = not taken.done()
            handled.release()
        statuses = [(await taken).status, (await plain("POST", "/_sandbox/restore")).status]
    paid = [entry.kind for entry in busy.ledger()].count("payment")
    sold = (await plain("GET", "/merchant_orders/search?limit=1")).json["total"]

    assert ([200, 200], True) == (statuses, meanwhile)
    assert 154 <= paid == sold <= 155


def told_at_the_beginning(snapshot):
    """Make a snapshot that has the policies of its beginning."""

    def taken(store, name, standing=bytes):
        kept = standing()
        return snapshot(store, name, lambda: kept)

    return taken


@pytest.mark.control("paymentsdk.sandbox._store.Store.snapshot", around=told_at_the_beginning)
async def test_a_snapshot_has_all_of_the_moment_when_it_is_done(busy, monkeypatch):
    """Documents and policies that change while it is taken are in it, both."""
    steps = count(1)

    def change(_: float) -> None:
        if next(steps) == 3:
            busy.create_tenant()
            busy.platform.change_policies({"page_size": 7})

    monkeypatch.setattr(_snapshots, "time", SimpleNamespace(sleep=change))
    busy.platform.snapshot("late")
    busy.create_tenant()
    busy.platform.change_policies({"page_size": 8})
    busy.platform.restore("late")

    assert 3 < next(steps)
    assert (2, 7) == (busy.platform.store.count(TENANTS, None), busy.policies.page_size)


@pytest.mark.parametrize("busy", [False], ids=["memory"], indirect=True)
async def test_a_snapshot_in_memory_ends_under_writes(busy, monkeypatch):
    """SQLite begins it anew at each of them: the second time nobody comes between."""
    names = map(str, count())

    def write(_: float) -> None:
        busy.platform.store.keep_setting(next(names), "written")

    monkeypatch.setattr(_snapshots, "time", SimpleNamespace(sleep=write))
    busy.platform.snapshot("restless")
    busy.platform.restore("restless")

    assert "1" == next(names)
    assert "written" == busy.platform.store.setting("0", "")


async def test_a_stop_does_not_wait_for_a_snapshot(busy, monkeypatch, tmp_path):
    """Whoever takes it is told, and no file is left of it."""
    begun, ends, failed = threading.Event(), threading.Event(), []

    def take() -> None:
        with pytest.raises(RuntimeError, match="the sandbox has stopped: its snapshot is not finished") as raised:
            busy.platform.snapshot("cut")
        failed.append(raised)

    def pause(_: float) -> None:
        begun.set()
        ends.wait()

    close = busy.platform.store.close
    monkeypatch.setattr(_snapshots, "time", SimpleNamespace(sleep=pause))
    monkeypatch.setattr(busy.platform.store, "close", lambda: (ends.set(), close()))
    thread = threading.Thread(target=take)
    thread.start()
    begun.wait()
    await busy.stop()
    thread.join()

    assert 1 == len(failed)
    assert [] == [file.name for file in tmp_path.iterdir() if "snapshot" in file.name]


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
