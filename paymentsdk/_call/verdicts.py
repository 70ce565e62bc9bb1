"""The outcome of one attempt, its meaning for the call, and the error that is true in the end.

`next_step` applies the table of `_contract/rules.py`. `final_error` makes every statement about money.
"""

from __future__ import annotations

import asyncio
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from paymentsdk import errors
from paymentsdk._codec.anomaly import DecodingError
from paymentsdk._contract import rules
from paymentsdk._contract.error_response import has_object, parse_error_response
from paymentsdk._contract.rules import Failure, Settles, Verdict
from paymentsdk._validate import check_bool, check_seconds, check_within
from paymentsdk.errors import APIError, NoAnswer, NotSent, OutcomeUnknown, PaymentsError
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
#: Errors that kept a request from being made. The caller gets them unchanged.
OWN_ERRORS = (errors.RequestInvalid, errors.ReauthorizationRequired, errors.RefreshFailed, errors.ClientClosed)


# --- the outcome of one attempt, if it is not a `Result` -------------------------------------------------------------


class Failed(Struct, frozen=True, eq=False, kw_only=True):
    """An attempt without a result."""

    kind: Failure
    reason: str
    """The reason in words, without credentials."""
    response: Response | None = None
    timed_out: bool = False
    """Whether our own deadline ended it."""
    permanent: bool = False
    """Whether another attempt would fail in the same way."""
    attempted: bool = True
    """Whether observers were told of a request. Without a token, or on a closed client, no request begins."""
    retry_after: float = 0.0
    """Seconds that the platform asked to wait. 0 if it did not ask."""
    settles: Settles = Settles.NONE
    """Which attempts had no effect, according to the response."""


class Rejected(Failed, frozen=True, eq=False, kw_only=True):
    """The platform responded with an error."""

    error: APIError
    in_progress: bool
    """For a keyed write: whether another request with the key, or on the same object, is in progress."""


class Unanswered(Failed, frozen=True, eq=False, kw_only=True):
    """The request was sent, and no response came that can be trusted."""

    kind: Failure = Failure.NO_TRUSTED_RESPONSE


class Unsent(Failed, frozen=True, eq=False, kw_only=True):
    """No byte of the request left the machine."""

    kind: Failure = Failure.NOT_SENT
    cause: PaymentsError | None = None
    """The error that kept the request from being sent, if the caller should get that error."""
    pool_full: bool = False
    """Whether it timed out while it waited for a connection of the transport."""


class Stopped(Exception):  # noqa: N818 - it never leaves the call
    """Carries the *outcome* of an attempt out of a step that comes before sending."""

    def __init__(self, outcome: Failed) -> None:
        self.outcome = outcome


def not_attempted(reason: str, cause: PaymentsError | None = None) -> Stopped:
    """Return the outcome of an attempt without a request; the next attempt would fail in the same way."""
    return Stopped(Unsent(reason=reason, cause=cause, permanent=True, attempted=False))


def client_closed() -> Stopped:
    """Return the outcome of an attempt on a closed client: nothing is sent any more."""
    closed = errors.ClientClosed("the client was closed")
    return not_attempted(str(closed), closed)


def no_token(error: Exception) -> Stopped:
    """Return the outcome of an attempt without a token: the token source raised *error*, and nothing was sent."""
    reason = errors.describe(error)
    cause = _own(error) if isinstance(error, PaymentsError) else None
    if not isinstance(cause, OWN_ERRORS):
        cause = errors.RefreshFailed(reason, cause)
    return not_attempted(f"no token: {reason}", cause)


def not_signed(error: Exception) -> Stopped:
    """Return the outcome of an attempt that could not be signed because of *error*: nothing was sent."""
    cause = _own(error) if isinstance(error, OWN_ERRORS) else None
    reason = f"the request could not be signed: {errors.describe(error)}"
    return Stopped(Unsent(reason=reason, cause=cause, permanent=True))


def _own(error: PaymentsError) -> PaymentsError:
    """Return a copy of *error* for one call: the same error may be raised to all calls that wait."""
    duplicate = copy(error.with_traceback(None))
    if isinstance(duplicate, APIError):
        duplicate.settled = False  # It was about the refresh.
    return duplicate


def cut_off(error: BaseException, ran_out: str | None = None) -> Failed:
    """Return the outcome of an attempt that *error* ended. A request in the transport's queue was not sent."""
    kind = Unsent if getattr(error, UNSENT, False) else Unanswered
    return kind(reason=ran_out or interrupted(error), timed_out=ran_out is not None)


def interrupted(error: BaseException) -> str:
    """Return why *error* ended an attempt: the caller cancelled it, or the program ends."""
    return rules.CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def no_response(error: BaseException, ran_out: str | None, *, cancelled: bool) -> Failed | None:
    """Return the outcome if `send` raised *error*; `None` if the error has nothing to do with the request.

    Args:
        error: The exception that the transport raised.
        ran_out: The time limit that ended the wait, in words, if it was one.
        cancelled: Whether the task has ever been cancelled.
    """
    expired = ran_out is not None
    match error:
        case SendFailed():
            error.__traceback__ = None  # Breaks a reference cycle that holds the connection (CONTRIBUTING: cycles).
            # The transport may have turned our cancellation into a failure of its own.
            reason, permanent = error.reason, error.permanent
            if error.sent:
                return Unanswered(reason=reason, permanent=permanent, timed_out=expired)
            full = isinstance(error, PoolFull)
            return Unsent(reason=reason, permanent=permanent, timed_out=expired, pool_full=full)
        case asyncio.CancelledError() if ran_out is not None:
            return cut_off(error, ran_out)
        case asyncio.CancelledError() if not cancelled:
            # A task of the transport was cancelled. Raised here, it would end our task without a word about the money.
            return Unanswered(reason="the transport raised CancelledError without a cancellation")
        case errors.ClientClosed():
            return Unsent(reason=str(error), cause=_own(error), permanent=True)
        case Exception():
            return Unanswered(reason=f"the transport raised {errors.describe(error)}", timed_out=expired)
        case _:
            return None


def not_decoded(response: Response, error: Exception) -> Unanswered:
    """Return the outcome if a response came, but reading it raised *error*."""
    reason = error if isinstance(error, DecodingError) else f"reading it raised {errors.describe(error)}"
    return Unanswered(reason=f"HTTP {response.status}, but {reason}", response=response)


def error_response(
    operation: Operation[B, R], response: Response, secrets: Sequence[str], *, random_key: bool
) -> Rejected | Unanswered:
    """Return the meaning of an error *response*. With *random_key*, no earlier call can have sent the key."""
    try:
        error = parse_error_response(operation, response, secrets)
    except Exception as cause:  # noqa: BLE001 - a user's transport may return a body that is not bytes
        return not_decoded(response, cause)
    status, codes = response.status, error.codes
    kind = rules.classify_response(operation.errors, status, error.code, codes)
    proof = rules.settles_read(status)
    if operation.writes:
        with_object = has_object(response)
        proof = rules.settles(operation.errors, status, codes, kind, random_key=random_key, has_object=with_object)
    busy = operation.keyed and proof is not Settles.ALL and rules.is_in_progress(kind, codes)
    wait = error.retry_after or 0.0
    return Rejected(
        kind=kind, reason=str(error), response=response, retry_after=wait, settles=proof, error=error, in_progress=busy
    )


# --- all attempts of a call so far -----------------------------------------------------------------------------------


class History(Struct, eq=False):
    """The failures of one call so far, on which the verdicts depend."""

    ambiguous_attempts: int = 0
    """Attempts after which it is unknown whether the operation took effect."""
    first_reason: str | None = None
    """The reason of the first of them."""
    unsettled: int = 0
    """How often the platform responded with a 4xx that does not settle the write."""
    first_sent: tuple[float, float] | None = None
    """When the first request may have left: on the monotonic clock, and in seconds since the epoch."""
    timed_out_from: float | None = None
    """When the last attempt began that our own deadline cut off, on the monotonic clock."""

    @classmethod
    def begun(cls, first_sent_at: float | None, clock: Clock) -> History:
        """Return the history of a call whose request another call may have sent.

        Args:
            first_sent_at: When that call sent the key, in seconds since the epoch. `None` if that is unknown.
            clock: Tells how long ago that was.
        """
        if first_sent_at is not None:
            sent = clock.monotonic() - max(0.0, clock.now() - first_sent_at), first_sent_at
            return cls(ambiguous_attempts=1, first_reason="it was sent before this call", first_sent=sent)
        return cls(ambiguous_attempts=1, first_reason="it may have been sent before this call")

    def key_lasts(self, clock: Clock) -> float:
        """Return the seconds until the platform may have forgotten the key, and would execute the request again."""
        if self.first_sent is None:
            return rules.KEY_LIFETIME
        monotonic, timestamp = self.first_sent
        # While a machine is suspended, its monotonic clock may stand still.
        return rules.KEY_LIFETIME - max(clock.monotonic() - monotonic, clock.now() - timestamp)

    def record(self, failure: Failed, monotonic: float, timestamp: float) -> None:
        """Record the *failure* of an attempt that began at these times."""
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
    """When a failed call is retried. All times are in seconds."""

    attempts: int = 4
    """The most requests that one call sends, 1 to 20. 1 turns retries off. One repetition per call with a refreshed
    token does not count. An attempt that finds the connection pool full does not count either: with retries on, the
    call waits again until its total timeout."""
    base_delay: float = 0.5
    """Before attempt n + 1 the client pauses for a random time from 0 to `min(max_delay, base_delay * 2**(n - 1))`.
    It is 0 to 86,400."""
    max_delay: float = 8.0
    """The upper bound of that random time, 0 to 86,400."""
    max_retry_after: float = 30.0
    """The longest pause that the client accepts if the platform asks for one, 0 to 86,400. The random pause comes on
    top. If the platform asks for more, the call fails immediately. That pause is in `retry_after` of its error, or of
    the `last_error` of an `OutcomeUnknown`."""
    retry_unkeyed: bool = False
    """Also retry a write that takes no idempotency key (a preference, a customer) when no response came. The object can
    then exist twice. After a 5xx, a 408 or a 424 such a write is never retried."""

    def __post_init__(self) -> None:
        check_within("retry.attempts", self.attempts, 1, _MOST_ATTEMPTS)
        for name in ("base_delay", "max_delay", "max_retry_after"):
            check_seconds(f"retry.{name}", getattr(self, name), zero=True)
        check_bool("retry.retry_unkeyed", self.retry_unkeyed)


def next_step(rule: RetryClass, failure: Failed, history: History, policy: RetryPolicy) -> Verdict:
    """Return the step after *failure*, which *history* already has.

    The step is ``RETRY`` if the policy, the deadline and the budget allow it, ``REFRESH`` if the client can get another
    token, or ``STOP``.
    """
    verdict = rules.TABLE[rule][failure.kind]
    if verdict is not Verdict.REFRESH and (failure.permanent or failure.retry_after > policy.max_retry_after):
        return Verdict.STOP
    match verdict:
        case Verdict.ONCE:
            may_retry = history.ambiguous_attempts == 1
        case Verdict.IF_UNSETTLED:
            is_open = history.ambiguous_attempts > 0 and failure.settles is not Settles.ALL
            may_retry = is_open and history.unsettled <= rules.MAX_UNSETTLED
        case Verdict.IF_ASKED:
            may_retry = policy.retry_unkeyed
        case _:
            return verdict
    return Verdict.RETRY if may_retry else Verdict.STOP


# --- the end ---------------------------------------------------------------------------------------------------------


def final_error(
    operation: Operation[B, R], last: Failed, history: History, *, own_key: bool, journaled: bool
) -> PaymentsError:
    """Return the one true error of a call, from the outcomes of its attempts.

    Args:
        operation: The operation that was called.
        last: The last outcome.
        history: All outcomes so far.
        own_key: Whether the key is the caller's own. Then an earlier call may have sent it.
        journaled: Whether recovery sends the write again until it is settled. Then it must not count as rejected
            before.
    """
    error = _true_error(operation, last, history, own_key=own_key)
    if journaled and isinstance(error, APIError) and not error.settled:
        error = OutcomeUnknown(_reason(last))
    # The traceback begins here: the frames below hold credentials (CONTRIBUTING: frames).
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
    """Return the outcome as one of the three of `paymentsdk.errors`, or the error that prevented the call."""
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
    # A rejected token refresh would look like the platform's answer to the request itself.
    if isinstance(cause, errors.ReauthorizationRequired):
        cause.settled = operation.writes and not own_key
    if isinstance(cause, OWN_ERRORS):
        return cause
    # Not a write in doubt. "Not sent" would be wrong for a read with an earlier attempt that was sent.
    is_unsent = isinstance(last, Unsent) and not history.ambiguous_attempts
    return NotSent(last.reason) if is_unsent else NoAnswer(last.reason)


def _reason(last: Failed) -> str:
    """Return why a write is in doubt; for a 4xx in a form that a program can read."""
    if not isinstance(last, Rejected) or last.error.status < _BAD_REQUEST or last.kind is Failure.SERVER:
        return last.reason
    return f"platform_error:{errors.visible(last.error.code or str(last.error.status))}"
