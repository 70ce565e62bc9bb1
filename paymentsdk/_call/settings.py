"""`Settings` of a client, and `CallOptions`, which a copy of the client may change."""

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

#: The header for the id of the buyer's device (4.4), unless the client is given another name for it.
SESSION_HEADER = "X-Platform-Session-Id"
_KEY = re.compile(r"[!-~]{1,64}\Z")
_PORTS = {"http": 80, "https": 443}
#: The resolver drops the higher bits of a larger port, so the token would go to another server.
_LAST_PORT = 65535
#: The scheme, the host, the port and the path.
_BASE_URL = re.compile(
    r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_~]+)(?::([0-9]{1,5}))?((?:/[A-Za-z0-9.\-_~%]+)*/?)\Z"
)


class SharedOptions(TypedDict, total=False):
    """Options that you pass to a client, and that a copy may change; `None` is the default, or changes nothing."""

    auth: AuthScheme | None
    """A source of tokens such as `RefreshingToken`, or a `Signer`. Cannot be combined with `access_token`."""
    timeout: Timeout | None
    """How long calls may take: by default 60 s in total, 30 s per attempt, 5 s to connect. A copy replaces all."""
    retry: RetryPolicy | None
    """When a failed call is retried: by default up to 4 attempts."""
    headers: Mapping[str, str] | None
    """Header fields of every request. A copy adds its fields to the client's. The same name replaces a field."""
    strict: bool | None
    """`True` rejects a response that breaks the contract. `False`, the default, repairs it. After a write, the
    rejection is an `OutcomeUnknown`. A token response is always accepted, because its grant is already spent."""
    observers: Iterable[Observer] | None
    """Functions that are called with the events of the calls, see `paymentsdk.events`. They must not block. If
    they raise, the exception is logged and dropped. The observers of a copy replace those of the client."""


class CallOptions(SharedOptions, total=False):
    """Options that a copy of a client, or of a resource, may change; `None` changes nothing."""

    access_token: str | None
    """Another seller's token, instead of the client's. The copy belongs to no `account`, as with `auth`."""
    idempotency_key: str | UUID | None
    """The key of every keyed write of the copy, unless a call passes its own. Use such a copy for one write only: two
    different writes with one key are a conflict."""
    priority: Priority | None
    """`"batch"` for calls that can wait: they wait behind all interactive calls of the client. The default is
    `"interactive"`."""


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a client, and of a copy of it. See `PaymentsClient`."""

    base_url: str
    auth: AuthScheme = NoToken()
    credentials: Credentials | None
    timeout: Timeout = Timeout()
    refresh_timeout: float
    retry: RetryPolicy = RetryPolicy()
    session_header: str
    headers: Mapping[str, str]
    header_secrets: tuple[str, ...] = ()
    """Values of the headers that may be credentials."""
    idempotency_key: str | None = None
    strict: bool = False
    observers: tuple[Observer, ...] = ()
    accounts: Accounts | None = None
    account: str | None = None
    priority: Priority = "interactive"

    def changed(self, options: CallOptions) -> Settings:
        """Return a copy of these settings with *options*.

        Their credentials are masked in place, so that no traceback shows them.

        Raises:
            RequestInvalid: An option is invalid.
            TypeError: An option has an unknown name.
        """
        if "access_token" in options:
            options["access_token"] = masked(options["access_token"])
        if "headers" in options:
            options["headers"] = masked_values(options["headers"])
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
        # Checked here: the policy is read only after a failure, and an error then would hide that a write is in doubt.
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


def check_key(key: str | UUID) -> str:
    """Return *key* as a plain string if it can be an idempotency key.

    Raises:
        RequestInvalid: The key is neither a UUID nor 1 to 64 visible ASCII characters.
    """
    if isinstance(key, UUID):
        return str(key)
    if not isinstance(key, str) or not _KEY.match(key):
        raise RequestInvalid("idempotency_key", "must be a UUID, or 1 to 64 visible ASCII characters")
    return str.__str__(key)  # Not `str(key)`, which returns the name of an Enum and not the checked text.


def check_base_url(base_url: str, *, allow_http: bool | None) -> str:
    """Return the normal form of *base_url*: the journal derives the keys of writes from it.

    The host is in lower case. The default port and the slash at the end are left out.

    Every call carries or obtains a credential. So plain http is only for this machine, unless *allow_http* is true. If
    it is ``None``, the environment decides.

    Raises:
        RequestInvalid: This is not an http or https address, or it is plain http to another machine. The error does not
            show an address that cannot be read, because it may contain a password.
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
