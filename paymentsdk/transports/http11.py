"""The fast transport: an `asyncio.Protocol` of our own over httptools; it comes with the extra `fast`.

This file is the way of a request. `_http11_pool` has the connections, `_pool` the queue for them and their end, and
`_http11_connection` what goes over one.
"""

from __future__ import annotations

import asyncio
import re
import ssl as tls
from functools import cache
from socket import AF_UNSPEC, AddressFamily

from paymentsdk.errors import RequestInvalid
from paymentsdk.transports._http11_connection import PIECE, ConnectionResponse
from paymentsdk.transports._http11_pool import ConnectionPool, Options, parse_origin
from paymentsdk.transports._pool import POOL_SIZE, PooledTransport, check_numbers
from paymentsdk.transports.base import Request, Response, SendFailed

__all__: list[str] = []  # Public at the top level, which is where to import them from.

#: What no line of a request may hold; a tab may stand in the value of a header field.
_CONTROLS = bytes({*range(32), 127} - {ord("\t")})
#: Header fields that say how the request is framed, or whether its connection goes on: they are the transport's.
_OWN_FIELDS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"})

#: A method, or the name of a header field (RFC 9110, 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Methods whose requests have no `Content-Length` without a body.
_BODILESS = frozenset({"GET", "HEAD"})
#: Where the host of a URL can begin at the latest: the path comes after.
_SCHEME = len("https://")


class Http11Transport(PooledTransport[ConnectionPool]):
    """Carries requests over connections of its own, at less than half of the cost of a bare aiohttp session.

    It speaks HTTP/1.1 over TCP and TLS, one request at a time on each connection, and nothing else: for proxies,
    traces or resolvers use `AiohttpTransport`. It follows no redirects, keeps no cookies, sends nothing twice, and
    takes no compressed response. What different parsers read differently is no response: a bare line feed, a blank in
    the name of a header field, a folded field, two lengths, a length with chunks. If more bytes arrive than the
    response has, or anything arrives on an idle connection, the connection is not used again.

    The connections are opened by the first requests, and belong to their event loop and process. When that loop is
    closed, the next one to use the transport begins with new connections.

    Over TLS, a response that has neither a length nor chunks ends when its connection does. asyncio does not tell
    whether TLS was ended properly, so it may have been cut off: then it is not valid JSON, and the engine does not
    trust it.

    The caller keeps `Request.timeout`, by cancelling `send`; the transport then closes the connection. The transport
    keeps `Request.connect_timeout`, which covers the wait for a place in the pool, DNS, TCP and TLS.

    Args:
        ssl: A context for https; by default one that trusts the authorities of the system. `False` checks no
            certificate: for tests.
        limit: Connections at a time, 500 by default, idle ones included; 0 is no limit. Requests beyond it wait in
            turn.
        limit_per_host: The same for each host and port; no limit by default.
        keepalive_timeout: Seconds that an idle connection is kept at most, 15 by default, and at least half of it; 0
            keeps none.
        family: `socket.AF_INET` or `AF_INET6`, to connect to such addresses only.
        drain: Seconds that requests in flight get to end when the transport is closed; 5 by default.

    Raises:
        RequestInvalid: An option is not what it must be.
    """

    def __init__(
        self,
        *,
        ssl: tls.SSLContext | bool = True,
        limit: int = POOL_SIZE,
        limit_per_host: int = 0,
        keepalive_timeout: float = 15.0,
        family: AddressFamily = AF_UNSPEC,
        drain: float = 5.0,
    ) -> None:
        if not isinstance(ssl, tls.SSLContext | bool):
            raise RequestInvalid("ssl", "must be an ssl.SSLContext, True or False")
        check_numbers(
            {"limit": limit, "limit_per_host": limit_per_host}, {"keepalive_timeout": keepalive_timeout, "drain": drain}
        )
        super().__init__(drain)
        self._options = Options(
            context=lambda: _context(verify=ssl) if isinstance(ssl, bool) else ssl,
            limit=limit,
            limit_per_host=limit_per_host,
            keepalive_timeout=keepalive_timeout,
            family=family,
        )
        self._checked_names: tuple[str, ...] = ()

    def _new_pool(self) -> ConnectionPool:
        return ConnectionPool(self._options)

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`.

        Raises:
            SendFailed: No response came that can be used.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
        """
        loop = asyncio.get_running_loop()
        pool = self._pool
        if pool is None or pool.usable_on is not loop:
            pool = await self._bind()
        url = request.url
        end = url.find("/", _SCHEME)
        if end < 0 or "#" in url:
            url = _with_path(url)
            end = url.find("/", _SCHEME)
        server = pool.servers.get(url[:end])
        if server is None:
            server = pool.servers[url[:end]] = parse_origin(url[:end])
        # A view, since tracebacks show variables, but not what is behind a view; and no exception passes its frame.
        message = self._serialize(request, url[end:], server.host_field)
        if message is None:
            raise SendFailed(_flaw(request), sent=False, permanent=True)
        within = request.connect_timeout
        if not pool.enter(server):
            within = await pool.wait(server, within)
        try:
            connection = None if request.fresh else pool.take(server)
            if connection is None:
                connection = await pool.connect(server, within)
            response = connection.send(request, message, loop)
            try:
                if len(request.body) > PIECE:
                    await connection.send_large(request)
                return await response
            except asyncio.CancelledError:
                connection.cancel(response)
                raise
        finally:
            pool.leave(server)

    def discard(self, response: Response) -> None:
        """See `paymentsdk.DiscardingTransport`."""
        if isinstance(response, ConnectionResponse) and response.connection is not None:
            response.connection.discard()

    def _serialize(self, request: Request, target: str, host: str) -> memoryview | None:
        """Return the bytes of *request*, without its body if that is large; `None` if they would not be HTTP."""
        names = tuple(request.headers)
        if names != self._checked_names:  # Nearly always the same ones again.
            if not all(map(_NAME.fullmatch, names)) or not _OWN_FIELDS.isdisjoint(map(str.lower, names)):
                return None
            self._checked_names = names
        body = request.body
        line = f"{request.method} {target}"
        lines = [f"{line} HTTP/1.1", f"Host: {host}", *map(": ".join, request.headers.items())]
        if request.fresh:
            lines.append("Connection: close")
        if body or request.method not in _BODILESS:
            lines.append(f"Content-Length: {len(body)}")
        lines += ("", "")
        try:
            head = "\r\n".join(lines).encode()
        except UnicodeEncodeError:
            return None
        # The only control characters are those that end the lines.
        breaks = 2 * (len(lines) - 1)
        if len(head) - len(head.translate(None, _CONTROLS)) != breaks or line.count(" ") > 1 or "\t" in line:
            return None
        return memoryview(head if len(body) > PIECE else head + body)


def _flaw(request: Request) -> str:
    """Say why *request* cannot be written as HTTP."""
    for name in request.headers:
        if name.lower() in _OWN_FIELDS:
            return f"the header field {name.title()} is up to the transport"
        if not _NAME.fullmatch(name):
            return "the name of a header field has a character that it must not have"
    if not request.url.isprintable() or " " in request.url:
        return "the URL has a blank or a control character in it"
    return "the method, the URL or a header has a character in it that cannot be sent"


def _with_path(url: str) -> str:
    """Return *url* with a path, and without a fragment, which is not sent."""
    url = url.partition("#")[0]
    return url if "/" in url[_SCHEME:] else f"{url}/"


@cache
def _context(*, verify: bool) -> tls.SSLContext:
    """Return the context that all transports without their own have in common; making one takes 20 ms."""
    context = tls.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = tls.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
