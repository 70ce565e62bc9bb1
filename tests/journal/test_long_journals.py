"""A journal that is long: to read or to purge it keeps no call from renewing its lease."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from paymentsdk.journal import Journal, PostgresJournal, Record, RecordState, Resolution, SQLiteJournal

T = TypeVar("T")


@pytest.fixture(params=["SQLite", "PostgreSQL"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """A journal of each kind."""
    if request.param == "SQLite":
        journal: Journal = SQLiteJournal(tmp_path / "journal.db")
    else:
        journal = PostgresJournal(await request.getfixturevalue("postgres").new())
    yield journal
    await journal.aclose()


REFUSED = Resolution(state=RecordState.REFUSED, reason="no")


async def meanwhile(journal: Journal, record: Callable[..., Record], work: Awaitable[T]) -> T:
    """Return what a long *work* comes to, in which a lease is renewed several times."""
    await journal.begin(record("held"), lease=60)
    long = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    for _ in range(6):
        await journal.renew(record("held").key, owner="p/1", lease=60)
    assert not long.done(), "the renewals have waited for it"
    return await long


@pytest.mark.control("paymentsdk.journal._table._PAGE", 1_000_000)
async def test_a_lease_is_renewed_while_a_long_list_is_read(journal: Journal, record: Callable[..., Record]) -> None:
    """It is read in pages, the oldest first all the same."""
    rows = [record(f"n-{number}", begun=float(number), owner="q/1") for number in range(5_000)]
    await asyncio.gather(*(journal.begin(row, lease=60) for row in rows))

    listed = await meanwhile(journal, record, journal.records([RecordState.PENDING], limit=6_000))

    assert [row.name for row in rows] == [row.name for row in listed if row.owner == "q/1"]


async def no_pause(seconds: float) -> None:
    """Go on at once."""


@pytest.mark.control("paymentsdk.journal._table._PAGE", 1_000_000)
async def test_a_lease_is_renewed_while_many_records_are_purged(
    journal: Journal, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is a transaction of its own, also without a pause behind it; what is younger stays whole."""
    monkeypatch.setattr("paymentsdk.journal._table.sleep", no_pause)
    rows = [record(f"n-{number}", begun=float(number), owner="q/1") for number in range(5_000)]
    await asyncio.gather(*(journal.begin(row, lease=60) for row in rows))
    await asyncio.gather(*(journal.resolve(row.key, REFUSED, owner="q/1") for row in rows))

    assert 4_500 == await meanwhile(journal, record, journal.purge(4_500.0))

    remaining = await journal.records([RecordState.REFUSED], limit=6_000)
    assert [True] * 4_500 + [False] * 500 == [row.body is None for row in remaining]


async def test_who_purges_a_file_lets_others_write(
    tmp_path: Path, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pages nobody holds it, for longer than another process that waits looks away."""
    journal = SQLiteJournal(tmp_path / "journal.db")
    rows = [record(f"n-{number}") for number in range(1_200)]
    await asyncio.gather(*(journal.begin(row, lease=60) for row in rows))
    await asyncio.gather(*(journal.resolve(row.key, REFUSED, owner="p/1") for row in rows))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
            connection.execute("BEGIN IMMEDIATE")
        pauses.append(seconds)

    monkeypatch.setattr("paymentsdk.journal._table.sleep", sleep)
    assert len(rows) == await journal.purge(1_000.0)
    await journal.aclose()

    assert [0.1] * 3 == pauses
