"""What a program can see of its calls while they run: the events that observers are called with.

    >>> from paymentsdk.events import AttemptEnded, Event
    >>> def observe(event: Event) -> None:
    ...     if isinstance(event, AttemptEnded):
    ...         print(event.operation, event.status, event.elapsed)
    >>> client = PaymentsClient(..., observers=[observe])

An observer is a plain function. It is called on the event loop, in the task of the call, so it must not block; what it
raises is logged and dropped, and changes no call. The events of a journal are in `paymentsdk.journal`.

No event holds a credential, a query, or anything of a request's body. Of a response it holds the status, the request
id, and times, counts, places and types; of a rejection its code and message too. That is a text of the platform's
choosing: credentials are masked in it, but it may hold personal data.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from paymentsdk._contract.rules import Failure

__all__ = [
    "AttemptEnded",
    "AttemptStarted",
    "CallEnded",
    "CallEvent",
    "CallOutcome",
    "CallStarted",
    "Event",
    "Observer",
    "ReauthorizationDue",
    "Throttled",
    "TokenRefreshed",
]


class CallOutcome(Enum):
    """What came of a call."""

    SUCCEEDED = "succeeded"
    #: The platform responded with an error.
    REFUSED = "refused"
    #: Nothing was sent, or nothing that could count: `NotSent`, and what else kept the call from being made. The
    #: `error` of the event tells what may take effect all the same: `Deferred`, which recovery sends, and `InProgress`.
    NOT_SENT = "not_sent"
    #: A write that may have taken effect: `OutcomeUnknown`.
    UNKNOWN = "unknown"
    #: A read without a response that can be trusted: `NoAnswer`.
    NO_ANSWER = "no_answer"
    #: The task of the call was cancelled, or the program ends: a write that was sent may have taken effect. The log has
    #: its key.
    CANCELLED = "cancelled"


class Event(Struct, frozen=True, kw_only=True):
    """What observers are called with."""

    account: str | None
    """The name that was given to `client.account`; `None` for the client itself."""


class CallEvent(Event, frozen=True, kw_only=True):
    """Something that happens to one call."""

    call: int
    """The same for all events of a call, and another for every other call of the process."""
    operation: str
    """The name of the operation, such as `"orders.create"`."""
    method: str
    """The HTTP method: `GET`, `POST` or `DELETE`, or that of an own operation."""
    route: str
    """The path with its placeholders, such as `"/v1/orders/{order_id}"`."""
    idempotency_key: str | None
    """The key of a keyed write; `None` for other operations, and for a write with `once=` before its first attempt, or
    without one. `RecordResolved` has it."""


class CallStarted(CallEvent, frozen=True, kw_only=True):
    """A call begins: its request is valid. Calls that are rejected before that make no events."""

    url: str
    """The URL, without the query, which may hold a payer's data."""


class AttemptStarted(CallEvent, frozen=True, kw_only=True):
    """A request is about to be sent."""

    url: str
    """The URL, without the query, which may hold a payer's data."""
    number: int
    """1 for the first attempt of the call, one more for each retry."""
    queued: float
    """Seconds that it has waited for its turn (`FlowControl`)."""
    headers: dict[str, str]
    """Header fields that observers add to this request, such as `traceparent`; empty for the first observer. A field
    that the client writes itself, or that cannot be sent, is left out and reported in the log."""


class AttemptEnded(CallEvent, frozen=True, kw_only=True):
    """An attempt has ended."""

    number: int
    """1 for the first attempt of the call; 0 for a failure that kept any request from being made (there was no token,
    or the client was closed): that has no `AttemptStarted`."""
    status: int | None
    """The HTTP status code; `None` when no response came."""
    kind: Failure | None
    """What kind of failure it was; its `value` is a string for a label. `None` for a success."""
    failure: str | None
    """The same in words, with the code and the message of a rejection; `None` for a success, `"cancelled"` where the
    task of the call was cancelled meanwhile."""
    elapsed: float
    """Seconds since the attempt began, without its wait in the queue; since the call began if there was no request."""
    queued: float
    """Seconds that it has waited for its turn (`FlowControl`)."""
    reused: bool | None
    """Whether its connection had carried a request before; `None` where the transport does not say, and without a
    response."""
    request_id: str | None
    """The platform's id of the request, for its support; `None` if no response named one."""


class CallEnded(CallEvent, frozen=True, kw_only=True):
    """A call has ended; follows every `CallStarted`."""

    outcome: CallOutcome
    """What came of the call, one of `CallOutcome`; its `value` is a string for a label."""
    error: str | None
    """The class of the exception that the caller gets, such as `"RateLimited"`; `None` for a success."""
    status: int | None
    """The HTTP status code of the result, or of the error response that the caller gets; `None` without a response."""
    attempts: int
    """How many requests were sent or tried; 0 also for a result that the journal had."""
    elapsed: float
    """Seconds since the call began, with all attempts, pauses and waits."""
    queued: float
    """Seconds that its attempts have waited for their turn, all together."""
    retry_budget: float
    """What is left of the account's budget for retries of this kind of operation: 1.0 for all of it, 0.0 for none."""


class Throttled(CallEvent, frozen=True, kw_only=True):
    """An attempt had to wait for its turn: the platform limits the seller, or the client itself (`FlowControl`)."""

    number: int
    """The number of the attempt, 1 for the first."""
    waited: float
    """Seconds that it has waited for its turn."""
    admitted: bool
    """Whether it may go now; if not, the call ends."""


class ReauthorizationDue(CallEvent, frozen=True, kw_only=True):
    """A person has to authorize again, at the latest when the access token ends.

    The refresh token is spent or revoked, or there is none.
    Told to each call that tries to refresh the token. After an early refresh the call goes on with the live token.
    """

    expires_at: float | None
    """When the access token ends, in seconds since the epoch; `None` if that is not known."""


class TokenRefreshed(Event, frozen=True, kw_only=True):
    """The platform has issued a new token pair. It is saved next. Told once for each refresh, not for each call."""

    elapsed: float
    """Seconds that the refresh took."""
    expires_at: float | None
    """When the new access token ends, in seconds since the epoch; `None` if the platform does not say."""


#: Called with each event. It may not be async.
Observer: TypeAlias = Callable[[Event], None]
