"""Named writes (`once=`): keep the record, send, keep the outcome, and only then return to the caller.

``DONE`` alone is kept after the caller has returned: its loss costs one replay. Every other state is kept before.

    run                       check the arguments, and make the record with its derived key
    JournaledCall.begin       begin the record: send it, or use the outcome that it has?
    JournaledCall.carry_on    send the kept request as its owner; recovery starts here, with a claimed row
    JournaledCall.why_not     the gate of the `Call`, before each attempt: does the lease cover it,
    JournaledCall.bars        and is it in time?
    JournaledCall._settle     keep the outcome
    _outcome.py               what an outcome means for the record, and for the caller
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from paymentsdk._call import events
from paymentsdk._call.credential import user_id
from paymentsdk._call.deadline import Expired
from paymentsdk._call.engine import Engine
from paymentsdk._call.events import observed
from paymentsdk._codec.type_walk import can_hold_secrets
from paymentsdk._contract.rules import KEY_LIFETIME
from paymentsdk._secrets import HiddenRepr, secrets_in
from paymentsdk._validate import plain_duration, plain_moment
from paymentsdk.errors import InProgress, JournalUnavailable, PaymentsError, RecordConflict, RequestInvalid, describe
from paymentsdk.journal import _record as states
from paymentsdk.journal._journal import RecordResolved, derive_key
from paymentsdk.journal._outcome import Outcome, kept_result, resolution_of
from paymentsdk.journal._platform_clock import Moment, elapsed
from paymentsdk.journal._record import Action, Record, RecordState, Resolution, StoredResponse

if TYPE_CHECKING:
    from paymentsdk._call.call import Call
    from paymentsdk._call.intent import Intent
    from paymentsdk._call.response import Result
    from paymentsdk._call.settings import Settings
    from paymentsdk.journal._turns import Journaling

B = TypeVar("B")
R = TypeVar("R")

#: The shortest lease of a record, in seconds. A process that dies blocks its records for that long.
LEASE = 60.0
_DONE = RecordState.DONE
#: Records in any other state have had no effect.
_EFFECTIVE = frozenset(RecordState) - {RecordState.NOT_SENT, RecordState.REFUSED, RecordState.EXPIRED}
#: The most records that a look-up reads. If there are more, as there may be after a purge, the outcome stays unknown.
_MOST = 10_000
_SENDING = frozenset({Action.SEND, Action.SEND_AGAIN, Action.RESUME})


async def run(
    journaling: Journaling,
    engine: Engine,
    intent: Intent[B, R],
    name: str | None,
    *,
    not_after: datetime | timedelta | None,
    defer: bool,
) -> Result[R]:
    """Carry out *intent* as the record *name* of its seller, unless the record already has an outcome.

    Raises:
        RequestInvalid: The arguments cannot be combined; nothing was sent.
        RecordConflict: The name belongs to a request with other bytes.
        InProgress: Another process works on it.
        JournalUnavailable: The record cannot be kept; nothing was sent.
        PaymentsError: The outcome of the record, if it is not done.
    """
    operation, settings = intent.operation, engine.settings
    name, lease = _checked(name, intent, settings)
    is_sensitive = can_hold_secrets(intent.body) and any(secrets_in(intent.body))
    if defer and is_sensitive and not getattr(journaling.journal, "seals", True):
        # The caller would get `Deferred`, but recovery could never send the record.
        raise RequestInvalid("defer", "needs a journal with a seal: the body holds credentials, and would not be kept")
    clock = journaling.platform_clock
    if (seller := await engine.seller()) is None:
        raise no_seller()
    started = clock.moment()
    platform_time = clock.at(started)
    begun = started[1] if platform_time is None else platform_time
    new = Record(
        key=derive_key(settings.base_url, seller, operation.name, name),
        name=name,
        operation=operation.name,
        base_url=settings.base_url,
        seller=seller,
        account=settings.account,
        path=intent.target,
        headers=intent.headers or {},
        body=intent.content,
        digest=states.digest(operation.method, intent.target, intent.content),
        sensitive=is_sensitive,
        keyed=operation.keyed,
        begun=begun,
        not_after=_not_after(intent, settings, begun, not_after, lease),
        is_dated=platform_time is not None,
        owner=journaling.owner(),
    )
    call = JournaledCall(journaling, engine, intent, lease, defer=defer)
    turn = await journaling.acquire(new.key)
    try:
        outcome = await call.begin(new, started)
    finally:
        journaling.release(new.key, turn)
    if settings.observers and outcome.is_own:
        notify_resolved(journaling, engine, outcome, recovered=False)
    if outcome.result is not None:
        return outcome.result
    try:
        return kept_result(outcome, intent, partial(engine.call_for, intent), clock.moment()[0] - started[0])
    finally:
        del outcome  # Breaks a reference cycle: its error holds this frame by the traceback (CONTRIBUTING: cycles).


def no_seller() -> RequestInvalid:
    """Return the error of a client whose seller is not known: the records of each seller are kept apart."""
    reason = "does not end with the seller's user id, which `once` needs; with a signer, use client.account(name)"
    return RequestInvalid("access_token", reason)


def _checked(name: str | None, intent: Intent[B, R], settings: Settings) -> tuple[str, float]:
    """Return the name of the record, and the length of its lease in seconds."""
    operation = intent.operation
    if name is None:
        raise RequestInvalid("once", "must name the record that not_after and defer are about")
    if not operation.writes:
        raise RequestInvalid("once", f"{operation.name} changes nothing: there is nothing to keep")
    if not operation.authenticated:
        raise RequestInvalid("once", f"{operation.name} is sent without a token: its record would have no seller")
    if intent.has_own_key or settings.idempotency_key is not None:
        raise RequestInvalid("once", "cannot be combined with idempotency_key, which is derived from the name")
    if settings.timeout.attempt is None:
        raise RequestInvalid("timeout.attempt", "must be bounded for a journaled call: its lease has to outlive it")
    plain = str.__str__(name) if isinstance(name, str) else name  # The journal cannot keep a subclass of `str`.
    return plain, max(LEASE, 2 * settings.timeout.attempt)


def _not_after(
    intent: Intent[B, R], settings: Settings, begun: float, window: datetime | timedelta | None, lease: float
) -> float:
    """Return the moment from which the record is not sent any more, on the clock of *begun*: at most 23 hours later."""
    latest, declared = begun + KEY_LIFETIME, intent.operation.resend_window
    if window is None and (declared is None or isinstance(declared, timedelta)):
        seconds = (settings.timeout.total or KEY_LIFETIME) if declared is None else declared.total_seconds()
        # If the process dies, recovery has half a lease left after the lease has ended.
        return min(begun + max(seconds, 1.5 * lease), latest)
    if window is None and callable(declared):
        window = declared(intent.body)
    if (length := plain_duration(window)) and (seconds := length.total_seconds()) > 0:
        return min(begun + seconds, latest)
    if (moment := plain_moment(window)) and moment.utcoffset() is not None:
        return min(moment.timestamp(), latest)
    raise RequestInvalid("not_after", "must be a timedelta above 0, or a datetime with its offset")


def notify_resolved(journaling: Journaling, engine: Engine, outcome: Outcome, *, recovered: bool) -> None:
    """Send the outcome of a record to the observers."""
    row, now = outcome.row, journaling.platform_clock.now()
    event = RecordResolved(
        account=row.account,
        operation=row.operation,
        name=row.name,
        idempotency_key=row.key,
        state=outcome.state,
        age=max(0.0, (now or row.begun) - row.begun),
        recovered=recovered,
    )
    events.notify(event, engine.settings.observers)


class JournaledCall(HiddenRepr, Struct, Generic[B, R], eq=False):
    """One run of a record, begun by a caller or taken over by recovery. It is the gate of its `Call`."""

    journaling: Journaling
    engine: Engine
    intent: Intent[B, R]
    lease: float
    """Seconds that a lease lasts. A dead process blocks its records for that long."""
    defer: bool
    held_since: Moment = (0.0, 0.0)
    """When the present lease was requested."""
    first_kept: Moment = (0.0, 0.0)
    """When the record was first written, by store time, converted to this machine's clocks."""
    begun: bool = False
    """Whether this call has begun the record: then no other call can have sent it."""
    in_doubt: bool = False
    """Whether an earlier call may have sent it."""
    left: float = 0.0
    """Seconds within which the first byte of an attempt has to be sent."""
    in_flight: float = 0.0
    """Seconds that a started attempt may take; 0 before the first attempt."""
    barred: str = ""
    """Why the record is too old to be sent; empty if it is not."""
    row: Record = cast("Record", None)
    """The row that `carry_on` works on."""

    async def begin(self, new: Record, since: Moment) -> Outcome:
        """Begin *new*, whose call began at *since*, and carry it out unless its record already has an outcome."""
        unheard = self.journaling.unheard
        if new.key in unheard:
            new = structs.replace(new, owner=unheard[new.key])
        unheard[new.key] = new.owner
        try:
            action, row = await self.journaling.journal.begin(new, lease=self.lease)
        except asyncio.CancelledError:
            # The journal may have kept the record, and recovery would send a request that its caller has cancelled.
            self.journaling.write_later(new.key, partial(self._give_up, new))
            raise
        del unheard[new.key]
        if action in _SENDING:
            self.begun = action is not Action.RESUME
            return await self.carry_on(row, since)
        if action in (Action.CONFLICT, Action.IN_PROGRESS):
            raise _about(row, RecordConflict(new.name) if action is Action.CONFLICT else InProgress(new.name))
        return Outcome(RecordState.UNKNOWN if action is Action.UNKNOWN else row.state, row, row.reason, is_own=False)

    async def _give_up(self, new: Record) -> None:
        """Close *new*, whose begin was cancelled: a second begin shows whether the journal has kept it."""
        action, row = await self.journaling.journal.begin(new, lease=self.lease)
        self.journaling.unheard.pop(new.key, None)
        if action in _SENDING:
            await self._free(row)

    def _free(self, row: Record) -> Awaitable[Record]:
        """Release *row* after a cancellation: a request that was sent may still take effect."""
        state = RecordState.UNKNOWN if self.in_flight else self._judged(row, RecordState.NOT_SENT)
        resolution = Resolution(state=state, reason="cancelled", in_flight=self.in_flight)
        return self.journaling.journal.resolve(row.key, resolution, owner=row.owner)

    async def carry_on(self, row: Record, since: Moment) -> Outcome:
        """Send the request in *row*, as its owner since the moment *since*, and keep the outcome."""
        age = row.updated - (row.first_kept or row.updated)
        self.row, self.held_since, self.first_kept = row, since, (since[0] - age, since[1] - age)
        self.in_doubt = row.state is RecordState.SENT
        try:
            if not self.begun:
                with suppress(PaymentsError):  # Without the time, the gate stays closed and gives the reason.
                    await self.journaling.learn_time(self.engine)
            outcome, resolution = await self._attempts(row)
            if resolution.state is _DONE:
                # `DONE` replaces every other state, so this write cannot be rejected.
                write = partial(self.journaling.journal.resolve, row.key, resolution, owner=row.owner)
                self.journaling.write_later(row.key, write)
                return outcome
            resolution = structs.replace(resolution, state=self._judged(row, resolution.state))
            # A record that was begun a moment ago is left to recovery, so that its caller does not wait for more reads.
            if resolution.state is RecordState.UNKNOWN and self.barred and not self.begun:
                resolution = await self._look_up(row) or resolution
        except BaseException:
            # Usually a cancellation, which must not wait for a write.
            self.journaling.write_later(row.key, partial(self._free, row))
            raise
        return await self._settle(row, resolution, outcome)

    async def _attempts(self, row: Record) -> tuple[Outcome, Resolution]:
        """Make the attempts, with the kept bytes and key; return their outcome and the resolution of the row."""
        intent, operation = self.intent, self.intent.operation
        # An owner that took the record over cannot know what was sent with its key.
        intent = structs.replace(
            intent,
            content=intent.content if row.body is None else row.body,
            key=row.key if operation.keyed else None,
            has_own_key=operation.keyed and not self.begun,
        )
        call = self.engine.call_for(intent, self)
        try:
            result = await (observed(call, call.run) if self.engine.settings.observers else call.run())
        except PaymentsError as error:
            resolution = resolution_of(call, row, error)
            return Outcome(resolution.state, row, error=error, attempts=call.attempts), resolution
        return Outcome(_DONE, row, result=result), resolution_of(call, row, result)

    async def why_not(self, call: Call[Any, Any]) -> str | None:
        """See `Gate.why_not`."""
        clock, credential, settings = call.state.clock, call.credential, call.settings
        moment = clock.monotonic(), clock.now()
        # The attempt counts in full: a request that our deadline cuts off may still arrive later.
        seconds = max(call.deadline.when - moment[0], settings.timeout.attempt or 0.0)
        if not self.covers(seconds, moment):
            try:
                reason = await call.deadline.bound(self.renew(seconds))
            except Expired as expired:
                reason = f"{expired} while the journal was asked"
            if reason is not None:
                return reason
            moment = clock.monotonic(), clock.now()  # The machine may have been suspended meanwhile.
        seller = user_id(credential.token) if credential.signer is None else settings.account
        reason = self.bars(seconds, seller or "", moment)
        call.send_within = self.left
        return reason

    def covers(self, seconds: float, moment: Moment) -> bool:
        """Return whether an attempt that takes up to *seconds* from *moment* on ends within the lease.

        Otherwise another owner could receive a rejection while this attempt still succeeds.
        """
        return self.lease - elapsed(self.held_since, moment) >= seconds

    async def renew(self, seconds: float) -> str | None:
        """Renew the lease for an attempt of *seconds*; return why that failed, or ``None``."""
        clock, lease, row = self.journaling.platform_clock, max(self.lease, 2 * seconds), self.row
        requested_at = clock.moment()
        try:
            now = await self.journaling.journal.renew(row.key, owner=row.owner, lease=lease)
        except Exception as error:  # noqa: BLE001 - a caller's journal must not hide an attempt in doubt
            return f"its lease could not be renewed: {_reason(error)}"
        if now.owner != row.owner:
            return "another process has taken it over"
        self.held_since, self.lease = requested_at, lease
        return None if self.covers(seconds, clock.moment()) else "renewing its lease took too long"

    def bars(self, seconds: float, seller: str, moment: Moment) -> str | None:
        """Return why no attempt of up to *seconds* with a token of *seller* may begin at *moment*, or ``None``."""
        row = self.row
        if row.seller != seller:  # The platform keeps the keys of each seller apart: it would be a second write.
            return "the token belongs to another seller"
        if not self.begun and not self.journaling.platform_clock.is_fresh(moment):
            return "no response has given the platform's time in the last 5 minutes"
        stored, now = elapsed(self.first_kept, moment), self.journaling.platform_clock.at(moment)
        dated = now - row.begun if row.is_dated and now is not None else stored
        if self.begun:  # The age is known: a platform clock that went back must not stop a new record.
            dated = max(dated, stored)
        self.left = row.not_after - row.begun - max(stored, dated)
        self.barred = states.barred(row, stored, dated)
        if not self.barred:
            self.in_flight = max(self.in_flight, seconds)
        return self.barred or None

    def _judged(self, row: Record, state: RecordState) -> RecordState:
        """Return the state of *row* after its attempts have ended in *state*."""
        if state in states.WITHOUT_TRACE and row.state is RecordState.SENT:
            return RecordState.UNKNOWN  # One write before sending cannot tell "about to send" from "sent".
        if state is not RecordState.NOT_SENT:
            return state
        if self.barred == states.TOO_LATE:
            return RecordState.EXPIRED
        return RecordState.DEFERRED if self.defer else state

    async def _look_up(self, row: Record) -> Resolution | None:
        """Read whether *row*, which is too old to be sent, took effect; return ``None`` if the reads do not show it."""
        engine, operation, moment = self.engine, self.intent.operation, self.journaling.platform_clock.moment()
        now = self.journaling.platform_clock.at(moment)
        if operation.look_up is None or now is None:
            return None
        begun = row.begun if row.is_dated else now - elapsed(self.first_kept, moment)
        not_after, body = row.not_after - row.begun + begun, self.intent.content if row.body is None else row.body
        dated = structs.replace(row, begun=begun, not_after=not_after, is_dated=True, body=body)
        # A copy, so that `with_result` does not collect these reads.
        reader = Engine(engine.runtime, engine.settings)
        try:
            result = await operation.look_up(reader, dated, self._others)
        except Exception as error:  # noqa: BLE001 - a look-up of a caller's operation may raise anything
            events.logger.warning("%s %s could not be looked up: %s", row.operation, row.name, describe(error))
            return None
        if result is None or isinstance(result, Resolution):
            return result
        content = result if isinstance(result, bytes) else msgspec.json.encode(result)
        response = StoredResponse(operation.status, {}, content)
        return Resolution(state=_DONE, reason="seen by a read", response=response)

    async def _others(self, *, path: str = "", containing: bytes = b"") -> list[Record]:
        """Return the seller's other records that may have taken effect: see `Operation.look_up`.

        Raises:
            RequestInvalid: The journal cannot show all of them.
        """
        row = self.row
        rows = await self.journaling.journal.records(_EFFECTIVE, limit=_MOST, path=path, containing=containing)
        if len(rows) >= _MOST:
            raise RequestInvalid("journal", "has too many records that may have had the same effect")
        rivals = [rival for rival in rows if rival.seller == row.seller and rival.key != row.key]
        if not all(map(states.is_readable, rivals)):
            raise RequestInvalid("journal", "has a row that cannot be read: it may have had the same effect")
        return [
            rival
            for rival in rivals
            if rival.base_url == row.base_url
            and path in ("", rival.path)
            and (rival.body is None or containing in rival.body)
        ]

    async def _settle(self, row: Record, resolution: Resolution, outcome: Outcome) -> Outcome:
        """Keep *resolution*, and return the outcome for the caller."""
        try:
            now = await self.journaling.journal.resolve(row.key, resolution, owner=row.owner)
        except Exception as error:  # noqa: BLE001 - a caller's journal must not hide an attempt in doubt
            # The row is still open: recovery could send it later, although the caller believes that it is over.
            unknown = outcome.error if outcome.state is RecordState.UNKNOWN else None
            reason = f"{resolution.reason}; {_reason(error)}"
            return Outcome(RecordState.UNKNOWN, row, reason, error=unknown, attempts=outcome.attempts)
        if now.state in states.HELD:
            raise _about(now, InProgress(row.name))
        is_own = now.state is resolution.state
        raised = outcome.error if is_own and now.state not in (_DONE, RecordState.DEFERRED) else None
        return Outcome(now.state, now, now.reason, is_own=is_own, error=raised, attempts=outcome.attempts)


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, JournalUnavailable) else describe(error)


def _about(row: Record, error: RecordConflict | InProgress) -> RecordConflict | InProgress:
    error.operation, error.idempotency_key = row.operation, row.key
    return error
