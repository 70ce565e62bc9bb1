"""The events of calls, which observers receive while the calls run.

    >>> from paymentsdk.events import AttemptEnded, Event
    >>> def observe(event: Event) -> None:
    ...     if isinstance(event, AttemptEnded):
    ...         print(event.operation, event.status, event.elapsed)
    >>> client = PaymentsClient(..., observers=[observe])

An observer is a plain function. It is called on the event loop, in the task of the call, so it must not block. An
exception of an observer is logged and dropped, and changes no call. The events of a journal are in
`paymentsdk.journal`.

No event holds a credential, a query, or a part of a request's body. An event may hold a response's status, its request
id, and times, counts, places and types. It may also hold the code and message of a rejection. The platform writes the
message: credentials are masked in it, but it may hold personal data.
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
    "TokenRefreshed",
]


class CallOutcome(Enum):
    """The outcome of a call."""

    SUCCEEDED = "succeeded"
    #: The platform responded with an error.
    REFUSED = "refused"
    #: No request was sent that could take effect: `NotSent`, and every other error that kept the call from being made.
    #: Two values of the event's `error` mean that the write may still take effect: `Deferred`, which recovery sends
    #: later, and `InProgress`.
    NOT_SENT = "not_sent"
    #: A write that may have taken effect: `OutcomeUnknown`.
    UNKNOWN = "unknown"
    #: A read without a response that can be trusted: `NoAnswer`.
    NO_ANSWER = "no_answer"
    #: The task of the call was cancelled, or the program is ending. A write that was sent may have taken effect. The
    #: log has its key.
    CANCELLED = "cancelled"


class Event(Struct, frozen=True, kw_only=True):
    """An event that observers receive."""

    account: str | None
    """The name that was given to `client.account`; `None` for the client itself."""


class CallEvent(Event, frozen=True, kw_only=True):
    """An event of one call."""

    call: int
    """The number of the call. All events of a call have the same number, and no other call of the process has it."""
    operation: str
    """The name of the operation, such as `"orders.create"`."""
    method: str
    """The HTTP method: `GET`, `POST` or `DELETE`. Operations that you declare may have others."""
    route: str
    """The path with its placeholders, such as `"/v1/orders/{order_id}"`."""
    idempotency_key: str | None
    """The key of a keyed write; `None` for other operations. It is also `None` for a write with `once=` before its
    first attempt, or without an attempt: `RecordResolved` has the key."""


class CallStarted(CallEvent, frozen=True, kw_only=True):
    """A call begins, and its request is valid. Calls whose request is invalid have no events."""

    url: str
    """The URL, without the query, which may hold a payer's data."""


class AttemptStarted(CallEvent, frozen=True, kw_only=True):
    """A request is about to be sent."""

    url: str
    """The URL, without the query, which may hold a payer's data."""
    number: int
    """1 for the first attempt of the call, one more for each retry."""
    queued: float
    """Seconds that the attempt waited for its turn (`FlowControl`)."""
    headers: dict[str, str]
    """Header fields that observers add to this request, such as `traceparent`; empty for the first observer. Fields
    that the client writes itself, or that cannot be sent, are left out and reported in the log."""


class AttemptEnded(CallEvent, frozen=True, kw_only=True):
    """An attempt has ended."""

    number: int
    """1 for the first attempt of the call. 0 for a failure before any request, such as a missing token or a closed
    client; such a failure has no `AttemptStarted`."""
    status: int | None
    """The HTTP status code; `None` when no response came."""
    kind: Failure | None
    """The kind of failure; its `value` is a string for a label. `None` for a success."""
    failure: str | None
    """The failure in words, with the code and the message of a rejection. `None` for a success, `"cancelled"` if the
    task of the call was cancelled during the attempt."""
    elapsed: float
    """Seconds since the attempt began, without its wait in the queue. Without a request: seconds since the call began.
    """
    queued: float
    """Seconds that the attempt waited for its turn (`FlowControl`)."""
    reused: bool | None
    """Whether the connection had carried a request before; `None` if the transport does not say, or without a
    response."""
    request_id: str | None
    """The platform's id of the request, which its support asks for; `None` if no response had one."""


class CallEnded(CallEvent, frozen=True, kw_only=True):
    """A call has ended. This event follows every `CallStarted`."""

    outcome: CallOutcome
    """The outcome of the call; its `value` is a string for a label."""
    error: str | None
    """The class of the exception that the caller gets, such as `"RateLimited"`; `None` for a success."""
    status: int | None
    """The HTTP status code of the result, or of the error response that the caller gets; `None` without a response."""
    attempts: int
    """How many requests were sent or tried; also 0 for a result that came from the journal."""
    elapsed: float
    """Seconds since the call began, with all attempts, pauses and waits."""
    queued: float
    """Seconds that all attempts together waited for their turn."""
    retry_budget: float
    """The share of the account's retry budget that remains for this kind of operation, from 0.0 to 1.0."""


class ReauthorizationDue(CallEvent, frozen=True, kw_only=True):
    """The seller has to authorize again before the access token expires.

    The refresh token is missing, spent or revoked. Each call that tries to refresh the token makes this event. If the
    access token is still valid, the call goes on with it.
    """

    expires_at: float | None
    """When the access token expires, in seconds since the epoch; `None` if that is not known."""


class TokenRefreshed(Event, frozen=True, kw_only=True):
    """The platform has issued a new token pair, which is saved next. There is one event per refresh, not per call."""

    elapsed: float
    """Seconds that the refresh took."""
    expires_at: float | None
    """When the new access token expires, in seconds since the epoch; `None` if the platform does not say."""


#: A function that receives each event. It must not be async.
Observer: TypeAlias = Callable[[Event], None]
