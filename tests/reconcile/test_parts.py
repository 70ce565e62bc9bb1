"""The parts of a reconciliation that only a test of their own can break: the SQL, the ledger, workers that are slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Self

import duckdb
import pyarrow as pa
import pytest

from paymentsdk.reconcile import Outcome, _checkpoint, _diff, _follow_up, _run
from tests.reconcile.planted import BEGIN, CREATED, World
from tests.reconcile.test_reconcile import client_of, found, no_room, reconciled


async def test_a_comparison_without_the_seller_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: sellers have the same references, and compared by these alone each may have what another should."""
    world = World(200, grain=10**9)
    for row, order in zip(
        world.book, [shown_order for i in range(200) for shown_order in world.shown_of(f"order-{i}")], strict=True
    ):
        row["reference"] = order.reference = f"order-{int(row['reference'][6:]) // 3}"
    for seller in world.sellers.values():
        seller.freeze()
    first, second, _ = world.shown_of("order-0")
    first.paid, second.paid = second.paid, first.paid
    swapped = {(name, "order-0"): Outcome.PAID_AMOUNT for name in ("shop-0", "shop-1")}
    assert swapped == found(await reconciled(world, tmp_path / "right"))

    replace_in_sql(monkeypatch, ("b.account = t.account AND ", ""), ("hash(account, ", "hash("))

    assert swapped != found(await reconciled(world, tmp_path / "wrong"))


async def test_what_the_hash_leaves_out_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: orders of the same hash are taken to agree, so it must have every column that is compared."""
    replace_in_sql(monkeypatch, ("fingerprint(currency, total, paid, ", "fingerprint(currency, 0, 0, "))
    world = World(300, grain=3)

    report = await reconciled(world, tmp_path)

    assert {Outcome.PAID_AMOUNT, Outcome.TOTAL_AMOUNT} & {*world.expected.values()}
    assert Outcome.TOTAL_AMOUNT not in report.counts


async def test_repeated_references_are_compared_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and in however many steps: each is compared once."""
    monkeypatch.setattr(_diff, "_MOST_REPEATED", 10)
    world = World(600, grain=3)

    report = await reconciled(world, tmp_path)

    assert world.expected == found(report)
    assert world.counts == report.counts


def replace_in_sql(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, str]) -> None:
    """Have the comparison run with other text in its SQL."""
    parts = _diff.read_sql()
    for old, new in pairs:
        assert any(old in part for part in parts.values())
        parts = {name: part.replace(old, new) for name, part in parts.items()}
    monkeypatch.setattr(_diff, "read_sql", lambda: parts)


async def test_without_the_second_phase_late_refunds_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: rows are as they were read; those that were refunded since would be reported, or be silently wrong."""
    monkeypatch.setattr(_follow_up.Changes, "read", nothing_changed)
    world = World(1_200, grain=3)

    assert world.expected != found(await reconciled(world, tmp_path))


async def nothing_changed(self: _follow_up.Changes) -> None:
    """A walk that looks for no changes."""


class Slow:
    """An executor whose first job takes an hour, in which an order is made."""

    slots = 1
    is_late = False

    def __init__(self, world: World) -> None:
        self.world = world

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(self, job: _run.Job) -> _run.Job:
        async with client_of(self.world) as client:
            windows = await _run.do(job, client, 8)
        if not self.is_late:
            self.world._show("shop-0", "made-meanwhile", self.world.now + 5 * 60_000, Decimal(3))
            self.world.freeze()
            self.world.now += 3_600_000
        self.is_late = True
        return windows


async def test_an_order_that_was_made_during_a_long_walk_is_too_recent(tmp_path: Path) -> None:
    """The book was read before: also of a run that goes on, whose first calls are those of workers."""
    world, today = World(0), (CREATED[0], CREATED[1] + timedelta(days=1))
    world.plant_match("shop-0", "A-1", BEGIN)
    world.freeze()

    assert {} == found(await reconciled(world, tmp_path, created=today))
    report = await reconciled(world, tmp_path, created=today, executor=Slow(world))

    assert {("shop-0", "made-meanwhile"): Outcome.TOO_RECENT} == found(report)


def test_a_checkpoint_that_cannot_be_written_is_an_oserror(tmp_path: Path) -> None:
    """Not an error of the database that it happens to be."""
    checkpoint = _checkpoint.Checkpoint(tmp_path, '{"accounts": [""]}')
    grains = {f"shop-{i}": 1 for i in range(2_000)}

    with no_room(), pytest.raises(OSError, match="the ledger cannot be written"):
        checkpoint.save_grains(grains)

    checkpoint.save_grains(grains)
    assert grains == checkpoint.grains()
    checkpoint.close()


def test_a_comparison_ends_while_a_thread_is_at_work(tmp_path: Path) -> None:
    """Nothing ends the thread of a wait that was cancelled: its query is interrupted, and no error hides the end."""
    diff, begun, over, ends = _diff.Diff(tmp_path), threading.Event(), threading.Event(), []
    batch = pa.record_batch({"n": [1]})

    def rows() -> Iterator[pa.RecordBatch]:
        begun.set()
        while not over.is_set():
            yield batch

    def ask() -> None:
        try:
            diff.database.execute("SELECT sum(n) FROM slow").fetchall()
        except duckdb.Error as error:
            ends.append(error)

    diff.database.register("slow", pa.RecordBatchReader.from_batches(batch.schema, rows()))
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        assert begun.wait(50)
        diff.close()
        thread.join(50)
        assert 1 == len(ends)
    finally:
        over.set()
        thread.join()
