"""Journaled writes (`once=`): the record is durable before the first byte, and closed by what came of it.

That a write is done is recorded after the caller knows: to lose it costs one replay. All else is recorded before.

`journal/_call.py` decides, without HTTP; here a `Call` makes its attempts, and what the record says becomes a result or
an error. In order, for a call of a caller (a recovery begins with `OnceCall.run`, and goes on with `carry_on`):

    call_once                   check what the caller gives, and make the record with its derived key
    OnceCall.run                wait until no other call of this client works on the record
    JournaledCall.run           begin the record: is it to be sent, or does it say what became of it?
    JournaledCall.carry_on      hold the lease, learn the platform's time for what another call has begun, have it sent
    OnceCall._send              give the `Call` the kept bytes and the key; `Call.run` makes the attempts
    JournaledCall._may_send     before each: does the lease cover it, and is it in time?
    JournaledCall._close        keep what came of it; that it is done is written later
    OnceCall.result             what the caller is told
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct, structs

from paymentsdk._call import events
from paymentsdk._call.credential import user_id
from paymentsdk._call.events import observed
from paymentsdk._call.response import Result
from paymentsdk._call.verdicts import History
from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.type_walk import can_hold_secrets
from paymentsdk._contract.error_response import parse_error_response, read_scrubbed
from paymentsdk._contract.rules import KEY_LIFETIME, TURNED_AWAY, classify_response
from paymentsdk._secrets import MASK, secrets_in
from paymentsdk._validate import check_bool, plain_duration, plain_moment
from paymentsdk.errors import APIError, Deferred, NotSent, OutcomeUnknown, PaymentsError, RequestInvalid
from paymentsdk.journal import _states as states
from paymentsdk.journal._call import JournaledCall, Journaling, Learn, Look, MaySend, Moment, RecordOutcome
from paymentsdk.journal._journal import RecordResolved, derive_key
from paymentsdk.journal._states import Record, RecordState, Resolution, StoredResponse
from paymentsdk.transports.base import Response, header

if TYPE_CHECKING:
    from paymentsdk._call.call import Call

B = TypeVar("B")
R = TypeVar("R")

#: Seconds for which a record is held, at least: a process that dies blocks its records for that long.
LEASE = 60.0
#: What is kept of the header fields of a response; others may hold credentials.
_KEPT_HEADERS = ("Content-Type", "Date", "X-Request-Id")
#: The reason of a record that is done, and whose response does not stand in the journal as it came.
_MASKED = f"the response repeats a credential; {MASK} was kept in its place"


async def call_once(
    call: Call[B, R],
    once: str | None,
    seller_of: Callable[[], Awaitable[str]],
    learn_time: Learn,
    *,
    not_after: datetime | timedelta | None,
    defer: bool,
) -> Result[R]:
    """Carry out *call* as the record *once* of its seller, unless the record says what became of it."""
    operation, journaling = call.operation, call.state.journaling
    check_bool("defer", defer)
    if once is None:
        raise RequestInvalid("once", "must name the record that not_after and defer are about")
    if not operation.writes:
        raise RequestInvalid("once", f"{operation.name} changes nothing: there is nothing to keep")
    if not operation.authenticated:
        raise RequestInvalid("once", f"{operation.name} is sent without a token: its record would be of no seller")
    if call.intent.has_own_key or call.settings.idempotency_key is not None:
        raise RequestInvalid("once", "excludes idempotency_key, which is derived from it")
    if journaling is None:
        raise RequestInvalid("once", "needs a journal: PaymentsClient(journal=SQLiteJournal(...))")
    if defer and _is_sensitive(call) and not getattr(journaling.journal, "seals", True):
        # It would be told `Deferred`, and nobody could ever send it.
        raise RequestInvalid("defer", "needs a journal with a seal: the body holds credentials, and would not be kept")
    if call.settings.timeout.attempt is None:
        raise RequestInvalid("timeout.attempt", "must be bounded for a journaled call: its lease has to outlive it")
    once = str.__str__(once) if isinstance(once, str) else once  # A subclass could not be kept.
    record = _record(call, journaling, once, await seller_of(), not_after)
    made = OnceCall(call, journaling)
    return made.result(await made.run(record, learn_time, defer=defer))


def _record(
    call: Call[B, R], journaling: Journaling, once: str, seller: str, not_after: datetime | timedelta | None
) -> Record:
    settings, operation = call.settings, call.operation
    intent = call.intent
    now = journaling.platform_clock.now()
    begun = call.state.clock.now() if now is None else now
    return Record(
        key=derive_key(settings.base_url, seller, operation.name, once),
        name=once,
        operation=operation.name,
        base_url=settings.base_url,
        seller=seller,
        account=settings.account,
        path=intent.target,
        headers=intent.headers or {},
        body=intent.content,
        digest=states.digest(operation.method, intent.target, intent.content),
        sensitive=_is_sensitive(call),
        keyed=operation.keyed,
        begun=begun,
        not_after=_not_after(call, begun, not_after),
        is_dated=now is not None,
        owner=journaling.owner(),
    )


def _lease(call: Call[B, R]) -> float:
    """Return the seconds for which a call holds its record."""
    return max(LEASE, 2 * (call.settings.timeout.attempt or 0.0))


def _is_sensitive(call: Call[B, R]) -> bool:
    return can_hold_secrets(call.intent.body) and any(secrets_in(call.intent.body))


def _not_after(call: Call[B, R], begun: float, given: datetime | timedelta | None) -> float:
    """Return the moment from which the record is not sent any more, on the clock of *begun*."""
    declared = call.operation.resend_window
    if given is not None:
        window = given
    elif declared is None or isinstance(declared, timedelta):
        seconds = (call.settings.timeout.total or KEY_LIFETIME) if declared is None else declared.total_seconds()
        # If the process dies, recovery has half a lease left after that has ended.
        return states.not_after(begun, max(seconds, 1.5 * _lease(call)))
    else:
        window = declared(call.intent.body)
    if (length := plain_duration(window)) and (seconds := length.total_seconds()) > 0:
        return states.not_after(begun, seconds)
    if (moment := plain_moment(window)) and moment.utcoffset() is not None:
        return min(moment.timestamp(), states.not_after(begun, KEY_LIFETIME))
    raise RequestInvalid("not_after", "must be a timedelta above 0, or a datetime with its offset")


class _Gate(Struct):
    """Asks the journal before each attempt."""

    drive: JournaledCall
    may_send: MaySend
    in_doubt: bool = False
    left: float = inf

    async def why_not(self, seconds: float, seller: str) -> str | None:
        """See `Gate`."""
        del seller
        reason = await self.may_send(seconds)
        self.left = self.drive.left
        return reason


class OnceCall(Generic[B, R]):
    """A `Call` that is made for a record, and what its caller is told in the end."""

    def __init__(self, call: Call[B, R], journaling: Journaling) -> None:
        self._call = call
        self._journaling = journaling
        self._observing = False
        self._result: Result[R] | None = None
        self._error: PaymentsError | None = None

    async def run(
        self, record: Record, learn: Learn, *, defer: bool, since: Moment | None = None, look: Look | None = None
    ) -> RecordOutcome:
        """Carry out a new *record*, or one that recovery has taken over *since* a moment."""
        journaling, settings, recovered = self._journaling, self._call.settings, since is not None
        # Nobody else tells the observers when a call of a recovery begins and ends.
        self._observing = recovered and bool(settings.observers)
        # What recovery has taken over, it has for a lease of that length, whatever its attempts may take.
        lease = LEASE if recovered else _lease(self._call)
        later = partial(journaling.write_later, record.key)
        clock, unheard = journaling.platform_clock, journaling.unheard
        drive = JournaledCall(
            journaling.journal, clock, self._seller, lease, later, defer, look, unheard, partial(learn, clock)
        )
        mine = await journaling.acquire(record.key)
        try:
            send = partial(self._send, drive)
            outcome = await (drive.run(record, send) if since is None else drive.carry_on(record, send, since=since))
        finally:
            journaling.release(record.key, mine)
        if settings.observers and (outcome.own or recovered):
            row, now = outcome.record, journaling.platform_clock.now()
            event = RecordResolved(
                account=row.account,
                operation=row.operation,
                name=row.name,
                idempotency_key=row.key,
                state=outcome.state,
                age=max(0.0, (now or row.begun) - row.begun),
                recovered=recovered,
            )
            events.notify(event, settings.observers)
        return outcome

    def _seller(self) -> str:
        credential = self._call.credential
        return (user_id(credential.token) if credential.signer is None else self._call.settings.account) or ""

    async def _send(self, drive: JournaledCall, row: Record, may_send: MaySend) -> Resolution:
        """Send the kept bytes of *row* with its key."""
        call = self._call

        content = call.intent.content if row.body is None else row.body
        call.gate, call.intent = _Gate(drive, may_send), structs.replace(call.intent, content=content)
        if call.operation.keyed:
            # Whoever takes a record over cannot know what was sent with its key.
            call.intent = structs.replace(call.intent, key=row.key, has_own_key=not drive.begun)
        if row.state is RecordState.SENT:
            call.history = History(ambiguous_attempts=1, first_reason="it may have been sent before this call")
        try:
            self._result = result = await (observed(call, call.run()) if self._observing else call.run())
        except PaymentsError as error:
            self._error = error
            return _resolution(error, call)
        finally:
            # It leads back to this call: what thousands of calls leave behind would wait for the garbage collector.
            call.gate = None
        secrets = call.credential.secrets(call.intent.body) if row.sensitive else ()
        response = _stored(result.status, result.headers, result.raw, secrets)
        if response.body == result.raw:
            return Resolution(state=RecordState.DONE, response=response)
        try:
            call.operation.decode(response.body)
        except Exception:  # noqa: BLE001 - one of digits may have stood inside a number: then nothing can be told again
            return Resolution(state=RecordState.DONE, reason=_MASKED)
        return Resolution(state=RecordState.DONE, reason=_MASKED, response=response)

    def result(self, outcome: RecordOutcome) -> Result[R]:
        """Return the result that the record stands for.

        Raises:
            PaymentsError: Whatever it stands for besides a result.
        """
        if outcome.own and outcome.state is RecordState.DONE and self._result is not None:
            return self._result
        is_own = outcome.own and outcome.state not in (RecordState.DONE, RecordState.DEFERRED)
        error = (self._error if is_own else None) or self._kept_error(outcome)
        if error is None:
            try:
                return self._kept_result(outcome.record)
            except ValueError as unreadable:  # By what the operation is declared to return now.
                error = OutcomeUnknown(f"it is done; its response cannot be read: {unreadable}")
        operation, row = self._call.operation, outcome.record
        error.operation, error.idempotency_key = operation.name, row.key if row.keyed else None
        error.attempts = self._call.attempts
        if isinstance(error, OutcomeUnknown):
            error.in_doubt, error.once = operation.in_doubt, row.name
        self._error = None
        try:
            raise error.with_traceback(None)
        finally:
            del error  # As in `Call.run`.

    def _kept_error(self, outcome: RecordOutcome) -> PaymentsError | None:
        row, reason = outcome.record, outcome.reason or outcome.record.reason
        match outcome.state:
            case RecordState.DONE:
                return None if row.response is not None else OutcomeUnknown("it is done; its response was not kept")
            case RecordState.DEFERRED:
                return Deferred(row.name, self._error.reason if isinstance(self._error, NotSent) else reason)
            case RecordState.REFUSED if row.response is not None:
                secrets = self._call.credential.secrets(self._call.intent.body)
                error = parse_error_response(self._call.operation, Response(*structs.astuple(row.response)), secrets)
                error.settled = True
                return error
            case RecordState.REFUSED:
                return OutcomeUnknown(f"it was rejected; its response was not kept: {reason}")
            case RecordState.NOT_SENT | RecordState.EXPIRED:
                return NotSent(reason or "its time was over before anything was sent")
            case _:
                return OutcomeUnknown(reason or f"the record is {outcome.state.value}")

    def _kept_result(self, row: Record) -> Result[R]:
        response = row.response or StoredResponse(0)
        value, anomalies = self._call.operation.decode(response.body)
        if row.reason == _MASKED:
            events.anomalies_found(row.operation, masked := (Anomaly("$", MASK, _MASKED),))
            anomalies += masked
        return Result(
            value=value,
            status=response.status,
            headers=response.headers,
            attempts=0,
            elapsed=self._call.state.clock.monotonic() - self._call.started,
            anomalies=anomalies,
            raw=response.body,
            idempotency_key=row.key if row.keyed else None,
            kept_at=datetime.fromtimestamp(row.updated, UTC),
        )


def _resolution(error: PaymentsError, call: Call[B, R]) -> Resolution:
    """Say what the end of a call means for its record."""
    if isinstance(error, OutcomeUnknown):
        return Resolution(state=RecordState.UNKNOWN, reason=error.reason, in_flight=_in_flight(call))
    # Without a response, an `APIError` is of the refresh of the token.
    if isinstance(error, APIError) and (last := call.last_response) is not None:
        kind = classify_response(call.operation.errors, error.status, error.code, error.codes)
        if kind not in TURNED_AWAY:
            response = _stored(last.status, last.headers, last.body, call.credential.secrets(call.intent.body))
            reason, in_flight = str(error), _in_flight(call)
            return Resolution(state=RecordState.REFUSED, reason=reason, response=response, in_flight=in_flight)
    return Resolution(state=RecordState.NOT_SENT, reason=str(error))


def _in_flight(call: Call[B, R]) -> float:
    """Return the seconds for which an attempt that timed out may still take effect: in all, twice as long as it had.

    0 if there was none, or if the last attempt began after that.
    """
    timed_out_from = call.history.timed_out_from if call.history is not None else None
    if timed_out_from is None:
        return 0.0
    end = timed_out_from + 2 * (call.settings.timeout.attempt or call.settings.timeout.total or 0.0)
    return 0.0 if call.sending >= end else max(end - call.state.clock.monotonic(), 1.0)


def _stored(status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> StoredResponse:
    """Return what is kept of a response: without *secrets*, where it repeats them."""
    kept = {name: value for name in _KEPT_HEADERS if (value := header(headers, name)) is not None}
    return StoredResponse(status, kept, read_scrubbed(bytes(body), secrets)[1] if secrets else bytes(body))
