"""What is known of one seller: its gate, its pace, who waits for a permit, and what is in flight."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from paymentsdk._engine.pace import (
    FIRST_CONCURRENCY,
    MEMORY,
    Meter,
    Pace,
    concurrency_after_cut,
    grown_concurrency,
    measured,
    next_slot,
    pace_of,
)
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._clock import Alarm

#: `"interactive"`: somebody waits for it. `"batch"`: sent only while no interactive call of the client waits.
Priority: TypeAlias = Literal["interactive", "batch"]
_SERVER_ERROR = 500
#: Seconds that nothing goes out after a 429, and the most after several in a row. Longer wastes what the platform would
#: serve: a limiter refills long before the second that it asks for is over.
HOLD, LONGEST_HOLD = 0.1, 1.0
#: What a 429 without a Retry-After is taken to ask for.
NO_RETRY_AFTER = 1.0


def check_priority(priority: str) -> None:
    """Reject what is no `Priority`.

    Raises:
        RequestInvalid: It is something else.
    """
    if priority not in get_args(Priority):
        raise RequestInvalid("priority", 'must be "interactive" or "batch"')


class RateLimitGate(Struct, frozen=True):
    """A seller who got a 429, until a request is served again."""

    limited_at: float
    """When the last 429 came that was not the response to a request from before the first."""
    held_until: float
    """When the next request may try."""
    opens_at: float
    """When the Retry-After is over, and all go freely."""
    retry_after: float
    """The longest that the platform asked for."""
    rejected: int = 1
    """How many 429s in a row."""


def close_gate(gate: RateLimitGate | None, sent_at: float, now: float, retry_after: float) -> RateLimitGate:
    """Return the gate after a 429 at *now* to a request of *sent_at*."""
    asked = retry_after or NO_RETRY_AFTER
    if gate is None:
        return RateLimitGate(now, now + HOLD, now + asked, asked)
    # Asked for the same again, the time that was promised first holds: many say the same number to everybody.
    opens_at = max(now + asked, gate.opens_at) if asked > gate.retry_after else gate.opens_at
    asked = max(asked, gate.retry_after)
    if sent_at < gate.limited_at:
        # It was in flight when the gate closed: no news, except that the platform still says no.
        return RateLimitGate(gate.limited_at, max(gate.held_until, now + HOLD), opens_at, asked, gate.rejected)
    hold = min(HOLD * 2.0**gate.rejected, LONGEST_HOLD)
    return RateLimitGate(now, now + hold, opens_at, asked, gate.rejected + 1)


def opens_gate(gate: RateLimitGate, sent_at: float, status: int) -> bool:
    """Whether a response of *status* to a request of *sent_at* says that the seller is served again."""
    return sent_at >= gate.limited_at and status < _SERVER_ERROR


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
#: Who waits, in order: until when, and since when.
Queue: TypeAlias = OrderedDict[Waiter, tuple[float, float]]


class Limiter:
    """What is known of one seller, who waits, and what is in flight."""

    __slots__ = (
        "batch",
        "concurrency",
        "expiry",
        "expiry_at",
        "gate",
        "in_flight",
        "interactive",
        "meter",
        "next_at",
        "pace",
        "probe",
        "seller",
        "served",
        "waking",
        "waking_at",
    )

    def __init__(self, seller: Hashable, now: float, *, adaptive: bool) -> None:
        self.seller: Hashable = seller
        self.gate: RateLimitGate | None = None
        #: The one that was let through the closed gate, until it is given back.
        self.probe: Permit | None = None
        self.in_flight: int = 0
        #: Without `adaptive` nothing is measured and bounded but by the gate.
        self.meter: Meter | None = Meter(now, now) if adaptive else None
        self.concurrency: float = FIRST_CONCURRENCY if adaptive else inf
        self.pace: Pace | None = None
        self.next_at: float = now
        #: The rate that was served before the gate closed; 0 if the seller was not busy for long enough.
        self.served: float = 0.0
        self.interactive: Queue = OrderedDict()
        self.batch: Queue = OrderedDict()
        #: What lets the next one go when its time has come, and what turns away who has waited too long.
        self.waking: asyncio.Task[None] | None = None
        self.waking_at: float = inf
        self.expiry: Alarm | None = None
        self.expiry_at: float = inf

    def moved(self) -> Limiter:
        """Return the same knowledge, with nobody who waits and nothing in flight."""
        clone = Limiter(self.seller, self.next_at, adaptive=self.meter is not None)
        clone.gate, clone.meter, clone.pace = self.gate, self.meter, self.pace
        clone.concurrency, clone.served = self.concurrency, self.served
        return clone

    @property
    def is_idle(self) -> bool:
        """Whether it can be forgotten, with no more loss than what it has learned."""
        return self.in_flight == 0 and not self.interactive and not self.batch

    def queue(self, priority: Priority) -> Queue:
        """Return those who wait with *priority*."""
        return self.batch if priority == "batch" else self.interactive

    def first_queue(self) -> Queue | None:
        """Return the queue whose turn it is; `None` if nobody waits."""
        return self.interactive or self.batch or None

    def ready_at(self, now: float) -> float:
        """Return when the next request may go: *now* or before for at once, infinity for after a response."""
        if self.gate is None and self.pace is None:  # Nearly always.
            return now if self.in_flight < self.concurrency else inf
        if self.gate is not None:
            if now < self.gate.opens_at:
                held_until = inf if self.probe is not None else self.gate.held_until
                return min(held_until, self.gate.opens_at)
            self.open(now)
        if self.in_flight >= self.concurrency:
            return inf
        return self.next_at if self.pace is not None else now

    def grant(self, now: float, since: float) -> Permit:
        """Return a permit for a call that waits *since* then; it has to be ready."""
        permit = Permit(self.seller, now, now - since, self)
        self.in_flight += 1
        if self.gate is not None:
            self.probe = permit
        elif self.pace is not None:
            self.next_at = next_slot(self.pace, self.next_at, now)
            if now - self.pace.since > MEMORY:
                self.pace = None
        return permit

    def limited(self, sent_at: float, now: float, retry_after: float) -> None:
        """Note a 429."""
        if self.gate is None:
            if self.pace is not None and sent_at < self.pace.since:
                return  # The pace was set since.
            if self.meter is not None:
                self.served = measured(self.meter, self.pace, now)
        self.gate = close_gate(self.gate, sent_at, now, retry_after)

    def responded(self, sent_at: float, now: float, status: int) -> None:
        """Note a response that is no 429."""
        if self.meter is not None:
            self.meter.add(now)
            if self.in_flight + 1 >= self.concurrency:
                self.concurrency = grown_concurrency(self.concurrency, self.pace)
        if self.gate is not None and opens_gate(self.gate, sent_at, status):
            self.open(now)

    def open(self, now: float) -> None:
        """Open the gate; what was served until now is the new pace.

        Only now, since the platform may have served a burst just before it said no: with the time that the gate was
        closed, that becomes a rate.
        """
        self.gate = None
        self.probe = None
        if self.meter is not None:
            self.pace = pace_of(self.served, self.meter, now)
            self.next_at = next_slot(self.pace, now, now)
            self.concurrency = concurrency_after_cut(self.concurrency)

    def expire(self, now: float) -> None:
        """Turn away who has waited too long. Within a priority, who came first has to go first."""
        for queue in (self.interactive, self.batch):
            while queue:
                waiter, (until, _) = next(iter(queue.items()))
                if until > now:
                    break
                del queue[waiter]
                if not waiter.done():
                    waiter.set_result(None)

    def next_expiry(self) -> float:
        """Return when the first of those who wait has waited too long."""
        return min((next(iter(queue.values()))[0] for queue in (self.interactive, self.batch) if queue), default=inf)
