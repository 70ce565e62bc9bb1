"""The state of one seller: its gate, its rate, the calls that wait for a permit, and the requests in flight.

benchmarks/bench_flow.py measures the numbers below, and tests/flow holds them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct, field

#: `"interactive"`: a person waits for it. `"batch"`: sent only while no interactive call of the client waits.
Priority: TypeAlias = Literal["interactive", "batch"]
#: The meaning of a response for its seller. "served": also if the request was rejected for its contents. "limited": a
#: 429. "failed": the platform failed, which says nothing about the rate.
Service: TypeAlias = Literal["served", "limited", "failed"]
#: Seconds without requests after a 429, and the most after several in a row. A longer pause wastes capacity: a limiter
#: refills long before the second that it asks for is over.
HOLD, MAX_HOLD = 0.1, 1.0
#: The Retry-After of a 429 that has none, in seconds.
NO_RETRY_AFTER = 1.0


#: After a 429 the rate drops to this share of the served rate, and returns to it after so many seconds.
CUT, RECOVERY = 0.9, 6.0
#: A guessed rate grows by this factor each second. A faster growth overshoots if responses take a while.
SEARCH = 1.5
#: The mean over the last second is this share of a rate that grows by that factor.
AVERAGE_FACTOR = 0.8
#: The lowest rate of a seller, in requests per second.
MIN_RATE = 1.0
#: Seconds without a 429 after which a rate is forgotten. By then it is a hundred times as high.
MEMORY = 120.0
#: Seconds of delay that are made up for: timers are coarse, and a late request must not lower the rate.
MAX_DELAY = 0.05
#: Seconds over which the served rate is measured: most limits are per second.
WINDOW = 1.0
#: Requests in flight of a seller at first, and the lower limit. They are enough for any rate that matters, and few
#: enough that the first 429 does not come with hundreds of others.
FIRST_CONCURRENCY, MIN_CONCURRENCY = 16.0, 8.0


class RateLimitGate(Struct, eq=False):
    """The state of a seller after a 429, until a request is served again."""

    limited_at: float
    """When the last 429 came, not counting responses to requests from before the first 429."""
    blocked_until: float
    """When the next request may be tried."""
    open_at: float
    """When the Retry-After is over, and all requests go freely."""
    retry_after: float
    """The longest pause that the platform asked for, in seconds."""
    rejected: int = 1
    """How many 429s in a row."""

    def limited(self, sent_at: float, now: float, pause: float) -> None:
        """Record a further 429 at *now*, for a request sent at *sent_at*. It asks for a *pause* in seconds."""
        if pause > self.retry_after:
            # A repeated Retry-After does not extend the pause: many servers always send the same number.
            self.retry_after, self.open_at = pause, max(now + pause, self.open_at)
        if sent_at < self.limited_at:
            # This request was in flight when the gate closed: it only shows that the platform still rejects requests.
            self.blocked_until = max(self.blocked_until, now + HOLD)
        else:
            self.limited_at, self.blocked_until = now, now + min(HOLD * 2.0**self.rejected, MAX_HOLD)
            self.rejected += 1


class RateEstimate(Struct, frozen=True):
    """A learned rate."""

    ceiling: float
    """The served rate at the last 429, in requests per second."""
    since: float
    """When it was set."""
    is_guess: bool = False
    """Whether the seller had not been busy long enough to measure the rate."""

    def at(self, now: float) -> float:
        """Return the requests per second that may go out at *now*.

        The rate grows like a CUBIC congestion window (RFC 9438): fast back to the old limit, slowly past it, then ever
        faster, since the limit must have moved. A guessed rate grows by half each second, like slow start.
        """
        elapsed = now - self.since
        if self.is_guess:
            return self.ceiling * CUT * float(SEARCH ** min(elapsed, 32.0))
        return max(MIN_RATE, self.ceiling * (1.0 + (1.0 - CUT) * (elapsed / RECOVERY - 1.0) ** 3))


class Meter(Struct, eq=False):
    """How many requests of a seller the platform serves per second, measured in windows."""

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
        # A few milliseconds of responses are too short to measure a rate.
        return (self.before * (1.0 - age / WINDOW) + self.count) / min(WINDOW, max(now - self.since, MAX_DELAY))

    def _turn(self, now: float, age: float) -> None:
        if age < 2 * WINDOW:
            self.before, self.window = self.count, self.window + WINDOW
        else:
            self.before, self.window, self.since = 0, now, now
        self.count = 0


class Permit(Struct, eq=False):
    """The permission to send one request; give it back with `Flow.release`."""

    seller: Hashable
    sent_at: float
    waited: float = 0.0
    """Seconds from the request for the permit to the permit."""
    limiter: Limiter | None = None
    """`None` while nothing is known of the seller, and nothing has to be known."""


#: For requests that need no permit.
NO_PERMIT = Permit(None, 0.0)

#: Resolved with the permit, or with `None` after too long a wait.
Waiter: TypeAlias = asyncio.Future[Permit | None]
#: The waiting calls in order, and since when they wait.
Queue: TypeAlias = OrderedDict[Waiter, float]


class Limiter(Struct, eq=False):
    """The state of one seller: its limits, the waiting calls, and the requests in flight."""

    seller: Hashable
    next_at: float
    """When the next request may go, at the rate of the estimate."""
    meter: Meter | None = None
    """Measures the served rate. `None` if only the gate limits the seller."""
    concurrency: float = inf
    """The most requests in flight."""
    in_flight: int = 0
    gate: RateLimitGate | None = None
    probe: Permit | None = None
    """The permit that went through the closed gate, until it is given back."""
    estimate: RateEstimate | None = None
    served: float = 0.0
    """The served rate before the gate closed. 0 if the seller was not busy long enough."""
    interactive: Queue = field(default_factory=OrderedDict)
    batch: Queue = field(default_factory=OrderedDict)
    wake_task: asyncio.Task[None] | None = None
    """Wakes the next call when its time has come."""
    wake_at: float = inf

    @property
    def is_idle(self) -> bool:
        """Whether the limiter can be forgotten without losing more than the learned rate."""
        return self.in_flight == 0 and not self.interactive and not self.batch

    def update(self, now: float) -> float:
        """Open the gate if its time is over, and return when the next request may go.

        *now* or earlier means immediately. Infinity means after the next response.
        """
        if self.gate is None and self.estimate is None:  # The usual case.
            return now if self.in_flight < self.concurrency else inf
        if self.gate is not None:
            if now < self.gate.open_at:
                blocked_until = inf if self.probe is not None else self.gate.blocked_until
                return min(blocked_until, self.gate.open_at)
            self.open(now)
        if self.in_flight >= self.concurrency:
            return inf
        return self.next_at if self.estimate is not None else now

    def grant(self, now: float, since: float) -> Permit:
        """Return a permit for a call that waits since *since*; `update` must have allowed it."""
        permit = Permit(self.seller, now, now - since, self)
        self.in_flight += 1
        if self.gate is not None:
            self.probe = permit
        elif self.estimate is not None:
            self.next_at = max(self.next_at, now - MAX_DELAY) + 1.0 / self.estimate.at(now)
            if now - self.estimate.since > MEMORY:
                self.estimate = None
        return permit

    def limited(self, sent_at: float, now: float, retry_after: float) -> None:
        """Record a 429."""
        pause = retry_after or NO_RETRY_AFTER
        if self.gate is not None:
            self.gate.limited(sent_at, now, pause)
        elif self.estimate is None or sent_at >= self.estimate.since:  # Otherwise the rate was set after this request.
            self.served = self._rate_at_limit(now)
            self.gate = RateLimitGate(now, now + HOLD, now + pause, pause)

    def responded(self, sent_at: float, now: float, service: Service) -> None:
        """Record a response that is not a 429."""
        if self.meter is not None:
            self.meter.add(now)
            if self.in_flight + 1 >= self.concurrency:
                # 5 % more per round trip. Double it instead if a learned rate holds the requests back: the concurrency
                # must not become the tighter limit.
                self.concurrency += 0.05 if self.estimate is None or self.estimate.is_guess else 1.0
        if self.gate is not None and sent_at >= self.gate.limited_at and service == "served":
            self.open(now)

    def open(self, now: float) -> None:
        """Open the gate; the rate that was served until now is the new rate.

        The rate is set only now, since the platform may have served a burst just before the 429. Together with the time
        that the gate was closed, the burst becomes a rate.
        """
        self.gate = None
        self.probe = None
        if self.meter is not None:
            self.estimate = RateEstimate(max(self.served or self.meter.rate(now), MIN_RATE), now, not self.served)
            self.next_at = now + 1.0 / self.estimate.at(now)
            self.concurrency = max(MIN_CONCURRENCY, 0.7 * self.concurrency)

    def _rate_at_limit(self, now: float) -> float:
        """Return the requests per second that the platform served until the 429; 0 if that is not known yet."""
        meter, estimate = self.meter, self.estimate
        if meter is None or now - meter.since < WINDOW:
            return 0.0  # The seller was not busy long enough.
        if estimate is None:
            return meter.rate(now)
        rate = estimate.at(now)
        # The mean of the last second lags behind a guessed rate. A rate that is not guessed was itself too high.
        return max(meter.rate(now), AVERAGE_FACTOR * rate) if estimate.is_guess else min(meter.rate(now), rate)
