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
from paymentsdk._call.engine import Engine, Recorder, engine_of
from paymentsdk._call.events import notify
from paymentsdk._call.flow import FlowControl
from paymentsdk._call.runtime import Runtime
from paymentsdk._call.settings import (
    SESSION_HEADER,
    CallOptions,
    Settings,
    SharedOptions,
    check_base_url,
    mask_options,
)
from paymentsdk._clock import Clock, SystemClock
from paymentsdk._contract.operation import Operation
from paymentsdk._headers import check_headers, masked_values
from paymentsdk._secrets import masked
from paymentsdk._validate import check_methods, check_seconds
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

    # For type checkers: only a property matches the member of a Protocol, as a `cached_property` does when it runs.
    cached_property = property
else:
    from functools import cached_property

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: By the name of an operation, what looks up its records: see `Operation.look_up`.
LookUps: TypeAlias = Mapping[str, Callable[..., Awaitable[object]]]

__all__ = ["CallOptions", "ClientOptions"]  # `PaymentsClient` is public at the top level.

_HEADERS = {
    "Accept": "application/json",
    # A response that has to be unpacked can unpack to anything, and truncated gzip passes for whole.
    "Accept-Encoding": "identity",
    "User-Agent": f"paymentsdk/{__version__}",
}


class ClientOptions(SharedOptions, total=False):
    """The keyword arguments of `PaymentsClient` besides the address, the token and the application."""

    transport: Transport | None
    """Carries the requests, and is closed with the client; aiohttp by default."""
    session: aiohttp.ClientSession | None
    """An aiohttp session to use, in place of `transport`; it is neither changed nor closed."""
    refresh_timeout: float
    """Seconds that the requests of one token refresh may take, with their retries: above 0 and at most 86,400; 60 by
    default. No `Timeout` changes it, and the refresh retries as the `retry` of the client says: it is made once for all
    calls, so a copy of the client, or a call that gives up, has no say in it."""
    session_header: str
    """The name of the header that carries the `session_id` of `wallet_payments.create`, `X-Platform-Session-Id` by
    default; the real name contains the operator's brand."""
    clock: Clock | None
    """Source of time and randomness, for tests; by default that of the system."""
    allow_http: bool | None
    """Allow plain `http` to another machine, as between containers: whoever is on the way can read the credentials. By
    default the environment decides: only `PAYMENTSDK_ALLOW_HTTP=1` allows it. This machine is always allowed:
    `localhost` and names below it, `127.0.0.0/8` and `::1`."""
    accounts: AccountResolver | None
    """The credentials of many sellers, for `account`: a mapping, or a function, from the name of an account to an
    access token, a `TokenPair` or an auth scheme. Each name is looked up once."""
    journal: Journal | None
    """Keeps the writes that are given a name with `once=`, beyond the life of the process; closed with the client. None
    by default."""
    flow: FlowControl | None
    """How to stay below the rate limits of the sellers: by default, only a 429 of a seller holds its other calls for a
    moment. The client and all its copies share what they know of a seller."""


class PaymentsClient:
    """Calls the platform for a seller.

    A client belongs to the event loop that it is first used on, until that loop is closed: then the next call binds it
    to its own loop, with new connections. On another loop, as long as the first is not closed, a call raises
    `ClientClosed`. A client is safe to use from any number of tasks, and cheap to keep: make one per program, not one
    per call.

    Args:
        access_token: The seller's bearer token. Leave it out to obtain one through ``client.oauth``, or give *auth*.
        base_url: The address of the platform (``http://127.0.0.1:8787``), without a query.
        client_id: The application at the token endpoint; goes with *client_secret*.
        client_secret: The secret of that application.
        **options: See `ClientOptions`.

    Raises:
        RequestInvalid: A setting is invalid.
    """

    own_operations: ClassVar[tuple[Operation[Never, object], ...]] = ()
    """The operations that a subclass has beside those of the platform: recovery and the command line find them here."""

    def __init__(
        self,
        access_token: str | None = None,
        *,
        base_url: str,
        client_id: str | None = None,
        client_secret: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        # An address that is rejected may have a password in it.
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
        if transport is None:  # Not where it is false: one of the caller's own may be a list of what it was sent.
            from paymentsdk.transports.aiohttp import AiohttpTransport  # programs with their own do without it

            transport = AiohttpTransport(session=session)
        clock = options.get("clock") or SystemClock()
        self._journaling: Journaling | None = _journaling_with(options.get("journal"), clock)
        write = None
        if self._journaling is not None:
            from paymentsdk.journal._run import run

            write = partial(run, self._journaling)
        runtime = Runtime(
            transport,
            clock,
            options.get("flow") or FlowControl(),
            None if self._journaling is None else self._journaling.platform_clock,
            exchange=_exchange_refresh_token,
            read=_read_platform_time,
            write_by_name=write,
        )
        self._engine: Engine = Engine(runtime, settings)

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """Make a client from environment variables.

        ``PAYMENTSDK_BASE_URL`` is required; ``PAYMENTSDK_ACCESS_TOKEN``, ``PAYMENTSDK_CLIENT_ID`` and
        ``PAYMENTSDK_CLIENT_SECRET`` are not. ``PAYMENTSDK_ALLOW_HTTP`` holds as ever.
        ``PAYMENTSDK_TRANSPORT`` is ``aiohttp``, the default, or ``http11``; it is ignored with ``transport`` or
        ``session``.

        Args:
            **options: See `ClientOptions`. With ``auth``, the token in the environment is ignored.

        Raises:
            RequestInvalid: A variable is missing or invalid.
        """
        base_url = masked(os.environ.get("PAYMENTSDK_BASE_URL"))
        options["headers"] = masked_values(options.get("headers"))
        if not base_url:
            raise RequestInvalid("PAYMENTSDK_BASE_URL", "is not set in the environment; a sandbox prints it")
        if options.get("transport") is None and options.get("session") is None:
            options["transport"] = _transport_named(os.environ.get("PAYMENTSDK_TRANSPORT") or "aiohttp")
        return cls(
            None if options.get("auth") is not None else os.environ.get("PAYMENTSDK_ACCESS_TOKEN") or None,
            base_url=base_url,
            client_id=os.environ.get("PAYMENTSDK_CLIENT_ID") or None,
            client_secret=os.environ.get("PAYMENTSDK_CLIENT_SECRET") or None,
            **options,
        )

    def with_options(self, **options: Unpack[CallOptions]) -> Self:
        """Return a copy with other options, on the same connections; options that are not given stay as they are.

        The copy is cheap: make one per seller (``access_token``) or per call (``idempotency_key``). Closing it does
        nothing: close the client that it comes from. A copy of a subclass has the plain attributes of the original, but
        no resources and clients among them, which would call with the options of the original: make these, and dicts of
        them, a ``cached_property``, which the copy computes anew.

        Args:
            **options: See `CallOptions`.

        Raises:
            RequestInvalid: An option is invalid.
        """
        mask_options(options)
        return self._copy(self._engine.changed(options))

    def account(self, name: str) -> Self:
        """Return the client of one seller: a copy on the same connections that calls with the credentials of *name*.

        They come from `PaymentsClient(accounts=)`, are looked up at the first use of the name, and kept. The name also
        stands for the seller in whatever a client keeps for each of them, such as the budget for retries, and goes to
        transports as `Request.account`.

        Args:
            name: 1 to 100 visible ASCII characters.

        Raises:
            RequestInvalid: The name is none, nobody has credentials for it, or the client has no `accounts`.
        """
        settings = self._engine.settings
        if settings.accounts is None:
            reason = "was not given to this client, but a program, a book or a record names an account"
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
        """Carry out *operation*, and return its value with everything that is known about the call.

        The methods of the resources do the same; use `call` for the attempts, the headers or the anomalies.

        Args:
            operation: One of `OPERATIONS`, or one of your own.
            body: The request body, an instance of ``operation.body``.
            query: The filters of a search.
            idempotency_key: A UUID, or 1 to 64 visible ASCII characters, for operations that take one; random by
                default.
            first_sent_at: When your *idempotency_key* was sent for the first time: a datetime with its offset, at most
                an hour ahead, as an ``OutcomeUnknown`` or your own records say it. A failure that settles nothing is
                then an ``OutcomeUnknown``, and nothing is sent more than 23 hours after that time.
            once: Names the business fact that a write states, such as ``"table-7/1"``: 1 to 200 printable characters.
                Its record in the client's journal is durable before the first byte is sent. The same name later
                returns the first result, in every process. Excludes *idempotency_key*, which is derived from the name.
            not_after: For a journaled write: the moment, or the time from now, after which nothing is sent any more,
                also by recovery; at most 23 hours. By default what the operation says: the expiration of an order, 15
                minutes for a cancel, 23 hours for a refund, else the total timeout.
            defer: For a journaled write: leave to recovery what could not be sent, and raise `Deferred`. If the body
                holds credentials of a payer, the journal needs a seal.
            headers: Further header fields of this call.
            **path: The values of the placeholders in ``operation.path``: texts, whole numbers or UUIDs.

        Raises:
            RequestInvalid: An argument breaks a rule; nothing was sent.
            NotSent: No byte reached the platform.
            APIError: The platform rejected the request.
            NoAnswer: A read got no response that can be trusted.
            OutcomeUnknown: A write may have taken effect.
            RefreshFailed: The token could not be refreshed for now; nothing was sent, and it is safe to retry.
            ReauthorizationRequired: The token is rejected and the refresh token is spent.
            ClientClosed: The client is closed, or belongs to another event loop or process.
            RecordConflict: The name *once* belongs to a request with other bytes; nothing was sent.
            InProgress: Another process works on the record.
            Deferred: Recovery will finish the record; with *defer*.
            JournalUnavailable: The record cannot be kept; nothing was sent.
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
        """Call *method* of a resource, and return its value with everything that is known about its call.

        ``result = await client.with_result(client.orders.create, order)``: the headers, the attempts, the anomalies
        and the bytes, which `call` gives as well. If the method makes several calls, these are those of the last one.
        A token refresh does not count.

        Args:
            method: A method of a resource, of a search (``pager.first``) or of your own client or resource. It makes
                its calls with the client or resource that it belongs to.
            *args: Its arguments.
            **kwargs: The same.

        Raises:
            PaymentsError: The errors of *method*.
            RequestInvalid: *method* is a plain function: nothing was called. Or it has made no call.
        """
        owner = cast("Caller", getattr(method, "__self__", None))
        if not hasattr(owner, "_engine"):
            raise RequestInvalid("method", "is not of a client, a resource or a search, and has made no call")
        recorder = Recorder(engine_of(owner), [])
        function = cast("Callable[..., Awaitable[T]]", getattr(method, "__func__"))  # noqa: B009 - type checkers
        value = await function(owner._copy(recorder), *args, **kwargs)  # noqa: SLF001 - what a `Caller` is
        if not recorder.results:
            raise RequestInvalid("method", "has made no call, so there is no result")
        return structs.replace(cast("Result[T]", recorder.results[-1]), value=value)

    @property
    def journal(self) -> Journal | None:
        """The journal that it was given, if it was given one."""
        return None if self._journaling is None else self._journaling.journal

    @property
    def operations(self) -> Mapping[str, Operation[object, object]]:
        """The operations that the client knows by name: those of the platform, and `own_operations`."""
        from paymentsdk.resources import OPERATIONS

        own = cast("tuple[Operation[object, object], ...]", self.own_operations)
        return {**OPERATIONS, **{operation.name: operation for operation in own}}

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

        Calls in flight get the transport's time to end (``drain`` of `AiohttpTransport`, 5 s), then they fail; calls
        that wait for their turn or their next attempt fail at once. First of all, the client waits for a token refresh
        that has been sent, until its pair is saved. Calls that wait for that token are not sent. Last of all it waits
        until what came of the journaled calls is in the journal, and closes that. Closing twice is allowed.

        Args:
            grace: Seconds to wait for that refresh, 0 to 86,400, also if closing is cancelled. After that it is given
                up, with a warning in the log: its refresh token may be spent. And once more as many for the journal, in
                the same way: after that, what became of a record is left to recovery.

        Raises:
            ClientClosed: The client belongs to another event loop, which still runs: close it there. It stays open.
            RequestInvalid: *grace* is no such number. The client stays open.
        """
        check_seconds("grace", grace, zero=True)
        runtime = self._engine.runtime
        if self._engine.origin is not None:
            return
        runtime.close()
        async with AsyncExitStack() as closing:  # From the last to the first, whatever one of them raises.
            # The calls that are let end still have their deadlines.
            closing.callback(runtime.deadlines.close)
            if self._journaling is not None:
                closing.push_async_callback(self._journaling.journal.aclose)
                closing.push_async_callback(self._journaling.drain, grace)
            closing.push_async_callback(runtime.transport.aclose)
            # First, since a transport may end at once what is in flight: the refresh token that was sent is spent.
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
        """Call *function* with each of *items*, some at a time, and yield what comes of each.

            async for outcome in client.map(client.orders.get, ids, concurrency=32):
                print(outcome.item, outcome.error or outcome.value.status)

        One failure ends nothing: it is the `error` of its `MapOutcome`. At most *concurrency* items are taken ahead of
        what is yielded, so that neither an endless iterable nor a slow consumer fills the memory. What *items* raises
        is raised when all calls under way have been yielded. An exception of *function* that is no `PaymentsError` is a
        defect: it is raised where the outcome of its call would be yielded, and cancels the calls under way. The
        outcomes of a closed client are `ClientClosed`: stop reading endless items then.

        Leaving early cancels the calls under way, too; a write among them may have taken effect. After a `break` that
        happens when Python closes the iterator, so say when: ``async with contextlib.aclosing(client.map(...)) as
        outcomes:``.

        Args:
            function: What is called with one item, such as a method of a resource.
            items: Any iterable, also an async one such as a `Pager`. It is read as calls end, and an async generator is
                closed in the end.
            concurrency: The most calls that are under way, 1 to 100,000. More than the connections of the transport
                (500 by default) only wait for one.
            ordered: Yield in the order of the items, so that a slow call holds those behind it up; else as they end.

        Raises:
            RequestInvalid: *concurrency* is out of range; raised here, not by the iterator.
        """
        from paymentsdk._call.concurrent_map import concurrent_map

        return concurrent_map(function, items, concurrency=concurrency, ordered=ordered)

    async def recover(
        self, *, progress: Callable[[RecoverySummary], None] | None = None, look_up: LookUps | None = None
    ) -> RecoverySummary:
        """Carry out the records that dead processes have left open in the journal; several processes may do so at once.

        Each is sent again to its kept address with its kept bytes and key, by the account that it belongs to, until its
        `not_after`. The header fields of its call are kept, too; those of a client or copy are not, as they may be
        credentials: this client's are sent. A record that is no request of this client's operations is left. After
        `not_after` a cancel and a refund are looked up in the order, and an order among the merchant orders that were
        paid. A write that does not show there for certain, such as one of several equal partial refunds, stays unknown:
        a person has to decide. So does a record that was written more than a minute after now, by the platform's clock
        or the journal's: its age is not known.

        To know the platform's time, it reads a page of plans if no response has told it in the last 5 minutes. What is
        wrong with one record or one account is in `problems`; the others go on.

        Args:
            progress: Called after every batch.
            look_up: By the name of an operation, the function that looks up its records in place of its own
                `Operation.look_up`, such as ``{"orders.create": paymentsdk.beyond.find_order}``.

        Raises:
            RequestInvalid: The client has no journal, or *look_up* names an operation that it does not have.
            JournalUnavailable: The journal does not respond; what was finished before stays so.
        """
        return await self._recovery(self._looked_up_by(look_up)).run(progress)

    def recovery(self, *, every: float = 5.0, look_up: LookUps | None = None) -> AbstractAsyncContextManager[None]:
        """Recover in the background, now and *every* so many seconds, as long as the context lasts.

        A record that stays open is tried again after *every* seconds, then each time after twice as long: at most a
        minute while it may be sent, and an hour once it can only be looked up. The end of the context does not wait: a
        record that is being sent again then is held until its lease ends, as a rule a minute later.

        Args:
            every: Seconds between the end of one recovery and the next: above 0, at most 86,400.
            look_up: As in `recover`.

        Raises:
            RequestInvalid: As in `recover`, or *every* is out of bounds.
        """
        from paymentsdk.journal._recovery import Backoff, repeatedly

        clock = self._engine.runtime.clock
        backoff = Backoff(clock.monotonic, check_seconds("every", every))
        operations = self._looked_up_by(look_up)
        return repeatedly(lambda: self._recovery(operations, backoff).run(), clock.sleep, every)

    def _looked_up_by(self, look_up: LookUps | None) -> Mapping[str, Operation[object, object]]:
        """Return the operations by name, each with its function of *look_up*, if it has one there."""
        operations = dict(self.operations)
        for name, function in (look_up or {}).items():
            if name not in operations:
                reason = f"names {name!r}, which is no operation of this client; one is orders.create"
                raise RequestInvalid("look_up", reason)
            operations[name] = replace(operations[name], look_up=function)
        return operations

    def _recovery(
        self, operations: Mapping[str, Operation[object, object]], backoff: Backoff | None = None
    ) -> Recovery:
        from paymentsdk.journal._recovery import Recovery

        if self._journaling is None:
            raise RequestInvalid("journal", "was not given to this client")
        observers = self._engine.settings.observers
        return Recovery(self._journaling, self._engine_of, operations, observers, backoff)

    def _engine_of(self, account: str | None) -> Engine:
        return self._engine if account is None else self.account(account)._engine  # noqa: SLF001 - it is of this very class

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

    # A program imports the resources that it uses: all of them together take longer than the engine.

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
    """Exchange *refresh_token* on the terms of the client, not of a copy: that may have a deadline of a second.

    The retries come from the budget of the seller: failures for one seller must not cost another its retries.
    """
    from paymentsdk.resources.oauth import OAuth

    refresh_token, runtime, settings = masked(refresh_token), engine.runtime, engine.settings
    started, patience = runtime.clock.monotonic(), settings.refresh_timeout
    terms = structs.replace(
        engine.origin or settings,
        auth=settings.auth,
        account=settings.account,
        timeout=RefreshTimeout(patience, patience / 2),
    )
    runtime.asking.add(id(settings.auth))
    try:
        # The access token is checked when it is used: whatever it is, the refresh token must not be lost.
        pair = (await OAuth(engine.copy(terms)).refresh(refresh_token)).pair(runtime.clock.now())
    finally:
        runtime.asking.discard(id(settings.auth))
    if settings.observers:
        elapsed = runtime.clock.monotonic() - started
        event = TokenRefreshed(account=settings.account, elapsed=elapsed, expires_at=pair.expires_at)
        notify(event, settings.observers)
    return pair if pair.refresh_token else structs.replace(pair, refresh_token=str(refresh_token))


async def _read_platform_time(engine: Engine) -> None:
    """Make a read, for the `Date` of its response, and for a token if there is none."""
    from paymentsdk.resources.plans import Plans

    try:
        await Plans(engine).search(page_size=1).first()
    except ReauthorizationRequired:
        raise
    except APIError:
        return  # Its response had a `Date` as well.
    except (Incomplete, NoAnswer) as error:
        raise NotSent(str(error)) from None


def _journaling_with(journal: Journal | None, clock: Clock) -> Journaling | None:
    if journal is None:
        return None
    # One without `resolve` would show that only after the write was sent.
    check_methods("journal", journal, "begin", "get", "renew", "resolve", "claim", "records", "aclose")
    from paymentsdk.journal._turns import Journaling

    return Journaling(journal, clock)


def _transport_named(name: str) -> Transport | None:
    if name == "aiohttp":
        return None  # It is the default.
    if name != "http11":
        raise RequestInvalid("PAYMENTSDK_TRANSPORT", "must be aiohttp or http11")
    from paymentsdk.transports.http11 import Http11Transport  # only who asks for it pays for it

    return Http11Transport()
