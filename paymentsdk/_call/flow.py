"""Flow control: how many requests of a seller may go out, and when. Every attempt needs a permit.

    permit = flow.try_acquire(seller) or await flow.acquire(seller)  # None: the flow is closed
    response = await transport.send(request)
    flow.release(permit, "limited", retry_after)                     # or "served", "failed"; nothing without a response

There are two controls. Both are per seller, since a 429 is about the seller and not about one call:

- The *gate* is on by default. After a 429 it holds the seller's other calls for a moment. Then they go one at a time
  until one is served or the Retry-After is over.
- `FlowControl.adaptive` adds a *rate*, learned from what the platform serves, and a limit on the requests in flight.
  Nothing is known at first, so the first requests are not slowed down.

`limiter.py` decides, from what is known of one seller. This file has the settings, and `Flow`, the only part that
waits. It also waits for a slot of a rate that processes share (`FlowControl.share`, `rate_share.py`), and between the
attempts of a call. Closing the flow ends all waits.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Protocol

from msgspec import Struct

from paymentsdk._call.limiter import FIRST_CONCURRENCY, NO_PERMIT, Limiter, Meter, Permit, Priority, Service, Waiter
from paymentsdk._clock import Clock
from paymentsdk._validate import check_seconds, check_within

#: Seconds before its slot at which a call lets the next call ask for a slot. Earlier, that call would take its slot
#: before an interactive call that comes meanwhile, and would lose it if cancelled. Later, a busy process could not use
#: every slot.
_SLOTS_AHEAD = 0.1


class SharedRate(Protocol):
    """A rate that several processes share; `paymentsdk.RateShare` is one."""

    async def reserve(self, now: float, longest: float) -> float | None:
        """Take the next free slot and return the seconds until it; `None`, and take no slot, if it is too far ahead.

        Args:
            now: Seconds since the epoch.
            longest: The longest wait that the caller accepts, in seconds.
        """
        ...


class FlowControl(Struct, frozen=True, kw_only=True):
    """How a client stays below the rate limits of its sellers."""

    gate: bool = True
    """After a 429, hold the seller's other calls for 0.1 seconds, doubled up to 1 for each further 429 in a row. Then
    send them one at a time until one is served or the Retry-After (by default 1 second) is over, then freely."""
    adaptive: bool = False
    """Also learn the rate and the number of requests in flight that the platform serves to each seller. The sellers of
    the client share the requests in flight fairly. Includes the gate."""
    max_in_flight: int = 100
    """The most requests in flight of all sellers together, 1 to 100,000, with `adaptive`. Beyond it the sellers take
    turns. A limit above the transport's number of connections moves the wait into its pool: first come, first
    served."""
    max_wait: float = 30.0
    """The most seconds that an attempt waits for its turn, above 0 and at most 86,400. After them the call raises
    `NotSent`, or `OutcomeUnknown` if an earlier attempt at the write is in doubt. The call's deadline applies as
    well."""
    share: SharedRate | None = None
    """A rate that this process shares with others, such as `RateShare`. A call waits for its slot for at most
    `max_wait`, and at most half of the time left until its deadline."""

    def __post_init__(self) -> None:
        check_within("flow.max_in_flight", self.max_in_flight, 1, _MAX_IN_FLIGHT)
        check_seconds("flow.max_wait", self.max_wait)


_MAX_IN_FLIGHT = 100_000


class Flow:
    """The permits of a client and all its copies. Waiting calls are woken in turn, without polling.

    Calls of one seller go in the order in which they came, interactive calls first. Sellers that share the requests in
    flight, or a rate, take turns: round robin, one request each.
    """

    MAX_LIMITERS = 4096

    def __init__(self, control: FlowControl, clock: Clock) -> None:
        self.max_wait: float = control.max_wait
        self._control = control
        self._clock = clock
        self._now = clock.monotonic
        self.always_limits: bool = control.adaptive or control.share is not None
        """Whether a request may have to wait even if its seller has no limiter."""
        self._capacity: float = control.max_in_flight if control.adaptive else inf
        self._in_flight = 0
        self.limiters: dict[Hashable, Limiter] = {}
        """The limiters of sellers whose requests have a limit."""
        #: The sellers that wait only for free capacity, in turn.
        self._turns: OrderedDict[Limiter, None] = OrderedDict()
        #: Lets one call after the other ask for a slot of the share.
        self._asking: Flow | None = None
        if control.share is not None:
            self._asking = Flow(FlowControl(adaptive=True, max_in_flight=1), clock)
        #: The sleeps of calls that wait for their next attempt, or for their slot.
        self._pauses: set[asyncio.Future[None]] = set()
        self.closed: bool = False

    def try_acquire(self, seller: Hashable) -> Permit | None:
        """Return a permit if one is free; `None` if the call must `acquire` one."""
        if not (self.always_limits or self.limiters):
            return Permit(seller, self._now())
        return None if self._control.share is not None else self.enter(seller)

    async def acquire(self, seller: Hashable, priority: Priority = "interactive", left: float = inf) -> Permit | None:
        """Wait for a permit; return `None` if the flow was closed.

        With `FlowControl.share`, also wait for a slot in the shared rate, for at most half of the *left* seconds of the
        call; return `None` if the slot is later. A cancelled wait leaves neither a permit nor a place in the queue.
        """
        began_at, share, asking = self._now(), self._control.share, self._asking
        permit = self.enter(seller) or await self.wait(seller, priority)
        if permit is None or share is None or asking is None:
            return permit
        # Half of the time is for the response. Otherwise the calls of a client that is too busy would all go out too
        # late to get a response.
        until = min(began_at + self.max_wait, (self._now() + began_at + left) / 2)
        delay = None
        try:
            if turn := asking.enter(seller) or await asking.wait(seller, priority):
                try:
                    delay = await share.reserve(self._clock.now(), max(0.0, until - self._now()))
                    if delay is not None and delay > _SLOTS_AHEAD:
                        await self.pause(delay - _SLOTS_AHEAD)
                finally:
                    asking.release(turn)
            if delay:
                await self.pause(min(delay, _SLOTS_AHEAD))
        except BaseException:
            self.release(permit)
            raise
        if delay is None or self.closed:
            self.release(permit)
            return None
        permit.sent_at = self._now()
        permit.waited = permit.sent_at - began_at
        return permit

    def release(self, permit: Permit, service: Service | None = None, retry_after: float = 0.0) -> None:
        """Give *permit* back, once, with the meaning of the response and its Retry-After, if there is a response."""
        limiter = permit.limiter
        if limiter is not None:
            self._in_flight -= 1
            limiter.in_flight -= 1
            if limiter.probe is permit:
                limiter.probe = None
        elif service == "limited" and self._control.gate and permit is not NO_PERMIT:
            limiter = self._limiter(permit.seller)
        else:
            return
        now = self._now()
        if service == "limited":
            limiter.limited(permit.sent_at, now, retry_after)
        elif service is not None:
            limiter.responded(permit.sent_at, now, service)
        self._dispatch(limiter, now)

    def close(self) -> None:
        """Turn away all waiting calls, now and later."""
        self.closed = True
        for pause in self._pauses:
            pause.cancel()
        if self._asking is not None:
            self._asking.close()
        for limiter in self.limiters.values():
            for waiter in (*limiter.interactive, *limiter.batch):
                _turn_away(waiter)
            self._stop(limiter)

    async def pause(self, seconds: float) -> None:
        """Return after *seconds*, or immediately when the flow is closed."""
        if self.closed:
            return
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        self._pauses.add(pause)
        try:
            await asyncio.wait((pause,))
            if not pause.cancelled():
                pause.result()
        finally:
            self._pauses.discard(pause)
            pause.cancel()

    # --- getting in ---------------------------------------------------------------------------------------------------

    def enter(self, seller: Hashable) -> Permit | None:
        """Return a permit if one is free and no call waits for it."""
        limiter, now = self.limiters.get(seller), self._now()
        if limiter is None:
            if not self._control.adaptive:
                return Permit(seller, now)
            limiter = self._limiter(seller)
        if limiter.interactive or limiter.batch or self._in_flight >= self._capacity or limiter.update(now) > now:
            return None
        self._in_flight += 1
        return limiter.grant(now, now)

    def _limiter(self, seller: Hashable) -> Limiter:
        limiter = self.limiters.get(seller)
        if limiter is None:
            if len(self.limiters) >= self.MAX_LIMITERS:
                idle = next((name for name, entry in self.limiters.items() if entry.is_idle), None)
                self.limiters.pop(idle, None)
            now = self._now()
            adaptive = self._control.adaptive
            limiter = Limiter(seller, now, Meter(now, now), FIRST_CONCURRENCY) if adaptive else Limiter(seller, now)
            self.limiters[seller] = limiter
        return limiter

    async def wait(self, seller: Hashable, priority: Priority) -> Permit | None:
        """Wait in the queue for a permit; return `None` if the flow was closed."""
        limiter, now = self._limiter(seller), self._now()
        waiter: Waiter = asyncio.get_running_loop().create_future()
        queue = limiter.batch if priority == "batch" else limiter.interactive
        queue[waiter] = now
        if self.closed:
            _turn_away(waiter)
        self._dispatch(limiter, now)
        try:
            permit = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and (permit := waiter.result()) is not None:
                self.release(permit)  # It got the permit at the very moment when it was cancelled.
            raise
        finally:
            queue.pop(waiter, None)
            if not (limiter.interactive or limiter.batch):
                self._stop(limiter)
        return permit

    # --- letting go ---------------------------------------------------------------------------------------------------

    def _dispatch(self, limiter: Limiter, now: float) -> None:
        """Wake the calls that a change at *limiter* has made ready, of this seller or of others."""
        if limiter.interactive or limiter.batch:
            self._turns.setdefault(limiter)
        elif limiter.is_idle and limiter.meter is None and limiter.gate is None:
            self.limiters.pop(limiter.seller, None)  # Nothing is known of the seller any more.
        while self._turns and self._in_flight < self._capacity:
            self._serve(self._next_turn(), now)

    def _next_turn(self) -> Limiter:
        """Take the seller whose turn it is: sellers with only batch calls come last."""
        limiter = next((entry for entry in self._turns if entry.interactive), None) or next(iter(self._turns))
        del self._turns[limiter]
        return limiter

    def _serve(self, limiter: Limiter, now: float) -> None:
        """Wake one waiting call of *limiter*, if its rate allows it; the caller has checked the capacity."""
        queue = limiter.interactive or limiter.batch
        if not queue:
            return
        if (ready_at := limiter.update(now)) > now:
            if ready_at < limiter.wake_at:
                self._stop(limiter)
                limiter.wake_at = ready_at
                limiter.wake_task = asyncio.get_running_loop().create_task(self._wake(limiter, ready_at - now))
            return
        waiter, since = queue.popitem(last=False)
        if not waiter.done():  # Otherwise it was cancelled, and is about to leave the queue.
            self._in_flight += 1
            waiter.set_result(limiter.grant(now, since))
        if limiter.interactive or limiter.batch:
            self._turns[limiter] = None

    async def _wake(self, limiter: Limiter, seconds: float) -> None:
        """Wake the next call after *seconds* of the clock: a clock that does not sleep then delays no call."""
        await self._clock.sleep(seconds)
        limiter.wake_task, limiter.wake_at = None, inf
        self._dispatch(limiter, self._now())

    def _stop(self, limiter: Limiter) -> None:
        """Cancel the wake-up that was planned for *limiter*."""
        if limiter.wake_task is not None:
            limiter.wake_task.cancel()
        limiter.wake_task, limiter.wake_at = None, inf


def _turn_away(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
