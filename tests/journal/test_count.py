"""How many records a journal has."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from paymentsdk import JournalUnavailable
from paymentsdk.journal import RecordState, Resolution, SQLiteJournal
from tests.journal.conftest import make_record


async def test_records_are_counted_by_state(tmp_path: Path) -> None:
    """By default those that are open, also the states without a record."""
    async with aclosing(SQLiteJournal(tmp_path / "payments.db")) as journal:
        for name, state in {"a": RecordState.DONE, "b": RecordState.UNKNOWN, "c": RecordState.UNKNOWN}.items():
            record = make_record(name)
            await journal.begin(record, lease=60.0)
            await journal.resolve(record.key, Resolution(state=state), owner=record.owner)
        await journal.begin(make_record("d"), lease=60.0)

        still_open = await journal.count()
        assert {"pending": 1, "unknown": 2} == {state.value: number for state, number in still_open.items() if number}
        assert RecordState.SENT in still_open
        assert {RecordState.DONE: 1} == await journal.count({RecordState.DONE})


async def test_a_count_shows_that_the_journal_responds(tmp_path: Path) -> None:
    """It raises where no write could be sent."""
    path = tmp_path / "payments.db"
    path.write_bytes(b"no database" * 100)
    async with aclosing(SQLiteJournal(path)) as journal:
        with pytest.raises(JournalUnavailable):
            await journal.count()
