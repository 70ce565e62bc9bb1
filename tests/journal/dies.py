"""A process that journals three writes and dies at one of its commits: `python -m tests.journal.dies FOLDER N WHEN`."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from paymentsdk import _database
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal, StoredResponse
from paymentsdk.journal._call import JournaledCall, MaySend, PlatformClock
from paymentsdk.testing import FakeClock
from tests.journal.conftest import make_record

FATES = {"accepted": RecordState.DONE, "refused": RecordState.REFUSED, "unsent": RecordState.NOT_SENT}


class Ledger:
    """The platform: a file with the key of everything that took effect. It forgets what it rejected."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"

    def keys(self) -> list[str]:
        """What took effect."""
        return self.path.read_text().split() if self.path.exists() else []

    def accept(self, key: str) -> Resolution:
        """Do it, once."""
        if key not in self.keys():
            with self.path.open("a") as file:
                file.write(f"{key}\n")
        return Resolution(state=RecordState.DONE, response=StoredResponse(201, {}, key.encode()))


def driver(journal: SQLiteJournal, later: list[Callable[[], Awaitable[object]]]) -> JournaledCall:
    """A driver whose platform has the time 200."""
    clock = PlatformClock(FakeClock())
    clock.set(200.0)
    return JournaledCall(journal, clock, seller=lambda: "77", lease=60.0, later=later.append)


async def run(folder: Path) -> None:
    """Journal three writes, tell the outcome of each, and write down what was told."""
    journal, ledger = SQLiteJournal(folder / "journal.db", now=lambda: 1_000.0), Ledger(folder)
    later: list[Callable[[], Awaitable[object]]] = []
    for name, state in FATES.items():

        async def send(row: Record, may_send: MaySend, state: RecordState = state) -> Resolution:
            assert await may_send(30.0) is None
            return ledger.accept(row.key) if state is RecordState.DONE else Resolution(state=state)

        told = await driver(journal, later).run(make_record(name, owner="dies/1"), send)
        with (folder / "told").open("a") as file:
            file.write(f"{name} {told.state.value}\n")
    for write in later:
        await write()
    await journal.aclose()


def deadly(nth: int, when: str) -> None:
    """Have the process die before or after its commit number *nth*, or never commit."""
    commit, commits = _database.commit, iter(range(1, 1_000))

    def dying(database: sqlite3.Connection) -> None:
        number = next(commits)
        if number == nth and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if when != "never":
            commit(database)
        if number == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    class Careless(sqlite3.Connection):
        """Keeps everything in a transaction that is never committed."""

        def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
            is_second = self.in_transaction and statement.startswith("BEGIN")
            return super().execute("SELECT 1" if is_second else statement, values)

    _database.commit = dying
    if when == "never":
        sqlite3.connect = partial(sqlite3.connect, factory=Careless)


if __name__ == "__main__":
    deadly(int(sys.argv[2]), sys.argv[3])
    asyncio.run(run(Path(sys.argv[1])))
