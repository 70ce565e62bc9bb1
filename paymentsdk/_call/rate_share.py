"""A rate that several processes share: a file or a database has the time of the next free slot."""

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

#: Seconds that a process waits for the lock on the slots. Each process holds it for less than a millisecond.
_LONGEST_LOCK = 5.0
#: Seconds for which a broken file or server is not tried again: otherwise each call would wait in turn to find that
#: out. They begin when it was tried, and half of them may pass until the failure is known.
_AWAY = 10.0
#: Seconds for which an unused connection stays open.
_IDLE = 1.0
#: The clock was set back if it is behind by so many seconds: a caller may have waited since it read the clock.
_SET_BACK = 10.0
_MOST = 1_000_000.0
_FILE_TABLE = (
    "CREATE TABLE IF NOT EXISTS rates (name TEXT PRIMARY KEY, free REAL NOT NULL, taken_at REAL NOT NULL) WITHOUT ROWID"
)
_SERVER_TABLE = "CREATE TABLE paymentsdk_slot (name text PRIMARY KEY, free float8 NOT NULL, taken_at float8 NOT NULL)"
#: Locks and returns the row of a rate; inserts it if it is missing.
_LOCK = (
    "INSERT INTO {table} VALUES (%s, 0, 0) ON CONFLICT (name) DO UPDATE SET name = excluded.name "
    "RETURNING free, taken_at"
)
_KEEP = "UPDATE {table} SET free = %s, taken_at = %s WHERE name = %s"


class RateShare:
    """A rate for `FlowControl(share=...)` that all processes with the same file or database share: for batch jobs.

    Each authenticated request of the client takes the next free slot. Requests for tokens take none. Slots are 1 /
    *rate* seconds apart over all processes. If a process dies, only its slots are lost. If the file or the server
    cannot be used, requests go out without waiting, with a warning in the log: the rate limit of the platform still
    holds.

    Args:
        path: A small SQLite file on a local disk, made at the first use. For processes on several machines, a
            ``postgresql://user:password@host:port/database``, which needs the extra ``postgres``. The share makes its
            table, ``paymentsdk_slot``, in the first schema of the search path, and uses the clock of the server.
        rate: Requests per second of all processes together, above 0 and at most 1,000,000. All should pass the same.
        name: The name of the rate, if the file has several: one for each limit of the platform.

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
        """Take the next free slot and return the seconds until it; `None`, and take no slot, if it is too far ahead.

        Args:
            now: Seconds since the epoch.
            longest: The longest wait that the caller accepts, in seconds.
        """
        if abs(now - self._failed_at) < _AWAY:
            return 0.0
        wish = self._name, self._rate, longest, None if self._is_remote else now
        try:
            delay: float | None = await self._database.run_together(_take_slots, wish)
        except (ConnectionError, RuntimeError) as error:  # RuntimeError: no thread can be started.
            self._failed_at = now
            logger.warning("%r cannot be used: %s", self, error)
            delay = 0.0
        return delay


def _driver(path: str | os.PathLike[str]) -> Driver:
    # A slot does not have to survive a power cut.
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
    """Take slots for all waiting calls, in one transaction."""
    delays = list[float | None]()
    names = sorted({name for name, _, _, _ in wishes})
    slots = {name: connection.fetch(_LOCK, name)[0] for name in names}
    # Read the server's clock after the wait for the rows. The clocks of machines differ.
    [(server_now,)] = connection.fetch("SELECT {now}")
    for name, rate, longest, client_now in wishes:
        now = server_now if client_now is None else client_now
        free = next_slot(slots[name][0], slots[name][1], now)
        ahead = free - now
        is_taken = ahead <= longest
        slots[name] = free + is_taken / rate, now
        delays.append(ahead if is_taken else None)
    for name, (free, taken_at) in slots.items():
        connection.fetch(_KEEP, free, taken_at, name)
    return delays


def next_slot(free: float, taken_at: float, now: float) -> float:
    """Return the time of the next slot. All times are in seconds since the epoch.

    Args:
        free: The time of the next slot, by the clock of the process that took the last slot.
        taken_at: When that process took it, or when a process found it too far ahead.
        now: The current time. If the clock was set back, the slot moves back as well, so that no call waits for the
            clock to catch up.
    """
    if now < taken_at - _SET_BACK:
        free -= taken_at - now
    return max(free, now)
