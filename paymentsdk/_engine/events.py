"""How a program learns of its calls while they run: an observer for metrics, and the log.

The log is that of the standard library, under the name ``paymentsdk``: DEBUG for a success, INFO for an attempt that
failed, WARNING for what a person should look at. No record holds a credential, nor anything of an answer but the
message of a refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct, structs

from paymentsdk._codec.anomaly import MOST_REPORTS, Anomaly

logger = logging.getLogger("paymentsdk")

#: Lines of the log that the anomalies of one answer may take: all that are reported, and what counts the rest.
MOST_LINES = MOST_REPORTS + 1


class Attempt(Struct, frozen=True, kw_only=True):
    """What an observer learns of every attempt."""

    operation: str
    """The name of the operation (`"orders.create"`)."""
    number: int
    """1 for the first attempt of the call; 0 for a failure that kept any request from being made: there was no
    token, or the client was closed."""
    status: int | None
    """The HTTP status, or `None` when no answer came."""
    failure: str | None
    """What went wrong, in words; `None` for a success."""
    elapsed: float
    """Seconds since the attempt began; since the call began where no request was made."""
    request_id: str | None
    """The platform's id of the request."""
    idempotency_key: str | None
    """The key of a keyed write."""


Observer: TypeAlias = Callable[[Attempt], None]


def logs_successes() -> bool:
    """Whether anyone listens to what the log says of a success."""
    return logger.isEnabledFor(logging.DEBUG)


def attempt_ended(attempt: Attempt, observer: Observer | None) -> None:
    """Tell the *observer* and the log how an *attempt* ended."""
    level = logging.DEBUG if attempt.failure is None else logging.INFO
    if logger.isEnabledFor(level):
        what = f"attempt {attempt.number}" if attempt.number else "no request"
        _log(level, f"{what}: {attempt.failure or 'success'}", attempt)
    if observer is not None:
        try:
            observer(attempt)
        except Exception:
            # An observer must not turn money that moved into an error.
            logger.exception("%s: the observer raised", attempt.operation)


def outcome_unknown(attempt: Attempt) -> None:
    """Warn that a write was sent, and that nobody can say whether it took effect.

    The key is in the text: often it is the only trace of it, and few formatters show the other fields.
    """
    if attempt.idempotency_key is not None:
        why = f"{attempt.failure} (idempotency_key={attempt.idempotency_key!r})"
        attempt = structs.replace(attempt, failure=why)
    _log(logging.WARNING, f"the outcome is unknown: {attempt.failure}", attempt)


def refresh_failed(operation: str, why: str) -> None:
    """Warn that a refused token could not be refreshed: the caller learns of the refusal alone."""
    logger.warning("%s: %s", operation, why, extra={"payments_operation": operation})


def anomalies_found(operation: str, anomalies: Sequence[Anomaly]) -> None:
    """Warn of members that did not follow the contract, without their values: they may be anybody's name.

    Of an answer with many the first ``MOST_LINES`` are named, and the others counted.
    """
    for anomaly in anomalies[:MOST_LINES]:
        extra = {"payments_operation": operation, "payments_path": anomaly.path}
        logger.warning("%s: %s: %s", operation, anomaly.path, anomaly.reason, extra=extra)
    if more := anomalies[MOST_LINES:]:
        extra = {"payments_operation": operation, "payments_path": more[0].path}
        logger.warning("%s: %d more members, from %s on", operation, len(more), more[0].path, extra=extra)


def _log(level: int, message: str, attempt: Attempt) -> None:
    extra = {f"payments_{name}": getattr(attempt, name) for name in attempt.__struct_fields__}
    logger.log(level, "%s: %s", attempt.operation, message, extra=extra)
