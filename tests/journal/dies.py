"""Processes that journal three writes, and die at one of their commits: `python -m tests.journal.dies FOLDER`.

Each is a fork with a folder of its own below FOLDER, which is named like its commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

from paymentsdk import PaymentsClient, PaymentsError, Request, Response, SendFailed, _sqlite
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import ONCE, TOKEN, URL, order

FATES = {"accepted": RecordState.DONE, "refused": RecordState.REFUSED, "unsent": RecordState.NOT_SENT}


class Ledger:
    """The platform: a file with the key of everything that took effect. It forgets what it rejected.

    Args:
        folder: Where the file is.
        accepts: Accept everything; else the outcome of a request is that of its reference.
    """

    def __init__(self, folder: Path, *, accepts: bool = False) -> None:
        self.path = folder / "ledger"
        self._accepts = accepts

    def keys(self) -> list[str]:
        """What took effect."""
        return self.path.read_text().split() if self.path.exists() else []

    def __call__(self, request: Request) -> Response:
        """Respond to a request."""
        if request.method == "GET":
            return Response(200, {"Date": "Tue, 14 Nov 2023 22:13:20 GMT"}, b'{"paging":{"total":0},"results":[]}')
        name = json.loads(request.body)["external_reference"]
        if not self._accepts and name == "unsent":
            raise SendFailed("connection refused", sent=False)
        if not self._accepts and name == "refused":
            return Response(400, {}, b'{"errors":[{"code":"property_value","message":"no"}]}')
        key = request.headers["X-Idempotency-Key"]
        if key not in self.keys():
            with self.path.open("a") as file:
                file.write(f"{key}\n")
        return Response(201, {}, b'{"id":"ORD1"}')


def client_of(ledger: Ledger, now: float) -> PaymentsClient:
    """Return a client with the journal beside *ledger*, whose leases count on a clock that stands at *now*."""
    journal = SQLiteJournal(ledger.path.parent / "journal.db", now=lambda: now)
    transport, clock = MemoryTransport(ledger), FakeClock(now=1_700_000_000.0)
    return PaymentsClient(TOKEN, base_url=URL, journal=journal, clock=clock, transport=transport, retry=ONCE)


async def run(folder: Path) -> None:
    """Journal three writes, tell the outcome of each, and write down what was told."""
    async with client_of(Ledger(folder), 1_000.0) as client:
        for name, state in FATES.items():
            with suppress(PaymentsError):
                await client.orders.create(order(name), once=name)
            with (folder / "told").open("a") as file:
                file.write(f"{name} {state.value}\n")


def deadly(nth: int, when: str) -> None:
    """Have the process die before or after its commit number *nth*, or never commit."""
    commit, commits = _sqlite.commit, iter(range(1, 1_000))

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

    _sqlite.commit = dying
    if when == "never":
        sqlite3.connect = partial(sqlite3.connect, factory=Careless)


def main(folder: Path) -> None:
    """Have a process die before and after each commit, and one that never commits; write how many have died."""
    deaths = 0
    for when, nth in (*product(("before", "after"), range(1, 8)), ("never", 3)):
        (own := folder / f"{when}-{nth}").mkdir()
        if not (child := os.fork()):
            deadly(nth, when)
            asyncio.run(run(own))
            os._exit(0)
        deaths += os.waitpid(child, 0)[1] == signal.SIGKILL
    (folder / "deaths").write_text(f"{deaths}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
