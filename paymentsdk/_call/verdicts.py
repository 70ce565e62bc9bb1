"""What one attempt came to, what that means for the call, and which error is true in the end.

`next_step` applies the table of `_contract/rules.py`. `final_error` has every sentence about money.
"""

from __future__ import annotations

import asyncio
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from paymentsdk._codec.anomaly import DecodingError
from paymentsdk._contract.error_response import has_object, parse_error_response
from paymentsdk._contract.rules import (
    CANCELLED,
    KEY_LIFETIME,
    MAX_UNSETTLED,
    TABLE,
    Failure,
    Settles,
    Verdict,
    classify_response,
    is_in_progress,
    settles,
    settles_read,
)
from paymentsdk._validate import check_bool, check_seconds, check_within
from paymentsdk.errors import (
    APIError,
    ClientClosed,
    NoAnswer,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RequestInvalid,
    describe,
    visible,
)
from paymentsdk.transports.base import UNSENT, PoolFull, Response, SendFailed, header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paymentsdk._clock import Clock
    from paymentsdk._contract.operation import Operation
    from paymentsdk._contract.rules import RetryClass

B = TypeVar("B")
R = TypeVar("R")

_BAD_REQUEST = 400
_MOST_ATTEMPTS = 20
#: Errors that kept a request from being made, and that the caller gets as they are.
OWN_ERRORS = (RequestInvalid, ReauthorizationRequired, RefreshFailed, ClientClosed)


# --- the outcome of one attempt, if it is no `Result` ----------------------------------------------------------------


class Failed(Struct, frozen=True, eq=False, kw_only=True):
    """An attempt that brought no result."""

    kind: Failure
    reason: str
    """In words, without credentials."""
    response: Response | None = None
    timed_out: bool = False
    """Whether our own deadline ended it."""
    permanent: bool = False
    """Whether another attempt would fail the same way."""
    attempted: bool = True
    """Whether observers were told of a request; without a token, or on a closed client, none is made."""
    retry_after: float = 0.0
    """Seconds that the platform asked to wait; 0 if it did not."""
    settles: Settles = Settles.NONE
    """Which attempts had no effect, as the response says."""


class Rejected(Failed, frozen=True, eq=False, kw_only=True):
    """The platform responded with an error."""

    error: APIError
    in_progress: bool
    """Whether something is under way under the key, or on the thing: of a keyed write."""


class Unanswered(Failed, frozen=True, eq=False, kw_only=True):
    """The request was sent, and there is no response that can be trusted."""

    kind: Failure = Failure.NO_TRUSTED_RESPONSE


class Unsent(Failed, frozen=True, eq=False, kw_only=True):
    """No byte of the request left the machine."""

    kind: Failure = Failure.NOT_SENT
    cause: PaymentsError | None = None
    """What kept the request from being sent, if it was an error of its own."""
    pool_full: bool = False
    """Whether it waited in vain for a connection of the transport."""


class Stopped(Exception):  # noqa: N818 - it never leaves the call
    """Carries the *outcome* of an attempt out of a step before the request is sent."""

    def __init__(self, outcome: Failed) -> None:
        self.outcome = outcome


def not_attempted(reason: str, cause: PaymentsError | None = None) -> Stopped:
    """No request was made, nor would the next attempt make one."""
    return Stopped(Unsent(reason=reason, cause=cause, permanent=True, attempted=False))


def client_closed() -> Stopped:
    """Nothing is sent any more, since the client was closed."""
    closed = ClientClosed("the client was closed")
    return not_attempted(str(closed), closed)


def no_token(error: Exception) -> Stopped:
    """Nothing was sent, since the source of tokens raised *error*."""
    reason = describe(error)
    cause = _own(error) if isinstance(error, PaymentsError) else None
    if not isinstance(cause, OWN_ERRORS):
        cause = RefreshFailed(reason, cause)
    return not_attempted(f"no token: {reason}", cause)


def not_signed(error: Exception) -> Stopped:
    """Nothing was sent: the request could not be signed, for the reason in *error*."""
    cause = _own(error) if isinstance(error, OWN_ERRORS) else None
    return Stopped(Unsent(reason=f"the request could not be signed: {describe(error)}", cause=cause, permanent=True))


def _own(error: PaymentsError) -> PaymentsError:
    """Return a copy of *error* for one call: the same error may be raised to all that wait."""
    own = copy(error.with_traceback(None))
    if isinstance(own, APIError):
        own.settled = False  # It was said of the refresh.
    return own


def cut_off(error: BaseException, reason: str, *, timed_out: bool = False) -> Failed:
    """Return the outcome of an attempt that *error* ended: a request in the queue of the transport was not sent."""
    is_unsent = getattr(error, UNSENT, False)
    return Unsent(reason=reason, timed_out=timed_out) if is_unsent else Unanswered(reason=reason, timed_out=timed_out)


def interrupted(error: BaseException) -> str:
    """Return the reason of an attempt that *error* ended: the caller has cancelled it, or the program ends."""
    return CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def no_response(error: BaseException, ran_out: str | None, *, cancelled: bool) -> Failed | None:
    """Return what it means that `send` raised *error*; `None` if that has nothing to do with the request.

    Args:
        error: What the transport has raised.
        ran_out: Which bound of time ended the wait, if one did.
        cancelled: Whether the task has ever been cancelled.
    """
    expired = ran_out is not None
    match error:
        case SendFailed():
            error.__traceback__ = None  # By the frames of the transport it may hold itself, and the connection.
            # The transport may have made our cancellation a failure of its own.
            reason, permanent = error.reason, error.permanent
            if error.sent:
                return Unanswered(reason=reason, permanent=permanent, timed_out=expired)
            full = isinstance(error, PoolFull)
            return Unsent(reason=reason, permanent=permanent, timed_out=expired, pool_full=full)
        case asyncio.CancelledError() if ran_out is not None:
            return cut_off(error, ran_out, timed_out=True)
        case asyncio.CancelledError() if not cancelled:
            # Of a task of the transport's own. Raised here, it would end ours without a word about the money.
            return Unanswered(reason="the transport raised CancelledError for no cancellation")
        case ClientClosed():
            return Unsent(reason=str(error), cause=_own(error), permanent=True)
        case Exception():
            return Unanswered(reason=f"the transport raised {describe(error)}", timed_out=expired)
        case _:
            return None


def not_decoded(response: Response, error: Exception) -> Unanswered:
    """A response came, and reading it raised *error*."""
    reason = error if isinstance(error, DecodingError) else f"reading it raised {describe(error)}"
    return Unanswered(reason=f"HTTP {response.status}, but {reason}", response=response)


def error_response(
    operation: Operation[B, R], response: Response, secrets: Sequence[str], *, random_key: bool
) -> Rejected | Unanswered:
    """Return what an error *response* means; *random_key* says that no earlier call can have sent the key."""
    try:
        error = parse_error_response(operation, response, secrets)
    except Exception as cause:  # noqa: BLE001 - a transport of one's own may return a body that is no bytes
        return not_decoded(response, cause)
    status, codes = response.status, error.codes
    kind = classify_response(operation.errors, status, error.code, codes)
    proof = settles_read(status)
    if operation.writes:
        with_object = has_object(response)
        proof = settles(operation.errors, status, codes, kind, random_key=random_key, has_object=with_object)
    busy = operation.keyed and proof is not Settles.ALL and is_in_progress(kind, codes)
    wait = error.retry_after or 0.0
    return Rejected(
        kind=kind, reason=str(error), response=response, retry_after=wait, settles=proof, error=error, in_progress=busy
    )


# --- all attempts of a call so far -----------------------------------------------------------------------------------


class History(Struct, eq=False):
    """What the failures of one call have shown so far: what the verdicts depend on."""

    ambiguous_attempts: int = 0
    """Attempts after which it is unknown whether the operation took effect."""
    first_reason: str | None = None
    """What happened at the first of them."""
    unsettled: int = 0
    """How often the platform responded with a 4xx that does not settle the write."""
    first_sent: tuple[float, float] | None = None
    """When the first request may have left: on the monotonic clock, and in seconds since the epoch."""
    timed_out_from: float | None = None
    """When the last attempt began that our own deadline cut, on the monotonic clock."""

    @classmethod
    def begun(cls, first_sent_at: float | None, clock: Clock) -> History:
        """Return the history of a call whose request another call may have sent.

        Args:
            first_sent_at: When that call sent the key, in seconds since the epoch; `None` if nobody knows.
            clock: Tells how long ago that was.
        """
        if first_sent_at is not None:
            sent = clock.monotonic() - max(0.0, clock.now() - first_sent_at), first_sent_at
            return cls(ambiguous_attempts=1, first_reason="it was sent before this call", first_sent=sent)
        return cls(ambiguous_attempts=1, first_reason="it may have been sent before this call")

    def key_lasts(self, clock: Clock) -> float:
        """Return the seconds until the platform may have forgotten the key: then it would do the same once more."""
        if self.first_sent is None:
            return KEY_LIFETIME
        monotonic, timestamp = self.first_sent
        # While a machine is suspended, its monotonic clock may stand still.
        return KEY_LIFETIME - max(clock.monotonic() - monotonic, clock.now() - timestamp)

    def record(self, failure: Failed, monotonic: float, timestamp: float) -> None:
        """Take into account the *failure* of an attempt that began then."""
        if not isinstance(failure, Unsent):
            self.first_sent = self.first_sent or (monotonic, timestamp)
            self.timed_out_from = monotonic if failure.timed_out else self.timed_out_from
        if failure.kind in (Failure.CONFLICT, Failure.CLIENT_ERROR) and failure.settles is not Settles.ALL:
            self.unsettled += 1
        is_in_progress = isinstance(failure, Rejected) and failure.in_progress
        if is_in_progress or failure.kind in (Failure.NO_TRUSTED_RESPONSE, Failure.SERVER):
            self.ambiguous_attempts += 1
            self.first_reason = self.first_reason or failure.reason


# --- what follows ----------------------------------------------------------------------------------------------------


class RetryPolicy(Struct, frozen=True):
    """When a failed call is tried again. All times are in seconds."""

    attempts: int = 4
    """The most requests that one call sends, 1 to 20; 1 turns retries off. One repetition per call with a refreshed
    token does not count, nor does an attempt that waited in vain for a connection of the pool: with retries, the call
    waits again until its total timeout."""
    base_delay: float = 0.5
    """Before attempt n + 1 the client pauses for a random time from 0 to `min(max_delay, base_delay * 2**(n - 1))`;
    0 to 86,400."""
    max_delay: float = 8.0
    """The upper bound of that time; 0 to 86,400."""
    max_retry_after: float = 30.0
    """The longest pause that the client keeps when the platform asks for one; the random pause comes on top. If the
    platform asks for more, the call fails at once, with that pause in `retry_after` of its error, or of the
    `last_error` of an `OutcomeUnknown`; 0 to 86,400."""
    retry_unkeyed: bool = False
    """When no response came, also send a write again that takes no idempotency key (a preference, a customer). The
    object can then exist twice. After a 5xx, a 408 or a 424 such a write is never sent again."""

    def __post_init__(self) -> None:
        check_within("retry.attempts", self.attempts, 1, _MOST_ATTEMPTS)
        for name in ("base_delay", "max_delay", "max_retry_after"):
            check_seconds(f"retry.{name}", getattr(self, name), zero=True)
        check_bool("retry.retry_unkeyed", self.retry_unkeyed)


def next_step(rule: RetryClass, failure: Failed, history: History, policy: RetryPolicy) -> Verdict:
    """Return what follows *failure*, which *history* has noted already.

    That is ``RETRY``, if the policy, the deadline and the budget allow it, ``REFRESH``, if there can be another token,
    or ``STOP``.
    """
    verdict = TABLE[rule][failure.kind]
    if verdict is not Verdict.REFRESH and (failure.permanent or failure.retry_after > policy.max_retry_after):
        return Verdict.STOP
    match verdict:
        case Verdict.ONCE:
            may_retry = history.ambiguous_attempts == 1
        case Verdict.IF_UNSETTLED:
            is_open = history.ambiguous_attempts > 0 and failure.settles is not Settles.ALL
            may_retry = is_open and history.unsettled <= MAX_UNSETTLED
        case Verdict.IF_ASKED:
            may_retry = policy.retry_unkeyed
        case _:
            return verdict
    return Verdict.RETRY if may_retry else Verdict.STOP


# --- the end ---------------------------------------------------------------------------------------------------------


def final_error(
    operation: Operation[B, R],
    last: Failed,
    history: History,
    *,
    own_key: bool,
    journaled: bool,
) -> PaymentsError:
    """Return the one error that is true of a call, with what its attempts have shown.

    Args:
        operation: What was to be done.
        last: The last outcome.
        history: What all outcomes have shown.
        own_key: Whether the key is the caller's own: an earlier call may have sent it.
        journaled: Whether recovery sends the write again while it is not settled: it must not pass for rejected.
    """
    error = _true_error(operation, last, history, own_key=own_key)
    if journaled and isinstance(error, APIError) and not error.settled:
        error = OutcomeUnknown(_reason(last))
    # The traceback begins here: the frames below hold credentials.
    error = error.with_traceback(None)
    error.operation = operation.name
    if last.response is not None:
        error.request_id = header(last.response.headers, "X-Request-Id")
    if isinstance(error, NoAnswer):
        error.first_reason = history.first_reason or last.reason
        if isinstance(last, Rejected):
            error.last_error = last.error
        elif isinstance(last, Unsent):
            error.last_error = last.cause
        if history.first_sent is not None:
            _, timestamp = history.first_sent
            error.first_sent_at = datetime.fromtimestamp(timestamp, UTC)
    if isinstance(error, OutcomeUnknown):
        error.in_doubt = operation.in_doubt
    return error


def _true_error(operation: Operation[B, R], last: Failed, history: History, *, own_key: bool) -> PaymentsError:
    """Return the outcome as one of the three of `paymentsdk.errors`, or what kept the call from being made."""
    rejection = last.error if isinstance(last, Rejected) else None
    ambiguous = history.ambiguous_attempts > 0 and last.settles is not Settles.ALL
    # A redirect is not a rejection: the server may have processed the request first.
    is_redirect = rejection is not None and rejection.status < _BAD_REQUEST
    if operation.writes and (ambiguous or is_redirect):
        return OutcomeUnknown(_reason(last))
    if rejection is not None:
        rejection.settled = last.settles is Settles.ALL or (last.settles is Settles.THIS and not own_key)
        return rejection
    cause = last.cause if isinstance(last, Unsent) else None
    # No other rejection of a token refresh: a caller would take it for what the platform says of the request.
    if isinstance(cause, ReauthorizationRequired):
        cause.settled = operation.writes and not own_key
    if isinstance(cause, OWN_ERRORS):
        return cause
    # It is no write in doubt. "Not sent" would be wrong of a read if an earlier attempt was sent.
    is_unsent = isinstance(last, Unsent) and not history.ambiguous_attempts
    return NotSent(last.reason) if is_unsent else NoAnswer(last.reason)


def _reason(last: Failed) -> str:
    """Return why a write stays in doubt; for a 4xx in a form that a program can read."""
    if not isinstance(last, Rejected) or last.error.status < _BAD_REQUEST or last.kind is Failure.SERVER:
        return last.reason
    return f"platform_error:{visible(last.error.code or str(last.error.status))}"
