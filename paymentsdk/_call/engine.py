"""`Engine` makes the calls of a client; each copy of the client has an engine of its own.

`Engine.call` checks a request (`intent.py`) and carries it out (`call.py`). If the call has a name, it does so as a
record of the journal (`journal/_run.py`).

The methods of the resources use `Engine.value`, which makes the first attempt inline: the usual case, without the
objects that only a failure needs. `Plan.begin` is a plain function: it checks and encodes what the caller passes, takes
the token and writes the request. So no frame that waits holds a token or a request head. `Engine.value` waits for the
response, and handles only success. It hands every other outcome to a `Call` as the outcome of its first attempt: the
call owns all failures.

`Plan.begin` declines if it cannot begin immediately: no token at hand, a limit, or a log at DEBUG. Then the call takes
the general way from its beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from msgspec import Struct, structs

from paymentsdk._auth.schemes import Seller, Signer, signer_or_tokens
from paymentsdk._call import events
from paymentsdk._call.call import Call, Gate
from paymentsdk._call.credential import Bearer, Credential
from paymentsdk._call.deadline import connect_timeout, end_of_attempt
from paymentsdk._call.intent import Intent, common_headers, encode, make_intent
from paymentsdk._call.response import Result
from paymentsdk._call.verdicts import History
from paymentsdk._codec.encode import PathValue, fill_path
from paymentsdk._contract.identity import CERTAIN
from paymentsdk._contract.rules import RetryClass
from paymentsdk._headers import Headers, secret_values
from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import NotSent, PaymentsError, RequestInvalid
from paymentsdk.transports.base import DirectTransport, Exchange, Request, Response, Transport

if TYPE_CHECKING:
    from paymentsdk._auth.token_store import TokenPair
    from paymentsdk._call.deadline import Deadline
    from paymentsdk._call.runtime import Runtime
    from paymentsdk._call.settings import Settings
    from paymentsdk._contract.operation import Operation

B = TypeVar("B")
C = TypeVar("C", bound="Caller")
R = TypeVar("R")
Results: TypeAlias = list[Result[Any]] | None

#: The classes that have plans. An unkeyed write needs a fresh connection, and token requests need none of this.
_INLINE = frozenset({RetryClass.READ, RetryClass.KEYED, RetryClass.REPEATABLE})


class Caller(Protocol):
    """A client, a resource or a search: it makes calls with an engine, and can be copied for another engine."""

    _engine: Engine

    def _copy(self, engine: Engine) -> Self:
        """Return a copy that calls with another *engine*."""
        ...


class Engine:
    """Makes calls with the settings of a client or of its copy. All of them share one `Runtime`."""

    def __init__(
        self, runtime: Runtime, settings: Settings, bearer: Bearer | None = None, results: Results = None
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        #: Identifies the seller: the name of the account, or else the identity of the auth scheme.
        self.seller_key: Seller | str = Seller(settings.auth) if settings.account is None else settings.account
        signer, tokens = signer_or_tokens(settings.auth)
        self.signer: Signer | None = signer
        self.bearer: Bearer = Bearer(tokens) if bearer is None else bearer
        #: Gets the result of the last call, for `PaymentsClient.with_result`.
        self.results = results
        #: The plans of the operations called so far; `None` for an operation that cannot be inline.
        self._plans: dict[object, Plan[Any, Any] | None] = {}

    def copy(self, settings: Settings) -> Engine:
        """Return an engine with other *settings*, for a copy of the client."""
        return Engine(self.runtime, settings, results=self.results)

    def for_one_seller(self) -> Engine:
        """Return an engine that accepts only tokens of the seller that its first token names."""
        return Engine(self.runtime, self.settings, self.bearer.of_one_seller(), self.results)

    async def call(self, operation: Operation[B, R], body: B | None = None, **arguments: object) -> Result[R]:
        """Carry out *operation*, and return its value with all that is known about the call.

        See `PaymentsClient.call` for the arguments and the errors.
        """
        begin = cast("Callable[..., Awaitable[Result[R]]]", self._begin)
        try:
            result = await begin(operation, body, **arguments)
        except PaymentsError as error:
            error.account = self.settings.account
            error.operation = error.operation or getattr(operation, "name", None)
            raise
        if self.results is not None:
            self.results[:] = [result]  # Only the last: a walk may have any number of pages.
        return result

    async def general_value(self, operation: Operation[B, R], body: B | None, arguments: Mapping[str, object]) -> R:
        """Carry out *operation* with any *arguments* of `call`, and return only its value."""
        return (await self.call(operation, body, **arguments)).value

    def _begin(
        self,
        operation: Operation[B, R],
        body: B | None,
        *,
        once: str | None = None,
        not_after: datetime | timedelta | None = None,
        defer: bool = False,
        **request: Any,  # noqa: ANN401 - those of `make_intent`
    ) -> Awaitable[Result[R]]:
        """Check what the caller passes, and return an awaitable that carries it out."""
        intent = make_intent(operation, body, self.settings, self.runtime.clock, None, once is not None, **request)
        self.runtime.ensure_open()
        if once is not None or not_after is not None or defer:
            if (write := self.runtime.write_by_name) is None:
                raise RequestInvalid("once", "needs a journal: PaymentsClient(journal=SQLiteJournal(...))")
            return write(self, intent, once, not_after=not_after, defer=defer)
        call = self.call_for(intent)
        return events.observed(call, call.run) if self.settings.observers else call.run()

    async def value(self, operation: Operation[B, R], body: B | None, path: dict[str, PathValue]) -> R:
        """Carry out *operation*, and return only its value.

        Raises:
            PaymentsError: The same errors as from `call`.
        """
        plan: Plan[B, R] | None
        try:
            plan = self._plans[operation]
        except KeyError:
            plan = self._plans[operation] = plan_for(self, operation)
        if plan is None:
            return await self.general_value(operation, body, path)
        try:
            if (begun := plan.begin(body, path)) is None:
                return await self.general_value(operation, body, path)
            outcome: Response | BaseException
            try:
                outcome = await begun.response
            except BaseException as error:  # noqa: BLE001 - the call decides what it means
                outcome = error.with_traceback(None)
            finally:
                begun.end()
            if (value := plan.read(outcome, begun)) is not None:
                return value
            call = plan.call(begun, outcome)
            del begun, outcome  # Breaks a reference cycle through the traceback (CONTRIBUTING: cycles).
            return (await call.run()).value
        except PaymentsError as error:
            error.account, error.operation = self.settings.account, error.operation or operation.name
            raise

    def call_for(self, intent: Intent[B, R], gate: Gate | None = None) -> Call[B, R]:
        """Return a call that carries out *intent*. Its deadline begins when it runs. *gate* may forbid its attempts."""
        secrets = self.settings.header_secrets
        if intent.headers:
            secrets += secret_values(intent.headers)
        credential = Credential(self.bearer, self.signer, self._exchange, secrets)
        runtime, started = self.runtime, self.runtime.clock.monotonic()
        call = Call(runtime, self.settings, self.seller_key, intent, intent.operation, started, credential=credential)
        call.gate = gate
        if intent.first_sent_at is not None or (gate is not None and gate.in_doubt):
            call.history = History.begun(intent.first_sent_at, runtime.clock)
        return call

    def _exchange(self, refresh_token: str) -> Awaitable[TokenPair]:
        return self.runtime.exchange(self, refresh_token)

    async def seller(self) -> str | None:
        """Return the platform's user id of the seller, from the end of the token; with a signer, the account's name.

        A refresh keeps the user id. If the token must be waited for, this makes a read to get it. The result is `None`
        if the token has no user id, or the client signs and has no account.

        Raises:
            NotSent, RefreshFailed: There is no token.
        """
        if self.signer is not None:
            return self.settings.account
        for waits in (True, False):
            with suppress(Exception):  # The read below reports what the token source raised.
                if self.bearer.token(self.runtime.clock.now()) is not None:
                    return self.bearer.user_id
            if waits:
                await self.runtime.read(self)  # It may be a call of a copy, whose bearer is another.
        raise NotSent("no token: the token expired before it could be used")


def engine_of(caller: Engine | Caller) -> Engine:
    """Return the engine of *caller*, which may be an engine itself."""
    return caller if isinstance(caller, Engine) else caller._engine  # noqa: SLF001 - what a `Caller` is


def of_one_seller(caller: C) -> C:
    """Return a copy of *caller* that accepts only tokens of the seller that its first token names."""
    return caller._copy(caller._engine.for_one_seller())  # noqa: SLF001 - what a `Caller` is


# --- the inline first attempt ----------------------------------------------------------------------------------------


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

    engine: Engine
    operation: Operation[B, R]
    transport: DirectTransport | None
    """Writes requests immediately. `None` if all requests go through `send`."""
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
        engine, operation = self.engine, self.operation
        state = engine.runtime
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
        deadline = state.deadlines.add(engine.settings.timeout, started, loop)
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
        return self.engine.runtime.transport.send(request), _keep

    def _is_ready(self, now: float) -> bool:
        """Return whether a token is at hand, and prepare `request` and `head` with it."""
        try:
            token = self.engine.bearer.token(now)
        except Exception:  # noqa: BLE001 - the general way reports what a token source raised
            return False
        if token is None:
            return False
        transport = self.transport
        if token is self.token and (transport is None or self.head is not None):
            return True
        operation, settings = self.operation, self.engine.settings
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
                is_certain = not operation.writes or compared.agreed >= CERTAIN
                if compared.mismatch is not None or compared.anomalies or not is_certain:
                    return None
        except Exception:  # noqa: BLE001 - the call reads it again, and reports what is wrong
            return None
        if value is not None:
            state, deadline = self.engine.runtime, begun.deadline
            if deadline.expired:
                deadline.uncancel()  # The response came at the moment when our deadline cancelled the wait.
            state.deadlines.remove(deadline)
            if state.budgets.remaining:
                state.budgets.deposit(self.engine.seller_key, operation.retry)
        return value

    def call(self, begun: Begun[B, R], outcome: Response | BaseException) -> Call[B, R]:
        """Return the call that goes on after a first attempt with this *outcome*."""
        call: Call[B, R] = self.engine.call_for(begun.intent)
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


def plan_for(engine: Engine, operation: Operation[B, R]) -> Plan[B, R] | None:
    """Return the plan of *operation*; `None` if its calls need something that an inline attempt leaves out."""
    settings, runtime = engine.settings, engine.runtime
    is_plain = (
        operation.retry in _INLINE
        and operation.authenticated
        and operation.page is None
        and operation.query is None
        and operation.result is not bytes
        and (operation.body is None or operation.body_required)
        and len(operation.path_names) <= 1
        and engine.signer is None
        and engine.results is None
        and runtime.observe is None
        and not (settings.observers or settings.strict or settings.idempotency_key is not None)
    )
    if not is_plain:
        return None
    name = next(iter(operation.path_names), None)
    before, _, behind = operation.path.partition(f"{{{name}}}")
    return Plan(engine, operation, _direct(runtime.transport), before, name, behind)


def _direct(transport: Transport) -> DirectTransport | None:
    """Return *transport* if it can write requests immediately without skipping a user's own `send`."""
    owner = next((cls for cls in type(transport).__mro__ if vars(cls).keys() & {"send", "begin"}), object)
    is_passed_by = "begin" not in vars(owner) or "send" in getattr(transport, "__dict__", ())
    return transport if isinstance(transport, DirectTransport) and not is_passed_by else None
