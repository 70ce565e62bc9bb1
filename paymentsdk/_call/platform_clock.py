"""The platform's time, counted on from the last ``Date`` header: a machine's own clock may be wrong by days."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from paymentsdk._clock import Clock
from paymentsdk._headers import http_date
from paymentsdk.transports.base import header

#: A moment on both clocks of this machine: the monotonic one and the wall clock.
Moment: TypeAlias = tuple[float, float]

#: Digits of an ``Age`` at most: more seconds than a response is in a cache.
_MOST_DIGITS = 9


def elapsed(since: Moment, now: Moment) -> float:
    """Return the most seconds that can have passed from *since* to *now*: one of the clocks may have stood still."""
    return max(now[0] - since[0], now[1] - since[1])


class PlatformClock:
    """Tells the platform's time, once a response has told it."""

    #: Seconds for which a ``Date`` is good enough to send what another call has begun.
    FRESH = 300.0

    __slots__ = ("_clock", "_date", "_seen", "_shown")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._date: str | None = None
        self._shown: float | None = None
        self._seen = self.moment()

    def moment(self) -> Moment:
        """Return this moment."""
        return self._clock.monotonic(), self._clock.now()

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take the ``Date`` of a response, which came out of a cache if it has an ``Age``; ignore what is no date."""
        date, now = header(headers, "Date"), self.moment()
        if date is None or (date == self._date and elapsed(self._seen, now) < 1.0):
            return  # It has no fractions: the first response of a second says all.
        if (shown := http_date(date)) is not None:
            age = header(headers, "Age")
            seconds = (
                int(age) if age is not None and age.isascii() and age.isdigit() and len(age) <= _MOST_DIGITS else 0
            )
            self._shown, self._date, self._seen = shown.timestamp() + seconds, date, now

    def at(self, moment: Moment) -> float | None:
        """Return the platform's time at *moment*, in seconds since the epoch; ``None`` before the first response."""
        return None if self._shown is None else self._shown + elapsed(self._seen, moment)

    def now(self) -> float | None:
        """Return the platform's time now."""
        return self.at(self.moment())

    def is_fresh(self, moment: Moment) -> bool:
        """Whether a response has told the time in the 5 minutes before *moment*."""
        return self._shown is not None and elapsed(self._seen, moment) <= self.FRESH
