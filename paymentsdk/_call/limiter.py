"""What is known of one seller: its gate, its rate, who waits for a permit, and what is in flight.

What the numbers are for is measured by benchmarks/bench_flow.py, and held by tests/flow.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct, field

#: `"interactive"`: somebody waits for it. `"batch"`: sent only while no interactive call of the client waits.
Priority: TypeAlias = Literal["interactive", "batch"]
#: What a response means for its seller: it is served, also where the request was rejected for what it says; it has sent
#: too many; or nobody can say, since the platform has failed.
Service: TypeAlias = Literal["served", "limited", "failed"]
#: Seconds that nothing goes out after a 429, and the most after several in a row. Longer wastes what the platform would
#: serve: a limiter refills long before the second that it asks for is over.
HOLD, MAX_HOLD = 0.1, 1.0
#: What a 429 without a Retry-After is taken to ask for.
NO_RETRY_AFTER = 1.0


#: After a 429 the rate is this part of what was served, and comes back to it after so many seconds.
CUT, RECOVERY = 0.9, 6.0
#: While a rate is only guessed it grows by this factor each second. Faster overshoots where a response takes a while.
SEARCH = 1.5
#: The mean over the last second is so much of a rate that grows like that.
AVERAGE_FACTOR = 0.8
#: No seller is slower than this, in requests per second.
MIN_RATE = 1.0
#: Seconds without a 429 after which a rate is forgotten: it has grown to the hundredfold by then.
MEMORY = 120.0
#: Seconds of lateness that are caught up with: timers are coarse, and a late request must not lower the rate.
MAX_DELAY = 0.05
#: Seconds over which is measured what the platform serves: limits are per second, mostly.
WINDOW = 1.0
#: Requests in flight of a seller at first, and at least: enough for any rate that matters, and few enough that the
#: first 429 does not come with hundreds of others.
FIRST_CONCURRENCY, MIN_CONCURRENCY = 16.0, 8.0


class RateLimitGate(Struct, eq=False):
    """A seller who got a 429, until a request is served again."""

    limited_at: float
    """When the last 429 came that was not the response to a request from before the first."""
    blocked_until: float
    """When the next request may try."""
    open_at: float
    """When the Retry-After is over, and all go freely."""
    retry_after: float
    """The longest that the platform asked for."""
    rejected: int = 1
    """How many 429s in a row."""

    def limited(self, sent_at: float, now: float, asked: float) -> None:
        """Note a further 429, at *now* to a request of *sent_at*, that *asked* for so many seconds."""
        if asked > self.retry_after:
            # Asked for the same again, the time that was promised first holds: many say the same number to everybody.
            self.retry_after, self.open_at = asked, max(now + asked, self.open_at)
        if sent_at < self.limited_at:
            # It was in flight when the gate closed: no news, except that the platform still says no.
            self.blocked_until = max(self.blocked_until, now + HOLD)
        else:
            self.limited_at, self.blocked_until = now, now + min(HOLD * 2.0**self.rejected, MAX_HOLD)
            self.rejected += 1


class RateEstimate(Struct, frozen=True):
    """A learned rate."""

    ceiling: float
    """What the platform served when it last said 429, in requests per second."""
    since: float
    """When it was set."""
    is_guess: bool = False
    """The seller had not been busy for long enough to measure it."""

    def at(self, now: float) -> float:
        """Return the requests per second that may go out at *now*.

        It grows as a CUBIC congestion window (RFC 9438): fast back to where the limit was, slowly past it, then ever
        faster, since the limit must have moved. A guess grows by half each second, in the way of slow start.
        """
        elapsed = now - self.since
        if self.is_guess:
            return self.ceiling * CUT * float(SEARCH ** min(elapsed, 32.0))
        return max(MIN_RATE, self.ceiling * (1.0 + (1.0 - CUT) * (elapsed / RECOVERY - 1.0) ** 3))


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
        return (self.before * (1.0 - age / WINDOW) + self.count) / min(WINDOW, max(now - self.since, MAX_DELAY))

    def _turn(self, now: float, age: float) -> None:
        if age < 2 * WINDOW:
            self.before, self.window = self.count, self.window + WINDOW
        else:
            self.before, self.window, self.since = 0, now, now
        self.count = 0


class Permit(Struct, eq=False):
    """The permission to send one request; it has to be given back with `Flow.release`."""

    seller: Hashable
    sent_at: float
    waited: float = 0.0
    """Seconds from asking to getting it."""
    limiter: Limiter | None = None
    """`None` while nothing is known of the seller, and nothing has to be."""


#: For requests that need none.
NO_PERMIT = Permit(None, 0.0)

#: Resolved with the permit, or with `None` when the wait was too long.
Waiter: TypeAlias = asyncio.Future[Permit | None]
#: Who waits, in order, and since when.
Queue: TypeAlias = OrderedDict[Waiter, float]


class Limiter(Struct, eq=False):
    """What is known of one seller, who waits, and what is in flight."""

    seller: Hashable
    next_at: float
    """When the next request may go, at the rate of the estimate."""
    meter: Meter | None = None
    """Without it nothing is measured and bounded but by the gate."""
    concurrency: float = inf
    """The most requests in flight."""
    in_flight: int = 0
    gate: RateLimitGate | None = None
    probe: Permit | None = None
    """The one that was let through the closed gate, until it is given back."""
    estimate: RateEstimate | None = None
    served: float = 0.0
    """The rate that was served before the gate closed; 0 if the seller was not busy for long enough."""
    interactive: Queue = field(default_factory=OrderedDict)
    batch: Queue = field(default_factory=OrderedDict)
    wake_task: asyncio.Task[None] | None = None
    """What lets the next one go when its time has come."""
    wake_at: float = inf

    @property
    def is_idle(self) -> bool:
        """Whether it can be forgotten, with no more loss than what it has learned."""
        return self.in_flight == 0 and not self.interactive and not self.batch

    def update(self, now: float) -> float:
        """Open the gate if its time is over, and return when the next request may go.

        *now* or before is at once, infinity after a response.
        """
        if self.gate is None and self.estimate is None:  # Nearly always.
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
        """Return a permit for a call that waits *since* then; it has to be ready."""
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
        """Note a 429."""
        asked = retry_after or NO_RETRY_AFTER
        if self.gate is not None:
            self.gate.limited(sent_at, now, asked)
        elif self.estimate is None or sent_at >= self.estimate.since:  # Else the rate was set since.
            self.served = self._rate_at_limit(now)
            self.gate = RateLimitGate(now, now + HOLD, now + asked, asked)

    def responded(self, sent_at: float, now: float, service: Service) -> None:
        """Note a response that is no 429."""
        if self.meter is not None:
            self.meter.add(now)
            if self.in_flight + 1 >= self.concurrency:
                # 5 % more in a round trip. Where a learned rate holds the requests back, twice as many: the bound must
                # not hold back more than that.
                self.concurrency += 0.05 if self.estimate is None or self.estimate.is_guess else 1.0
        if self.gate is not None and sent_at >= self.gate.limited_at and service == "served":
            self.open(now)

    def open(self, now: float) -> None:
        """Open the gate; what was served until now is the new rate.

        Only now, since the platform may have served a burst just before it said no: with the time that the gate was
        closed, that becomes a rate.
        """
        self.gate = None
        self.probe = None
        if self.meter is not None:
            self.estimate = RateEstimate(max(self.served or self.meter.rate(now), MIN_RATE), now, not self.served)
            self.next_at = now + 1.0 / self.estimate.at(now)
            self.concurrency = max(MIN_CONCURRENCY, 0.7 * self.concurrency)

    def _rate_at_limit(self, now: float) -> float:
        """Return the requests per second that the platform served until it said 429; 0 if that cannot be said yet."""
        meter, estimate = self.meter, self.estimate
        if meter is None or now - meter.since < WINDOW:
            return 0.0  # The seller has not been busy for long enough.
        if estimate is None:
            return meter.rate(now)
        rate = estimate.at(now)
        # The mean of the last second lags behind a rate that is searched for. Otherwise the rate itself was too much.
        return max(meter.rate(now), AVERAGE_FACTOR * rate) if estimate.is_guess else min(meter.rate(now), rate)
