"""How many requests of a seller may go out, and when: the permit that every attempt needs.

    permit = flow.try_acquire(seller) or await flow.acquire(seller)      # None: it waited too long
    response = await transport.send(request)
    flow.release(permit, response.status, retry_after)                   # or flow.release(permit) without a response

Two things are decided here, both per seller, since a 429 is about the seller and not about one call:

- The *gate*, always there unless it is switched off: after a 429 the other calls of the seller are held for a moment,
  then go one at a time until one is served or the Retry-After is over.
- The *pace* and the *concurrency*, if `FlowControl.adaptive`: a rate that is learned from what the platform serves, and
  a bound on the requests in flight. Nothing is known at first, so the first requests are not slowed down.

Read from the top: the settings, what is known of one seller, and `Flow`, which is the only part that waits. The
decisions (values in, values out) are in `pace.py`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from paymentsdk._engine.pace import (
    FIRST_CONCURRENCY,
    MEMORY,
    Gate,
    Meter,
    Pace,
    close_gate,
    concurrency_after_cut,
    grown_concurrency,
    measured,
    next_slot,
    opens_gate,
    pace_of,
)
from paymentsdk._engine.settings import check_seconds
from paymentsdk._validate import check_methods
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._clock import Alarm, Clock

#: `"interactive"`: somebody waits for it. `"batch"`: sent only while no interactive call of the client waits.
Priority: TypeAlias = Literal["interactive", "batch"]

_TOO_MANY = 429


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
    """A rate that this process shares with others, such as `RateShare`."""

    def __post_init__(self) -> None:
        for name in ("gate", "adaptive"):
            if type(getattr(self, name)) is not bool:  # The text "false" of some environment is true.
                raise RequestInvalid(f"flow.{name}", "must be True or False")
        if self.adaptive and not self.gate:
            raise RequestInvalid("flow.gate", "must be True where flow.adaptive is")
        if type(self.max_in_flight) is not int or not 1 <= self.max_in_flight <= _MOST_IN_FLIGHT:
            raise RequestInvalid("flow.max_in_flight", f"must be 1 to {_MOST_IN_FLIGHT}")
        check_seconds("flow.max_wait", self.max_wait)
        check_methods("flow.share", self.share, "reserve")


_MOST_IN_FLIGHT = 100_000

# --- one seller -------------------------------------------------------------------------------------------------------


class Permit(Struct, eq=False):
    """The permission to send one request; it has to be given back with `Flow.release`."""

    seller: Hashable
    sent_at: float
    waited: float = 0.0
    """Seconds from asking to getting it."""
    account: Account | None = None
    """`None` while nothing is known of the seller, and nothing has to be."""


#: Resolved with the permit, or with `None` when the wait was too long.
_Turn: TypeAlias = asyncio.Future[Permit | None]
#: Who waits, in order: until when, and since when.
_Line: TypeAlias = OrderedDict[_Turn, tuple[float, float]]


class Account:
    """What is known of one seller, who waits, and what is in flight."""

    __slots__ = (
        "alarm",
        "alarm_at",
        "batch",
        "concurrency",
        "gate",
        "in_flight",
        "interactive",
        "meter",
        "next_at",
        "pace",
        "probe",
        "seller",
        "served",
    )

    def __init__(self, seller: Hashable, now: float, *, adaptive: bool) -> None:
        self.seller = seller
        self.gate: Gate | None = None
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
        self.interactive: _Line = OrderedDict()
        self.batch: _Line = OrderedDict()
        self.alarm: Alarm | None = None
        self.alarm_at: float = inf

    @property
    def is_idle(self) -> bool:
        """Whether it can be forgotten, with no more loss than what it has learned."""
        return self.in_flight == 0 and not self.interactive and not self.batch

    def line(self, priority: Priority) -> _Line:
        """Return those who wait with *priority*."""
        return self.batch if priority == "batch" else self.interactive

    def first_line(self) -> _Line | None:
        """Return the line whose turn it is; `None` if nobody waits."""
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

    def answered(self, sent_at: float, now: float, status: int) -> None:
        """Note a response that is no 429."""
        if self.meter is not None:
            self.meter.add(now)
            if self.in_flight + 1 >= self.concurrency:
                self.concurrency = grown_concurrency(self.concurrency)
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
        for line in (self.interactive, self.batch):
            while line:
                turn, (until, _) = next(iter(line.items()))
                if until > now:
                    break
                del line[turn]
                if not turn.done():
                    turn.set_result(None)

    def next_expiry(self) -> float:
        """Return when the first of those who wait has waited too long."""
        return min((next(iter(line.values()))[0] for line in (self.interactive, self.batch) if line), default=inf)


# --- all sellers of a client ------------------------------------------------------------------------------------------


class Flow:
    """The permits of a client and all its copies. Whoever waits for one is let go in turn, never by polling.

    Calls of one seller go in the order in which they came, interactive ones first. Where the sellers share what is in
    flight, they take turns: round robin, one request each.
    """

    MOST_ACCOUNTS = 4096

    __slots__ = (
        "_accounts",
        "_batch_turns",
        "_clock",
        "_closed",
        "_control",
        "_in_flight",
        "_now",
        "_places",
        "_reserving",
        "_sleep",
        "_turns",
    )

    def __init__(
        self, control: FlowControl, clock: Clock, sleep: Callable[[float], Awaitable[None]] | None = None
    ) -> None:
        self._control = control
        self._clock = clock
        self._now = clock.monotonic
        self._sleep = sleep or clock.sleep
        self._places: float = control.max_in_flight if control.adaptive else inf
        self._in_flight = 0
        self._accounts: dict[Hashable, Account] = {}
        #: The accounts that wait for nothing but a place, in the order of their turns; those with batch calls only.
        self._turns: OrderedDict[Account, None] = OrderedDict()
        self._batch_turns: OrderedDict[Account, None] = OrderedDict()
        #: One call after the other, so that slots are taken in the order of the turns.
        self._reserving = asyncio.Lock()
        self._closed = False

    def try_acquire(self, seller: Hashable) -> Permit | None:
        """Return a permit if there is one at once; `None` if the call has to `acquire` one."""
        return None if self._control.share is not None else self._enter(seller)

    async def acquire(self, seller: Hashable, priority: Priority = "interactive") -> Permit | None:
        """Wait for a permit; `None` if that took longer than `FlowControl.max_wait`, or the flow was closed.

        Cancelled at any moment, it leaves neither a permit nor a place in the queue behind.
        """
        permit = self._enter(seller) or await self._wait(seller, priority)
        if permit is None or self._control.share is None:
            return permit
        return await self._reserve(permit, self._control.share)

    def release(self, permit: Permit, status: int | None = None, retry_after: float = 0.0) -> None:
        """Give *permit* back, once, with the status code of the response and its Retry-After; without, if none came."""
        account = permit.account
        if account is not None:
            self._in_flight -= 1
            account.in_flight -= 1
            if account.probe is permit:
                account.probe = None
        elif status == _TOO_MANY and self._control.gate:
            account = self._account(permit.seller)
        else:
            return
        now = self._now()
        if status == _TOO_MANY:
            account.limited(permit.sent_at, now, retry_after)
        elif status is not None:
            account.answered(permit.sent_at, now, status)
        if account.interactive or account.batch or self._turns or self._batch_turns or not self._control.adaptive:
            self._go_on(account, now)

    def close(self) -> None:
        """Turn away everybody who waits, now and later."""
        self._closed = True
        for account in self._accounts.values():
            account.expire(inf)
            self._stop_alarm(account)

    # --- getting in ---------------------------------------------------------------------------------------------------

    def _enter(self, seller: Hashable) -> Permit | None:
        account, now = self._accounts.get(seller), self._now()
        if account is None:
            if not self._control.adaptive:
                return Permit(seller, now)
            account = self._account(seller)
        if account.interactive or account.batch or self._in_flight >= self._places or account.ready_at(now) > now:
            return None
        self._in_flight += 1
        return account.grant(now, now)

    def _account(self, seller: Hashable) -> Account:
        account = self._accounts.get(seller)
        if account is None:
            if len(self._accounts) >= self.MOST_ACCOUNTS:
                self._forget_one()
            account = Account(seller, self._now(), adaptive=self._control.adaptive)
            self._accounts[seller] = account
        return account

    def _forget_one(self) -> None:
        for seller, account in self._accounts.items():
            if account.is_idle:
                del self._accounts[seller]
                return

    async def _wait(self, seller: Hashable, priority: Priority) -> Permit | None:
        account, now = self._account(seller), self._now()
        turn: _Turn = asyncio.get_running_loop().create_future()
        line = account.line(priority)
        line[turn] = (now + self._control.max_wait, now)
        if self._closed:
            account.expire(inf)
        self._go_on(account, now)
        try:
            return await turn
        except asyncio.CancelledError:
            permit = turn.result() if turn.done() and not turn.cancelled() else None
            if permit is not None:
                self.release(permit)  # It was its turn at the very moment that it was cancelled.
            raise
        finally:
            line.pop(turn, None)

    async def _reserve(self, permit: Permit, share: SharedRate) -> Permit | None:
        """Wait for the slot of *permit* in the rate that processes share."""
        try:
            async with self._reserving:
                delay = await share.reserve(self._clock.now(), self._control.max_wait - permit.waited)
            if delay:
                await self._sleep(delay)
        except BaseException:
            self.release(permit)
            raise
        if delay is None:
            self.release(permit)
            return None
        permit.sent_at = self._now()
        permit.waited += delay
        return permit

    # --- letting go ---------------------------------------------------------------------------------------------------

    def _go_on(self, account: Account, now: float) -> None:
        """Let go whom a change at *account* has made ready, there or elsewhere."""
        if not account.is_idle:
            self._queue(account)
        elif account.meter is None and account.gate is None:
            self._accounts.pop(account.seller, None)  # Nothing is known of it any more.
        for turns in (self._turns, self._batch_turns):
            while turns and self._in_flight < self._places:
                self._serve(turns.popitem(last=False)[0], now)
        self._set_alarm(account, account.next_expiry())

    def _queue(self, account: Account) -> None:
        """Give *account* a turn, at the end of all, unless it has one or nobody waits."""
        if account.interactive:
            self._batch_turns.pop(account, None)
            self._turns.setdefault(account)
        elif account.batch:
            self._turns.pop(account, None)
            self._batch_turns.setdefault(account)

    def _serve(self, account: Account, now: float) -> None:
        """Let one call of *account* go, if one waits and may; there is a place for it."""
        line = account.first_line()
        if line is None:
            return
        if (ready_at := account.ready_at(now)) > now:
            self._set_alarm(account, ready_at)
            return
        turn, (_, since) = line.popitem(last=False)
        if not turn.done():  # Else it was cancelled, and is about to leave.
            self._in_flight += 1
            turn.set_result(account.grant(now, since))
        self._queue(account)

    def _set_alarm(self, account: Account, when: float) -> None:
        """Look at *account* again at *when* at the latest; too early does no harm."""
        if when < account.alarm_at:
            self._stop_alarm(account)
            account.alarm_at = when
            account.alarm = self._clock.call_at(when, lambda: self._ring(account))

    def _stop_alarm(self, account: Account) -> None:
        if account.alarm is not None:
            account.alarm.cancel()
        account.alarm, account.alarm_at = None, inf

    def _ring(self, account: Account) -> None:
        self._stop_alarm(account)
        now = self._now()
        account.expire(now)
        self._go_on(account, now)
