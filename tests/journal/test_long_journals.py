"""A journal that is long: to read it costs no call its lease, and to look one record up reads no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paymentsdk.journal import Journal, PostgresJournal, Record, RecordState, SQLiteJournal


@pytest.fixture(params=["SQLite", "PostgreSQL"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """A journal of each kind."""
    if request.param == "SQLite":
        journal: Journal = SQLiteJournal(tmp_path / "journal.db")
    else:
        journal = PostgresJournal(await request.getfixturevalue("postgres").new())
    yield journal
    await journal.aclose()


@pytest.mark.control("paymentsdk.journal._table._PAGE", 1_000_000)
async def test_a_lease_is_renewed_while_a_long_list_is_read(journal: Journal, record: Callable[..., Record]) -> None:
    """The list is read in pages: whoever holds a record does not lose it meanwhile."""
    rows = [record(f"n-{number}", begun=float(number)) for number in range(5_000)]
    await asyncio.gather(*(journal.begin(row, lease=60) for row in rows))

    listed = asyncio.ensure_future(journal.records([RecordState.PENDING], limit=6_000))
    await asyncio.sleep(0)
    for _ in range(6):
        await journal.renew(rows[0].key, owner="p/1", lease=60)

    assert not listed.done(), "the renewals have waited for the list"
    assert [row.name for row in rows] == [row.name for row in await listed]
