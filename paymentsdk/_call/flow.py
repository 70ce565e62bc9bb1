"""How many requests of a seller may go out, and when: the permit that every attempt needs.

    permit = flow.try_acquire(seller) or await flow.acquire(seller)      # None: it waited too long
    response = await transport.send(request)
    flow.release(permit, "limited", retry_after)                         # "served", "failed"; none without a response

Two things are decided, both per seller, since a 429 is about the seller and not about one call:

- The *gate*, always there unless it is switched off: after a 429 the other calls of the seller are held for a moment,
  then go one at a time until one is served or the Retry-After is over.
- The *rate* and the *concurrency*, if `FlowControl.adaptive`: a rate that is learned from what the platform serves, and
  a bound on the requests in flight. Nothing is known at first, so the first requests are not slowed down.

`limiter.py` decides, with what is known of one seller. Here are the settings, and `Flow`, which is the only part that
waits; also for a slot of a rate that processes share, if `FlowControl.share` has one (`rate_share.py`), and between the
attempts of a call: closing it ends all of that.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Protocol

from msgspec import Struct

from paymentsdk._call.deadline import Deadline, Expired
from paymentsdk._call.limiter import FIRST_CONCURRENCY, NO_PERMIT, Limiter, Meter, Permit, Priority, Service, Waiter
from paymentsdk._call.verdicts import client_closed, not_attempted
from paymentsdk._clock import Clock
from paymentsdk._validate import check_seconds, check_within
from paymentsdk.errors import RequestInvalid, describe

#: Seconds before its slot that a call lets the next one ask for one. Whoever asks earlier has it before an interactive
#: call that comes meanwhile, and loses it if it is cancelled; later, and a busy process could not use every slot.
_SLOTS_AHEAD = 0.1
_TOO_LATE = "its slot in the rate of flow.share comes too late"


class SharedRate(Protocol):
    """A rate that several processes share; `paymentsdk.RateShare` is one."""

    async def reserve(self, now: float, longest: float) -> float | None:
        """Take the next free slot and return the seconds until it; `None`, and take none, if it is too far ahead.

        Args:
            now: Seconds since the epoch.
            longest: The most seconds that the caller can wait.
        """
        ...


class FlowControl(Struct, frozen=True, kw_only=True):
    """How a client stays below the rate limits of its sellers."""

    gate: bool = True
    """After a 429, hold the seller's other calls for 0.1 seconds, doubled up to 1 for each further 429 in a row; then
    send them one at a time until one is served or the Retry-After is over (1 second without one); then freely."""
    adaptive: bool = False
    """Also learn the rate and the number of requests in flight that the platform serves to each seller, and share what
    there is fairly among the sellers of the client. Needs the gate."""
    max_in_flight: int = 100
    """The most requests in flight at once, all sellers together, 1 to 100,000, if `adaptive`. Beyond that the sellers
    take turns. More than the connections of the transport makes its pool the place where calls wait, first come, first
    served."""
    max_wait: float = 30.0
    """The most seconds that an attempt waits for its turn, above 0 and at most 86,400. Then the call raises `NotSent`,
    or `OutcomeUnknown` if an earlier attempt at the write is in doubt. The deadline of the call holds as well."""
    share: SharedRate | None = None
    """A rate that this process shares with others, such as `RateShare`. A call waits for its slot within `max_wait`,
    and for half of what is left of its deadline at most."""

    def __post_init__(self) -> None:
        if self.adaptive and not self.gate:
            raise RequestInvalid("flow.gate", "must be True where flow.adaptive is")
        check_within("flow.max_in_flight", self.max_in_flight, 1, _MAX_IN_FLIGHT)
        check_seconds("flow.max_wait", self.max_wait)


_MAX_IN_FLIGHT = 100_000


class Flow:
    """The permits of a client and all its copies. Whoever waits for one is let go in turn, never by polling.

    Calls of one seller go in the order in which they came, interactive ones first. Where the sellers share what is in
    flight, or a rate, they take turns: round robin, one request each.
    """

    MAX_LIMITERS = 4096

    def __init__(self, control: FlowControl, clock: Clock) -> None:
        self.max_wait: float = control.max_wait
        self._control = control
        self._clock = clock
        self._now = clock.monotonic
        self._unlimited = not control.adaptive and control.share is None
        self._capacity: float = control.max_in_flight if control.adaptive else inf
        self._in_flight = 0
        self._limiters: dict[Hashable, Limiter] = {}
        #: The sellers that wait for nothing but a place, in the order of their turns; those with batch calls only.
        self._turns: OrderedDict[Limiter, None] = OrderedDict()
        self._batch_turns: OrderedDict[Limiter, None] = OrderedDict()
        #: Whose turn it is to ask for a slot of the share: one call after the other, as for a request in flight.
        self._asking: Flow | None = None
        if control.share is not None:
            self._asking = Flow(FlowControl(adaptive=True, max_in_flight=1), clock)
        #: Of calls that wait for their next attempt, or for a slot that they have.
        self._pauses: set[asyncio.Future[None]] = set()
        self._closed = False

    @property
    def is_free(self) -> bool:
        """Whether nothing is known of any seller: then each request may go out at once."""
        return self._unlimited and not self._limiters

    def try_acquire(self, seller: Hashable) -> Permit | None:
        """Return a permit if there is one at once; `None` if the call has to `acquire` one."""
        if self._unlimited and not self._limiters:  # As `is_free`.
            return Permit(seller, self._now())
        return None if self._control.share is not None else self.enter(seller)

    async def acquire(self, seller: Hashable, priority: Priority = "interactive", left: float = inf) -> Permit | None:
        """Wait for a permit; `None` if that took longer than `FlowControl.max_wait`, or the flow was closed.

        Also, with `FlowControl.share`, if the slot would come too late for a call that has so many seconds *left*.
        Cancelled at any moment, it leaves neither a permit nor a place in the queue behind.
        """
        permit = self.enter(seller) or await self.wait(seller, priority, self.max_wait)
        if permit is None or self._control.share is None or self._asking is None:
            return permit
        return await self._reserve(permit, self._control.share, self._asking, priority, left)

    async def admit(self, seller: Hashable, priority: Priority, deadline: Deadline) -> Permit:
        """Wait for the permit of a call that ends at *deadline*.

        Raises:
            Stopped: There is none; it says why.
        """
        began_at = self._now()
        acquired = self.acquire(seller, priority, deadline.total - began_at)
        try:
            permit = await deadline.bound(acquired, lambda late: self.release(late or NO_PERMIT))
        except Expired as expired:
            raise not_attempted(f"{expired} while it waited for its turn") from None
        except Exception as error:
            # A share of one's own may raise anything: an attempt that is in doubt must not be hidden by that.
            raise not_attempted(f"waiting for its turn raised {describe(error)}") from error
        if permit is None and self._now() - began_at >= self.max_wait:
            raise not_attempted(f"it waited for its turn for {self.max_wait:g} s (flow.max_wait)")
        if permit is None:
            raise client_closed() if self._closed else not_attempted(_TOO_LATE)
        return permit

    def release(self, permit: Permit, service: Service | None = None, retry_after: float = 0.0) -> None:
        """Give *permit* back, once, with what the response means and its Retry-After; without, if none came."""
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
        if limiter.interactive or limiter.batch or self._turns or self._batch_turns or not self._control.adaptive:
            self._dispatch(limiter, now)

    def close(self) -> None:
        """Turn away everybody who waits, now and later."""
        self._closed = True
        for pause in self._pauses:
            pause.cancel()
        if self._asking is not None:
            self._asking.close()
        for limiter in self._limiters.values():
            for waiter in (*limiter.interactive, *limiter.batch):
                _turn_away(waiter)
            self._stop(limiter)

    async def pause(self, seconds: float) -> None:
        """Return when *seconds* have passed, or at once when the flow is closed."""
        if self._closed:
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
        """Return a permit if there is one now, and nobody waits for it."""
        limiter, now = self._limiters.get(seller), self._now()
        if limiter is None:
            if not self._control.adaptive:
                return Permit(seller, now)
            limiter = self._limiter(seller)
        if limiter.interactive or limiter.batch or self._in_flight >= self._capacity or limiter.update(now) > now:
            return None
        self._in_flight += 1
        return limiter.grant(now, now)

    def _limiter(self, seller: Hashable) -> Limiter:
        limiter = self._limiters.get(seller)
        if limiter is None:
            if len(self._limiters) >= self.MAX_LIMITERS:
                idle = next((name for name, known in self._limiters.items() if known.is_idle), None)
                self._limiters.pop(idle, None)
            now = self._now()
            adaptive = self._control.adaptive
            limiter = Limiter(seller, now, Meter(now, now), FIRST_CONCURRENCY) if adaptive else Limiter(seller, now)
            self._limiters[seller] = limiter
        return limiter

    async def wait(self, seller: Hashable, priority: Priority, longest: float) -> Permit | None:
        """Wait in the queue for a permit, *longest* seconds at most."""
        limiter, now = self._limiter(seller), self._now()
        waiter: Waiter = asyncio.get_running_loop().create_future()
        queue = limiter.batch if priority == "batch" else limiter.interactive
        queue[waiter] = now
        expiry = self._clock.call_at(now + longest, lambda: _turn_away(waiter))
        if self._closed:
            _turn_away(waiter)
        self._dispatch(limiter, now)
        try:
            permit = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and (permit := waiter.result()) is not None:
                self.release(permit)  # It was its turn at the very moment that it was cancelled.
            raise
        finally:
            expiry.cancel()
            queue.pop(waiter, None)
            if limiter.interactive or limiter.batch:
                self._queue(limiter)  # Perhaps batch calls alone are left: they have their turn elsewhere.
            else:
                self._stop(limiter)
        return permit

    async def _reserve(
        self, permit: Permit, share: SharedRate, asking: "Flow", priority: Priority, left: float
    ) -> Permit | None:
        """Wait for the slot of *permit* in the rate that processes share: half of what its call has *left*, at most.

        The other half is for the response: else the calls of a client that is too busy would all go out so late that
        none gets one.
        """
        began_at, seller = permit.sent_at - permit.waited, permit.seller
        until = min(began_at + self.max_wait, (self._now() + began_at + left) / 2)
        delay = None
        try:
            if turn := asking.enter(seller) or await asking.wait(seller, priority, until - self._now()):
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
        if delay is None or self._closed:
            self.release(permit)
            return None
        permit.sent_at = self._now()
        permit.waited = permit.sent_at - began_at
        return permit

    # --- letting go ---------------------------------------------------------------------------------------------------

    def _dispatch(self, limiter: Limiter, now: float) -> None:
        """Let go whom a change at *limiter* has made ready, there or elsewhere."""
        if not limiter.is_idle:
            self._queue(limiter)
        elif limiter.meter is None and limiter.gate is None:
            self._limiters.pop(limiter.seller, None)  # Nothing is known of it any more.
        for turns in (self._turns, self._batch_turns):
            while turns and self._in_flight < self._capacity:
                self._serve(turns.popitem(last=False)[0], now)

    def _queue(self, limiter: Limiter) -> None:
        """Give *limiter* a turn, at the end of all, unless it has one or nobody waits."""
        if limiter.interactive:
            self._batch_turns.pop(limiter, None)
            self._turns.setdefault(limiter)
        elif limiter.batch:
            self._turns.pop(limiter, None)
            self._batch_turns.setdefault(limiter)

    def _serve(self, limiter: Limiter, now: float) -> None:
        """Let one call of *limiter* go, if one waits and may; there is a place for it."""
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
        if not waiter.done():  # Else it was cancelled, and is about to leave.
            self._in_flight += 1
            waiter.set_result(limiter.grant(now, since))
        self._queue(limiter)

    async def _wake(self, limiter: Limiter, seconds: float) -> None:
        """Have the next one go after *seconds*: by sleeping, so that a clock on which none sleeps holds nobody up."""
        await self._clock.sleep(seconds)
        limiter.wake_task, limiter.wake_at = None, inf
        self._dispatch(limiter, self._now())

    def _stop(self, limiter: Limiter) -> None:
        """Have nobody go at the moment that was set for *limiter*."""
        if limiter.wake_task is not None:
            limiter.wake_task.cancel()
        limiter.wake_task, limiter.wake_at = None, inf


def _turn_away(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
