"""What it means that an attempt failed."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from paymentsdk._codec.anomaly import DecodingError
from paymentsdk._operation.error_response import parse_error_response
from paymentsdk._operation.rules import CANCELLED, Failure, failure_of, is_in_progress, settles
from paymentsdk.errors import (
    APIError,
    ClientClosed,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RequestInvalid,
    describe,
)
from paymentsdk.transports.base import Response, SendFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paymentsdk._operation.operation import Operation

B = TypeVar("B")
R = TypeVar("R")

#: Errors of an attempt that was not made which a caller learns of as they are.
OWN_ERRORS = (RequestInvalid, ReauthorizationRequired, RefreshFailed, ClientClosed)


class AttemptFailed(Exception):  # noqa: N818 - it never leaves the engine
    """One attempt failed. What that means for the call is decided from here."""

    def __init__(
        self,
        kind: Failure,
        reason: str,
        *,
        error: APIError | None = None,
        cause: PaymentsError | None = None,
        response: Response | None = None,
        timed_out: bool = False,
        permanent: bool = False,
        begun: bool = True,
        settled: bool = False,
        in_progress: bool = False,
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        """In words, without credentials."""
        self.error = error
        """The platform's error response, if it was one."""
        self.cause = cause
        """What kept the attempt from being made, if it was an error of its own."""
        self.response = response
        self.timed_out = timed_out
        """Our own deadline ended it."""
        self.permanent = permanent
        """Another attempt would fail the same way."""
        self.begun = begun
        """There was a request, and observers were told of it; without a token, or on a closed client, none is made."""
        self.settled = settled
        """The platform says that no attempt has taken effect, whatever is in doubt."""
        self.in_progress = in_progress
        """The platform says, of a keyed write, that something is under way under the key or on the thing."""

    @property
    def retry_after(self) -> float:
        """Seconds that the platform asked to wait; 0 if it did not."""
        return (self.error and self.error.retry_after) or 0.0


def client_closed(error: ClientClosed, *, begun: bool = True) -> AttemptFailed:
    """Nothing was sent, since the client is closed."""
    return AttemptFailed(Failure.NOT_SENT, str(error), cause=_own(error), permanent=True, begun=begun)


def no_token(error: Exception) -> AttemptFailed:
    """Nothing was sent, since the source of tokens raised *error*."""
    reason = describe(error)
    cause = _own(error) if isinstance(error, PaymentsError) else None
    if not isinstance(cause, OWN_ERRORS):
        cause = RefreshFailed(reason, cause)
    return AttemptFailed(Failure.NOT_SENT, f"no token: {reason}", cause=cause, permanent=True, begun=False)


def not_signed(error: Exception) -> AttemptFailed:
    """Nothing was sent: the request could not be signed, for the reason in *error*."""
    cause = _own(error) if isinstance(error, OWN_ERRORS) else None
    reason = f"the request could not be signed: {describe(error)}"
    return AttemptFailed(Failure.NOT_SENT, reason, cause=cause, permanent=True)


def interrupted(kind: Failure, error: BaseException) -> AttemptFailed:
    """The caller has cancelled the attempt, or the program ends."""
    return AttemptFailed(kind, CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__)


def _own(error: PaymentsError) -> PaymentsError:
    """Return a copy of *error* for one call: whoever has raised it may raise it to all that wait."""
    own = copy(error.with_traceback(None))
    if isinstance(own, APIError):
        own.settled = False  # It was said of the refresh.
    return own


def no_response(error: BaseException, ran_out: str | None) -> AttemptFailed | None:
    """Say what it means that `send` raised *error*; `None` if it has nothing to do with the request.

    *ran_out* says which bound of time it was that ended the wait, if one did.
    """
    expired = ran_out is not None
    match error:
        case SendFailed():
            kind = Failure.NO_TRUSTED_RESPONSE if error.sent else Failure.NOT_SENT
            # The transport may have made our cancellation a failure of its own.
            return AttemptFailed(kind, error.reason, permanent=error.permanent, timed_out=expired)
        case asyncio.CancelledError() if ran_out is not None:
            return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, ran_out, timed_out=True)
        case ClientClosed():
            return client_closed(error)
        case Exception():
            reason = f"the transport raised {describe(error)}"
            return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason, timed_out=expired)
        case _:
            return None


def unreadable(response: Response, defect: Exception) -> AttemptFailed:
    """A response came, and reading it raised *defect*."""
    why = defect if isinstance(defect, DecodingError) else f"reading it raised {describe(defect)}"
    return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, f"HTTP {response.status}, but {why}")


def error_response(
    operation: Operation[B, R], response: Response, secrets: Sequence[str], *, random_key: bool
) -> AttemptFailed:
    """Say what an error *response* means; *random_key* says that no earlier call can have sent the key."""
    try:
        error = parse_error_response(operation, response, secrets)
    except Exception as defect:  # noqa: BLE001 - a transport of one's own may return a body that is no bytes
        return unreadable(response, defect)
    kind = failure_of(operation.errors, response.status, error.code, error.codes)
    settled = operation.writes and settles(operation.errors, response.status, error.codes, random_key=random_key)
    in_progress = operation.keyed and not settled and is_in_progress(kind, error.codes)
    return AttemptFailed(kind, str(error), error=error, response=response, settled=settled, in_progress=in_progress)
