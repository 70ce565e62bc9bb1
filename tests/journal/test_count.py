"""How many records a journal has, in a file and in PostgreSQL."""

from __future__ import annotations

import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from paymentsdk import JournalUnavailable
from paymentsdk.journal import PostgresJournal, RecordState, Resolution, SQLiteJournal
from tests.journal.conftest import make_record


async def counted_by_state(journal: SQLiteJournal | PostgresJournal) -> None:
    """Check the counts of a few records in *journal*."""
    async with aclosing(journal):
        for name, state in {"a": RecordState.DONE, "b": RecordState.UNKNOWN, "c": RecordState.UNKNOWN}.items():
            record = make_record(name)
            await journal.begin(record, lease=60.0)
            await journal.resolve(record.key, Resolution(state=state), owner=record.owner)
        await journal.begin(make_record("d"), lease=60.0)

        still_open = await journal.count()
        assert {"pending": 1, "unknown": 2} == {state.value: number for state, number in still_open.items() if number}
        assert RecordState.SENT in still_open
        assert {RecordState.DONE: 1} == await journal.count({RecordState.DONE})


async def test_records_of_a_file_are_counted_by_state(tmp_path: Path) -> None:
    """By default those that are open, also the states without a record."""
    await counted_by_state(SQLiteJournal(tmp_path / "payments.db"))


async def test_records_in_postgres_are_counted_by_state(dsn: str) -> None:
    """As in a file."""
    await counted_by_state(PostgresJournal(dsn))


async def test_a_count_of_what_is_open_reads_the_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays cheap beside millions of closed records."""
    path, statements, connect = tmp_path / "payments.db", list[str](), sqlite3.connect

    def traced(*arguments: object, **options: object) -> sqlite3.Connection:
        file: sqlite3.Connection = connect(*arguments, **options)
        file.set_trace_callback(statements.append)
        return file

    monkeypatch.setattr(sqlite3, "connect", traced)
    async with aclosing(SQLiteJournal(path)) as journal:
        await journal.begin(make_record("a"), lease=60.0)
        statements.clear()
        await journal.count()

    [query] = [statement for statement in statements if "count(*)" in statement]
    with closing(connect(path)) as file:
        plan = " ".join(str(row) for row in file.execute(f"EXPLAIN QUERY PLAN {query}"))
    assert "open_record" in plan


async def test_a_count_shows_that_the_journal_responds(tmp_path: Path) -> None:
    """It raises where no write could be sent."""
    path = tmp_path / "payments.db"
    path.write_bytes(b"no database" * 100)
    async with aclosing(SQLiteJournal(path)) as journal:
        with pytest.raises(JournalUnavailable):
            await journal.count()
