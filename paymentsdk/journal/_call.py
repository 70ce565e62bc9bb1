"""One journaled call: keep the record, send, keep what came of it, and only then tell.

The driver knows neither HTTP nor retries. It is given ``send``, which makes the attempts and asks before each one, and
gives back what the caller may be told. So every step between two waits can be tested with a process that dies there.

A record has an age by two clocks, the platform's and the store's, and the larger one counts.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct, structs

from paymentsdk._clock import Clock
from paymentsdk._futures import wait_for_one
from paymentsdk._headers import http_date
from paymentsdk.errors import InProgress, JournalUnavailable, PaymentsError, RecordConflict, describe
from paymentsdk.journal import _states as states
from paymentsdk.journal._journal import Journal
from paymentsdk.journal._states import Action, Record, RecordState, Resolution, Timing

logger = logging.getLogger("paymentsdk")

#: Awaited before each attempt with the seconds that it may take. Returns ``None``, or why there may be no attempt.
MaySend: TypeAlias = Callable[[float], Awaitable[str | None]]
#: Makes the attempts at a record and returns what came of them: ``DONE``, ``REFUSED``, ``NOT_SENT`` or ``UNKNOWN``.
Send: TypeAlias = Callable[[Record, MaySend], Awaitable[Resolution]]
#: Finds out by reading what became of a record that may not be sent any more; ``None`` if that does not show.
Look: TypeAlias = Callable[[Record], Awaitable[Resolution | None]]

#: Makes a write that the caller does not wait for: closing the client does. What it raises is not the caller's.
Later: TypeAlias = Callable[[Callable[[], Awaitable[object]]], None]
#: One moment on both clocks of this machine: first on that which never goes back, then on that of the wall.
Moment: TypeAlias = tuple[float, float]

#: Python takes long to find a member of an Enum.
_DONE = RecordState.DONE
#: A backup without it was restored.
_GONE = "its record is gone from the journal"
#: Digits of more seconds than a response is in a cache.
_LONG = 10
_SENDING = frozenset({Action.SEND, Action.SEND_AGAIN, Action.RESUME})


class PlatformClock:
    """Counts the platform's time on from the last ``Date`` header: a machine's own time may be wrong by days."""

    #: Seconds for which a ``Date`` is good enough to send what another call has begun.
    FRESH = 300.0

    __slots__ = ("_date", "_monotonic", "_seen", "_shown", "_wall")

    def __init__(self, clock: Clock) -> None:
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

    def observe(self, date: str | None, age: str | None = None) -> None:
        """Take the ``Date`` of a response, which came out of a cache if it has an ``Age``; ignore what is no date."""
        if date is None or (date == self._date and self.since(self._seen) < 1.0):
            return  # It has no fractions: the first response of a second says all.
        if (shown := http_date(date)) is not None:
            seconds = int(age) if age is not None and age.isascii() and age.isdigit() and len(age) < _LONG else 0
            self.set(shown.timestamp() + seconds)
            self._date = date

    def set(self, shown: float) -> None:
        """Take *shown* as the platform's time now, in seconds since the epoch."""
        self._shown, self._date, self._seen = shown, None, self.moment()

    def is_fresh(self, moment: Moment | None = None) -> bool:
        """Whether a response has told the time lately."""
        return self._shown is not None and self.since(self._seen, moment) <= self.FRESH

    def now(self, moment: Moment | None = None) -> float | None:
        """Return the platform's time now or at *moment*, in seconds since the epoch; ``None`` before the first."""
        return None if self._shown is None else self._shown + self.since(self._seen, moment)


#: Reads the platform's time, unless a response has told it lately, and returns why it cannot be had.
Learn: TypeAlias = Callable[[PlatformClock], Awaitable[PaymentsError | None]]


class Journaling:
    """What the journaled calls of a client share: the journal, the platform's time, and who works on what."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal: Journal = journal
        self.platform_clock: PlatformClock = PlatformClock(clock)
        self._clock = clock
        self._name = clock.key()[:16]
        self._count = itertools.count(1)
        #: By the key of a record, what those wait for who want to work on it: a call, and then the write it has left.
        self._running: dict[str, asyncio.Future[object]] = {}
        #: By the key of a record, the owner of a begin that failed: the journal may have kept it all the same.
        self.unheard: dict[str, str] = {}

    def owner(self) -> str:
        """Return a new owner of records: this process, even if it was forked since, and a number of no other call."""
        return f"{os.getpid()}-{self._name}/{next(self._count)}"

    async def acquire(self, key: str) -> asyncio.Future[object]:
        """Wait for the calls of this process that work on the record *key*: they know best what becomes of it.

        Also for the write of `write_later`, so that whoever comes next finds the record closed. Return what has to be
        given to `release`.
        """
        while (running := self._running.get(key)) is not None:
            if running.get_loop().is_closed():
                break  # It will never end.
            await asyncio.wait((running,))
        self._running[key] = mine = asyncio.get_running_loop().create_future()
        return mine

    def release(self, key: str, mine: asyncio.Future[object]) -> None:
        """Let the next one work on the record, unless there is a write to wait for."""
        self._forget(key, mine)
        mine.set_result(None)

    def _forget(self, key: str, running: asyncio.Future[object]) -> None:
        if self._running.get(key) is running:
            del self._running[key]

    def write_later(self, key: str, write: Callable[[], Awaitable[object]]) -> None:
        """Make a *write* that the caller who works on the record does not wait for."""
        try:
            written = asyncio.ensure_future(write())
        except PaymentsError as error:
            _warn(error)
            return
        except Exception:
            # Of a journal of one's own that is no coroutine: what is done is done.
            logger.exception("a record could not be closed in the journal")
            return
        self._running[key] = written
        written.add_done_callback(partial(self._written, key))

    def _written(self, key: str, written: asyncio.Future[object]) -> None:
        self._forget(key, written)  # First: the log may raise, and who waits for the record would do so for ever.
        if not written.cancelled() and isinstance(error := written.exception(), Exception):
            _warn(error)

    async def drain(self, grace: float) -> None:
        """Wait up to *grace* seconds until nobody works on a record any more: what came of the calls is then kept.

        Also when cancelled: what a cancelled call leaves to be written is that it was not sent, or may not have been.
        """
        if not (running := self._under_way()):
            return
        end = asyncio.ensure_future(self._clock.sleep(grace))
        cancelled: asyncio.CancelledError | None = None
        while running and not end.done():
            ended = asyncio.gather(*running, return_exceptions=True)
            cancelled = await wait_for_one(end, ended) or cancelled
            running = self._under_way()  # A call may have left a write, or another may have waited for it.
        end.cancel()
        if cancelled is not None:
            raise cancelled

    def _under_way(self) -> list[asyncio.Future[object]]:
        """Return what works on records now; nothing goes on that belongs to another loop, which does not run."""
        loop = asyncio.get_running_loop()
        return [one for one in self._running.values() if one.get_loop() is loop]


def _warn(error: Exception) -> None:
    # What is lost is one replay; "nothing was sent" would be wrong of it.
    why = error.reason if isinstance(error, JournalUnavailable) else describe(error)
    logger.warning("a record could not be closed in the journal: %s; recovery takes it up", why)


class RecordOutcome(Struct, frozen=True):
    """What has become of a record, for the caller."""

    state: RecordState
    record: Record
    """The row as it is now, as far as known."""
    own: bool
    """Whether this call has found it out itself: its result or error stands. If not, the row's does."""
    reason: str = ""


class JournaledCall(Struct, eq=False):
    """Drives one record: begun by a caller, or taken over by recovery."""

    journal: Journal
    """Where the record is kept."""
    clock: PlatformClock
    """The platform's time."""
    seller: Callable[[], str]
    """Returns the platform's user id of the token that would be sent now."""
    lease: float
    """Seconds for which a record is held. A dead process blocks its records for that long."""
    later: Later
    """Runs the writes that nobody waits for."""
    defer: bool = False
    """Leave a record that could not be sent to recovery, instead of closing it as not sent."""
    look: Look | None = None
    """How to find out what became of a record whose time is over."""
    unheard: dict[str, str] = {}
    """Of this process: see `Journaling`."""
    learn: Callable[[], Awaitable[object]] | None = None
    """Reads the platform's time, unless it is known, before what another call has begun is sent."""
    begun: bool = False
    """Whether this call has begun the record: no other call can have sent it."""
    taken: Moment = (0.0, 0.0)
    """When this call has written the row that it has."""
    left: float = 0.0
    """Seconds for which an attempt may still begin, when the last one did."""
    held: float = 0.0
    """Seconds that the lease lasts."""
    held_since: Moment = (0.0, 0.0)
    """When it was asked for."""
    in_flight: float = 0.0
    """Seconds that an attempt may take which has begun; 0 before the first."""
    timing: Timing = Timing.IN_TIME
    """Whether the last one could begin, or why not."""

    async def run(self, new: Record, send: Send) -> RecordOutcome:
        """Begin *new*, and carry it out unless its record says what became of it.

        Raises:
            RecordConflict: The name belongs to a request with other bytes.
            InProgress: Another call or process works on it.
            JournalUnavailable: It cannot be kept; nothing was sent.
        """
        asked, new = self.clock.moment(), structs.replace(new, owner=self.unheard.pop(new.key, new.owner))
        try:
            action, row = await self._begin(new)
        except asyncio.CancelledError:
            # It may have been kept all the same, and recovery would send what nobody asks for any more.
            self.later(partial(self._give_up, new))
            raise
        if action in _SENDING:
            self.begun = action is not Action.RESUME
            return await self.carry_on(row, send, since=asked)
        if action is Action.CONFLICT:
            raise _about(RecordConflict(new.name), new)
        if action is Action.IN_PROGRESS:
            raise _about(InProgress(new.name), row)
        state = RecordState.UNKNOWN if action is Action.UNKNOWN else row.state
        return RecordOutcome(state, row, own=False, reason=row.reason)

    async def _begin(self, new: Record) -> tuple[Action, Record]:
        self.unheard[new.key] = new.owner
        with WithinContract():
            begun = await self.journal.begin(new, lease=self.lease)
        del self.unheard[new.key]
        return begun

    async def _give_up(self, new: Record) -> None:
        """Close *new*, whose begin was cancelled: begun once more, it is known what was kept of it."""
        action, row = await self._begin(new)
        if action in _SENDING:
            await self._cancel(row)

    def _cancel(self, row: Record) -> Awaitable[Record]:
        """Free *row*: what this call has sent of it may still take effect."""
        state = RecordState.UNKNOWN if self.in_flight else self._judged(row, RecordState.NOT_SENT)
        return self._resolve(row, Resolution(state=state, reason="cancelled", in_flight=self.in_flight))

    async def carry_on(self, row: Record, send: Send, *, since: Moment) -> RecordOutcome:
        """Carry out *row*, which was taken over after the moment *since*."""
        self.held, self.held_since, self.taken = self.lease, since, since
        try:
            if not self.begun and self.learn is not None:
                await self.learn()
            outcome = await send(row, partial(self._may_send, row))
        except BaseException:
            # Cancelled, as a rule: nobody can be waited for now.
            self.later(partial(self._cancel, row))
            raise
        if outcome.state is not _DONE:
            outcome = structs.replace(outcome, state=self._judged(row, outcome.state))
            is_barred = self.timing in (Timing.TOO_LATE, Timing.CLOCK_BEHIND)
            if outcome.state is RecordState.UNKNOWN and is_barred and self.look is not None:
                outcome = await self.look(row) or outcome
        if outcome.state is not _DONE:
            return await self._close(row, outcome)
        # It replaces every other state, so the row cannot say otherwise. To lose it costs one replay.
        self.later(partial(self.journal.resolve, row.key, outcome, owner=row.owner))
        return RecordOutcome(_DONE, row, own=True)

    async def _may_send(self, row: Record, seconds: float) -> str | None:
        """Say why no attempt at *row* of up to *seconds* may begin now, or ``None``."""
        moment = self.clock.moment()
        if not self._covers(seconds, moment):
            if why := await self._renew(row, seconds):
                return why
            moment = self.clock.moment()  # After the wait: the machine may have slept, and the token be another's.
        if not states.is_of_seller(row, self.seller()):
            return "it belongs to another seller than the token"
        self.timing = self._timing(row, moment)
        if self.timing is Timing.IN_TIME:
            self.in_flight = max(self.in_flight, seconds)
            return None
        return str(self.timing.value)

    def _timing(self, row: Record, moment: Moment) -> Timing:
        """Return whether an attempt at *row* may begin at *moment*."""
        if not self.begun and not self.clock.is_fresh(moment):
            return Timing.NO_CLOCK
        ages, now = [self._age(row, moment)], self.clock.now(moment)
        if row.is_dated and now is not None:
            # The age of what this call has begun is known: a clock that went back does not keep it from being sent.
            ages.append(max(now - row.begun, *ages) if self.begun else now - row.begun)
        self.left = row.not_after - row.begun - max(ages)
        return states.timing(row, *ages)

    def _age(self, row: Record, moment: Moment) -> float:
        """Return the age of *row* by the store's clock."""
        return states.age_when_written(row) + self.clock.since(self.taken, moment)

    async def _renew(self, row: Record, seconds: float) -> str | None:
        """Renew the lease on *row* for an attempt of *seconds*; say why that did not work, or ``None``."""
        asked, lease = self.clock.moment(), max(self.lease, 2 * seconds)
        try:
            with WithinContract(_GONE):
                now = await self.journal.renew(row.key, owner=row.owner, lease=lease)
        except JournalUnavailable as error:
            return f"its lease could not be renewed: {error.reason}"
        if now.owner != row.owner:
            return "another process has taken it over"
        self.held_since, self.held = asked, lease
        return None if self._covers(seconds, self.clock.moment()) else "renewing its lease took too long"

    def _covers(self, seconds: float, moment: Moment) -> bool:
        return states.lease_covers(self.held - self.clock.since(self.held_since, moment), seconds)

    def _judged(self, row: Record, state: RecordState) -> RecordState:
        """Return what it means for *row* that its attempts ended in *state*."""
        if state is RecordState.NOT_SENT:
            if self.timing is Timing.TOO_LATE:
                state = RecordState.EXPIRED
            elif self.defer:
                state = RecordState.DEFERRED
        return states.recordable(state, in_doubt=row.state is RecordState.SENT)

    async def _close(self, row: Record, resolution: Resolution) -> RecordOutcome:
        """Keep *resolution*, and return what the caller may be told of it."""
        try:
            with WithinContract(_GONE):
                now = await self._resolve(row, resolution)
        except JournalUnavailable as error:
            state = states.told(resolution.state, durable=False)
            return RecordOutcome(
                state, row, own=state is resolution.state, reason=f"{resolution.reason}; {error.reason}"
            )
        if now.state in states.HELD:
            raise _about(InProgress(row.name), now)
        return RecordOutcome(now.state, now, own=now.state is resolution.state, reason=now.reason)

    def _resolve(self, row: Record, resolution: Resolution) -> Awaitable[Record]:
        return self.journal.resolve(row.key, resolution, owner=row.owner)


class WithinContract:
    """Makes a `JournalUnavailable` of whatever else a journal raises that is asked in here.

    One of one's own may raise anything, or be no coroutine: an attempt that is in doubt must not be hidden by that.

    Args:
        missing: What a `LookupError` means, where the contract has it.
    """

    __slots__ = ("_missing",)

    def __init__(self, missing: str | None = None) -> None:
        self._missing = missing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, JournalUnavailable):
            reason = self._missing if self._missing and isinstance(error, LookupError) else describe(error)
            raise JournalUnavailable(reason) from error


def _about(error: RecordConflict | InProgress, record: Record) -> RecordConflict | InProgress:
    error.operation, error.idempotency_key = record.operation, record.key
    return error
