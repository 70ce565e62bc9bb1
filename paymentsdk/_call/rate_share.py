"""A rate that several processes share: a file or a database says when the next request of any of them may go."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from math import inf
from pathlib import Path

from paymentsdk._postgres import Connection, Lane, Postgres, Table, is_dsn
from paymentsdk._validate import check_path
from paymentsdk.errors import RequestInvalid

logger = logging.getLogger("paymentsdk")

#: Seconds that a process waits for the others to let go of the file. Each has it for less than a millisecond.
_LONGEST_LOCK = 5.0
#: Seconds in which what could not be used is not asked again: else each call would wait in turn to find that out. They
#: begin when it was asked, and half of them may pass until it is known.
_AWAY = 10.0
#: Seconds that a connection stays open without work.
_IDLE = 1.0
_MOST = 1_000_000.0
_CREATE = (
    "CREATE TABLE IF NOT EXISTS rates (name TEXT PRIMARY KEY, free REAL NOT NULL, taken_at REAL NOT NULL) WITHOUT ROWID"
)
_FREE = "SELECT free, taken_at FROM rates WHERE name = ?"
_KEEP = "INSERT OR REPLACE INTO rates VALUES (?, ?, ?)"
_STATEMENT = "CREATE TABLE paymentsdk_slot (name text PRIMARY KEY, free float8 NOT NULL, taken_at float8 NOT NULL)"
#: A slot is nothing that has to outlive a power cut.
_TABLE = Table("paymentsdk_slot", "paymentsdk slots 2", (_STATEMENT,), is_durable=False)


class RateShare:
    """A rate that all processes with the same file or database share, for `FlowControl(share=...)`: for batch jobs.

    Each request of the client takes the next free slot, but for those without authentication, such as those for tokens;
    slots are 1 / *rate* seconds apart, whoever takes them. The slots of a process that dies are lost with it, and
    nothing else. If the file or the server cannot be used, requests go out without waiting, with a warning in the log:
    the rate limit of the platform still holds.

    Args:
        path: A file on a local disk, made at the first use, a small SQLite database. For processes on several machines
            ``postgresql://user:password@host:port/database``, which needs the extra ``postgres``: it makes its table,
            ``paymentsdk_slot``, in the first schema of the search path, and counts on the clock of the server.
        rate: Requests per second, all processes together; above 0 and at most 1,000,000. All should say the same.
        name: Which rate of the file, if there are several: one for each limit that the platform has.

    Raises:
        RequestInvalid: *rate* is out of range.
    """

    __slots__ = ("_failed_at", "_lane", "_name", "_of", "_rate", "_where")

    def __init__(self, path: str | os.PathLike[str], rate: float, *, name: str = "default") -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= _MOST:
            raise RequestInvalid("rate", f"must be above 0 and at most {_MOST:g} requests per second")
        self._where: Path | Postgres = Postgres(path, _LONGEST_LOCK) if is_dsn(path) else check_path("path", path)
        self._of: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._rate = float(rate)
        self._name = name
        self._failed_at = -inf

    def __repr__(self) -> str:
        where = os.fspath(self._where) if isinstance(self._where, Path) else "postgresql://..."
        return f"RateShare({where!r}, {self._rate:g}, name={self._name!r})"

    async def reserve(self, now: float, longest: float) -> float | None:
        """Take the next free slot and return the seconds until it; `None`, and take none, if it is too far ahead.

        Args:
            now: Seconds since the epoch.
            longest: The most seconds that the caller can wait.
        """
        if abs(now - self._failed_at) < _AWAY:
            return 0.0
        try:
            return await self._take(now, longest)
        except (sqlite3.Error, OSError, ImportError, RuntimeError) as error:  # The last where no thread can be begun.
            self._failed_at = now
            logger.warning("%r cannot be used: %s", self, error)
            return 0.0

    async def _take(self, now: float, longest: float) -> float | None:
        if isinstance(self._where, Path):
            return await asyncio.to_thread(_take_slot, self._where, self._name, now, self._rate, longest)
        of = os.getpid(), asyncio.get_running_loop()
        if self._of != of:
            self._of, self._lane = of, Lane(self._where, _TABLE, _take_slots, ConnectionError, idle=_IDLE)
        return await self._lane.do((self._name, self._rate, longest))


def _take_slot(path: Path, name: str, now: float, rate: float, longest: float) -> float | None:
    """Take a slot of a file."""
    # One connection for each: it must not outlive a fork, nor be left open when the client is forgotten.
    with closing(sqlite3.connect(path, timeout=_LONGEST_LOCK, isolation_level=None)) as file:
        # A slot is nothing that has to outlive a power cut.
        file.execute("PRAGMA synchronous = OFF")
        file.execute(_CREATE)
        file.execute("BEGIN IMMEDIATE")
        free, taken_at = file.execute(_FREE, (name,)).fetchone() or (now, now)
        start = next_slot(free, taken_at, now)
        is_taken = start - now <= longest
        file.execute(_KEEP, (name, start + is_taken / rate, now))
        file.execute("COMMIT")
        return start - now if is_taken else None


async def _take_slots(connection: Connection, wishes: Sequence[tuple[str, float, float]]) -> list[float | None]:
    """Take slots for all who wait, in one transaction."""
    names, taken = sorted({name for name, _, _ in wishes}), list[float | None]()
    async with connection.transaction():
        await connection.execute(
            "INSERT INTO paymentsdk_slot SELECT unnest($1::text[]), 0, 0 ON CONFLICT (name) DO NOTHING", names
        )
        rows = await connection.fetch(
            "SELECT name, free, taken_at, extract(epoch FROM clock_timestamp())::float8 FROM paymentsdk_slot "
            "WHERE name = ANY($1) ORDER BY name FOR UPDATE",
            names,
        )
        # The clock of the server, after the wait for the rows: machines do not agree on what time it is.
        now = max(row[3] for row in rows)
        free = {name: next_slot(free, taken_at, now) for name, free, taken_at, _ in rows}
        for name, rate, longest in wishes:
            ahead = free[name] - now
            is_taken = ahead <= longest
            free[name] += is_taken / rate
            taken.append(ahead if is_taken else None)
        update = "UPDATE paymentsdk_slot SET free = $2, taken_at = $3 WHERE name = $1"
        await connection.executemany(update, [(name, start, now) for name, start in free.items()])
    return taken


#: Seconds that the clock has to be back for it to have been set: who asks may have waited since it looked at the clock.
_SET_BACK = 10.0


def next_slot(free: float, taken_at: float, now: float) -> float:
    """Return when the next slot is, in seconds since the epoch, as all of this.

    Args:
        free: When it is by the clock of the one who took the last.
        taken_at: When that was, or when somebody found it too far ahead.
        now: Now. Where the clock was set back meanwhile, so is the slot: nobody waits until the clock has caught up.
    """
    if now < taken_at - _SET_BACK:
        free -= taken_at - now
    return max(free, now)
