"""The platform's time, counted from the last ``Date`` header: this machine's clock may be wrong by days."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from paymentsdk._clock import Clock
from paymentsdk._headers import http_date
from paymentsdk.transports.base import header

#: A moment on both clocks of this machine: the monotonic clock and the wall clock.
Moment: TypeAlias = tuple[float, float]

#: The most digits of an ``Age``: more seconds than any cache keeps a response.
_MOST_DIGITS = 9


def elapsed(since: Moment, now: Moment) -> float:
    """Return the most seconds that can have passed from *since* to *now*: one of the clocks may have stopped."""
    return max(now[0] - since[0], now[1] - since[1])


class PlatformClock:
    """Tells the platform's time, once a response has shown it."""

    #: Seconds for which a ``Date`` is good enough to send a request that another call has begun.
    FRESH = 300.0

    __slots__ = ("_ahead", "_clock", "_date", "_next", "_shown")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The last ``Date``, and until when it is ignored, on the monotonic clock. A ``Date`` has whole seconds, so
        #: only the first response of a second tells anything new.
        self._date: str | None = None
        self._next = 0.0
        #: The time that a response has shown, and how far it was ahead of each clock of this machine.
        self._shown = 0.0
        self._ahead: Moment | None = None

    def moment(self) -> Moment:
        """Return the current moment."""
        return self._clock.monotonic(), self._clock.now()

    def observe(self, headers: Mapping[str, str]) -> None:
        """Use the ``Date`` of a response, plus the ``Age`` of a cached one; ignore a value that is not a date."""
        date = header(headers, "Date")
        if date is None or (date == self._date and self._clock.monotonic() < self._next):
            return
        if (moment := http_date(date)) is not None:
            age = header(headers, "Age")
            seconds = (
                int(age) if age is not None and age.isascii() and age.isdigit() and len(age) <= _MOST_DIGITS else 0
            )
            now = self.moment()
            self._date, self._next, self._shown = date, now[0] + 1.0, moment.timestamp() + seconds
            self._ahead = self._shown - now[0], self._shown - now[1]

    def at(self, moment: Moment) -> float | None:
        """Return the platform's time at *moment*, in seconds since the epoch; ``None`` before the first response."""
        if self._ahead is None:
            return None
        return max(moment[0] + self._ahead[0], moment[1] + self._ahead[1])  # One of the clocks may have stopped.

    def now(self) -> float | None:
        """Return the platform's time now."""
        return self.at(self.moment())

    def is_fresh(self, moment: Moment) -> bool:
        """Return whether a response has shown the time in the 5 minutes before *moment*."""
        now = self.at(moment)
        return now is not None and now - self._shown <= self.FRESH
