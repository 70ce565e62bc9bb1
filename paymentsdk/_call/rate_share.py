"""A rate that several processes share: a file or a database says when the next request of any of them may go."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from math import inf

from paymentsdk._database import Connection, Driver, shared
from paymentsdk._postgres import Postgres, Table, is_dsn
from paymentsdk._sqlite import SQLite
from paymentsdk._validate import check_path
from paymentsdk.errors import RequestInvalid

logger = logging.getLogger("paymentsdk")

#: Seconds that a process waits for the others to let go of the slots. Each has them for less than a millisecond.
_LONGEST_LOCK = 5.0
#: Seconds in which what could not be used is not asked again: else each call would wait in turn to find that out. They
#: begin when it was asked, and half of them may pass until it is known.
_AWAY = 10.0
#: Seconds that a connection stays open without work.
_IDLE = 1.0
#: Seconds that the clock has to be back for it to have been set: who asks may have waited since it looked at the clock.
_SET_BACK = 10.0
_MOST = 1_000_000.0
_FILE_TABLE = (
    "CREATE TABLE IF NOT EXISTS rates (name TEXT PRIMARY KEY, free REAL NOT NULL, taken_at REAL NOT NULL) WITHOUT ROWID"
)
_SERVER_TABLE = "CREATE TABLE paymentsdk_slot (name text PRIMARY KEY, free float8 NOT NULL, taken_at float8 NOT NULL)"
#: Locks the row of a rate and returns it; makes it if it is missing.
_LOCK = (
    "INSERT INTO {table} VALUES (%s, 0, 0) ON CONFLICT (name) DO UPDATE SET name = excluded.name "
    "RETURNING free, taken_at"
)
_KEEP = "UPDATE {table} SET free = %s, taken_at = %s WHERE name = %s"


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

    __slots__ = ("_database", "_failed_at", "_is_remote", "_name", "_rate", "_where")

    def __init__(self, path: str | os.PathLike[str], rate: float, *, name: str = "default") -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= _MOST:
            raise RequestInvalid("rate", f"must be above 0 and at most {_MOST:g} requests per second")
        driver = _driver(path)
        self._database = shared(driver, ConnectionError, _IDLE)
        self._is_remote = isinstance(driver, Postgres)
        self._where = "postgresql://..." if self._is_remote else driver.place
        self._rate = float(rate)
        self._name = name
        self._failed_at = -inf

    def __repr__(self) -> str:
        return f"RateShare({self._where!r}, {self._rate:g}, name={self._name!r})"

    async def reserve(self, now: float, longest: float) -> float | None:
        """Take the next free slot and return the seconds until it; `None`, and take none, if it is too far ahead.

        Args:
            now: Seconds since the epoch.
            longest: The most seconds that the caller can wait.
        """
        if abs(now - self._failed_at) < _AWAY:
            return 0.0
        wish = self._name, self._rate, longest, None if self._is_remote else now
        try:
            delay: float | None = await self._database.run_together(_take_slots, wish)
        except (ConnectionError, RuntimeError) as error:  # The last where no thread can be begun.
            self._failed_at = now
            logger.warning("%r cannot be used: %s", self, error)
            delay = 0.0
        return delay


def _driver(path: str | os.PathLike[str]) -> Driver:
    # A slot is nothing that has to outlive a power cut.
    if is_dsn(path):
        table = Table("paymentsdk_slot", "paymentsdk slots 2", (_SERVER_TABLE,))
        return Postgres(dsn=path, timeout=_LONGEST_LOCK, table=table, is_durable=False)
    return SQLite(
        path=check_path("path", path),
        table="rates",
        create=(_FILE_TABLE,),
        settings=("synchronous = OFF",),
        is_private=False,
        busy_timeout=_LONGEST_LOCK,
    )


def _take_slots(connection: Connection, wishes: Sequence[tuple[str, float, float, float | None]]) -> list[float | None]:
    """Take slots for all who wait, in one transaction."""
    taken = list[float | None]()
    names = sorted({name for name, _, _, _ in wishes})
    slots = {name: connection.fetch(_LOCK, name)[0] for name in names}
    # After the wait for the rows. The clock of a server: machines do not agree on what time it is.
    [(server_now,)] = connection.fetch("SELECT {now}")
    for name, rate, longest, own in wishes:
        now = server_now if own is None else own
        free = next_slot(slots[name][0], slots[name][1], now)
        ahead = free - now
        is_taken = ahead <= longest
        slots[name] = free + is_taken / rate, now
        taken.append(ahead if is_taken else None)
    for name, (free, taken_at) in slots.items():
        connection.fetch(_KEEP, free, taken_at, name)
    return taken


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
