"""Rows of a journal that nobody can read, as on a damaged disk: they are named, and cost the other records nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, closing
from pathlib import Path

import pytest
from msgspec import msgpack

from paymentsdk import OutcomeUnknown
from paymentsdk.journal import Action, Record, RecordState, Resolution, SQLiteJournal
from tests.journal import test_look_up
from tests.journal.platform import ONCE, URL, Platform, order
from tests.journal.test_look_up import FAILED, Seller

seller = test_look_up.seller

#: What stands in a column: nothing, no text, another shape, and what another version may write.
DAMAGES = [{"fixed": b"\x98\xa1\xff"}, {"headers": msgpack.encode({"name": 1})}]
UNKNOWN = Resolution(state=RecordState.UNKNOWN, reason="lost")


def damage(path: Path, key: str, **columns: object) -> None:
    """Put something else into columns of a row."""
    with closing(sqlite3.connect(path)) as database:
        for name, value in columns.items():
            database.execute(f"UPDATE record SET {name} = ? WHERE key = ?", (value, key))
        database.commit()


def column(path: Path, key: str, name: str) -> object:
    """Return what stands in a column of a row."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT {name} FROM record WHERE key = ?", (key,)).fetchone()[0]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SQLiteJournal]:
    """A journal."""
    async with aclosing(SQLiteJournal(tmp_path / "payments.db")) as journal:
        yield journal


@pytest.mark.parametrize("damages", DAMAGES)
async def test_a_row_that_cannot_be_read_hides_no_other(
    journal: SQLiteJournal, tmp_path: Path, record: Callable[..., Record], damages: dict, caplog
) -> None:
    """It is listed by its key, with all that is known of it, and is warned of once."""
    path = tmp_path / "payments.db"
    for number, label in enumerate(("first", "damaged", "last")):
        await journal.begin(record(label, begun=100.0 + number), lease=0)
    damaged = record("damaged")
    damage(path, damaged.key, **damages)

    for _ in range(2):
        rows = await journal.records([RecordState.PENDING])

    assert ["first", damaged.key, "last"] == [row.name for row in rows]
    damaged_row = rows[1]
    assert damaged_row == await journal.get(damaged.key)
    details = (damaged_row.key, damaged_row.seller, damaged_row.digest, damaged_row.begun)
    assert (damaged.key, "77", damaged.digest, 101.0) == details
    assert ("unreadable", None, False) == (damaged_row.operation, damaged_row.body, damaged_row.recoverable)
    assert damaged_row.reason.startswith("its row cannot be read: ")
    assert 1 == caplog.text.count(f"the row of the record {damaged.key} cannot be read")


async def test_nothing_is_sent_for_a_row_that_cannot_be_read(
    journal: SQLiteJournal, tmp_path: Path, record: Callable[..., Record]
) -> None:
    """What was to be sent, and until when, is not known; and what nobody can read is not written over."""
    path = tmp_path / "payments.db"
    damaged = record("damaged")
    await journal.begin(damaged, lease=0)
    damage(path, damaged.key, fixed=b"")

    assert [] == await journal.claim(["77"], owner="q/1", lease=60, keys=[damaged.key])
    action, row = await journal.begin(record("damaged", owner="q/1"), lease=60)
    assert (Action.UNKNOWN, "p/1") == (action, row.owner)
    await journal.resolve(damaged.key, UNKNOWN, owner="p/1")
    await journal.resolve(damaged.key, Resolution(state=RecordState.ABANDONED, reason="by Ann"), owner="")

    fixed = ["damaged", "orders.create", URL, None, "/v1/orders", False, True, 700.0]
    damage(path, damaged.key, fixed=msgpack.encode(fixed))
    row = await journal.get(damaged.key)
    assert (RecordState.ABANDONED, "damaged", damaged.body) == (row.state, row.name, row.body)


async def test_recovery_finishes_the_others(start, platform: Platform, tmp_path: Path) -> None:
    """And says which record it could not read: for a person. Damaged text hides no other record either."""
    platform.lose = True
    async with start(retry=ONCE) as client:
        for name in ("one", "damaged", "text", "two"):
            with pytest.raises(OutcomeUnknown):
                await client.orders.create(order(), once=name)
        rows = {row.name: row.key for row in await client.journal.records([RecordState.UNKNOWN])}
    platform.lose, path = False, tmp_path / "payments.db"
    damage(path, rows["damaged"], fixed=b"\x98")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE record SET owner = CAST(x'77ff' AS TEXT) WHERE key = ?", (rows["text"],))
        database.commit()

    async with start() as client:
        summary = await client.recover()
        with pytest.raises(OutcomeUnknown, match="its row cannot be read"):
            await client.orders.create(order(), once="damaged")

    assert ({RecordState.DONE: 3}, False) == (dict(summary.resolved), summary.is_complete)
    assert rows["damaged"] in {row.name for row in summary.left}
    assert [True] == [rows["damaged"] in problem for problem in summary.problems]
    assert b"\x98" == column(path, rows["damaged"], "fixed")
    assert 7 == len(platform.posts)


@pytest.mark.control("paymentsdk.journal._table._IN_EVERY_ROW", b"")
async def test_a_look_up_finds_also_what_cannot_be_read(seller: Seller, tmp_path: Path) -> None:
    """Nothing says of which order it is: the refund that shows may be its own, and that in doubt may have failed."""
    lunch = await seller.paid()
    for _ in range(2):  # The second waits until it is kept as done.
        await seller.refund(lunch, "damaged")
    await seller.refund(lunch, "in doubt", FAILED)
    [damaged] = [row for row in await seller.journal.records([RecordState.DONE]) if row.name == "damaged"]
    damage(tmp_path / "payments.db", damaged.key, fixed=b"")

    assert RecordState.UNKNOWN is (await seller.a_day_later())["in doubt"].state
