"""What failures mean: of one attempt, of all attempts of a call so far, and in the end for the caller."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from paymentsdk._codec.anomaly import DecodingError
from paymentsdk._contract.error_response import has_object, parse_error_response
from paymentsdk._contract.rules import (
    CANCELLED,
    Failure,
    Settles,
    classify_response,
    is_in_progress,
    settles,
    settles_read,
)
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

B = TypeVar("B")
R = TypeVar("R")

_BAD_REQUEST = 400
#: Errors of an attempt that was not made which a caller learns of as they are.
OWN_ERRORS = (RequestInvalid, ReauthorizationRequired, RefreshFailed, ClientClosed)


@dataclass(eq=False, repr=False)
class AttemptFailed(Exception):  # noqa: N818 - it never leaves the engine
    """One attempt failed. What that means for the call is decided from here."""

    kind: Failure
    reason: str
    """In words, without credentials."""
    _: KW_ONLY
    error: APIError | None = None
    """The platform's error response, if it was one."""
    cause: PaymentsError | None = None
    """What kept the attempt from being made, if it was an error of its own."""
    response: Response | None = None
    timed_out: bool = False
    """Our own deadline ended it."""
    permanent: bool = False
    """Another attempt would fail the same way."""
    pool_full: bool = False
    """It waited in vain for a connection of the transport: the platform has seen nothing of it."""
    attempted: bool = True
    """There was a request, and observers were told of it; without a token, or on a closed client, none is made."""
    recorded: bool = False
    """The history of the call has it; observers and the log were told."""
    settles: Settles = Settles.NONE
    """Which attempts had no effect, as the response says."""
    in_progress: bool = False
    """The platform says, of a keyed write, that something is under way under the key or on the thing."""

    @property
    def retry_after(self) -> float:
        """Seconds that the platform asked to wait; 0 if it did not."""
        return (self.error and self.error.retry_after) or 0.0


class History(Struct, eq=False):
    """What the failures of one call have shown so far: what the verdicts depend on."""

    ambiguous_attempts: int = 0
    """Attempts after which nobody can say whether the operation took effect."""
    first_reason: str | None = None
    """What happened at the first of them."""
    unsettled: int = 0
    """How often the platform responded with a 4xx that does not settle the write."""
    first_sent: tuple[float, float] | None = None
    """When the first request may have left: on the monotonic clock, and in seconds since the epoch."""
    timed_out_from: float | None = None
    """When the last attempt began that our own deadline cut, on the monotonic clock."""

    def age(self, clock: Clock) -> float:
        """Return the seconds since the first request was sent; 0 if none was."""
        if self.first_sent is None:
            return 0.0
        monotonic, timestamp = self.first_sent
        # While a machine is suspended, its monotonic clock may stand still.
        return max(clock.monotonic() - monotonic, clock.now() - timestamp)

    @classmethod
    def of_earlier_call(cls, timestamp: float, clock: Clock) -> History:
        """Return the history of a call whose key another call sent at *timestamp*: that outcome is in doubt."""
        sent = clock.monotonic() - max(0.0, clock.now() - timestamp), timestamp
        return cls(ambiguous_attempts=1, first_reason="it was sent before this call", first_sent=sent)

    def note_sent(self, monotonic: float, timestamp: float) -> None:
        """Note when a request may have left, if it is the first that did."""
        if self.first_sent is None:
            self.first_sent = monotonic, timestamp

    def record(self, failure: AttemptFailed, monotonic: float, timestamp: float) -> None:
        """Take into account the *failure* of an attempt that began then."""
        if failure.kind is not Failure.NOT_SENT:
            self.note_sent(monotonic, timestamp)
            self.timed_out_from = monotonic if failure.timed_out else self.timed_out_from
        if failure.kind in (Failure.CONFLICT, Failure.CLIENT_ERROR) and failure.settles is not Settles.ALL:
            self.unsettled += 1
        if failure.in_progress or failure.kind in (Failure.NO_TRUSTED_RESPONSE, Failure.SERVER):
            self.ambiguous_attempts += 1
            self.first_reason = self.first_reason or failure.reason


def not_attempted(reason: str, cause: PaymentsError | None = None) -> AttemptFailed:
    """No request was made, nor would the next attempt make one."""
    return AttemptFailed(Failure.NOT_SENT, reason, cause=cause, permanent=True, attempted=False)


def no_token(error: Exception) -> AttemptFailed:
    """Nothing was sent, since the source of tokens raised *error*."""
    reason = describe(error)
    cause = _own(error) if isinstance(error, PaymentsError) else None
    if not isinstance(cause, OWN_ERRORS):
        cause = RefreshFailed(reason, cause)
    return not_attempted(f"no token: {reason}", cause)


def not_signed(error: Exception) -> AttemptFailed:
    """Nothing was sent: the request could not be signed, for the reason in *error*."""
    cause = _own(error) if isinstance(error, OWN_ERRORS) else None
    reason = f"the request could not be signed: {describe(error)}"
    return AttemptFailed(Failure.NOT_SENT, reason, cause=cause, permanent=True)


def interrupted(kind: Failure, error: BaseException) -> AttemptFailed:
    """The caller has cancelled the attempt, or the program ends."""
    return AttemptFailed(kind, CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__)


def cut_off(error: BaseException) -> Failure:
    """Return the kind of a failure in which *error* ended `send`: a request in the transport's queue was not sent."""
    return Failure.NOT_SENT if getattr(error, UNSENT, False) else Failure.NO_TRUSTED_RESPONSE


def _own(error: PaymentsError) -> PaymentsError:
    """Return a copy of *error* for one call: whoever has raised it may raise it to all that wait."""
    own = copy(error.with_traceback(None))
    if isinstance(own, APIError):
        own.settled = False  # It was said of the refresh.
    return own


def no_response(error: BaseException, ran_out: str | None, *, cancelled: bool) -> AttemptFailed | None:
    """Say what it means that `send` raised *error*; `None` if it has nothing to do with the request.

    *ran_out* says which bound of time it was that ended the wait, if one did, and *cancelled* whether the task has ever
    been cancelled.
    """
    expired = ran_out is not None
    match error:
        case SendFailed():
            error.__traceback__ = None  # By the frames of the transport it may hold itself, and the connection.
            kind = Failure.NO_TRUSTED_RESPONSE if error.sent else Failure.NOT_SENT
            # The transport may have made our cancellation a failure of its own.
            full = isinstance(error, PoolFull)
            return AttemptFailed(kind, error.reason, permanent=error.permanent, timed_out=expired, pool_full=full)
        case asyncio.CancelledError() if ran_out is not None:
            return AttemptFailed(cut_off(error), ran_out, timed_out=True)
        case asyncio.CancelledError() if not cancelled:
            # Of a task of the transport's own. Raised here, it would end ours without a word about the money.
            return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, "the transport raised CancelledError for no cancellation")
        case ClientClosed():
            return AttemptFailed(Failure.NOT_SENT, str(error), cause=_own(error), permanent=True)
        case Exception():
            reason = f"the transport raised {describe(error)}"
            return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason, timed_out=expired)
        case _:
            return None


def not_decoded(response: Response, error: Exception) -> AttemptFailed:
    """A response came, and reading it raised *error*."""
    reason = error if isinstance(error, DecodingError) else f"reading it raised {describe(error)}"
    return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, f"HTTP {response.status}, but {reason}")


def error_response(
    operation: Operation[B, R], response: Response, secrets: Sequence[str], *, random_key: bool
) -> AttemptFailed:
    """Say what an error *response* means; *random_key* says that no earlier call can have sent the key."""
    try:
        error = parse_error_response(operation, response, secrets)
    except Exception as cause:  # noqa: BLE001 - a transport of one's own may return a body that is no bytes
        return not_decoded(response, cause)
    kind = classify_response(operation.errors, response.status, error.code, error.codes)
    status, codes, with_object = response.status, error.codes, has_object(response)
    if operation.writes:
        proof = settles(operation.errors, status, codes, kind, random_key=random_key, has_object=with_object)
    else:
        proof = settles_read(status)
    in_progress = operation.keyed and proof is not Settles.ALL and is_in_progress(kind, codes)
    return AttemptFailed(kind, str(error), error=error, response=response, settles=proof, in_progress=in_progress)


def final_error(
    operation: Operation[B, R],
    last: AttemptFailed,
    history: History,
    *,
    own_key: bool,
    journaled: bool,
) -> PaymentsError:
    """Return the one error that is true of a call, with what its attempts have shown.

    The key may be the caller's *own*, sent by an earlier call. A *journaled* write that was sent and is not settled is
    sent again by recovery: its caller must not take it for rejected.
    """
    error = _kind_of_error(operation, last, history, own_key=own_key)
    if journaled and isinstance(error, APIError) and not error.settled:
        error = OutcomeUnknown(_reason(last))
    # Whatever it was raised from, its traceback begins here: the frames below hold credentials.
    error = error.with_traceback(None)
    error.operation = operation.name
    if last.response is not None:
        error.request_id = header(last.response.headers, "X-Request-Id")
    if isinstance(error, NoAnswer):
        error.first_reason = history.first_reason or last.reason
        error.last_error = last.error if last.error is not None else last.cause
        if history.first_sent is not None:
            _, timestamp = history.first_sent
            error.first_sent_at = datetime.fromtimestamp(timestamp, UTC)
    if isinstance(error, OutcomeUnknown):
        error.in_doubt = operation.in_doubt
    return error


def _kind_of_error(
    operation: Operation[B, R], last: AttemptFailed, history: History, *, own_key: bool
) -> PaymentsError:
    """Say which of the three outcomes of `paymentsdk.errors` it is, or what else kept the call from being made."""
    ambiguous = history.ambiguous_attempts > 0 and last.settles is not Settles.ALL
    # It is no rejection: whoever sent the caller elsewhere may have acted on the request before.
    is_redirect = last.error is not None and last.error.status < _BAD_REQUEST
    if operation.writes and (ambiguous or is_redirect):
        return OutcomeUnknown(_reason(last))
    if last.error is not None:
        last.error.settled = last.settles is Settles.ALL or (last.settles is Settles.THIS and not own_key)
        return last.error
    # No other rejection of a token refresh: a caller would take it for what the platform says of the request.
    if isinstance(last.cause, ReauthorizationRequired):
        last.cause.settled = operation.writes and not own_key
    if isinstance(last.cause, OWN_ERRORS):
        return last.cause
    # What is left is no write in doubt. "Not sent" would be wrong of a read of which an earlier attempt was.
    return (
        NotSent(last.reason)
        if last.kind is Failure.NOT_SENT and not history.ambiguous_attempts
        else NoAnswer(last.reason)
    )


def _reason(last: AttemptFailed) -> str:
    """Say why a write stays in doubt; for a 4xx in a form that a program can read."""
    error = last.error
    if error is None or error.status < _BAD_REQUEST or last.kind is Failure.SERVER:
        return last.reason
    return f"platform_error:{visible(error.code or str(error.status))}"
