"""The platform's time, as its responses tell it: ages of records count on the clock that forgets their keys."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from paymentsdk._headers import http_date


class LocalClock(Protocol):
    """The two clocks of this machine."""

    def now(self) -> float:
        """Seconds since the epoch, as this machine believes."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, and may stand still while the machine is suspended."""
        ...


#: One moment on both clocks of this machine: first on that which never goes back, then on that of the wall.
Moment: TypeAlias = tuple[float, float]


class PlatformClock:
    """Counts the platform's time on from the last ``Date`` header: a machine's own time may be wrong by days."""

    #: Seconds that a ``Date`` may be behind when it is written.
    GRANULARITY = 1.0

    __slots__ = ("_date", "_monotonic", "_seen", "_shown", "_wall")

    def __init__(self, clock: LocalClock) -> None:
        self._monotonic = clock.monotonic
        self._wall = clock.now
        self._shown: float | None = None
        self._date: str | None = None
        self._seen = self.moment()

    def moment(self) -> Moment:
        """Return this moment."""
        return self._monotonic(), self._wall()

    def since(self, moment: Moment, now: Moment | None = None) -> float:
        """Return the most seconds that can have passed since *moment*: one of both clocks may have stood still."""
        monotonic, wall = now or self.moment()
        return max(monotonic - moment[0], wall - moment[1])

    @property
    def is_known(self) -> bool:
        """Whether there was a response."""
        return self._shown is not None

    def observe(self, date: str | None) -> None:
        """Take the ``Date`` header of a response that came just now; ignore one that is missing or no date."""
        if date is None or (date == self._date and self.since(self._seen) < 1.0):
            return  # It has no fractions: the first response of a second says most, and costs the others nothing.
        if (shown := http_date(date)) is not None:
            self.set(shown.timestamp())
            self._date = date

    def set(self, shown: float) -> None:
        """Take *shown* as the platform's time of this moment, in seconds since the epoch."""
        self._shown, self._date, self._seen = shown, None, self.moment()

    def now(self, moment: Moment | None = None) -> float | None:
        """Return the latest that it can be on the platform, now or at *moment*, in seconds since the epoch.

        ``None`` before the first response. An age that is counted to here is never too small: a ``Date`` leaves out the
        fraction of its second.
        """
        return None if self._shown is None else self._shown + self.GRANULARITY + self.since(self._seen, moment)

    def earliest(self) -> float | None:
        """Return the earliest that it can be on the platform: a deadline counted from it is never too late."""
        if self._shown is None:
            return None
        seen, now = self._seen, self.moment()
        return self._shown + max(0.0, min(now[0] - seen[0], now[1] - seen[1]))
