"""What a client is set up with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct

from paymentsdk._engine.deadline import Timeout
from paymentsdk._engine.limiter import Priority
from paymentsdk._engine.retry import RetryPolicy
from paymentsdk._operation.operation import Limits
from paymentsdk._validate import ALLOW_HTTP, is_loopback
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from urllib.parse import SplitResult

    from paymentsdk._auth.accounts import Accounts
    from paymentsdk._auth.schemes import AuthScheme, Credentials
    from paymentsdk.events import Attempt, Observer

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
    idempotency_key: str | None
    """The key of every keyed write of the copy, unless the call gives its own. Two different writes with one key are a
    conflict: use such a copy for one intent."""
    headers: Mapping[str, str] | None
    """Header fields to send in addition to those of the client; one of the same name replaces its value."""
    strict: bool | None
    """`True` rejects a response that breaks the contract, `False` repairs it."""
    observers: Iterable[Observer] | None
    """Functions to call with the events of the copy, instead of those of the client; see `PaymentsClient`."""
    observer: Callable[[Attempt], None] | None
    """The former name of `observers`, for one function that is called after every attempt alone."""
    priority: Priority | None
    """`"batch"` for calls that nobody waits for: where calls wait for their turn, they go after all others;
    `"interactive"`, the default."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a client is set up with, and what a copy of it may change. See `PaymentsClient`."""

    base_url: str
    auth: AuthScheme
    credentials: Credentials | None
    timeout: Timeout
    refresh_timeout: float
    retry: RetryPolicy
    limits: Limits
    session_header: str
    headers: Mapping[str, str]
    idempotency_key: str | None
    strict: bool
    observers: tuple[Observer, ...] = ()
    accounts: Accounts | None = None
    account: str | None = None
    priority: Priority = "interactive"


def check_key(key: str) -> str:
    """Return *key* as a plain text if it can be an idempotency key.

    Raises:
        RequestInvalid: It is not 1 to 64 visible ASCII characters.
    """
    if not isinstance(key, str) or not _KEY.match(key):
        raise RequestInvalid("idempotency_key", "must be 1 to 64 visible ASCII characters")
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
    if not (allow_http or parts.scheme == "https" or is_loopback(host)):
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
