"""Which error is the truth about a call, when no further attempt is made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from paymentsdk._engine.failures import OWN_ERRORS, AttemptFailed
from paymentsdk._operation.rules import Failure, is_in_progress
from paymentsdk.errors import (
    APIError,
    NoAnswer,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    ReauthorizationRequired,
    visible,
)
from paymentsdk.transports.base import header

if TYPE_CHECKING:
    from paymentsdk._engine.retry import History
    from paymentsdk._operation.operation import Operation

B = TypeVar("B")
R = TypeVar("R")

_BAD_REQUEST = 400


def final_error(
    operation: Operation[B, R],
    last: AttemptFailed,
    history: History,
    *,
    attempts: int,
    key: str | None,
    caller_supplied_key: bool,
    journaled: bool = False,
) -> PaymentsError:
    """Return what a caller has to know, with all that is known of the call.

    A *journaled* write that is not settled is sent again by recovery: its caller must not take it for rejected.
    """
    error = _kind_of_error(operation, last, history, caller_supplied_key=caller_supplied_key)
    if journaled and attempts and isinstance(error, APIError) and not error.settled:
        error = OutcomeUnknown(_reason(last))
    # Whatever it was raised from, its traceback begins here: the frames below hold credentials.
    error = error.with_traceback(None)
    error.operation = operation.name
    error.attempts = attempts
    error.idempotency_key = key
    if last.response is not None:
        error.request_id = header(last.response.headers, "X-Request-Id")
    if isinstance(error, NoAnswer):
        error.first_reason = history.first_ambiguity or last.reason
        error.last_error = last.error if last.error is not None else last.cause
        if history.first_sent is not None:
            _, wall = history.first_sent
            error.first_sent_at = datetime.fromtimestamp(wall, UTC)
    if isinstance(error, OutcomeUnknown):
        error.in_doubt = operation.in_doubt
    return error


def _kind_of_error(
    operation: Operation[B, R], last: AttemptFailed, history: History, *, caller_supplied_key: bool
) -> PaymentsError:
    """Say which of the three outcomes of `paymentsdk.errors` it is, or what else kept the call from being made."""
    doubtful = history.ambiguous_attempts > 0 and not last.settled
    # It is no rejection: whoever sent the caller elsewhere may have acted on the request before.
    redirected = last.error is not None and last.error.status < _BAD_REQUEST
    if operation.writes and (doubtful or redirected):
        return OutcomeUnknown(_reason(last))
    if last.error is not None:
        # What takes no key is not sent again, but "in progress" may be about the same write, which a proxy sent twice.
        open_end = caller_supplied_key or is_in_progress(last.kind, last.error.codes)
        last.error.settled = operation.writes and (last.settled or not open_end)
        return last.error
    # No other rejection of a token refresh: a caller would take it for what the platform says of the request.
    if isinstance(last.cause, ReauthorizationRequired):
        last.cause.settled = operation.writes and not caller_supplied_key
    if isinstance(last.cause, OWN_ERRORS):
        return last.cause
    # Here it is a read; "not sent" would be wrong if an earlier attempt was.
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
