"""The base of `PaymentsClient`: checks what the caller gives, prepares the call, and runs it. See `call.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, cast

from msgspec import structs

from paymentsdk._auth.schemes import Credentials, Seller, signer_or_tokens
from paymentsdk._auth.token_store import TokenPair
from paymentsdk._call.call import Call
from paymentsdk._call.credential import Bearer, Credential, user_id
from paymentsdk._call.events import observed
from paymentsdk._call.failures import AttemptFailed
from paymentsdk._call.intent import Intent, make_intent
from paymentsdk._call.plan import Plan, direct, is_plain
from paymentsdk._call.response import Result
from paymentsdk._call.settings import CallOptions, ClientState, Settings
from paymentsdk._codec.encode import PathValue
from paymentsdk._contract.operation import Operation
from paymentsdk._headers import masked_values, secret_values
from paymentsdk._secrets import masked
from paymentsdk.errors import NotSent, PaymentsError, RefreshFailed, RequestInvalid

if TYPE_CHECKING:
    from uuid import UUID

    from paymentsdk.journal._call import PlatformClock
    from paymentsdk.transports.base import Response

B = TypeVar("B")
E = TypeVar("E", bound="Engine")
R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")

#: Where the results of the calls go that a method makes inside of `with_result`.
_RESULTS: ContextVar[list[Result[object]] | None] = ContextVar("paymentsdk_results", default=None)


@contextmanager
def unreported() -> Iterator[None]:
    """Keep what the client asks by itself out of `with_result`, also in a task that was begun inside of it.

    The response to a token refresh has credentials in it.
    """
    token = _RESULTS.set(None)
    try:
        yield
    finally:
        _RESULTS.reset(token)


class Engine(ABC):
    """Makes calls with the settings of one client or copy, and the state that all its copies share."""

    def __init__(self, state: ClientState, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        # Whom the calls are for: the name of the account, or what identifies its auth scheme.
        self._seller_key = Seller(settings.auth) if settings.account is None else settings.account
        self._signer, tokens = signer_or_tokens(settings.auth)
        self._bearer = Bearer(tokens)
        #: The plans of the operations that it has called; `None` for one whose calls take the general way.
        self._plans: dict[object, Plan[Any, Any] | None] = {}

    @abstractmethod
    async def _exchange_refresh_token(self, refresh_token: str) -> TokenPair:
        """Ask the platform for a new token pair."""

    @property
    def credentials(self) -> Credentials | None:
        """The application at the token endpoint, if the client was given one."""
        return self._settings.credentials

    @property
    def session_header(self) -> str:
        """The name of the header that carries the id of the buyer's device (4.4)."""
        return self._settings.session_header

    @abstractmethod
    def with_options(self, **options: Unpack[CallOptions]) -> Self:
        """Return a copy with other options."""

    def _engine_of_copy(self, clone: Self, engine: Engine) -> Engine:
        """Return what calls for *clone*, a copy of this client, as *engine* does for this: with options of its own.

        That is *engine* itself where it is another client's.
        """
        if engine is self or engine._state is not self._state:
            return clone if engine is self else engine
        twin = clone._twin()
        Engine.__init__(twin, self._state, clone._settings.with_own(engine._settings, self._settings))
        return twin

    def _twin(self, **other: object) -> Self:
        """Return one with the same attributes but for *other*."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), **other)
        return twin

    async def with_result(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call *method* of a resource, and return what it returns with all that is known about its call.

        ``result = await client.with_result(client.orders.create, order)``: the headers, the attempts, the anomalies
        and the bytes, which `call` gives as well. If a method makes several calls, they are those of the last one; what
        the client asks by itself meanwhile, such as for a new token, does not count.

        Args:
            method: The method, which may be one of your own.
            *args: Its arguments.
            **kwargs: The same.

        Raises:
            PaymentsError: Whatever *method* raises.
            RequestInvalid: It has made no call.
        """
        results: list[Result[object]] = []
        token = _RESULTS.set(results)
        try:
            value = await method(*args, **kwargs)
        finally:
            _RESULTS.reset(token)
        if not results:
            raise RequestInvalid("method", "has made no call, so there is no result")
        # Also for the caller of this, which may be a method that was called in the same way.
        return _add_result(structs.replace(cast("Result[T]", results[-1]), value=value))

    async def call(
        self,
        operation: Operation[B, R],
        body: B | None = None,
        *,
        query: Mapping[str, object] | None = None,
        idempotency_key: str | UUID | None = None,
        first_sent_at: datetime | None = None,
        once: str | None = None,
        not_after: datetime | timedelta | None = None,
        defer: bool = False,
        headers: Mapping[str, str] | None = None,
        **path: PathValue,
    ) -> Result[R]:
        """Carry out *operation* and return its value with all that is known about it.

        The methods of the resources call it, too; use it for the attempts, the headers or the anomalies.

        Args:
            operation: One of `OPERATIONS`, or one of your own.
            body: The request body, an instance of ``operation.body``.
            query: The filters of a search.
            idempotency_key: A UUID, or 1 to 64 visible ASCII characters, for operations that take one; random by
                default.
            first_sent_at: When the key, one of yours, was sent for the first time: a datetime with its offset, at most
                an hour ahead, as an ``OutcomeUnknown`` or your own records say it. A failure that settles nothing is
                then an ``OutcomeUnknown``, and nothing is sent more than 23 hours after that time.
            once: Names the business fact that a write states, such as ``"table-7/1"``: 1 to 200 printable characters.
                Its record in the client's journal is durable before the first byte is sent; the same name later
                returns what became of it, in every process. Excludes *idempotency_key*, which is derived from it.
            not_after: For a journaled write: the moment, or the time from now, after which nothing is sent any more,
                also by recovery; at most 23 hours. By default what the operation says: the expiration of an order, 15
                minutes for a cancel, 23 hours for a refund, else the total timeout.
            defer: For a journaled write: leave to recovery what could not be sent, and raise `Deferred`. Where the body
                holds credentials of a payer, the journal needs a seal.
            headers: Further header fields of this call.
            **path: The values of the placeholders in ``operation.path``: texts, whole numbers or UUIDs.

        Raises:
            RequestInvalid: Something breaks a rule; nothing was sent.
            NotSent: No byte reached the platform.
            APIError: The platform rejected it.
            NoAnswer: A read got no response that can be trusted.
            OutcomeUnknown: A write may have taken effect.
            RefreshFailed: The token could not be refreshed for now; nothing was done, trying again is safe.
            ReauthorizationRequired: The token is rejected and the refresh token is spent.
            ClientClosed: The client is closed, or belongs to another event loop or process.
            RecordConflict: The name *once* belongs to a request with other bytes; nothing was sent.
            InProgress: Another process works on the record.
            Deferred: Recovery will finish the record; with *defer*.
            JournalUnavailable: The record cannot be kept; nothing was sent.
        """
        headers = masked_values(headers) if headers else headers
        try:
            derives_key = once is not None
            key, sent_at = idempotency_key, first_sent_at
            intent = self._prepare(
                operation, body, path, headers, query, key=key, first_sent_at=sent_at, derives_key=derives_key
            )
            call = self._call_for(intent)
            if once is None and not_after is None and not defer:
                made = call.run()
            else:
                from paymentsdk._call.once import call_once  # only who has a journal needs it

                made = call_once(call, once, self._seller, self._learn_time, not_after=not_after, defer=defer)
            result = await (observed(call, made) if self._settings.observers else made)
        except PaymentsError as error:
            error.account = self._settings.account
            error.operation = error.operation or getattr(operation, "name", None)
            raise
        return result if _RESULTS.get() is None else _add_result(result)

    async def _value(self, operation: Operation[B, R], body: B | None, path: dict[str, PathValue]) -> R:
        """Carry out *operation* and return its value: what `call` does, for whoever needs no more than that.

        Raises:
            PaymentsError: Whatever `call` raises.
        """
        plan: Plan[B, R] | None = self._plans[operation] if operation in self._plans else self._plan(operation)
        if plan is None or _RESULTS.get() is not None:
            return await self._general_value(operation, body, path)
        call, response = None, cast("Response", None)
        try:
            if (begun := plan.begin(body, path)) is None:
                return await self._general_value(operation, body, path)
            try:
                response = await begun.exchange.response
            except BaseException as error:  # noqa: BLE001 - the call says what it means
                call = plan.call(begun, error.with_traceback(None))
            finally:
                begun.exchange.end()
            if call is None:
                if (value := plan.read(response, begun)) is not None:
                    plan.succeeded(begun)
                    return value
                call = plan.call(begun, response)
                del response
            del begun  # By its traceback, an error would hold the task that it ends, and the response.
            return (await call.run()).value
        except PaymentsError as error:
            error.account, error.operation = self._settings.account, error.operation or operation.name
            raise

    async def _general_value(self, operation: Operation[B, R], body: B | None, path: dict[str, PathValue]) -> R:
        call = cast("Callable[..., Awaitable[Result[R]]]", self.call)
        return (await call(operation, body, **path)).value

    def _plan(self, operation: Operation[B, R]) -> Plan[B, R] | None:
        """Make the plan of *operation*, if its calls need nothing that an inline attempt leaves out."""
        state, plan = self._state, None
        is_own = getattr(self.call, "__func__", None) is Engine.call  # Else a subclass is to see each call.
        if is_own and self._signer is None and state.journaling is None and is_plain(operation, self._settings):
            name = next(iter(operation.path_names), None)
            before, _, behind = operation.path.partition(f"{{{name}}}")
            plan = Plan(
                operation,
                direct(state.transport),
                state,
                self._settings,
                self._seller_key,
                self._bearer,
                self._exchange_refresh_token,
                before,
                name,
                behind,
            )
        self._plans[operation] = plan
        return plan

    async def _seller(self) -> str:
        """Return the platform's id of the seller whose token is sent; if one has to be waited for, a read is made.

        Raises:
            NotSent: There is no token, or each has ended meanwhile; so `RefreshFailed`.
            RequestInvalid: The token names no user.
        """
        if self._signer is not None:
            if self._settings.account is None:
                raise RequestInvalid("account", "names the seller, as no token does: use client.account(name)")
            return self._settings.account
        token, failure = self._token(), None
        for _ in range(2):  # A token may end while it is obtained; the next call gets another.
            if token is None and failure is None:
                failure = await self._try_to_read()
                token = self._token()
        if token is None:
            raise failure or NotSent("there is no token: whenever the platform had been asked for one, it has ended")
        seller = user_id(token)
        if seller is None:
            raise RequestInvalid("access_token", "does not end with the seller's user id, which `once` stands on")
        return seller

    async def _learn_time(self, clock: PlatformClock) -> PaymentsError | None:
        """Read the platform's time unless *clock* was told lately; return why it cannot be had."""
        if clock.is_fresh():
            return None
        failure = await self._try_to_read()
        if failure is None and not clock.is_fresh():
            failure = NotSent("the platform's time is not known: no response has a Date")
        return failure

    async def _try_to_read(self) -> PaymentsError | None:
        try:
            await self._read_platform_time()
        except (NotSent, RefreshFailed) as error:
            return error
        return None

    async def _platform_and_seller(self) -> tuple[str, str | None]:
        """Return the address of the platform, and the seller: the name of the account, or the user id in the token.

        The user id stays when a token is refreshed. A signer names no seller, and neither do some tokens. If a token
        has to be waited for, a read is made for it.
        """
        if self._settings.account is not None or self._signer is not None:
            return self._settings.base_url, self._settings.account
        if (token := self._token()) is None:
            await self._read_platform_time()
            token = self._token()
        return self._settings.base_url, user_id(token)

    def _token(self) -> str | None:
        """Return the token of the seller, masked; `None` if one has to be waited for.

        Or if its source has raised something: the read that is made for a token says what.
        """
        with suppress(AttemptFailed):
            return masked(self._bearer.token(self._state.clock.now()))
        return None

    @abstractmethod
    async def _read_platform_time(self) -> None:
        """Make a read, for the `Date` of its response, and for a token if there is none."""

    def _prepare(
        self,
        operation: Operation[B, R],
        body: B | None,
        path: dict[str, PathValue],
        headers: Mapping[str, str] | None,
        query: Mapping[str, object] | None = None,
        *,
        key: str | UUID | None = None,
        first_sent_at: datetime | None = None,
        derives_key: bool = False,
        target: str | None = None,
    ) -> Intent[B, R]:
        """Check what the caller gives, and return the request that all attempts send; see `make_intent`.

        Raises:
            RequestInvalid: Something breaks a rule.
            ClientClosed: The client is closed, or belongs to another event loop.
        """
        self._state.ensure_open()
        return make_intent(
            operation,
            body,
            path,
            headers,
            query,
            settings=self._settings,
            clock=self._state.clock,
            key=key,
            first_sent_at=first_sent_at,
            derives_key=derives_key,
            target=target,
        )

    def _call_for(self, intent: Intent[B, R]) -> Call[B, R]:
        """Return a call that carries out *intent*; its deadline begins when it is run."""
        secrets = self._settings.header_secrets
        if intent.headers:
            secrets += secret_values(intent.headers)
        credential = Credential(self._bearer, self._signer, self._exchange_refresh_token, secrets)
        started = self._state.clock.monotonic()
        return Call(self._state, self._settings, self._seller_key, credential, intent=intent, started=started)


def of_one_seller(engine: E) -> E:
    """Return what makes the calls of one walk, as *engine* does: all for the seller of the first."""
    return engine._twin(_bearer=engine._bearer.of_one_seller(), _plans={})  # noqa: SLF001 - no program has to ask for it


def _add_result(result: Result[R]) -> Result[R]:
    """Return *result*, after giving it to `with_result`."""
    results = _RESULTS.get()
    if results is not None:
        results[:] = [cast("Result[object]", result)]  # The last alone: there may be as many as a walk has pages.
    return result
