"""`Engine` makes the calls of a client; each copy of the client has an engine of its own.

`Engine.call` checks a request (`intent.py`) and carries it out (`call.py`). If the call has a name, it does so as a
record of the journal (`journal/_run.py`). The methods of the resources use `Engine.value`, which makes the first
attempt inline (`plan.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

from paymentsdk._auth.schemes import Seller, signer_or_tokens
from paymentsdk._call.call import Call, Gate
from paymentsdk._call.credential import Bearer, Credential
from paymentsdk._call.events import observed
from paymentsdk._call.intent import Intent, make_intent
from paymentsdk._call.plan import Plan, direct, is_plain
from paymentsdk._call.response import Result
from paymentsdk._call.verdicts import History
from paymentsdk._codec.encode import PathValue
from paymentsdk._headers import masked_values, secret_values
from paymentsdk.errors import NotSent, PaymentsError, RefreshFailed, RequestInvalid

if TYPE_CHECKING:
    from uuid import UUID

    from paymentsdk._auth.token_store import TokenPair
    from paymentsdk._call.runtime import Runtime
    from paymentsdk._call.settings import CallOptions, Settings
    from paymentsdk._contract.operation import Operation
    from paymentsdk.transports.base import Response

B = TypeVar("B")
C = TypeVar("C", bound="Caller")
R = TypeVar("R")


class Caller(Protocol):
    """A client, a resource or a search: it makes calls with an engine, and can be copied for another engine."""

    _engine: Engine

    def _copy(self, engine: Engine) -> Self:
        """Return a copy that calls with another *engine*."""
        ...


class Engine:
    """Makes calls with the settings of a client or of its copy. All of them share one `Runtime`."""

    def __init__(
        self, runtime: Runtime, settings: Settings, *, origin: Settings | None = None, bearer: Bearer | None = None
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        #: The settings of the client, if this is the engine of a copy.
        self.origin = origin
        # Identifies the seller: the name of the account, or else the identity of the auth scheme.
        self._seller_key = Seller(settings.auth) if settings.account is None else settings.account
        self._signer, tokens = signer_or_tokens(settings.auth)
        self._bearer = Bearer(tokens) if bearer is None else bearer
        #: The plans of the operations called so far; `None` for an operation that cannot be inline.
        self._plans: dict[object, Plan[Any, Any] | None] = {}

    def copy(self, settings: Settings, *, bearer: Bearer | None = None) -> Engine:
        """Return an engine with other *settings*, for a copy of the client."""
        return Engine(self.runtime, settings, origin=self.origin or self.settings, bearer=bearer)

    def changed(self, options: CallOptions) -> Engine:
        """Return an engine with other *options*, and mask their credentials in place.

        Raises:
            RequestInvalid: An option is invalid.
        """
        return self.copy(self.settings.changed(options))

    def for_one_seller(self) -> Engine:
        """Return an engine that accepts only tokens of the seller that its first token names."""
        return self.copy(self.settings, bearer=self._bearer.of_one_seller())

    async def call(self, operation: Operation[B, R], body: B | None = None, **arguments: object) -> Result[R]:
        """Carry out *operation*, and return its value with all that is known about the call.

        See `PaymentsClient.call` for the arguments and the errors.
        """
        begin = cast("Callable[..., Awaitable[Result[R]]]", self._begin)
        try:
            return await begin(operation, body, **arguments)
        except PaymentsError as error:
            error.account = self.settings.account
            error.operation = error.operation or getattr(operation, "name", None)
            raise

    async def general_value(self, operation: Operation[B, R], body: B | None, arguments: Mapping[str, object]) -> R:
        """Carry out *operation* with any *arguments* of `call`, and return only its value."""
        begin = cast("Callable[..., Awaitable[Result[R]]]", self._begin)
        try:
            return (await begin(operation, body, **arguments)).value
        except PaymentsError as error:
            error.account, error.operation = self.settings.account, error.operation or operation.name
            raise

    def _begin(
        self,
        operation: Operation[B, R],
        body: B | None,
        *,
        query: Mapping[str, object] | None = None,
        idempotency_key: str | UUID | None = None,
        first_sent_at: datetime | None = None,
        once: str | None = None,
        not_after: datetime | timedelta | None = None,
        defer: bool = False,
        headers: Mapping[str, str] | None = None,
        **path: PathValue,
    ) -> Awaitable[Result[R]]:
        """Check what the caller passes, and return an awaitable that carries it out."""
        headers = masked_values(headers) if headers else headers
        intent = make_intent(
            operation,
            body,
            path,
            headers,
            query,
            settings=self.settings,
            clock=self.runtime.clock,
            key=idempotency_key,
            first_sent_at=first_sent_at,
            derives_key=once is not None,
        )
        self.runtime.ensure_open()
        if once is not None or not_after is not None or defer:
            if (write := self.runtime.write_by_name) is None:
                raise RequestInvalid("once", "needs a journal: PaymentsClient(journal=SQLiteJournal(...))")
            return write(self, intent, once, not_after=not_after, defer=defer)
        call = self.call_for(intent)
        return observed(call, call.run) if self.settings.observers else call.run()

    async def value(self, operation: Operation[B, R], body: B | None, path: dict[str, PathValue]) -> R:
        """Carry out *operation*, and return only its value.

        Raises:
            PaymentsError: The same errors as from `call`.
        """
        plan: Plan[B, R] | None = self._plans[operation] if operation in self._plans else self._plan(operation)
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

    def _plan(self, operation: Operation[B, R]) -> Plan[B, R] | None:
        """Make the plan of *operation*; `None` if its calls need something that an inline attempt leaves out."""
        runtime, plan = self.runtime, None
        if self._signer is None and runtime.platform_clock is None and is_plain(operation, self.settings):
            name = next(iter(operation.path_names), None)
            before, _, behind = operation.path.partition(f"{{{name}}}")
            plan = Plan(
                operation,
                direct(runtime.transport),
                runtime,
                self.settings,
                self._seller_key,
                self._bearer,
                self.call_for,
                before,
                name,
                behind,
            )
        self._plans[operation] = plan
        return plan

    def call_for(self, intent: Intent[B, R], gate: Gate | None = None) -> Call[B, R]:
        """Return a call that carries out *intent*. Its deadline begins when it runs. *gate* may forbid its attempts."""
        secrets = self.settings.header_secrets
        if intent.headers:
            secrets += secret_values(intent.headers)
        credential = Credential(self._bearer, self._signer, self._exchange, secrets)
        runtime, started = self.runtime, self.runtime.clock.monotonic()
        call = Call(runtime, self.settings, self._seller_key, intent, intent.operation, started, credential=credential)
        call.gate = gate
        if intent.first_sent_at is not None or (gate is not None and gate.in_doubt):
            call.history = History.begun(intent.first_sent_at, runtime.clock)
        return call

    def _exchange(self, refresh_token: str) -> Awaitable[TokenPair]:
        return self.runtime.exchange(self, refresh_token)

    # --- the seller and the platform's time: for the journal, and for the directory of a reconciliation ---------------

    async def seller(self) -> str:
        """Return the platform's user id of the seller, from the end of the token; with a signer, the account's name.

        Raises:
            NotSent, RefreshFailed: There is no token.
            RequestInvalid: The token has no user id, or the client signs and has no account.
        """
        if self._signer is not None:
            if self.settings.account is None:
                raise RequestInvalid("account", "must name the seller if a signer is used: use client.account(name)")
            return self.settings.account
        if (seller := await self.user_id()) is None:
            raise RequestInvalid("access_token", "does not end with the seller's user id, which `once` needs")
        return seller

    async def user_id(self) -> str | None:
        """Return the user id in the token, or `None` if the token has none.

        A refresh keeps the user id. If the token must be waited for, this makes a read to get it, and a second read if
        the first token expires meanwhile.

        Raises:
            NotSent, RefreshFailed: There is no token.
        """
        if self._signer is not None:
            return None
        for reads_left in (2, 1, 0):
            with suppress(Exception):  # The read below reports what the token source raised.
                if self._bearer.token(self.runtime.clock.now()) is not None:
                    return self._bearer.user_id
            if reads_left:
                await self.runtime.read(self)
        raise NotSent("no token: each token expired before it could be used")

    async def learn_time(self) -> None:
        """Learn the platform's time with a read, unless a response has told it in the last 5 minutes.

        Raises:
            NotSent: The time could not be read.
            PaymentsError: There is no token.
        """
        clock = self.runtime.platform_clock
        if clock is None or clock.is_fresh(clock.moment()):
            return
        try:
            await self.runtime.read(self)
        except (NotSent, RefreshFailed) as error:
            raise NotSent(f"the platform's time could not be read: {error}") from None
        if not clock.is_fresh(clock.moment()):
            raise NotSent("the platform's time could not be read: no response has a Date")


class Recorder(Engine):
    """An engine that also keeps the result of its last call, for `PaymentsClient.with_result`."""

    def __init__(self, engine: Engine, results: list[Result[object]]) -> None:
        super().__init__(engine.runtime, engine.settings, origin=engine.origin)
        self._recorded = engine
        self.results = results

    def copy(self, settings: Settings, *, bearer: Bearer | None = None) -> Engine:
        """See `Engine.copy`."""
        return Recorder(self._recorded.copy(settings, bearer=bearer), self.results)

    async def call(self, *arguments: Any, **options: Any) -> Result[Any]:  # noqa: ANN401 - those of `Engine.call`
        """See `Engine.call`."""
        result = await self._recorded.call(*arguments, **options)
        self.results[:] = [result]  # Only the last: a walk may have any number of pages.
        return result

    async def general_value(self, operation: Operation[B, R], body: B | None, arguments: Mapping[str, object]) -> R:
        """See `Engine.general_value`."""
        return cast("R", (await self.call(operation, body, **arguments)).value)

    async def value(self, operation: Operation[B, R], body: B | None, path: dict[str, PathValue]) -> R:
        """See `Engine.value`."""
        return await self.general_value(operation, body, path)


def engine_of(caller: Engine | Caller) -> Engine:
    """Return the engine of *caller*, which may be an engine itself."""
    return caller if isinstance(caller, Engine) else caller._engine  # noqa: SLF001 - what a `Caller` is


def of_one_seller(caller: C) -> C:
    """Return a copy of *caller* that accepts only tokens of the seller that its first token names."""
    return caller._copy(caller._engine.for_one_seller())  # noqa: SLF001 - what a `Caller` is
