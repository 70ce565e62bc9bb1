"""What the end of a journaled call means: for its record (`resolution_of`), and for its caller (`kept_result`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, structs

from paymentsdk._call.response import Result
from paymentsdk._contract.error_response import parse_error_response, read_scrubbed
from paymentsdk._contract.rules import TURNED_AWAY, classify_response
from paymentsdk._secrets import MASK
from paymentsdk.errors import APIError, Deferred, NotSent, OutcomeUnknown, PaymentsError
from paymentsdk.journal._record import Record, RecordState, Resolution, StoredResponse
from paymentsdk.transports.base import Response, header

if TYPE_CHECKING:
    from paymentsdk._call.call import Call
    from paymentsdk._call.intent import Intent

B = TypeVar("B")
R = TypeVar("R")

#: The header fields of a response that are kept; others may hold credentials.
_KEPT_HEADERS = ("Content-Type", "Date", "X-Request-Id")
#: The reason of a record that is done, and whose response was changed before it was kept.
_MASKED = f"the response repeats a credential; {MASK} was kept in its place"


class Outcome(Struct, frozen=True):
    """The outcome of a record."""

    state: RecordState
    row: Record
    """The row as it is now, as far as this process knows."""
    reason: str = ""
    is_own: bool = True
    """Whether this call has found the outcome itself; if not, the row had it already."""
    result: Result[Any] | None = None
    """The result of this call, if the write is done."""
    error: PaymentsError | None = None
    """The error that this call raises."""
    attempts: int = 0


def resolution_of(call: Call[B, R], row: Record, end: Result[R] | PaymentsError) -> Resolution:
    """Return what the *end* of *call* means for its record."""
    secrets = call.credential.secrets(call.intent.body) if row.sensitive or isinstance(end, PaymentsError) else ()
    if isinstance(end, Result):
        response = _stored(end.status, end.headers, end.raw, secrets)
        reason = _MASKED if response.body != end.raw else ""
        return Resolution(state=RecordState.DONE, reason=reason, response=response)
    if isinstance(end, OutcomeUnknown):
        return Resolution(state=RecordState.UNKNOWN, reason=end.reason, in_flight=_in_flight(call))
    # Without a response, an `APIError` comes from the refresh of the token.
    if isinstance(end, APIError) and (last := call.last_response) is not None:
        kind = classify_response(call.operation.errors, end.status, end.code, end.codes)
        if kind not in TURNED_AWAY:
            response = _stored(last.status, last.headers, last.body, secrets)
            in_flight = _in_flight(call)
            return Resolution(state=RecordState.REFUSED, reason=str(end), response=response, in_flight=in_flight)
    return Resolution(state=RecordState.NOT_SENT, reason=end.reason if isinstance(end, NotSent) else str(end))


def _in_flight(call: Call[B, R]) -> float:
    """Return the seconds for which an attempt that timed out may still take effect: twice its timeout, from its start.

    0 if no attempt timed out, or if the last attempt began after that time.
    """
    timed_out_from = call.history.timed_out_from if call.history is not None else None
    if timed_out_from is None:
        return 0.0
    end = timed_out_from + 2 * (call.settings.timeout.attempt or call.settings.timeout.total or 0.0)
    return 0.0 if call.sending >= end else max(end - call.state.clock.monotonic(), 1.0)


def _stored(status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> StoredResponse:
    """Return the part of a response that is kept, with *secrets* masked where the response repeats them."""
    fields = {}
    for name in _KEPT_HEADERS:
        if (value := header(headers, name)) is not None:
            fields[name] = value
    return StoredResponse(status, fields, read_scrubbed(bytes(body), secrets)[1] if secrets else bytes(body))


def kept_result(outcome: Outcome, intent: Intent[B, R], call: Callable[[], Call[B, R]], elapsed: float) -> Result[R]:
    """Return the result that the record keeps, or raise the error that the record stands for.

    Args:
        outcome: The outcome of the record.
        intent: The caller's request.
        call: Makes a call, for the credentials that no error may show.
        elapsed: Seconds since the caller began.

    Raises:
        PaymentsError: The error that the record stands for, if it has no result.
    """
    operation, row = intent.operation, outcome.row
    error = outcome.error or _kept(outcome, intent, call, elapsed)
    if isinstance(error, Result):
        return error
    error.operation, error.idempotency_key = operation.name, row.key if row.keyed else None
    error.attempts = outcome.attempts
    if isinstance(error, OutcomeUnknown):
        error.in_doubt, error.once = operation.in_doubt, row.name
    del outcome
    try:
        raise error.with_traceback(None)
    finally:
        del error  # Breaks a reference cycle (CONTRIBUTING: cycles).


def _kept(
    outcome: Outcome, intent: Intent[B, R], call: Callable[[], Call[B, R]], elapsed: float
) -> Result[R] | PaymentsError:
    """Return the result or the error that the row stands for."""
    row, response, reason = outcome.row, outcome.row.response, outcome.reason
    match outcome.state:
        case RecordState.DONE if response is not None:
            try:
                value, anomalies = intent.operation.decode(response.body)
            except ValueError as unreadable:  # The operation's declared result may have changed since.
                return OutcomeUnknown(f"it is done; its response cannot be read: {unreadable}")
            return Result(
                value=value,
                status=response.status,
                headers=response.headers,
                attempts=0,
                elapsed=elapsed,
                anomalies=anomalies,
                raw=response.body,
                idempotency_key=row.key if row.keyed else None,
                kept_at=datetime.fromtimestamp(row.updated, UTC),
            )
        case RecordState.DONE:
            return OutcomeUnknown("it is done; its response was not kept")
        case RecordState.REFUSED if response is not None:
            secrets = call().credential.secrets(intent.body)
            rejection = parse_error_response(intent.operation, Response(*structs.astuple(response)), secrets)
            rejection.settled = True
            return rejection
        case RecordState.REFUSED:
            return OutcomeUnknown(f"it was rejected; its response was not kept: {reason}")
        case RecordState.DEFERRED:
            return Deferred(row.name, reason)
        case RecordState.NOT_SENT | RecordState.EXPIRED:
            return NotSent(reason or "its time was over before anything was sent")
        case _:
            return OutcomeUnknown(reason or f"the record is {outcome.state.value}")
