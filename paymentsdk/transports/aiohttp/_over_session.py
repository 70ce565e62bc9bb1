"""The way over a session, for what is out of the ordinary: a session of the caller's, a proxy, a fresh connection."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Self

import aiohttp
from yarl import URL

from paymentsdk._core.secrets import hide
from paymentsdk._core.settings import is_http
from paymentsdk._core.wire import Request, Response, SendFailed
from paymentsdk.transports.aiohttp._failures import failure_of
from paymentsdk.transports.aiohttp._messages import flaw_of, read_body
from paymentsdk.transports.aiohttp._pool import Pool, Unlisted, connecting_within

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey


async def over_session(
    session: aiohttp.ClientSession, request: Request, *, owned: bool, proxy: str | None, trust_env: bool
) -> Response:
    """Send *request* over *session*, which is *owned* by the transport or somebody else's."""
    if flaw := flaw_of(request):
        # aiohttp would leave some of it out, and send the rest.
        raise SendFailed(flaw, sent=False, permanent=True)
    if not isinstance(session.connector, Pool):
        _drop_spoiled(session)
    url = URL(request.url, encoded=True)
    headers = {**request.headers, "Connection": "close"} if request.fresh else request.headers
    # aiohttp's own `trust_env` takes credentials from `.netrc` as well, and then refuses the token beside them.
    through, login = _without_login(proxy or (_proxy_of_environment(url) if trust_env else None))
    if login and url.scheme == "http":
        headers = {**headers, **login}  # There is no tunnel: the proxy reads the request itself.
    exchange = session.request(
        _ONCE.get(request.method) or _Once(request.method),
        url,
        headers=headers,
        data=request.body or None,
        allow_redirects=False,
        raise_for_status=False,
        auto_decompress=False,
        timeout=connecting_within(request.connect_timeout),
        proxy=through,
        proxy_headers=login,
        # Part of what aiohttp finds a pooled connection by.
        server_hostname=Unlisted(url.raw_host) if request.fresh else None,
    )
    response = await (exchange if owned else _through_middlewares(session, exchange))
    try:
        body = await read_body(response.status, response.headers, response.content, request.max_answer)
    except BaseException:
        response.close()
        raise
    return Response(response.status, response.headers, body)


async def _through_middlewares(
    session: aiohttp.ClientSession, exchange: Awaitable[aiohttp.ClientResponse]
) -> aiohttp.ClientResponse:
    """Return what comes of *exchange* on somebody's session, whose middlewares may send more than once.

    Then the last failure says nothing of the first request: whatever it is, something may have been sent.
    """
    try:
        return await exchange
    except Exception as error:
        failure = failure_of(error)
        if not getattr(session, "_middlewares", ()) or not isinstance(failure, SendFailed):
            raise
    raise SendFailed(failure.reason, sent=True, permanent=failure.permanent)


def _drop_spoiled(session: aiohttp.ClientSession) -> None:
    """Close the next connections of a pool that is not ours if an answer has arrived on them while they were idle.

    aiohttp would hand them out: the next request would take that answer, the one after it the answer to the next, and
    so on as long as the connection lives. Those that were fresh are closed as well: nobody will ask for them again, and
    the server need not close them.
    """
    with contextlib.suppress(Exception):  # With an untested version of aiohttp it may all be different.
        kept: dict[ConnectionKey, Iterable[tuple[ResponseHandler, float]]] = getattr(session.connector, "_conns", {})
        for key in tuple(kept):
            fresh = isinstance(key.server_hostname, Unlisted)
            for protocol, _ in kept.pop(key) if fresh else kept[key]:
                if not fresh and protocol.is_connected() and not protocol.should_close:
                    break  # It is handed out before those behind it.
                protocol.close()


def _proxy_of_environment(url: URL) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - only who asks for it pays for it

    proxy = None if proxy_bypass(url.host or "") else hide(getproxies().get(url.scheme))
    if proxy is not None and not is_http(proxy):
        # aiohttp would speak HTTP to it all the same, and tell it the token.
        raise SendFailed("the proxy in the environment is not an http or https URL", sent=False, permanent=True)
    return proxy


def _without_login(proxy: str | None) -> tuple[URL | None, dict[str, str] | None]:
    """Return *proxy* without its user and password, and the header field that tells it both, if there are any.

    In the URL, aiohttp would show them in its warning of a connection that nobody has closed.
    """
    proxy = hide(proxy)
    if proxy is None:
        return None, None
    url = URL(proxy)
    if (url.raw_user, url.raw_password) == (None, None):
        return url, None
    try:
        login = aiohttp.encode_basic_auth(url.user or "", url.password or "", encoding="latin1")
    except ValueError:
        failure = SendFailed("the proxy's user or password cannot be written as HTTP", sent=False, permanent=True)
    else:
        return url.with_user(None), {"Proxy-Authorization": login}
    # Outside the handler: the error can hold both, so it must not become the context.
    raise failure


class _Once(str):  # noqa: SLOT000 - a str cannot have slots
    """A method that aiohttp does not send again by itself.

    It does so with GET, HEAD, PUT, DELETE and others when a kept connection breaks: it puts the method in capitals and
    looks it up in a set. What this gives for capitals is not found there. In the request it is a plain text again.
    """

    _capitals: Unlisted

    def __new__(cls, method: str) -> Self:
        self = super().__new__(cls, method)
        self._capitals = Unlisted(method)
        return self

    def upper(self) -> str:
        return self._capitals


#: Those of nearly all requests, made beforehand.
_ONCE = {method: _Once(method) for method in ("GET", "POST", "PUT", "DELETE")}
