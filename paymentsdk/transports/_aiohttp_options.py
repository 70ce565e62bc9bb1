"""What the transport on aiohttp is given by its caller: a session, numbers, a proxy."""

from __future__ import annotations

import os
from base64 import b64encode
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from paymentsdk._secrets import masked
from paymentsdk._validate import ALLOW_HTTP, is_http, is_loopback
from paymentsdk.errors import RequestInvalid
from paymentsdk.transports.base import SendFailed

if TYPE_CHECKING:
    from paymentsdk.transports._aiohttp_connections import ConnectorOptions


def proxy_for(url: URL, proxy: str | None) -> tuple[URL | None, dict[str, str] | None]:
    """Return *proxy*, or that of the environment for *url*, and the header field that tells it user and password.

    Raises:
        SendFailed: It is none that a request may go through.
    """
    # aiohttp's own `trust_env` takes credentials from `.netrc` as well, and then rejects the token beside them.
    proxy = proxy or _proxy_of_environment(url)
    if proxy is None:
        return None, None
    address, login = _without_login(proxy)
    # Plain http to this machine is allowed because nobody else can read it.
    stays_here = url.scheme == "http" and is_loopback(url.host or "")
    if stays_here and not is_loopback(address.host or "") and os.environ.get(ALLOW_HTTP) != "1":
        reason = f"plain http would show the token to a proxy on another machine: use https, or {ALLOW_HTTP}=1"
        raise SendFailed(reason, sent=False, permanent=True)
    return address, login


def _proxy_of_environment(url: URL) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # only who asks for it pays for it

    proxy = None if proxy_bypass(url.host or "") else masked(getproxies().get(url.scheme))
    if proxy is not None and not is_http(proxy):
        # aiohttp would speak HTTP to it all the same, and tell it the token.
        raise SendFailed("the proxy in the environment is not an http or https URL", sent=False, permanent=True)
    return proxy


def _without_login(proxy: str) -> tuple[URL, dict[str, str] | None]:
    """Return *proxy* without its user and password, and the header field that tells it both, if there are any.

    In the URL, aiohttp would show them in its warning of a connection that nobody has closed.
    """
    url = URL(proxy)
    if (url.raw_user, url.raw_password) == (None, None):
        return url, None
    user, password = url.user or "", url.password or ""
    try:
        login = b64encode(f"{user}:{password}".encode("latin1")).decode() if ":" not in user else ""
    except UnicodeEncodeError:
        login = ""
    if not login:
        # Outside the handler: the error can hold both, so it must not become the context.
        raise SendFailed("the proxy's user or password cannot be written as HTTP", sent=False, permanent=True)
    return url.with_user(None), {"Proxy-Authorization": "Basic " + login}


def check_session(session: object, *, options: bool) -> None:
    if options:
        raise RequestInvalid("session", "cannot be combined with options: its owner has set its own")
    if not isinstance(session, aiohttp.ClientSession):
        # Another library's would send, and then not know what came of it.
        raise RequestInvalid("session", f"must be an aiohttp.ClientSession, not {type(session).__name__}")
    if session.auth is not None:
        raise RequestInvalid("session", "has an auth of its own, and a request carries only one token")


def check_numbers(drain: float, connector: ConnectorOptions) -> None:
    if not _is_number(drain, (int, float)):
        raise RequestInvalid("drain", "must be 0 or more seconds")
    for name in ("limit", "limit_per_host"):
        if not _is_number(connector.get(name, 0), (int,)):
            raise RequestInvalid(name, "must be a whole number; 0 is no limit")
    if not _is_number(connector.get("keepalive_timeout") or 0, (int, float)):
        raise RequestInvalid("keepalive_timeout", "must be 0 or more seconds, or None")


def _is_number(value: object, kinds: tuple[type[int], ...] | tuple[type[int], type[float]]) -> bool:
    """Whether *value* is a number of one of *kinds*, and 0 or more."""
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= 0
