"""What the observers of a call are told, and the log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Never, Protocol, TypedDict, TypeVar

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._engine import events
from paymentsdk._headers import check_headers
from paymentsdk.errors import APIError, RequestInvalid
from paymentsdk.events import AttemptEnded, AttemptStarted, CallEnded, CallEvent, CallStarted, ReauthorizationDue
from paymentsdk.transports.base import Response, header

if TYPE_CHECKING:
    from paymentsdk._engine.client_state import ClientState
    from paymentsdk._engine.deadline import Deadline
    from paymentsdk._engine.failures import AttemptFailed
    from paymentsdk._engine.settings import Settings
    from paymentsdk._operation.operation import Operation

T = TypeVar("T")

_NUMBERS = count(1)


class ObservedCall(Protocol):
    """What of a `Call` its observers learn."""

    state: ClientState
    settings: Settings
    deadline: Deadline
    seller: Hashable
    url: str
    key: str | None
    started: float
    sending: float
    number: int
    attempts: int
    queued: float
    queued_before: float

    @property
    def operation(self) -> Operation[Never, object]: ...


class About(TypedDict):
    """What each event of a call has in common."""

    account: str | None
    call: int
    operation: str
    method: str
    route: str
    idempotency_key: str | None


def about(call: ObservedCall) -> About:
    """Return what each event of *call* has in common."""
    return {
        "account": call.settings.account,
        "call": call.number,
        "operation": call.operation.name,
        "method": call.operation.method,
        "route": call.operation.path,
        "idempotency_key": call.key,
    }


def notify(call: ObservedCall, kind: Callable[..., CallEvent], **what: object) -> None:
    """Tell the observers of an event of *call*."""
    events.notify(kind(**about(call), **what), call.settings.observers)


async def observed(call: ObservedCall, made: Coroutine[object, object, T]) -> T:
    """Await what *call* has *made*, and tell the observers when it begins and ends."""
    call.number = next(_NUMBERS)
    # Members are named one by one here and below, not by `about`: that would take longer than all the rest.
    started = CallStarted(
        account=call.settings.account,
        call=call.number,
        operation=call.operation.name,
        method=call.operation.method,
        route=call.operation.path,
        idempotency_key=call.key,
        url=_address(call),
    )
    try:
        events.notify(started, call.settings.observers)
    except BaseException:
        # The program is to end. The call has not begun, and its deadline would cancel whatever the task does next.
        made.close()
        call.state.deadlines.remove(call.deadline)
        raise
    try:
        result = await made
    except BaseException as error:
        _notify_end(call, error)
        raise
    _notify_end(call, None, getattr(result, "status", None))
    return result


def _notify_end(call: ObservedCall, error: BaseException | None, status: int | None = None) -> None:
    ended = CallEnded(
        account=call.settings.account,
        call=call.number,
        operation=call.operation.name,
        method=call.operation.method,
        route=call.operation.path,
        idempotency_key=call.key,
        outcome=events.outcome_of(error),
        error=None if error is None else type(error).__name__,
        status=error.status if isinstance(error, APIError) else status,
        attempts=call.attempts,
        elapsed=call.state.clock.monotonic() - call.started,
        queued=call.queued_before + call.queued,
        retry_budget=call.state.budgets.left(call.seller, call.operation.retry),
    )
    events.notify(ended, call.settings.observers)


def report(call: ObservedCall, response: Response | None, failure: AttemptFailed | None = None) -> None:
    """Tell the observers and the log that an attempt brought *response*, or what its *failure* was."""
    number = call.attempts if failure is None or failure.begun else 0
    why = None if failure is None else failure.reason
    event = _attempt_ended(call, response, failure, number=number, why=why, since=call.sending)
    events.attempt_ended(event, call.settings.observers)


def warn_outcome_unknown(call: ObservedCall, why: str) -> None:
    """Warn that *call* is a write which was sent, and that nobody can say whether it took effect."""
    events.outcome_unknown(_attempt_ended(call, None, None, number=call.attempts, why=why, since=call.started))


def _attempt_ended(
    call: ObservedCall,
    response: Response | None,
    failure: AttemptFailed | None,
    *,
    number: int,
    why: str | None,
    since: float,
) -> AttemptEnded:
    return AttemptEnded(
        account=call.settings.account,
        call=call.number,
        operation=call.operation.name,
        method=call.operation.method,
        route=call.operation.path,
        idempotency_key=call.key,
        number=number,
        status=None if response is None else response.status,
        kind=None if failure is None else failure.kind,
        failure=why,
        elapsed=call.state.clock.monotonic() - since,
        queued=call.queued if number else 0.0,
        reused=getattr(response, "reused", None),
        request_id=None if response is None else header(response.headers, "X-Request-Id"),
    )


def added_headers(call: ObservedCall) -> dict[str, str]:
    """Tell the observers that a request is about to be sent, and return the headers that they want to add."""
    given: dict[str, str] = {}
    started = AttemptStarted(
        account=call.settings.account,
        call=call.number,
        operation=call.operation.name,
        method=call.operation.method,
        route=call.operation.path,
        idempotency_key=call.key,
        url=_address(call),
        number=call.attempts,
        queued=call.queued,
        headers=given,
    )
    events.notify(started, call.settings.observers)
    reserved = call.operation.reserved_headers
    with suppress(RequestInvalid):
        return check_headers(given, reserved=reserved) if given else given
    added: dict[str, str] = {}
    for name, value in given.items():
        try:
            added |= check_headers({name: value}, reserved=reserved)
        except RequestInvalid as error:
            events.header_left_out(call.operation.name, error)
    return added


def notify_if_revoked(call: ObservedCall) -> None:
    """Tell the observers if the token cannot be refreshed any more."""
    auth = call.settings.auth
    if call.settings.observers and isinstance(auth, RefreshingToken) and auth.revoked:
        notify(call, ReauthorizationDue, expires_at=auth.expires_at)


def _address(call: ObservedCall) -> str:
    """Return the URL without its query, which may hold a payer's data."""
    return call.url.partition("?")[0]
