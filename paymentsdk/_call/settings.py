"""`Settings`: the settings of a client, and `CallOptions`, those of them that a copy may change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict
from uuid import UUID

from msgspec import Struct, structs

from paymentsdk._auth.schemes import NoToken, StaticToken, check_scheme
from paymentsdk._call.deadline import Timeout
from paymentsdk._call.limiter import Priority
from paymentsdk._call.verdicts import RetryPolicy
from paymentsdk._headers import check_headers, masked_values, merged, secret_values
from paymentsdk._secrets import masked
from paymentsdk._validate import ALLOW_HTTP, is_loopback
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._auth.accounts import Accounts
    from paymentsdk._auth.schemes import AuthScheme, Credentials
    from paymentsdk.events import Observer

#: The header that the id of the buyer's device goes with (4.4), unless a client is told its real name.
SESSION_HEADER = "X-Platform-Session-Id"
_KEY = re.compile(r"[!-~]{1,64}\Z")
_PORTS = {"http": 80, "https": 443}
#: The resolver drops the higher bits of a larger one: the token would go to another server.
_LAST_PORT = 65535
#: The scheme, the host, the port and the path.
_BASE_URL = re.compile(
    r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_~]+)(?::([0-9]{1,5}))?((?:/[A-Za-z0-9.\-_~%]+)*/?)\Z"
)


class SharedOptions(TypedDict, total=False):
    """What a client is set up with and a copy of it may change; `None` is the default, or changes nothing."""

    auth: AuthScheme | None
    """A source of tokens such as `RefreshingToken`, or a `Signer`; excludes `access_token`."""
    timeout: Timeout | None
    """How long calls may take: by default 60 s in all, 30 s per attempt, 5 s to connect. A copy replaces it whole."""
    retry: RetryPolicy | None
    """When a failed call is tried again: by default up to 4 attempts."""
    headers: Mapping[str, str] | None
    """Header fields to send with every request; those of a copy are added to those of the client, or replace them."""
    strict: bool | None
    """`True` rejects a response that breaks the contract; `False`, the default, repairs it. After a write, the
    rejection is an `OutcomeUnknown`. A token is accepted all the same: its grant is already spent."""
    observers: Iterable[Observer] | None
    """Functions that are called with what happens to the calls, see `paymentsdk.events`. They must not block; what
    they raise is logged and dropped. Those of a copy are called in place of those of the client."""


class CallOptions(SharedOptions, total=False):
    """What a copy of a client, or of one of its resources, may do in another way; `None` changes nothing."""

    access_token: str | None
    """Another seller's token, in place of the client's. The copy belongs to no `account`, as with `auth`."""
    idempotency_key: str | UUID | None
    """The key of every keyed write of the copy, unless the call gives its own. Two different writes with one key are a
    conflict: use such a copy for one intent."""
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
        """Return a copy of these settings with *options*, whose credentials are masked in place.

        Raises:
            RequestInvalid: An option is invalid.
            TypeError: There is no such option.
        """
        mask_options(options)
        if unknown := sorted(options.keys() - CallOptions.__annotations__.keys()):
            raise TypeError(f"with_options() has no option {', '.join(unknown)}")
        changes: dict[str, object] = {name: value for name, value in options.items() if value is not None}
        if (access_token := options.get("access_token")) is not None:
            if "auth" in changes:
                raise RequestInvalid("auth", "cannot be combined with access_token")
            del changes["access_token"]
            changes["auth"] = StaticToken(access_token)
        if "auth" in changes:
            check_scheme("auth", options.get("auth"))
            changes["account"] = None
        # Read only after a failure: a defect there would hide that a write is in doubt.
        if not isinstance(changes.get("retry", self.retry), RetryPolicy):
            raise RequestInvalid("retry", f"must be a RetryPolicy, not {type(changes['retry']).__name__}")
        if (key := options.get("idempotency_key")) is not None:
            changes["idempotency_key"] = check_key(key)
        if (headers := options.get("headers")) is not None:
            changes["headers"] = fields = merged(self.headers, check_headers(headers))
            changes["header_secrets"] = secret_values(fields)
        if (observers := options.get("observers")) is not None:
            changes["observers"] = tuple(observers)
        return structs.replace(self, **changes)


def mask_options(options: CallOptions) -> None:
    """Mask the credentials in *options* in place, so that no traceback shows them."""
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
    """Return *base_url* in one form, since keys of journaled writes are derived from it.

    The host is in lower case, and the default port and the slash at the end are left out.

    Every call carries or obtains a credential. So plain http is for this machine alone, unless *allow_http* is true.
    If it is ``None``, the environment decides.

    Raises:
        RequestInvalid: It is no http or https address, or plain http to another machine. The error does not show an
            address that cannot be read: there may be a password in it.
    """
    match = _BASE_URL.match(base_url) if isinstance(base_url, str) else None
    if match is None or not 0 < int(match[3] or _PORTS[match[1]]) <= _LAST_PORT:
        reason = "must be an http or https address without query, such as https://api.example.com"
        raise RequestInvalid("base_url", reason)
    scheme, host, port = match[1], match[2].lower(), int(match[3] or _PORTS[match[1]])
    if allow_http is None:
        allow_http = os.environ.get(ALLOW_HTTP) == "1"
    if not (allow_http is True or scheme == "https" or is_loopback(host.strip("[]"))):
        reason = (
            f"is plain http, and {host.strip('[]')} is another machine: anyone on the network path could read the "
            f"credentials; use https, or, on a network that you trust, allow_http=True or {ALLOW_HTTP}=1"
        )
        raise RequestInvalid("base_url", reason)
    return f"{scheme}://{host}{'' if port == _PORTS[scheme] else f':{port}'}{match[4].rstrip('/')}"
