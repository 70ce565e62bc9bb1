"""Journals that 0.2 has written go on, and 0.2 goes on with what this version has written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from paymentsdk import BadRequest, InProgress, PaymentsClient
from paymentsdk.journal import PostgresJournal, Record, RecordState, Resolution, SQLiteJournal, StoredResponse
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.conftest import make_record
from tests.journal.platform import TOKEN, URL, Platform, order

#: A file with a record in each state that a call leaves, named like it; "pending" is of a process that has died.
FILE = Path(__file__).with_name("journal-0.2.sql")
#: The statements of 0.2 that name no columns, or that write what this version keeps in a column that it uses otherwise.
INSERT_0_2 = "INSERT INTO record VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"


def rows_of_0_2() -> list[tuple[object, ...]]:
    """Return the rows of the file, with the columns that 0.2 writes."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(FILE.read_text())
        return [row[1:] for row in database.execute("SELECT * FROM record ORDER BY seq")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal file of 0.2."""
    path = tmp_path / "payments.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FILE.read_text())
    return path


async def test_a_file_of_0_2_goes_on(path: Path, platform: Platform, clock: FakeClock) -> None:
    """What is finished is told and not sent; what is open is sent with the key that 0.2 has sent."""
    journal = SQLiteJournal(path, now=clock.now)
    keys = {row.name: row.key for row in await journal.records(tuple(RecordState))}
    async with PaymentsClient(
        TOKEN, base_url=URL, clock=clock, transport=MemoryTransport(platform), journal=journal
    ) as client:
        finished = await client.orders.create(order(), once="done")
        with pytest.raises(BadRequest) as refused:
            await client.orders.create(order(), once="refused")
        with pytest.raises(InProgress):
            await client.orders.create(order(), once="pending")
        assert ([], True) == (platform.posts, refused.value.settled)
        clock.advance(61)
        summary = await client.recover()
        await client.orders.create(order(), once="not sent")

    assert ("ORD0", {RecordState.DONE: 3}, True) == (finished.id, dict(summary.resolved), summary.is_complete)
    assert {keys[name] for name in ("unknown", "deferred", "pending", "not sent")} == platform.made.keys()


async def cut(journal: SQLiteJournal | PostgresJournal) -> Record:
    """Leave a record in doubt whose attempt was cut."""
    row = make_record()
    await journal.begin(row, lease=60.0)
    return await journal.resolve(row.key, Resolution(state=RecordState.UNKNOWN, in_flight=30.0), owner=row.owner)


async def test_0_2_writes_a_file_of_this_version(tmp_path: Path, clock: FakeClock) -> None:
    """Its process may go on while another one has been updated: it inserts rows, and reads what was cut as unknown."""
    journal = SQLiteJournal(tmp_path / "payments.db", now=clock.now)
    row = await cut(journal)
    with closing(sqlite3.connect(tmp_path / "payments.db")) as old, old:
        [response] = old.execute("SELECT response FROM record").fetchone()
        old.executemany(INSERT_0_2, rows_of_0_2())
        [schema] = old.execute("PRAGMA user_version").fetchone()

    assert (1, 0) == (schema, msgspec.msgpack.decode(response, type=StoredResponse).status)
    assert 7 == len(await journal.records(tuple(RecordState)))
    assert (clock.now() + 30.0, None) == (
        (kept_record := await journal.get(row.key)).in_flight_until,
        kept_record.response,
    )
    await journal.aclose()
