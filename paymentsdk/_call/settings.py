"""The two halves of a client: its settings, some of which a copy changes, and the state that all its copies share."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict, get_args
from uuid import UUID
from weakref import WeakSet

from msgspec import Struct, structs

from paymentsdk._auth.schemes import NoToken, StaticToken, check_scheme
from paymentsdk._call.deadline import Deadlines, Timeout
from paymentsdk._call.flow import Flow, FlowControl
from paymentsdk._call.limiter import Priority
from paymentsdk._call.retry import RetryBudgets, RetryPolicy
from paymentsdk._contract.operation import Limits
from paymentsdk._headers import check_headers, masked_values, merged, secret_values
from paymentsdk._secrets import masked
from paymentsdk._validate import ALLOW_HTTP, is_loopback
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports.base import DiscardingTransport, Response, Transport, header

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from paymentsdk._auth.accounts import Accounts
    from paymentsdk._auth.refresh import RefreshingToken
    from paymentsdk._auth.schemes import AuthScheme, Credentials
    from paymentsdk._clock import Clock
    from paymentsdk.events import Observer
    from paymentsdk.journal._call import Journaling

#: The header that the id of the buyer's device goes with (4.4), unless a client is told its real name.
SESSION_HEADER = "X-Platform-Session-Id"
_KEY = re.compile(r"[!-~]{1,64}\Z")
_PORTS = {"http": 80, "https": 443}
_BASE_URL = r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_~]+)(?::[0-9]{1,5})?(?:/[A-Za-z0-9.\-_~%]+)*/?\Z"


class CallOptions(TypedDict, total=False):
    """What a copy of a client, or of one of its resources, may do in another way; `None` changes nothing."""

    access_token: str | None
    """Another seller's token, in place of the client's. The copy belongs to no `account`, as with `auth`."""
    auth: AuthScheme | None
    """Another source of tokens, such as `RefreshingToken`, or a `Signer`; excludes `access_token`."""
    timeout: Timeout | None
    """Other bounds of the calls: a `Timeout`, in seconds, that replaces the client's as a whole."""
    retry: RetryPolicy | None
    """Another `RetryPolicy`: how many attempts a call has, and how long it waits between them."""
    idempotency_key: str | UUID | None
    """The key of every keyed write of the copy, unless the call gives its own. Two different writes with one key are a
    conflict: use such a copy for one intent."""
    headers: Mapping[str, str] | None
    """Header fields to send in addition to those of the client; one of the same name replaces its value."""
    strict: bool | None
    """`True` rejects a response that breaks the contract, `False` repairs it."""
    observers: Iterable[Observer] | None
    """Functions to call with the events of the copy, instead of those of the client; see `PaymentsClient`."""
    priority: Priority | None
    """`"batch"` for calls that nobody waits for: where calls wait for their turn, they go after all others;
    `"interactive"`, the default."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a client is set up with, and what a copy of it may change. See `PaymentsClient`."""

    base_url: str
    auth: AuthScheme = NoToken()
    credentials: Credentials | None
    timeout: Timeout = Timeout()
    refresh_timeout: float
    retry: RetryPolicy = RetryPolicy()
    limits: Limits
    session_header: str
    headers: Mapping[str, str]
    header_secrets: tuple[str, ...] = ()
    """What in them may be a credential."""
    idempotency_key: str | None = None
    strict: bool = False
    observers: tuple[Observer, ...] = ()
    accounts: Accounts | None = None
    account: str | None = None
    priority: Priority = "interactive"

    def changed(self, options: CallOptions) -> Settings:
        """Return these settings with *options* in place of their own.

        Raises:
            RequestInvalid: An option is invalid.
            TypeError: There is no such option.
        """
        if unknown := sorted(options.keys() - CallOptions.__annotations__.keys()):
            raise TypeError(f"with_options() has no option {', '.join(unknown)}")
        access_token, headers = options.get("access_token"), options.get("headers")
        timeout, retry, strict = options.get("timeout"), options.get("retry"), options.get("strict")
        observers = options.get("observers")
        auth, priority, idempotency_key = options.get("auth"), options.get("priority"), options.get("idempotency_key")
        # Read only after a failure: a defect there would hide that a write is in doubt.
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise RequestInvalid("retry", f"must be a RetryPolicy, not {type(retry).__name__}")
        check_scheme("auth", auth)
        if access_token is not None and auth is not None:
            raise RequestInvalid("auth", "cannot be combined with access_token")
        if priority not in (None, *get_args(Priority)):
            raise RequestInvalid("priority", 'must be "interactive" or "batch"')
        headers = None if headers is None else merged(self.headers, check_headers(headers))
        changes = {
            "auth": auth if access_token is None else StaticToken(access_token),
            "timeout": timeout,
            "retry": retry,
            "idempotency_key": None if idempotency_key is None else check_key(idempotency_key),
            "headers": headers,
            "header_secrets": None if headers is None else secret_values(headers),
            "strict": strict,
            "observers": None if observers is None else tuple(observers),
            "priority": priority,
        }
        given: dict[str, object] = {name: value for name, value in changes.items() if value is not None}
        if "auth" in given:
            given["account"] = None
        return structs.replace(self, **given)

    def with_own(self, copied: Settings, original: Settings) -> Settings:
        """Return these settings, but for what those of a copy, *copied*, have of their own beside the *original*."""
        names = [name for name in self.__struct_fields__ if getattr(copied, name) is not getattr(original, name)]
        given = {name: getattr(copied, name) for name in names}
        if "auth" in given:
            given["account"] = copied.account
        if "headers" in given:
            own = {name: value for name, value in copied.headers.items() if original.headers.get(name) != value}
            given["headers"] = headers = merged(self.headers, own)
            given["header_secrets"] = secret_values(headers)
        return structs.replace(self, **given)


def mask_options(options: CallOptions) -> None:
    """Mask the credentials in *options*, where they are: no traceback of the caller of this shows them."""
    if "access_token" in options:
        options["access_token"] = masked(options["access_token"])
    if "headers" in options:
        options["headers"] = masked_values(options["headers"])


def check_key(key: str | UUID) -> str:
    """Return *key* as a plain text if it can be an idempotency key.

    Raises:
        RequestInvalid: It is neither a UUID nor 1 to 64 visible ASCII characters.
    """
    if isinstance(key, UUID):
        return str(key)
    if not isinstance(key, str) or not _KEY.match(key):
        raise RequestInvalid("idempotency_key", "must be a UUID, or 1 to 64 visible ASCII characters")
    return str.__str__(key)  # Not `str(key)`: that of an Enum is its name, and not the text that was checked.


def check_base_url(base_url: str, *, allow_http: bool | None) -> str:
    """Return *base_url* in one form, however it is written: keys of journaled writes are derived from it.

    That is with the host in lower case, without the default port, and without a slash at the end.

    Every call carries a credential, or obtains one. So plain http is for this machine alone, unless *allow_http* says
    otherwise; if that is ``None``, the environment decides.

    Raises:
        RequestInvalid: It is no http or https address, or one of plain http on another machine. The error does not show
            an address that it cannot read: there may be a password in it.
    """
    parts = _parts(base_url)
    if parts is None or not parts.hostname:
        reason = "must be an http or https address without query, such as https://api.example.com"
        raise RequestInvalid("base_url", reason)
    host = parts.hostname
    if allow_http is None:
        allow_http = os.environ.get(ALLOW_HTTP) == "1"
    if not (allow_http is True or parts.scheme == "https" or is_loopback(host)):
        reason = (
            f"is plain http, and {host} is another machine: whoever is on the way could read the credentials; use "
            f"https, or, on a network that you trust, allow_http=True or {ALLOW_HTTP}=1"
        )
        raise RequestInvalid("base_url", reason)
    port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path.rstrip('/')}"


def _parts(base_url: str) -> SplitResult | None:
    """Return the parts of *base_url*; ``None`` if that is no address to send requests to."""
    if not isinstance(base_url, str) or not re.match(_BASE_URL, base_url):
        return None
    from ipaddress import ip_address  # only who makes a client needs them
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base_url)
        if parts.hostname and ":" in parts.hostname:
            ip_address(parts.hostname)
        port = parts.port
    except ValueError:  # A port above 65535, or an IPv6 address that is none.
        return None
    return None if port == 0 else parts


class ClientState:
    """What a client and all its copies have in common: connections, time, budgets for retries, permits."""

    def __init__(
        self, transport: Transport, clock: Clock, flow: FlowControl, journaling: Journaling | None = None
    ) -> None:
        self.transport: Transport = transport
        self._discarding: DiscardingTransport | None = transport if isinstance(transport, DiscardingTransport) else None
        self.clock: Clock = clock
        self.journaling: Journaling | None = journaling
        self.deadlines: Deadlines = Deadlines(clock)
        self.budgets: RetryBudgets = RetryBudgets()
        self.flow: Flow = Flow(flow, clock)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed: bool = False
        self.refreshing: WeakSet[RefreshingToken] = WeakSet()
        """The tokens that were asked to refresh themselves, as long as somebody has them."""
        self.asking: set[int] = set()
        """The ids of those whose refresh token is with the platform now, sent by this client and no other."""

    def close(self) -> None:
        """Reject further calls, and end the waits of those that are to send something: they will not.

        Raises:
            ClientClosed: The calls belong to another event loop, which still runs; nothing was closed.
        """
        if self.loop is not None and self.loop is not asyncio.get_running_loop() and self.loop.is_running():
            raise ClientClosed("the client belongs to another event loop: close it there")
        self.closed = True
        if self.loop is None or not self.loop.is_closed():  # Else nobody can be told any more.
            self.flow.close()

    def discard(self, response: Response | None) -> None:
        """Have no further request use the connection of *response*, where the transport can do that."""
        if self._discarding is not None and response is not None:
            with suppress(Exception):  # The outcome of the call must not depend on it.
                self._discarding.discard(response)

    def observe_platform_time(self, response: Response) -> None:
        """Take the platform's time from *response*, if a journal counts on it."""
        if self.journaling is not None:
            date, age = header(response.headers, "Date"), header(response.headers, "Age")
            self.journaling.platform_clock.observe(date, age)

    def ensure_open(self) -> asyncio.AbstractEventLoop:
        """Let a call begin, and return the loop that it runs on.

        Raises:
            ClientClosed: The client is closed, its connections belong to another event loop that is not closed, or no
                loop of asyncio runs.
        """
        if self.closed:
            raise ClientClosed("the client is closed")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientClosed("a call needs a running event loop of asyncio; trio has none") from None
        if self.loop is not running:
            self._bind(running)
        return running

    def _bind(self, running: asyncio.AbstractEventLoop) -> None:
        """Have the calls belong to the *running* loop, if there is none yet or the former one is closed.

        A loop that stands still is not given up: it may go on, and with it calls and token refreshes in flight.
        """
        if self.loop is not None:
            if not self.loop.is_closed():
                raise ClientClosed("the client belongs to another event loop; make one client per loop")
            # Nothing of that loop will ever wake up: neither its calls nor the alarm for their deadlines.
            self.deadlines = Deadlines(self.clock)
            self.flow = self.flow.moved()
        self.loop = running
