"""Decisions about a seller's rate limit, values in and values out: the rate after a 429, and the concurrency.

What the numbers are for is measured by benchmarks/bench_flow.py, and held by tests/flow.
"""

from __future__ import annotations

from msgspec import Struct

# --- the pace: decisions about a rate ---------------------------------------------------------------------------------

#: After a 429 the rate is this part of what was served, and comes back to it after so many seconds.
CUT, RECOVERY = 0.9, 6.0
#: While a rate is only guessed it grows by this factor each second. Faster overshoots where a response takes a while.
SEARCH = 1.5
#: The mean over the last second is so much of a rate that grows like that.
LAG = 0.8
#: No seller is slower than this, in requests per second.
LEAST_RATE = 1.0
#: Seconds without a 429 after which a rate is forgotten: it has grown to the hundredfold by then.
MEMORY = 120.0
#: Seconds of lateness that are caught up with: timers are coarse, and a late request must not lower the rate.
CATCH_UP = 0.05
#: Seconds over which is measured what the platform serves: limits are per second, mostly.
WINDOW = 1.0


class Pace(Struct, frozen=True):
    """A learned rate."""

    ceiling: float
    """What the platform served when it last said 429, in requests per second."""
    since: float
    """When the pace was set."""
    is_guess: bool = False
    """The seller had not been busy for long enough to measure it."""


def rate_at(pace: Pace, now: float) -> float:
    """Return the requests per second that may go out at *now*.

    It grows as a CUBIC congestion window (RFC 9438): fast back to where the limit was, slowly past it, then ever
    faster, since the limit must have moved. A guess grows by half each second, in the way of slow start.
    """
    elapsed = now - pace.since
    if pace.is_guess:
        return pace.ceiling * CUT * float(SEARCH ** min(elapsed, 32.0))
    return max(LEAST_RATE, pace.ceiling * (1.0 + (1.0 - CUT) * (elapsed / RECOVERY - 1.0) ** 3))


class Meter(Struct, eq=False):
    """How many requests of a seller the platform serves per second: this window, and what is left of the last."""

    since: float
    """When the seller became busy, after a window with nothing served."""
    window: float
    count: int = 0
    before: int = 0

    def add(self, now: float) -> None:
        """Count a request that was served at *now*."""
        age = now - self.window
        if age >= WINDOW:
            self._turn(now, age)
        self.count += 1

    def rate(self, now: float) -> float:
        """Return the requests per second, over the last second or since the seller became busy."""
        age = now - self.window
        if age >= WINDOW:
            self._turn(now, age)
            age = now - self.window
        # Nothing is known from less than a few responses' time.
        return (self.before * (1.0 - age / WINDOW) + self.count) / min(WINDOW, max(now - self.since, CATCH_UP))

    def is_settled(self, now: float) -> bool:
        """Whether the seller has been busy for long enough to know the rate."""
        return now - self.since >= WINDOW

    def _turn(self, now: float, age: float) -> None:
        if age < 2 * WINDOW:
            self.before, self.window = self.count, self.window + WINDOW
        else:
            self.before, self.window, self.since = 0, now, now
        self.count = 0


def measured(meter: Meter, pace: Pace | None, now: float) -> float:
    """Return the requests per second that the platform served until it said 429; 0 if that cannot be said yet."""
    if not meter.is_settled(now):
        return 0.0
    if pace is None:
        return meter.rate(now)
    rate = rate_at(pace, now)
    # The mean of the last second lags behind a rate that is searched for. Otherwise the rate itself was too much.
    return max(meter.rate(now), LAG * rate) if pace.is_guess else min(meter.rate(now), rate)


def pace_of(served: float, meter: Meter, now: float) -> Pace:
    """Return the pace of a seller who is served again, and was *served* so many per second before the 429.

    If that could not be said, the platform may have served a burst just before it said no: with the time that the gate
    was closed, the burst becomes a rate.
    """
    return Pace(max(served or meter.rate(now), LEAST_RATE), now, is_guess=not served)


def next_slot(pace: Pace, slot: float, now: float) -> float:
    """Return when the request after the one of *slot*, which goes out *now*, may go."""
    return max(slot, now - CATCH_UP) + 1.0 / rate_at(pace, now)


# --- the concurrency --------------------------------------------------------------------------------------------------

#: Requests in flight of a seller at first, and at least: enough for any rate that matters, and few enough that the
#: first 429 does not come with hundreds of others.
FIRST_CONCURRENCY, LEAST_CONCURRENCY = 16.0, 8.0


def grown_concurrency(concurrency: float, pace: Pace | None) -> float:
    """Return the bound after a request was served while all places were taken: 5 % more in a round trip.

    Where a learned rate holds the requests back, twice as many: the bound must not hold back more than that.
    """
    return concurrency + (0.05 if pace is None or pace.is_guess else 1.0)


def concurrency_after_cut(concurrency: float) -> float:
    """Return the bound after a 429."""
    return max(LEAST_CONCURRENCY, 0.7 * concurrency)
