"""How a program learns of its calls while they run: what observers are told (`paymentsdk.events`), and the log.

The log is that of the standard library, under the name ``paymentsdk``: DEBUG for a success, INFO for an attempt that
failed, WARNING for what a person should look at. No record holds a credential, nor anything of a response but the
message of a rejection.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from paymentsdk._codec.anomaly import MOST_REPORTS, Anomaly
from paymentsdk._validate import check_methods
from paymentsdk.errors import (
    APIError,
    NoAnswer,
    OutcomeUnknown,
    RequestInvalid,
)
from paymentsdk.events import AttemptEnded, CallOutcome, Event, Observer

logger = logging.getLogger("paymentsdk")

#: Lines of the log that the anomalies of one response may take: all that are reported, and what counts the rest.
MOST_LINES = MOST_REPORTS + 1


def logs_successes() -> bool:
    """Whether anyone listens to what the log says of a success."""
    return logger.isEnabledFor(logging.DEBUG)


def notify(event: Event, observers: Iterable[Observer]) -> None:
    """Call *observers* with *event*: whatever one of them raises, the call goes on, and the others are called."""
    for observer in observers:
        try:
            observer(event)
        except (Exception, asyncio.CancelledError):
            # An observer must not turn money that moved into an error.
            logger.exception("%s: an observer raised", getattr(event, "operation", type(event).__name__))


def attempt_ended(attempt: AttemptEnded, observers: Iterable[Observer]) -> None:
    """Tell the *observers* and the log how an *attempt* ended."""
    level = logging.DEBUG if attempt.failure is None else logging.INFO
    if logger.isEnabledFor(level):
        what = f"attempt {attempt.number}" if attempt.number else "no request"
        _log(level, f"{what}: {attempt.failure or 'success'}", attempt)
    notify(attempt, observers)


def outcome_of(error: BaseException | None) -> CallOutcome:
    """Say what the *error* of a call means for whoever counts; `None` for a success."""
    match error:
        case None:
            return CallOutcome.SUCCEEDED
        case OutcomeUnknown():
            return CallOutcome.UNKNOWN
        case NoAnswer():
            return CallOutcome.NO_ANSWER
        case APIError():
            return CallOutcome.REFUSED
        case asyncio.CancelledError():
            return CallOutcome.CANCELLED
        case _:
            return CallOutcome.NOT_SENT


def check_observers(
    observers: Iterable[Observer] | None, observer: Callable[[AttemptEnded], None] | None
) -> tuple[Observer, ...] | None:
    """Return what is to be called with events; *observer* is the former name, for the ends of attempts alone.

    Raises:
        RequestInvalid: One of them cannot be called, or is async.
    """
    check_methods("observer", observer, "__call__", sync="__call__")
    if observer is not None and observers is not None:
        raise RequestInvalid("observer", "cannot be combined with observers")
    if observer is not None:
        warnings.warn("observer= goes in 0.3: use observers=", DeprecationWarning, stacklevel=3)
        return (_OfAttempts(observer),)
    if observers is None:
        return None
    if not isinstance(observers, Iterable):
        raise RequestInvalid("observers", f"must be a list of functions, not {type(observers).__name__}")
    all_ = tuple(observers)
    for number, one in enumerate(all_):
        if not callable(one):
            raise RequestInvalid(f"observers[{number}]", f"must be a function, not {type(one).__name__}")
        check_methods(f"observers[{number}]", one, "__call__", sync="__call__")
    return all_


class _OfAttempts:
    """Calls an observer with the ends of attempts alone."""

    def __init__(self, observer: Callable[[AttemptEnded], None]) -> None:
        self._observer = observer

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptEnded):
            self._observer(event)


def outcome_unknown(attempt: AttemptEnded) -> None:
    """Warn that a write was sent, and that nobody can say whether it took effect.

    The key is in the text: often it is the only trace of it, and few formatters show the other fields.
    """
    if attempt.idempotency_key is not None:
        why = f"{attempt.failure} (idempotency_key={attempt.idempotency_key!r})"
        attempt = structs.replace(attempt, failure=why)
    _log(logging.WARNING, f"the outcome is unknown: {attempt.failure}", attempt)


def header_left_out(operation: str, why: RequestInvalid) -> None:
    """Report a header that an observer wanted to add, and that cannot be sent."""
    logger.error("%s: a header of an observer was left out: %s", operation, why)


def refresh_failed(operation: str, why: str) -> None:
    """Warn that a rejected token could not be refreshed: the caller learns of the rejection alone."""
    logger.warning("%s: %s", operation, why, extra={"payments_operation": operation})


def anomalies_found(operation: str, anomalies: Sequence[Anomaly]) -> None:
    """Warn of members that did not follow the contract, without their values: they may be anybody's name.

    Of a response with many the first ``MOST_LINES`` are named, and the others counted.
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
