"""A journal that is long: to read or to purge it keeps no call from renewing its lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import pytest

from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal

T = TypeVar("T")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SQLiteJournal]:
    """A journal."""
    async with aclosing(SQLiteJournal(tmp_path / "journal.db")) as journal:
        yield journal


REFUSED = Resolution(state=RecordState.REFUSED, reason="no")


async def meanwhile(journal: SQLiteJournal, record: Callable[..., Record], work: Awaitable[T]) -> T:
    """Return what a long *work* comes to, in which a lease is renewed several times."""
    await journal.begin(record("held"), lease=60)
    long = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    for _ in range(4):
        await journal.renew(record("held").key, owner="p/1", lease=60)
    assert not long.done(), "the renewals have waited for it"
    return await long


@pytest.mark.control("paymentsdk.journal._table._PAGE", 1_000_000)
async def test_a_lease_is_renewed_while_a_long_list_is_read(
    journal: SQLiteJournal, record: Callable[..., Record]
) -> None:
    """It is read in pages, the oldest first all the same."""
    rows = [record(f"n-{number}", begun=float(number), owner="q/1") for number in range(3_000)]
    await asyncio.gather(*(journal.begin(row, lease=60) for row in rows))

    listed = await meanwhile(journal, record, journal.records([RecordState.PENDING], limit=4_000))

    assert [row.name for row in rows] == [row.name for row in listed if row.owner == "q/1"]


async def no_pause(seconds: float) -> None:
    """Go on at once."""


@pytest.mark.control("paymentsdk.journal._table._PAGE", 1_000_000)
async def test_a_lease_is_renewed_while_many_records_are_purged(
    journal: SQLiteJournal, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is a transaction of its own, also without a pause behind it; what is younger stays whole."""
    monkeypatch.setattr("paymentsdk.journal._table.sleep", no_pause)
    rows = [record(f"n-{number}", begun=float(number), owner="q/1") for number in range(3_000)]
    await asyncio.gather(*(journal.begin(row, lease=60) for row in rows))
    await asyncio.gather(*(journal.resolve(row.key, REFUSED, owner="q/1") for row in rows))

    assert 2_900 == await meanwhile(journal, record, journal.purge(2_900.0))

    remaining = await journal.records([RecordState.REFUSED], limit=4_000)
    assert [True] * 2_900 + [False] * 100 == [row.body is None for row in remaining]
