"""The inline first attempt: the usual case, without the objects that only a failure needs.

`Plan.begin` is a plain function: it checks and encodes what the caller passes, takes the token and writes the request.
So no frame that waits holds a token or a request head. `Engine.value` waits for the response, and handles only success.
It hands every other outcome to a `Call` as the outcome of its first attempt: the call owns all failures.

`Plan.begin` declines if it cannot begin immediately: no token at hand, a limit, or a log at DEBUG. Then the call takes
the general way from its beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from msgspec import Struct, structs

from paymentsdk._call import events
from paymentsdk._call.deadline import connect_timeout, end_of_attempt
from paymentsdk._call.intent import Intent, common_headers, encode
from paymentsdk._codec.encode import PathValue, fill_path
from paymentsdk._contract.rules import RetryClass
from paymentsdk._headers import Headers
from paymentsdk._secrets import HiddenRepr
from paymentsdk.transports.base import DirectTransport, Exchange, Request, Response, Transport

if TYPE_CHECKING:
    from paymentsdk._call.call import Call
    from paymentsdk._call.credential import Bearer
    from paymentsdk._call.deadline import Deadline
    from paymentsdk._call.runtime import Runtime
    from paymentsdk._call.settings import Settings
    from paymentsdk._contract.operation import Operation

B = TypeVar("B")
R = TypeVar("R")

#: The classes that have plans. An unkeyed write needs a fresh connection, and token requests need none of this.
_INLINE = frozenset({RetryClass.READ, RetryClass.KEYED, RetryClass.REPEATABLE})
#: So many members of a write's response must agree with the request; then its bytes need no further check.
_CERTAIN = 2


class Begun(HiddenRepr, Struct, Generic[B, R], eq=False):
    """A first attempt that was begun, and all that a `Call` needs to go on after it."""

    intent: Intent[B, R]
    response: Awaitable[Response]
    end: Callable[[], object]
    """Gives the connection back. Call it once."""
    deadline: Deadline
    started: float
    sent_at: float
    token: str | None
    """The token that was sent. The plan may have another by now."""


class Plan(HiddenRepr, Struct, Generic[B, R], eq=False):
    """The common parts of all calls of one operation by one client or one copy."""

    operation: Operation[B, R]
    transport: DirectTransport | None
    """Writes requests immediately. `None` if all requests go through `send`."""
    state: Runtime
    settings: Settings
    seller_key: Hashable
    bearer: Bearer
    call_for: Callable[[Intent[B, R]], Call[B, R]]
    """Makes a call that takes over after a failed inline attempt."""
    before: str
    """The path before its placeholder, or the whole path if it has none."""
    name: str | None
    """The name of the placeholder. `None` if the path has none."""
    behind: str
    token: str | None = None
    """The token that `request` and `head` were prepared with."""
    request: Request | None = None
    """The request without its path, its key and its body."""
    head: object | None = None
    """The head of `request` for `begin`. `None` if the transport has prepared none yet."""

    def begin(self, body: B | None, path: dict[str, PathValue]) -> Begun[B, R] | None:
        """Begin the first attempt; return `None` if it cannot begin immediately.

        Raises:
            RequestInvalid: A value breaks a rule. Nothing was sent.
            ClientClosed: The client is closed, or belongs to another event loop.
        """
        state, operation = self.state, self.operation
        loop, clock = state.ensure_open(), state.clock
        sent_at = clock.now()
        flow = state.flow
        if flow.always_limits or flow.limiters or events.logger.isEnabledFor(DEBUG) or not self._is_ready(sent_at):
            return None
        target, name = self.before, self.name
        if path or name is not None:
            value = path.get(name) if len(path) == 1 and name is not None else None
            if type(value) is str and value.isalnum() and value.isascii():
                target = f"{target}{value}{self.behind}"  # Nearly every id is like this.
            else:
                target = fill_path(operation.path, operation.path_names, path)
        content = encode(operation, body)
        key = clock.key() if operation.keyed else None
        intent = Intent(operation, target, path, None, body, content, None, key)
        started = clock.monotonic()
        deadline = state.deadlines.add(self.settings.timeout, started, loop)
        transport, exchange = self.transport, None
        try:
            if transport is not None and self.head is not None:
                exchange = transport.begin(self.head, target, key, content, loop)
            response, end = exchange or self._send(intent)
        except BaseException as error:  # noqa: BLE001 - it may have been sent: the call decides what it means
            response, end = _outcome(error), _keep
        return Begun(intent, response, end, deadline, started, sent_at, self.token)

    def _send(self, intent: Intent[B, R]) -> Exchange:
        """Send the request through `send` of the transport, which may wait for a connection."""
        common = cast("Request", self.request)
        headers = Headers(common.headers)
        if intent.key is not None:
            headers[self.operation.key_header] = intent.key
        request = structs.replace(common, url=common.url + intent.target, headers=headers, body=intent.content)
        return self.state.transport.send(request), _keep

    def _is_ready(self, now: float) -> bool:
        """Return whether a token is at hand, and prepare `request` and `head` with it."""
        try:
            token = self.bearer.token(now)
        except Exception:  # noqa: BLE001 - the general way reports what a token source raised
            return False
        if token is None:
            return False
        transport = self.transport
        if token is self.token and (transport is None or self.head is not None):
            return True
        operation, settings = self.operation, self.settings
        _ = operation.decoder  # A result type that cannot be decoded must fail before a write.
        headers = common_headers(operation, settings, token)
        if key_header := operation.key_header if operation.keyed else None:
            headers.pop(key_header, None)  # It may be in `own_headers`, empty; a platform may read the first of two.
        if operation.body is not None:
            headers["Content-Type"] = operation.content_type
        timeout = settings.timeout
        left = end_of_attempt(timeout, 0.0, inf if timeout.total is None else timeout.total)
        bare: Intent[B, R] = Intent(operation, "", {}, None, None, b"", None, None)
        request = bare.request(settings, None, None, left, connect_timeout(timeout, left), fresh=False, attempt=1)
        self.request = request = structs.replace(request, headers=headers)
        self.token = token
        self.head = None if transport is None else transport.prepare(request, key_header)
        return True

    def read(self, outcome: Response | BaseException, begun: Begun[B, R]) -> R | None:
        """Return the value of a documented success that follows the contract, and end the call; otherwise `None`."""
        operation, intent = self.operation, begun.intent
        try:
            if not isinstance(outcome, Response) or outcome.status != operation.status:
                return None
            value, identity = operation.decoder.exact(outcome.body), operation.identity
            if value is not None and identity is not None:
                compared = identity.compare(intent.body, intent.path, value)
                is_certain = not operation.writes or compared.agreed >= _CERTAIN
                if compared.mismatch is not None or compared.anomalies or not is_certain:
                    return None
        except Exception:  # noqa: BLE001 - the call reads it again, and reports what is wrong
            return None
        if value is not None:
            state, deadline = self.state, begun.deadline
            if deadline.expired:
                deadline.uncancel()  # The response came at the moment when our deadline cancelled the wait.
            state.deadlines.remove(deadline)
            if state.budgets.remaining:
                state.budgets.deposit(self.seller_key, operation.retry)
        return value

    def call(self, begun: Begun[B, R], outcome: Response | BaseException) -> Call[B, R]:
        """Return the call that goes on after a first attempt with this *outcome*."""
        call = self.call_for(begun.intent)
        call.credential.token, call.deadline, call.attempts = begun.token, begun.deadline, 1
        call.started = call.sending = begun.started
        call.sent_at = begun.sent_at
        call.first = _outcome(outcome)
        return call


def _keep() -> None:
    """Do nothing: a transport that has only `send` gives its connections back itself."""


async def _outcome(outcome: Response | BaseException) -> Response:
    try:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome
    finally:
        del outcome  # Breaks a reference cycle through the traceback (CONTRIBUTING: cycles).


def direct(transport: Transport) -> DirectTransport | None:
    """Return *transport* if it can write requests immediately without skipping a user's own `send`."""
    owner = next((cls for cls in type(transport).__mro__ if vars(cls).keys() & {"send", "begin"}), object)
    is_passed_by = "begin" not in vars(owner) or "send" in getattr(transport, "__dict__", ())
    return transport if isinstance(transport, DirectTransport) and not is_passed_by else None


def is_plain(operation: Operation[B, R], settings: Settings) -> bool:
    """Return whether calls of *operation* with these *settings* may be inline."""
    return (
        operation.retry in _INLINE
        and operation.authenticated
        and operation.page is None
        and operation.query is None
        and operation.result is not bytes
        and (operation.body is None or operation.body_required)
        and len(operation.path_names) <= 1
        and not (settings.observers or settings.strict or settings.idempotency_key is not None)
    )
