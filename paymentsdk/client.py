"""The client: settings in, resources out."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Never, ParamSpec, Self, TypeAlias, TypeVar, Unpack, cast

from msgspec import structs

from paymentsdk._auth.accounts import AccountResolver, Accounts
from paymentsdk._auth.refresh import drain
from paymentsdk._auth.schemes import credentials_of
from paymentsdk._auth.token_store import TokenPair
from paymentsdk._call.deadline import RefreshTimeout
from paymentsdk._call.engine import Engine, engine_of
from paymentsdk._call.events import notify
from paymentsdk._call.flow import FlowControl
from paymentsdk._call.runtime import Runtime
from paymentsdk._call.settings import SESSION_HEADER, CallOptions, Settings, SharedOptions, check_base_url
from paymentsdk._clock import Clock, SystemClock
from paymentsdk._contract.operation import Operation
from paymentsdk._headers import check_headers, masked_values
from paymentsdk._secrets import masked
from paymentsdk._validate import check_methods, check_seconds, check_within
from paymentsdk._version import __version__
from paymentsdk.errors import APIError, Incomplete, NoAnswer, NotSent, ReauthorizationRequired, RequestInvalid
from paymentsdk.events import TokenRefreshed
from paymentsdk.transports.base import Transport

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from uuid import UUID

    import aiohttp

    from paymentsdk._call.concurrent_map import MapOutcome
    from paymentsdk._call.engine import Caller
    from paymentsdk._call.response import Result
    from paymentsdk._codec.encode import PathValue
    from paymentsdk.journal import Journal, RecoverySummary
    from paymentsdk.journal._recovery import Backoff, Recovery
    from paymentsdk.journal._turns import Journaling
    from paymentsdk.resources.customers import Customers
    from paymentsdk.resources.invoices import Invoices
    from paymentsdk.resources.merchant_orders import MerchantOrders
    from paymentsdk.resources.oauth import OAuth
    from paymentsdk.resources.orders import Orders
    from paymentsdk.resources.plans import Plans
    from paymentsdk.resources.preferences import Preferences
    from paymentsdk.resources.release_reports import ReleaseReports
    from paymentsdk.resources.wallet_payments import WalletPayments

    # For type checkers: only a property matches a member of a Protocol. At run time, a `cached_property` works as well.
    cached_property = property
else:
    from functools import cached_property

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: Functions that look up records, by the names of their operations: see `Operation.look_up`.
LookUps: TypeAlias = Mapping[str, Callable[..., Awaitable[object]]]

__all__ = ["CallOptions", "ClientOptions"]  # `PaymentsClient` is public at the top level.

_HEADERS = {
    "Accept": "application/json",
    # A compressed response can grow to any size, and truncated gzip looks whole.
    "Accept-Encoding": "identity",
    "User-Agent": f"paymentsdk/{__version__}",
}


class ClientOptions(SharedOptions, total=False):
    """The keyword arguments of `PaymentsClient`, except the address, the token and the application."""

    transport: Transport | None
    """Sends the requests, and is closed with the client. The default is aiohttp."""
    session: aiohttp.ClientSession | None
    """An aiohttp session to use instead of a `transport`. It is neither changed nor closed."""
    refresh_timeout: float
    """Seconds that one token refresh may take, retries included: above 0 and at most 86,400. The default is 60. It is
    independent of every `Timeout`, and the refresh is retried with the client's `retry`. A refresh serves all calls, so
    a copy of the client, or a call that gives up, does not change it."""
    session_header: str
    """The name of the header for the `session_id` of `wallet_payments.create`, `X-Platform-Session-Id` by default. The
    real name contains the operator's brand."""
    clock: Clock | None
    """The source of time and randomness, for tests. The default is the system."""
    allow_http: bool | None
    """Allow plain `http` to another machine, for example between containers: anyone on the network path can read the
    credentials. By default the environment decides: only `PAYMENTSDK_ALLOW_HTTP=1` allows it. This machine is always
    allowed: `localhost` and names below it, `127.0.0.0/8` and `::1`."""
    accounts: AccountResolver | None
    """The credentials of many sellers, for `account`: a mapping or a function from the name of an account to an access
    token, a `TokenPair` or an auth scheme. Each name is looked up once."""
    journal: Journal | None
    """Keeps the writes with a name (`once=`) after the process has ended. It is closed with the client. By default, the
    client has no journal."""
    flow: FlowControl | None
    """How to stay below the sellers' rate limits. By default, a 429 holds the other calls of its seller for a moment.
    The client and all its copies share this state."""


class PaymentsClient:
    """Calls the platform for a seller.

    A client belongs to the event loop of its first call. Once that loop is closed, the next call binds the client to
    its own loop, with new connections. Before that, a call on another loop raises `ClientClosed`. A client is safe to
    use from any number of tasks. Make one per program, not one per call.

    Args:
        access_token: The seller's bearer token. Leave it out to obtain one through ``client.oauth``, or pass ``auth``.
        base_url: The address of the platform (``http://127.0.0.1:8787``), without a query.
        client_id: The id of the application at the token endpoint; requires *client_secret*.
        client_secret: The secret of that application.
        **options: ``accounts``, ``allow_http``, ``auth``, ``clock``, ``flow``, ``headers``, ``journal``, ``observers``,
            ``refresh_timeout``, ``retry``, ``session``, ``session_header``, ``strict``, ``timeout`` and ``transport``.
            See `ClientOptions`.

    Raises:
        RequestInvalid: A setting is invalid.
    """

    own_operations: ClassVar[tuple[Operation[Never, object], ...]] = ()
    """The further operations of a subclass: recovery and the command line find them here."""

    def __init__(
        self,
        access_token: str | None = None,
        *,
        base_url: str,
        client_id: str | None = None,
        client_secret: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        # A rejected address may contain a password.
        base_url, access_token, client_secret = masked(base_url), masked(access_token), masked(client_secret)
        options["headers"] = masked_values(options.get("headers")) or None
        if unknown := sorted(options.keys() - ClientOptions.__annotations__.keys()):
            raise TypeError(f"{type(self).__name__}() has no option {', '.join(unknown)}")
        transport, session = options.get("transport"), options.get("session")
        if transport is not None and session is not None:
            raise RequestInvalid("session", "cannot be combined with transport")
        session_header, accounts = options.get("session_header", SESSION_HEADER), options.get("accounts")
        check_headers({session_header: "any"}, "session_header")
        changes = {name: value for name, value in options.items() if name in SharedOptions.__annotations__}
        settings = Settings(
            base_url=check_base_url(base_url, allow_http=options.get("allow_http")),
            credentials=credentials_of(client_id, client_secret),
            refresh_timeout=check_seconds("refresh_timeout", options.get("refresh_timeout", 60.0)),
            session_header=session_header,
            headers=_HEADERS,
            accounts=None if accounts is None else Accounts(accounts),
        ).changed(cast("CallOptions", {"access_token": access_token, **changes}))
        if transport is None:  # Not `if not transport`: a user's transport may be a list.
            from paymentsdk.transports.aiohttp import AiohttpTransport  # not needed with a user's own transport

            transport = AiohttpTransport(session=session)
        clock = options.get("clock") or SystemClock()
        flow = options.get("flow") or FlowControl()
        runtime = Runtime(transport, clock, settings, flow, exchange=_exchange_refresh_token, read=_read_platform_time)
        self._journaling: Journaling | None = None
        if (journal := options.get("journal")) is not None:
            # A journal without `resolve` would fail only after the write was sent.
            check_methods("journal", journal, "begin", "get", "renew", "resolve", "claim", "records", "aclose")
            from paymentsdk.journal._run import run
            from paymentsdk.journal._turns import Journaling

            journaling = self._journaling = Journaling(journal, clock)
            runtime.write_by_name = partial(run, journaling)
            runtime.observe = journaling.platform_clock.observe
            runtime.platform_time = journaling.platform_clock.now
        self._engine: Engine = Engine(runtime, settings)

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """Make a client from environment variables.

        ``PAYMENTSDK_BASE_URL`` is required. ``PAYMENTSDK_ACCESS_TOKEN``, ``PAYMENTSDK_CLIENT_ID``,
        ``PAYMENTSDK_CLIENT_SECRET`` and ``PAYMENTSDK_ALLOW_HTTP`` are optional. ``PAYMENTSDK_TRANSPORT`` is
        ``aiohttp``, the default, or ``http11``. It is ignored if you pass ``transport`` or ``session``.

        Args:
            **options: The options of `PaymentsClient`, see `ClientOptions`. With ``auth``, the token in the environment
                is ignored.

        Raises:
            RequestInvalid: A variable is missing or invalid.
        """
        base_url = masked(os.environ.get("PAYMENTSDK_BASE_URL"))
        options["headers"] = masked_values(options.get("headers"))
        if not base_url:
            raise RequestInvalid("PAYMENTSDK_BASE_URL", "is not set in the environment; a sandbox prints it")
        if options.get("transport") is None and options.get("session") is None:
            name = os.environ.get("PAYMENTSDK_TRANSPORT") or "aiohttp"
            if name not in ("aiohttp", "http11"):
                raise RequestInvalid("PAYMENTSDK_TRANSPORT", "must be aiohttp or http11")
            if name == "http11":
                from paymentsdk.transports.http11 import Http11Transport  # imported only if it is used

                options["transport"] = Http11Transport()
        return cls(
            None if options.get("auth") is not None else os.environ.get("PAYMENTSDK_ACCESS_TOKEN") or None,
            base_url=base_url,
            client_id=os.environ.get("PAYMENTSDK_CLIENT_ID") or None,
            client_secret=os.environ.get("PAYMENTSDK_CLIENT_SECRET") or None,
            **options,
        )

    def with_options(self, **options: Unpack[CallOptions]) -> Self:
        """Return a copy with other options on the same connections; all other options stay the same.

        The copy is cheap: make one per seller (``access_token``) or per call (``idempotency_key``). Closing it does
        nothing: close the original client. A copy of a subclass has the plain attributes of the original, except
        resources and clients, which would call with the options of the original. Make these, and dicts of them, a
        ``cached_property``: the copy computes them again.

        Args:
            **options: ``access_token`` or ``auth``, ``headers``, ``idempotency_key``, ``observers``, ``priority``,
                ``retry``, ``strict`` and ``timeout``. See `CallOptions`.

        Raises:
            RequestInvalid: An option is invalid.
        """
        return self._copy(self._engine.copy(self._engine.settings.changed(options)))

    def account(self, name: str) -> Self:
        """Return a client for one seller: a copy on the same connections, with the credentials of account *name*.

        The credentials come from `PaymentsClient(accounts=)`. They are looked up at the first use of the name, and
        kept. The client also keeps its state per seller by this name, such as the retry budget. Transports get it as
        `Request.account`.

        Args:
            name: 1 to 100 visible ASCII characters.

        Raises:
            RequestInvalid: The name is invalid, it has no credentials, or the client has no `accounts`.
        """
        settings = self._engine.settings
        if settings.accounts is None:
            reason = "is not set, but a program, a book or a record names an account"
            raise RequestInvalid("accounts", f"{reason}: use PaymentsClient(accounts=...), or --accounts FILE")
        settings = structs.replace(settings, auth=settings.accounts.auth(name), account=name)
        return self._copy(self._engine.copy(settings))

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
        """Carry out *operation*, and return its value with all that is known about the call.

        The methods of the resources do the same. Use `call` to get the attempts, the headers or the anomalies.

        Args:
            operation: One of `OPERATIONS`, or your own operation.
            body: The request body, an instance of ``operation.body``.
            query: The filters of a search.
            idempotency_key: A UUID, or 1 to 64 visible ASCII characters, for keyed operations. Random by default.
            first_sent_at: When your *idempotency_key* was first sent: a datetime with its offset, at most an hour
                ahead. It is in an ``OutcomeUnknown`` or your own records. A failure that settles nothing is then an
                ``OutcomeUnknown``, and nothing is sent more than 23 hours after that time.
            once: A name for the business fact behind a write, such as ``"table-7/1"``: 1 to 200 printable characters.
                Its record in the client's journal is durable before the first byte is sent. Later calls with this name
                return the first result, in every process. Cannot be combined with *idempotency_key*, which is derived
                from the name.
            not_after: For a journaled write: the moment, or the time from now, after which nothing is sent any more,
                not even by recovery. At most 23 hours. The default depends on the operation: the expiration of an
                order, 15 minutes for a cancel, 23 hours for a refund, otherwise the total timeout.
            defer: For a journaled write: if it could not be sent, leave it to recovery and raise `Deferred`. If the
                body holds credentials of a payer, the journal needs a seal.
            headers: Further header fields of this call.
            **path: The values of the placeholders in ``operation.path``: texts, whole numbers or UUIDs.

        Raises:
            RequestInvalid: An argument breaks a rule. Nothing was sent.
            NotSent: No byte reached the platform.
            APIError: The platform rejected the request.
            NoAnswer: A read got no response that can be trusted.
            OutcomeUnknown: A write may have taken effect.
            RefreshFailed: The token could not be refreshed at the moment. Nothing was sent, and it is safe to retry.
            ReauthorizationRequired: The token is rejected and the refresh token is spent.
            ClientClosed: The client is closed, or belongs to another event loop or process.
            RecordConflict: The name *once* belongs to a request with other bytes. Nothing was sent.
            InProgress: Another process works on the record.
            Deferred: Recovery will finish the record; with *defer*.
            JournalUnavailable: The record cannot be kept. Nothing was sent.
        """
        headers = masked_values(headers) if headers else headers
        return await self._engine.call(
            operation,
            body,
            query=query,
            idempotency_key=idempotency_key,
            first_sent_at=first_sent_at,
            once=once,
            not_after=not_after,
            defer=defer,
            headers=headers,
            **path,
        )

    async def with_result(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call *method* of a resource, and return its value with all that is known about its call.

        ``result = await client.with_result(client.orders.create, order)`` has the headers, the attempts, the anomalies
        and the bytes, like the result of `call`. If the method makes several calls, the result is that of the last
        call. A token refresh does not count.

        Args:
            method: A method of a resource, of a search (``pager.first``) or of your own client or resource. It makes
                its calls with the client or resource that it belongs to.
            *args: The positional arguments of *method*.
            **kwargs: The keyword arguments of *method*.

        Raises:
            PaymentsError: The errors of *method*.
            RequestInvalid: *method* is a plain function, and nothing was called. Or it has not made a call.
        """
        owner = cast("Caller", getattr(method, "__self__", None))
        if not hasattr(owner, "_engine"):
            raise RequestInvalid("method", "must be of a client, a resource or a search; nothing was called")
        engine, results = engine_of(owner), list["Result[T]"]()
        recorder = Engine(engine.runtime, engine.settings, engine.bearer, results)
        function = cast("Callable[..., Awaitable[T]]", getattr(method, "__func__"))  # noqa: B009 - type checkers
        value = await function(owner._copy(recorder), *args, **kwargs)  # noqa: SLF001 - what a `Caller` is
        if not results:
            raise RequestInvalid("method", "made no call, so it has no result")
        return structs.replace(results[-1], value=value)

    @property
    def journal(self) -> Journal | None:
        """The journal that was passed to the client; `None` without a journal."""
        return None if self._journaling is None else self._journaling.journal

    @property
    def operations(self) -> Mapping[str, Operation[object, object]]:
        """The operations that the client knows by name: the platform's, and `own_operations`."""
        from paymentsdk.resources import OPERATIONS

        additions = cast("tuple[Operation[object, object], ...]", self.own_operations)
        return {**OPERATIONS, **{operation.name: operation for operation in additions}}

    def _copy(self, engine: Engine) -> Self:
        clone = object.__new__(type(self))
        clone._engine = engine
        for name, value in vars(self).items():
            # A resource would call with the options of the original, so perhaps for another seller.
            is_computed = isinstance(getattr(type(self), name, None), cached_property) or hasattr(value, "_engine")
            if not (is_computed or name == "_engine"):
                vars(clone)[name] = value
        return clone

    async def aclose(self, *, grace: float = 5.0) -> None:
        """Reject further calls, and close the connections.

        Closing has three steps. First, the client waits for a token refresh that was already sent, until its pair is
        saved. Calls that wait for this token are not sent. Second, calls in flight get the transport's time to end
        (``drain`` of `AiohttpTransport`, 5 s) before they fail. Calls that wait for their turn or their next attempt
        fail immediately. Third, the client waits until the journal has the outcomes of the journaled calls, and closes
        the journal. Closing twice is allowed.

        Args:
            grace: Seconds to wait for the token refresh, 0 to 86,400, even if closing is cancelled. After that the
                refresh is cancelled, with a warning in the log: its refresh token may be spent. The journal gets the
                same number of seconds again. After that, recovery settles the records that are left.

        Raises:
            ClientClosed: The client belongs to another event loop that still runs: close it there. It stays open.
            RequestInvalid: *grace* is out of range. The client stays open.
        """
        check_seconds("grace", grace, zero=True)
        runtime = self._engine.runtime
        if self._engine.settings is not runtime.settings:
            return  # This is a copy.
        runtime.close()
        async with AsyncExitStack() as closing:  # Runs the last callback first, even if one raises.
            if self._journaling is not None:
                closing.push_async_callback(self._journaling.journal.aclose)
                closing.push_async_callback(self._journaling.drain, grace)
            closing.push_async_callback(runtime.transport.aclose)
            # Before the transport, which may end requests immediately: the refresh token that was sent is spent.
            if runtime.refreshing:
                await drain(tuple(runtime.refreshing), runtime.asking, runtime.clock, grace)

    def map(
        self,
        function: Callable[[T], Awaitable[R]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        concurrency: int = 16,
        ordered: bool = True,
    ) -> AsyncGenerator[MapOutcome[T, R], None]:
        """Call *function* with each of *items*, several at a time, and yield the outcomes.

            async for outcome in client.map(client.orders.get, ids, concurrency=32):
                print(outcome.item, outcome.error or outcome.value.status)

        A failure is the `error` of its `MapOutcome`, and stops no other call. At most *concurrency* items are read
        ahead of the yielded outcomes, so that neither an endless iterable nor a slow consumer fills the memory. An
        exception of *items* is raised after the outcomes of all calls under way. An exception of *function* that is not
        a `PaymentsError` is a bug: it is raised in place of the call's outcome, and cancels the calls under way. If the
        client is closed, the outcomes are `ClientClosed`: stop reading endless items then.

        Leaving the loop early cancels the calls under way. A write among them may have taken effect. After a `break`,
        Python only does so when it closes the iterator. To decide when, use ``async with
        contextlib.aclosing(client.map(...)) as outcomes:``.

        Args:
            function: The function to call with each item, such as a method of a resource.
            items: Any iterable or async iterable, such as a `Pager`. It is read as calls end, and an async generator is
                closed in the end.
            concurrency: The most calls under way, 1 to 100,000. Calls beyond the transport's connections (500 by
                default) only wait for one.
            ordered: Yield in the order of the items, so that a slow call holds back later outcomes. If false, yield in
                the order in which the calls end.

        Raises:
            RequestInvalid: *concurrency* is out of range. Raised here, not by the iterator.
        """
        from paymentsdk._call.concurrent_map import MOST, outcomes

        check_within("concurrency", concurrency, 1, MOST)
        return outcomes(function, items, concurrency, ordered=ordered)

    async def recover(
        self, *, progress: Callable[[RecoverySummary], None] | None = None, look_up: LookUps | None = None
    ) -> RecoverySummary:
        """Carry out the records that dead processes have left open in the journal. Several processes may do so at once.

        Each record is sent again with its kept address, bytes and key, by its account, until its `not_after`. The
        header fields of its call are kept, too. Those of a client or copy are not kept, as they may be credentials:
        this client's are sent. Records of operations that this client does not have are left open.

        After `not_after`, a cancel and a refund are looked up in the order, and an order in the paid merchant orders.
        If the write is not certain there, such as one of several equal partial refunds, it stays unknown, and a person
        must decide. A record also stays unknown if it was written more than a minute in the future, by the platform's
        clock or the journal's: its age is not known.

        To get the platform's time, recovery reads a page of plans if no response has shown it in the last 5 minutes.
        Problems with one record or one account are in `problems`. The other records go on.

        Args:
            progress: Called after every batch.
            look_up: Functions that look up the records of an operation instead of its `Operation.look_up`, by its name,
                such as ``{"orders.create": paymentsdk.beyond.find_order}``.

        Raises:
            RequestInvalid: The client has no journal, or *look_up* names an unknown operation.
            JournalUnavailable: The journal does not respond. The finished records stay finished.
        """
        return await self._recovery(look_up).run(progress)

    def recovery(self, *, every: float = 5.0, look_up: LookUps | None = None) -> AbstractAsyncContextManager[None]:
        """Recover in the background, now and then again *every* so many seconds, as long as the context lasts.

        A record that stays open is retried after `every` seconds, doubling up to one minute (one hour once it can only
        be looked up). The end of the context does not wait: a record that is being sent then stays claimed until its
        lease ends, usually a minute later.

        Args:
            every: Seconds between the end of one recovery and the next: above 0, at most 86,400.
            look_up: The same as in `recover`.

        Raises:
            RequestInvalid: The same as in `recover`, or *every* is out of range.
        """
        from paymentsdk.journal._recovery import Backoff, repeatedly

        clock = self._engine.runtime.clock
        make = partial(self._recovery, look_up, Backoff(clock.monotonic, check_seconds("every", every)))
        make()  # Raises now, and not in the background.
        return repeatedly(lambda: make().run(), clock.sleep, every)

    def _recovery(self, look_up: LookUps | None, backoff: Backoff | None = None) -> Recovery:
        from paymentsdk.journal._recovery import Recovery

        if self._journaling is None:
            raise RequestInvalid("journal", "is not set: use PaymentsClient(journal=...)")
        operations = dict(self.operations)
        for name, function in (look_up or {}).items():
            if name not in operations:
                reason = f"names {name!r}, which is not an operation of this client, such as orders.create"
                raise RequestInvalid("look_up", reason)
            operations[name] = replace(operations[name], look_up=function)
        observers = self._engine.settings.observers
        return Recovery(self._journaling, self._engine_of, operations, observers, backoff)

    def _engine_of(self, account: str | None) -> Engine:
        return self._engine if account is None else self.account(account)._engine  # noqa: SLF001 - the same class

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        name = type(self).__name__
        if not hasattr(self, "_engine"):  # A traceback shows a client whose settings were rejected.
            return f"<{name} without settings>"
        engine = self._engine
        return f"<{name} {engine.settings.base_url}{' (closed)' if engine.runtime.closed else ''}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a PaymentsClient holds connections and credentials and cannot be pickled")

    # Each resource is imported at its first use: all resources together take longer to import than the engine.

    @cached_property
    def oauth(self) -> OAuth:
        """Tokens (4.1)."""
        from paymentsdk.resources.oauth import OAuth

        return OAuth(self)

    @cached_property
    def preferences(self) -> Preferences:
        """Checkout preferences (4.3)."""
        from paymentsdk.resources.preferences import Preferences

        return Preferences(self)

    @cached_property
    def wallet_payments(self) -> WalletPayments:
        """Wallet payments (4.4)."""
        from paymentsdk.resources.wallet_payments import WalletPayments

        return WalletPayments(self)

    @cached_property
    def plans(self) -> Plans:
        """Subscription plans (4.5, 4.6)."""
        from paymentsdk.resources.plans import Plans

        return Plans(self)

    @cached_property
    def invoices(self) -> Invoices:
        """Invoices of subscriptions (4.2)."""
        from paymentsdk.resources.invoices import Invoices

        return Invoices(self)

    @cached_property
    def merchant_orders(self) -> MerchantOrders:
        """Merchant orders (4.7)."""
        from paymentsdk.resources.merchant_orders import MerchantOrders

        return MerchantOrders(self)

    @cached_property
    def customers(self) -> Customers:
        """Customers (4.8)."""
        from paymentsdk.resources.customers import Customers

        return Customers(self)

    @cached_property
    def release_reports(self) -> ReleaseReports:
        """Release reports (4.9)."""
        from paymentsdk.resources.release_reports import ReleaseReports

        return ReleaseReports(self)

    @cached_property
    def orders(self) -> Orders:
        """In-person QR orders (4.10 to 4.13)."""
        from paymentsdk.resources.orders import Orders

        return Orders(self)


async def _exchange_refresh_token(engine: Engine, refresh_token: str) -> TokenPair:
    """Exchange *refresh_token* with the client's settings, not with a copy's, whose deadline may be too short.

    The retries come from the budget of the seller: failures of one seller must not cost another seller its retries.
    """
    from paymentsdk.resources.oauth import OAuth

    refresh_token, runtime, settings = masked(refresh_token), engine.runtime, engine.settings
    started, patience = runtime.clock.monotonic(), settings.refresh_timeout
    terms = structs.replace(
        runtime.settings, auth=settings.auth, account=settings.account, timeout=RefreshTimeout(patience, patience / 2)
    )
    runtime.asking.add(id(settings.auth))
    try:
        # The access token is checked when it is used: even with a bad access token, the refresh token must be kept.
        pair = (await OAuth(Engine(runtime, terms)).refresh(refresh_token)).pair(runtime.clock.now())
    finally:
        runtime.asking.discard(id(settings.auth))
    if settings.observers:
        elapsed = runtime.clock.monotonic() - started
        event = TokenRefreshed(account=settings.account, elapsed=elapsed, expires_at=pair.expires_at)
        notify(event, settings.observers)
    return pair if pair.refresh_token else structs.replace(pair, refresh_token=str(refresh_token))


async def _read_platform_time(engine: Engine) -> None:
    """Make a read, to get the `Date` of its response, and a token if there is none."""
    from paymentsdk.resources.plans import Plans

    try:
        await Plans(engine).search(page_size=1).first()
    except ReauthorizationRequired:
        raise
    except APIError:
        return  # Its response had a `Date`, too.
    except (Incomplete, NoAnswer) as error:
        raise NotSent(str(error)) from None
