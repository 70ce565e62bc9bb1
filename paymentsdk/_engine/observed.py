"""What the observers of a call are told, and the log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from msgspec import Struct

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._engine import events
from paymentsdk._engine.settings import Settings
from paymentsdk._headers import check_headers
from paymentsdk.errors import APIError, RequestInvalid
from paymentsdk.events import AttemptEnded, AttemptStarted, CallEnded, CallEvent, CallStarted, ReauthorizationDue
from paymentsdk.transports.base import Response, header

if TYPE_CHECKING:
    from paymentsdk._engine.client_state import ClientState
    from paymentsdk._engine.deadline import Deadline
    from paymentsdk._engine.failures import AttemptFailed
    from paymentsdk._operation.operation import Operation

B = TypeVar("B")
R = TypeVar("R")
T = TypeVar("T")

_NUMBERS = count(1)


class About(TypedDict):
    """What each event of a call has in common."""

    account: str | None
    call: int
    operation: str
    method: str
    route: str
    idempotency_key: str | None


class Progress(Struct, kw_only=True, eq=False):
    """What is counted while a call is under way."""

    number: int = 0
    """Another for each call of the process that is observed."""
    attempts: int = 0
    """How many requests were sent or tried."""
    queued: float = 0.0
    """Seconds that the attempt under way has waited for its turn."""
    queued_before: float = 0.0
    """The same of the attempts before it."""


class ObservedCall(Progress, Generic[B, R], eq=False):
    """What of a call its observers learn."""

    deadline: Deadline
    """What ends the attempt under way in time."""
    state: ClientState
    settings: Settings
    seller: Hashable
    """Whose budgets and permits it takes."""
    operation: Operation[B, R]
    url: str
    key: str | None
    """The idempotency key."""
    started: float
    """When the call began, on the monotonic clock, as the next one."""
    sending: float
    """When the attempt under way began."""

    async def observed(self, made: Coroutine[object, object, T]) -> T:
        """Await what this call has *made*, and tell the observers when it begins and ends."""
        self.number = next(_NUMBERS)
        # Members are named one by one here and below, not by `about()`: that would take longer than all the rest.
        started = CallStarted(
            account=self.settings.account,
            call=self.number,
            operation=self.operation.name,
            method=self.operation.method,
            route=self.operation.path,
            idempotency_key=self.key,
            url=self.address,
        )
        try:
            events.tell(started, self.settings.observers)
        except BaseException:
            # The program is to end. The call has not begun, and its deadline would cancel whatever the task does next.
            made.close()
            self.state.deadlines.remove(self.deadline)
            raise
        try:
            result = await made
        except BaseException as error:
            self._tell_end(error)
            raise
        self._tell_end(None, getattr(result, "status", None))
        return result

    def _tell_end(self, error: BaseException | None, status: int | None = None) -> None:
        ended = CallEnded(
            account=self.settings.account,
            call=self.number,
            operation=self.operation.name,
            method=self.operation.method,
            route=self.operation.path,
            idempotency_key=self.key,
            outcome=events.outcome_of(error),
            error=None if error is None else type(error).__name__,
            status=error.status if isinstance(error, APIError) else status,
            attempts=self.attempts,
            elapsed=self.state.clock.monotonic() - self.started,
            queued=self.queued_before + self.queued,
            retry_budget=self.state.budgets.left(self.seller, self.operation.retry),
        )
        events.tell(ended, self.settings.observers)

    def report(self, response: Response | None, failure: AttemptFailed | None = None) -> None:
        """Tell the observers and the log that an attempt brought *response*, or what its *failure* was."""
        number = self.attempts if failure is None or failure.begun else 0
        event = self._event(number, None if failure is None else failure.reason, self.sending, response, failure)
        events.attempt_ended(event, self.settings.observers)

    def warn_outcome_unknown(self, why: str) -> None:
        """Warn that the call is a write which was sent, and that nobody can say whether it took effect."""
        events.outcome_unknown(self._event(self.attempts, why, self.started))

    def _event(
        self,
        number: int,
        why: str | None,
        since: float,
        response: Response | None = None,
        failure: AttemptFailed | None = None,
    ) -> AttemptEnded:
        return AttemptEnded(
            account=self.settings.account,
            call=self.number,
            operation=self.operation.name,
            method=self.operation.method,
            route=self.operation.path,
            idempotency_key=self.key,
            number=number,
            status=None if response is None else response.status,
            kind=None if failure is None else failure.kind,
            failure=why,
            elapsed=self.state.clock.monotonic() - since,
            queued=self.queued if number else 0.0,
            reused=getattr(response, "reused", None),
            request_id=None if response is None else header(response.headers, "X-Request-Id"),
        )

    def tell(self, kind: Callable[..., CallEvent], **what: object) -> None:
        """Tell the observers of an event of this call."""
        events.tell(kind(**self.about(), **what), self.settings.observers)

    def about(self) -> About:
        """Return what each event of the call has in common."""
        return {
            "account": self.settings.account,
            "call": self.number,
            "operation": self.operation.name,
            "method": self.operation.method,
            "route": self.operation.path,
            "idempotency_key": self.key,
        }

    def added_headers(self) -> dict[str, str]:
        """Tell the observers that a request is about to be sent, and return the headers that they want to add."""
        given: dict[str, str] = {}
        started = AttemptStarted(
            account=self.settings.account,
            call=self.number,
            operation=self.operation.name,
            method=self.operation.method,
            route=self.operation.path,
            idempotency_key=self.key,
            url=self.address,
            number=self.attempts,
            queued=self.queued,
            headers=given,
        )
        events.tell(started, self.settings.observers)
        reserved = self.operation.reserved_headers
        with suppress(RequestInvalid):
            return check_headers(given, reserved=reserved) if given else given
        added: dict[str, str] = {}
        for name, value in given.items():
            try:
                added |= check_headers({name: value}, reserved=reserved)
            except RequestInvalid as error:
                events.header_left_out(self.operation.name, error)
        return added

    @property
    def address(self) -> str:
        """The URL without its query, which may hold a payer's data."""
        return self.url.partition("?")[0]

    def tell_if_revoked(self) -> None:
        """Tell the observers if the token cannot be refreshed any more."""
        auth = self.settings.auth
        if self.settings.observers and isinstance(auth, RefreshingToken) and auth.revoked:
            self.tell(ReauthorizationDue, expires_at=auth.expires_at)
