"""A rate that several processes of one machine share: a file says when the next request of any of them may go."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from paymentsdk.errors import RequestInvalid

logger = logging.getLogger("paymentsdk")

#: Seconds that a process waits for the others to let go of the file. Each has it for less than a millisecond.
_LONGEST_LOCK = 5.0
_MOST = 1_000_000.0
_CREATE = "CREATE TABLE IF NOT EXISTS slots (name TEXT PRIMARY KEY, next REAL NOT NULL) WITHOUT ROWID"
_NEXT = "SELECT next FROM slots WHERE name = ?"
_TAKE = "INSERT INTO slots (name, next) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next = excluded.next"


class RateShare:
    """A rate that all processes with the same file share, for `FlowControl(share=...)`: for batch jobs.

    Each request of the client takes the next free slot; slots are 1 / *rate* seconds apart, whoever takes them. The
    slots of a process that dies are lost with it, and nothing else. If the file cannot be used, requests go out without
    waiting, with a warning in the log: the rate limit of the platform still holds.

    Args:
        path: A file on a local disk, made at the first use; a small SQLite database.
        rate: Requests per second, all processes together; above 0 and at most 1,000,000. All should say the same.
        name: Which rate of the file, if there are several: one for each limit that the platform has.

    Raises:
        RequestInvalid: *rate* is out of range.
    """

    __slots__ = ("_name", "_path", "_rate")

    def __init__(self, path: str | os.PathLike[str], rate: float, *, name: str = "default") -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= _MOST:
            raise RequestInvalid("rate", f"must be above 0 and at most {_MOST:g} requests per second")
        self._path = Path(path).absolute()
        self._rate = float(rate)
        self._name = name

    def __repr__(self) -> str:
        return f"RateShare({os.fspath(self._path)!r}, {self._rate:g}, name={self._name!r})"

    async def reserve(self, now: float, longest: float) -> float | None:
        """Take the next free slot and return the seconds until it; `None`, and take none, if it is too far ahead.

        Args:
            now: Seconds since the epoch.
            longest: The most seconds that the caller can wait.
        """
        try:
            return await asyncio.to_thread(self._take, now, longest)
        except (sqlite3.Error, OSError) as error:
            logger.warning("%r cannot be used: %s", self, error)
            return 0.0

    def _take(self, now: float, longest: float) -> float | None:
        # One connection for each: it must not outlive a fork, nor be left open when the client is forgotten.
        with closing(sqlite3.connect(self._path, timeout=_LONGEST_LOCK, isolation_level=None)) as file:
            # A slot is nothing that has to outlive a power cut.
            file.execute("PRAGMA synchronous = OFF")
            file.execute(_CREATE)
            file.execute("BEGIN IMMEDIATE")
            row = file.execute(_NEXT, (self._name,)).fetchone()
            slot, taken = next_slot(row[0] if row else None, now, self._rate, longest)
            if slot is not None:
                file.execute(_TAKE, (self._name, taken))
            file.execute("COMMIT")
            return slot


#: Seconds that the next slot can be ahead. More comes of a clock that was set back, and would keep all from going.
_FURTHEST = 600.0


def next_slot(free: float | None, now: float, rate: float, longest: float) -> tuple[float | None, float]:
    """Return the seconds until the next slot, or `None` if they are more than *longest*, and when the one after it is.

    Args:
        free: When the next slot is, in seconds since the epoch; `None` if none was ever taken.
        now: The same, now.
        rate: Slots per second.
        longest: The most seconds to wait.
    """
    start = now if free is None or free > now + _FURTHEST else max(free, now)
    return (start - now if start - now <= longest else None), start + 1.0 / rate
