"""How a program learns of its calls while they run: the observers (`paymentsdk.events`) and the log.

The log uses the standard library's logger ``paymentsdk``: DEBUG for a success, INFO for a failed attempt, WARNING when
a person should look. The fields of a log record have the same meanings as the fields of the events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._codec.anomaly import MOST_REPORTS, Anomaly
from paymentsdk._headers import check_headers
from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import APIError, NoAnswer, OutcomeUnknown, PaymentsError, RequestInvalid
from paymentsdk.events import (
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    CallOutcome,
    CallStarted,
    Event,
    Observer,
    ReauthorizationDue,
)
from paymentsdk.transports.base import Response, header

if TYPE_CHECKING:
    from paymentsdk._call.intent import Intent
    from paymentsdk._call.response import Result
    from paymentsdk._call.runtime import Runtime
    from paymentsdk._call.settings import Settings
    from paymentsdk._call.verdicts import Failed
    from paymentsdk._contract.operation import Operation

B = TypeVar("B")
R = TypeVar("R")

logger = logging.getLogger("paymentsdk")

#: The most log lines for the anomalies of one response: all that are reported, and the line that counts the rest.
MOST_LINES = MOST_REPORTS + 1
_NUMBERS = count(1)
#: The outcome of a call for each error: the first class that matches.
_OUTCOMES: tuple[tuple[type[BaseException], CallOutcome], ...] = (
    (OutcomeUnknown, CallOutcome.UNKNOWN),
    (NoAnswer, CallOutcome.NO_ANSWER),
    (APIError, CallOutcome.REFUSED),
    (PaymentsError, CallOutcome.NOT_SENT),
    (BaseException, CallOutcome.CANCELLED),  # Also when the program ends: the request may have been sent.
)


def notify(event: Event, observers: Iterable[Observer]) -> None:
    """Call *observers* with *event*. If an observer raises, the others are still called, and the call goes on."""
    for observer in observers:
        try:
            observer(event)
        except (Exception, asyncio.CancelledError):
            # An observer must not turn money that moved into an error.
            logger.exception("%s: an observer raised", getattr(event, "operation", type(event).__name__))


class ObservedCall(HiddenRepr, Struct, Generic[B, R], eq=False):
    """The parts of a `Call` that its observers learn."""

    state: Runtime
    settings: Settings
    seller_key: Hashable
    """Identifies the budgets and permits that the call uses."""
    intent: Intent[B, R]
    operation: Operation[B, R]
    started: float
    """When the call began, on the monotonic clock."""
    sending: float = 0.0
    """When the current attempt began, on the monotonic clock."""
    number: int = 0
    """The number of the call if it is observed, unique in the process; otherwise 0."""
    attempts: int = 0
    """How many requests were sent or tried."""
    waited: float = 0.0
    """Seconds that the current attempt has waited for its permit."""
    queued: float = 0.0
    """Seconds that the call has waited for permits."""

    def count_wait(self, since: float) -> None:
        """Count a wait for a permit that began at *since*."""
        self.queued += self.state.clock.monotonic() - since

    def count_attempt(self, waited: float) -> None:
        """Count an attempt that begins now, after *waited* seconds for its permit."""
        self.attempts += 1
        self.waited, self.sending = waited, self.state.clock.monotonic()


def _facts(call: ObservedCall[Any, Any]) -> dict[str, Any]:
    """Return the fields that all events of *call* have."""
    return {
        "account": call.settings.account,
        "call": call.number,
        "operation": call.operation.name,
        "method": call.operation.method,
        "route": call.operation.path,
        "idempotency_key": call.intent.key,
    }


async def observed(call: ObservedCall[Any, R], run: Callable[[], Awaitable[Result[R]]]) -> Result[R]:
    """*Run* a *call*, and tell the observers when it begins and when it ends."""
    call.number = next(_NUMBERS)
    notify(CallStarted(**_facts(call), url=_address(call)), call.settings.observers)
    try:
        result = await run()
    except BaseException as error:
        _notify_end(call, error)
        raise
    _notify_end(call, None, result.status)
    return result


def _notify_end(call: ObservedCall[Any, Any], error: BaseException | None, status: int | None = None) -> None:
    outcome = CallOutcome.SUCCEEDED
    if error is not None:
        outcome = next(means for kind, means in _OUTCOMES if isinstance(error, kind))
    ended = CallEnded(
        **_facts(call),
        outcome=outcome,
        error=None if error is None else type(error).__name__,
        status=(error.status or None) if isinstance(error, APIError) else status,
        attempts=call.attempts,
        elapsed=call.state.clock.monotonic() - call.started,
        queued=call.queued,
        retry_budget=call.state.budgets.left(call.seller_key, call.operation.retry),
    )
    notify(ended, call.settings.observers)


def report(call: ObservedCall[Any, Any], response: Response | None, failure: Failed | None = None) -> None:
    """Tell the observers and the log about an attempt: its *response*, and its *failure* if it failed."""
    reason = None if failure is None else failure.reason
    attempt = _attempt_ended(call, response, failure, reason)
    level = logging.DEBUG if reason is None else logging.INFO
    if logger.isEnabledFor(level):
        label = f"attempt {attempt.number}" if attempt.number else "no request"
        _log(level, f"{label}: {reason or 'success'}", attempt)
    notify(attempt, call.settings.observers)


def warn_outcome_unknown(call: ObservedCall[Any, Any], reason: str) -> None:
    """Warn that *call* is a write whose request was sent and whose outcome is unknown.

    The text has the key: it is often the only trace of the write, and few log formatters show the other fields.
    """
    if (key := call.intent.key) is not None:
        reason = f"{reason} (idempotency_key={key!r})"
    _log(logging.WARNING, f"the outcome is unknown: {reason}", _attempt_ended(call, None, None, reason))


def _attempt_ended(
    call: ObservedCall[Any, Any], response: Response | None, failure: Failed | None, reason: str | None
) -> AttemptEnded:
    number = call.attempts if failure is None or failure.attempted else 0
    return AttemptEnded(
        **_facts(call),
        number=number,
        status=None if response is None else response.status,
        kind=None if failure is None else failure.kind,
        failure=reason,
        elapsed=call.state.clock.monotonic() - (call.sending if number else call.started),
        queued=call.waited if number else 0.0,
        reused=getattr(response, "reused", None),
        request_id=None if response is None else header(response.headers, "X-Request-Id"),
    )


def added_headers(call: ObservedCall[Any, Any]) -> dict[str, str]:
    """Tell the observers that a request is about to be sent, and return the headers that they add."""
    headers: dict[str, str] = {}
    started = AttemptStarted(
        **_facts(call), url=_address(call), number=call.attempts, queued=call.waited, headers=headers
    )
    notify(started, call.settings.observers)
    added: dict[str, str] = {}
    for name, value in headers.items():
        try:
            added |= check_headers({name: value}, reserved=call.operation.reserved_headers)
        except RequestInvalid as error:
            reason = f"a header of an observer was left out: {error}"
            logger.error("%s: %s", call.operation.name, reason)  # noqa: TRY400 - no traceback: the error says it all
    return added


def notify_if_token_revoked(call: ObservedCall[Any, Any]) -> None:
    """Tell the observers if the token can no longer be refreshed."""
    auth = call.settings.auth
    if call.settings.observers and isinstance(auth, RefreshingToken) and auth.revoked:
        notify(ReauthorizationDue(**_facts(call), expires_at=auth.expires_at), call.settings.observers)


def _address(call: ObservedCall[Any, Any]) -> str:
    """Return the URL without its query, which may hold a payer's data."""
    return call.settings.base_url + call.intent.target.partition("?")[0]


# --- the log --------------------------------------------------------------------------------------------------------


def refresh_failed(operation: str, reason: str) -> None:
    """Warn that a rejected token could not be refreshed: the caller only learns of the rejection."""
    logger.warning("%s: %s", operation, reason, extra={"payments_operation": operation})


def anomalies_found(operation: str, anomalies: Sequence[Anomaly]) -> None:
    """Warn of members that do not follow the contract, without their values, which may be personal data.

    If a response has many anomalies, the first ``MOST_LINES`` are listed and the others counted.
    """
    for anomaly in anomalies[:MOST_LINES]:
        extra = {"payments_operation": operation, "payments_path": anomaly.path}
        logger.warning("%s: %s: %s", operation, anomaly.path, anomaly.reason, extra=extra)
    if more := anomalies[MOST_LINES:]:
        extra = {"payments_operation": operation, "payments_path": more[0].path}
        logger.warning("%s: %d more fields, from %s on", operation, len(more), more[0].path, extra=extra)


def _log(level: int, message: str, attempt: AttemptEnded) -> None:
    extra = {f"payments_{name}": getattr(attempt, name) for name in attempt.__struct_fields__ if name != "call"}
    extra["payments_kind"] = None if attempt.kind is None else attempt.kind.value
    logger.log(level, "%s: %s", attempt.operation, message, extra=extra)
