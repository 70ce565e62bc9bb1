"""The fast transport: it has its own `asyncio.Protocol`.

This file sends requests, and opens, keeps and closes their connections. `_http11_connection` reads and writes one
connection. `_pool` has the queue for connections, and closes them.
"""

from __future__ import annotations

import asyncio
import re
import ssl as tls
import time
from collections import deque
from contextlib import suppress
from functools import cache, partial
from socket import AF_UNSPEC, AddressFamily, gaierror

from msgspec import Struct, field

from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports._http11_connection import Connection
from paymentsdk.transports._pool import (
    HOST_BEGINS,
    LARGE,
    POOL_SIZE,
    Pool,
    PooledTransport,
    closed_while_waiting,
    flaw_of,
    overslept,
    words_of_system,
)
from paymentsdk.transports.base import Exchange, Request, Response, SendFailed

__all__: list[str] = []  # Public at the top level: import them from there.

#: Only the transport sets these header fields: they frame the request, or decide whether its connection goes on.
_OWN_FIELDS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"})
#: The most bytes of one read.
_READ = 64 * 1024
#: Methods without a `Content-Length` if the request has no body.
_BODILESS = frozenset({"GET", "HEAD"})
#: The beginning of a URL: the scheme, the host, and the optional port.
_ORIGIN = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}
_PORTS_END = 2**16
#: Why a connection failed, and whether every later one will fail. The first match counts.
_FAILURES = (
    (tls.SSLCertVerificationError, "the server's certificate does not verify", True),
    (tls.SSLError, "the TLS handshake failed", False),
    (gaierror, "the host name was not resolved", False),
    (TimeoutError, "no connection in time", False),
    (ValueError, "the host name is malformed", True),  # Raised by the codec for host names.
    (Exception, "no connection to the server", False),
)


class Http11Transport(PooledTransport["ConnectionPool"]):
    """Sends requests over its own connections, at less than half the cost of a bare aiohttp session.

    It only speaks HTTP/1.1 over TCP and TLS, with one request at a time on each connection: for proxies, traces or
    resolvers use `AiohttpTransport`. It follows no redirects, keeps no cookies, resends nothing, and accepts no
    compressed response. A request with `fresh`, or of more than 64 KiB, uses a new connection.

    A response that parsers can read differently fails: with a bare line feed, a blank in the name of a header field, a
    folded field, two lengths, or a length together with chunks. If more bytes arrive than the response has, or if
    anything arrives on an idle connection, the connection is not used again. If a whole surplus response arrives after
    the next request was sent, it counts as the response to that request, as with any HTTP/1.1 client.

    The first requests open the connections, which belong to their event loop and process. Once that loop is closed, the
    next loop that uses the transport begins with new connections. Over TLS, a response that has neither a length nor
    chunks ends with its connection, and may be cut off, which asyncio does not report. Then it is not valid JSON, and
    the engine does not trust it.

    The caller enforces `Request.timeout` by cancelling `send`. The transport then closes the connection. The transport
    enforces `Request.connect_timeout`, which covers the wait for a place in the pool, DNS, TCP and TLS.

    Args:
        ssl: A context for https. By default a context that trusts the system's authorities. `False` checks no
            certificate: use it only for tests.
        limit: The most connections, 500 by default, including idle ones. 0 for no limit. Requests beyond it wait in
            turn.
        keepalive_timeout: Seconds after which an idle connection carries no further request, 15 by default. 0 keeps no
            connection. It is closed when another becomes idle, or when it would be used.
        family: `socket.AF_INET` or `AF_INET6`, to connect only to addresses of this family.
        drain: Seconds that requests in flight get to end when the transport is closed. The default is 5.

    Raises:
        RequestInvalid: An option is invalid.
    """

    def __init__(
        self,
        *,
        ssl: tls.SSLContext | bool = True,
        limit: int = POOL_SIZE,
        keepalive_timeout: float = 15.0,
        family: AddressFamily = AF_UNSPEC,
        drain: float = 5.0,
    ) -> None:
        if not isinstance(ssl, tls.SSLContext | bool):
            raise RequestInvalid("ssl", "must be an ssl.SSLContext, True or False")
        new_pool = partial(ConnectionPool, limit, keepalive_timeout, ssl=ssl, family=family)
        super().__init__(new_pool, drain)

    async def _exchange(self, pool: ConnectionPool, request: Request, within: float | None) -> Response:
        origin, target = _split(request.url)
        server = pool.servers.get(origin)
        if server is None:
            server = pool.servers[origin] = _parse(origin)
        if (flaw := flaw_of(request, _OWN_FIELDS)) is not None:
            raise SendFailed(flaw, sent=False, permanent=True)
        fresh = request.fresh or len(request.body) > LARGE
        message = _serialized(request, target, server.host_field, fresh=fresh)
        connection = None if fresh else pool.take(server)
        if connection is None:
            connection = await pool.connect(server, within)
        head = request.method == "HEAD"
        response = connection.send(message, pool.loop, request.max_response, head=head, keep=not fresh)
        try:
            return await response
        except asyncio.CancelledError:
            connection.cancel(response)
            raise

    def prepare(self, request: Request, key_header: str | None) -> object | None:
        """See `paymentsdk.transports.base.DirectTransport`."""
        pool, (origin, base) = self._pool, _split(request.url)
        server = None if pool is None or request.method == "HEAD" else pool.servers.get(origin)
        if server is None or flaw_of(request, _OWN_FIELDS) is not None:
            return None
        fields = {"Host": server.host_field, **request.headers}
        lines = "".join(f"\r\n{name}: {value}" for name, value in fields.items())
        return PreparedHead(
            origin,
            f"{request.method} {base.rstrip('/')}".encode(),
            (f" HTTP/1.1{lines}" + ("" if key_header is None else f"\r\n{key_header}: ")).encode(),
            has_length=request.method not in _BODILESS,
            most=request.max_response,
        )

    def begin(
        self, head: object, target: str, key: str | None, body: bytes, loop: asyncio.AbstractEventLoop
    ) -> Exchange | None:
        """See `paymentsdk.transports.base.DirectTransport`."""
        pool = self._pool
        if not isinstance(head, PreparedHead) or pool is None or pool.usable_on is not loop:
            return None
        server = pool.servers.get(head.origin)
        if server is None or len(body) > LARGE or not pool.enter():
            return None
        if (connection := pool.take(server)) is None:
            pool.leave()
            return None
        line, value = target.encode(), b"" if key is None else key.encode()
        length = b"\r\nContent-Length: %d\r\n\r\n" % len(body) if head.has_length or body else b"\r\n\r\n"
        # A view, as in `send`.
        message = memoryview(head.start + line + head.fields + value + length + body)
        response = connection.send(message, loop, head.most, head=False, keep=True)
        return response, partial(pool.end, connection, response)


class PreparedHead(HiddenRepr, Struct, eq=False):
    """The head of requests that differ only in their target, their key and their body. It holds a token."""

    origin: str
    """The beginning of the URLs, up to the path."""
    start: bytes
    """The bytes before the target."""
    fields: bytes
    """The bytes after the target, up to the value of the key if the operation has one."""
    has_length: bool
    """Whether the length of the body follows, even if there is no body."""
    most: int
    """The most bytes of a response's body."""


class Server(Struct, eq=False):
    """A server, with its connections."""

    host: str
    port: int
    host_field: str
    """The value of the header field `Host`."""
    place: str
    """Host and port, as failures show them."""
    secure: bool
    idle: deque[Connection] = field(default_factory=deque)
    """The connection that was used last is at the end, and is used next, so that unneeded connections grow old."""


class ConnectionPool(Pool):
    """The connections of one transport on one event loop; see `Http11Transport` for the options."""

    def __init__(
        self, limit: int, keepalive_timeout: float, *, ssl: tls.SSLContext | bool, family: AddressFamily
    ) -> None:
        super().__init__(limit)
        self.connections: set[Connection] = set()
        self._keepalive_timeout = keepalive_timeout
        self._ssl = ssl
        self._family = family
        #: All connections read into it, one after the other. By default, asyncio allocates 256 KiB for each read.
        self._buffer = memoryview(bytearray(_READ))
        #: The servers so far, by the beginning of their URLs.
        self.servers: dict[str, Server] = {}
        #: The timeouts of connections that are being opened; closing the pool ends them.
        self._bounds: set[asyncio.Timeout] = set()

    @property
    def open_connections(self) -> int:
        """See `Pool.open_connections`."""
        return len(self.connections)

    def take(self, server: Server) -> Connection | None:
        """Return the idle connection that was used last, if nothing has arrived on it; `None` without one."""
        while server.idle:
            connection = server.idle.pop()
            if connection.is_usable() and time.monotonic() < connection.idle_until:
                return connection
            connection.abort()
        return None

    def end(self, connection: Connection, response: asyncio.Future[Response]) -> None:
        """End a request: abort its *connection* if the *response* has not come."""
        connection.cancel(response)
        self.leave()

    async def connect(self, server: Server, within: float | None) -> Connection:
        """Open a connection in at most *within* seconds, for a request that has a place.

        Raises:
            SendFailed: It could not be opened.
            ClientClosed: The pool was closed meanwhile.
        """
        self._make_room()
        connection = Connection(self._buffer, partial(self._release, server), self.connections.discard)
        self.connections.add(connection)
        bound, began = asyncio.timeout(within), time.time()
        failure: SendFailed | ClientClosed | None = None
        try:
            context = _context(verify=self._ssl) if isinstance(self._ssl, bool) and server.secure else self._ssl
            async with bound:
                self._bounds.add(bound)
                await self.loop.create_connection(
                    lambda: connection,
                    server.host,
                    server.port,
                    family=self._family,
                    ssl=context if server.secure else None,
                )
            # A TLS connection may have a ticket to read; without TLS, nothing arrives before the request.
            if not connection.is_usable(unread=server.secure):
                failure = SendFailed("the server closed the connection, or sent data, before the request", sent=False)
            elif overslept(began, within):
                failure = _connect_error(TimeoutError(), server)
        except (OSError, ValueError, RuntimeError) as error:
            failure = _connect_error(error, server)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._bounds.discard(bound)
        if self.closed:
            failure = closed_while_waiting()
        if failure is not None:
            connection.abort()
            raise failure  # Outside the handler: the system's error must not be its context.
        return connection

    def _make_room(self) -> None:
        """Close the oldest idle connection if the limit leaves no room for another: idle connections count, too.

        An idle connection exists then, since the caller has a place for a request.
        """
        while len(self.connections) >= self.limit:  # Some may have been closed by their servers.
            idle = [server.idle for server in self.servers.values() if server.idle]
            min(idle, key=lambda connections: connections[0].idle_until).popleft().abort()

    def _release(self, server: Server, connection: Connection) -> None:
        """Keep the *connection* to a *server* after a request, and close connections that were idle too long."""
        now = time.monotonic()
        while server.idle and server.idle[0].idle_until <= now:
            server.idle.popleft().abort()
        if self._keepalive_timeout and not self.closed:
            connection.idle_until = now + self._keepalive_timeout
            server.idle.append(connection)
        else:
            connection.abort()

    async def abort(self) -> None:
        """See `Pool.abort`."""
        await super().abort()
        for bound in () if self.loop.is_closed() else self._bounds:
            if not bound.expired():
                bound.reschedule(self.loop.time())  # The pool closes them, so their tasks must not be cancelled.
        for connection in tuple(self.connections):
            # RuntimeError: a closed event loop can do nothing.
            with suppress(RuntimeError):
                connection.abort(SendFailed("the transport was closed"))
        await asyncio.sleep(0)  # Sockets are closed in the next turn of the event loop.


def _parse(origin: str) -> Server:
    """Return the server that *origin* names.

    Raises:
        SendFailed: It is not the beginning of an http or https URL.
    """
    match = _ORIGIN.fullmatch(origin)
    scheme, name, digits = ("http", "", "0") if match is None else match.groups()
    default = _PORTS[scheme]
    port = int(digits or default)
    if not 0 < port < _PORTS_END:
        raise SendFailed("the URL is not an http or https URL with an ASCII host", sent=False, permanent=True)
    place = f"{name}:{port}"
    return Server(name.strip("[]"), port, name if port == default else place, place, secure=scheme == "https")


def _connect_error(error: Exception, server: Server) -> SendFailed:
    """Return the failure for a connection that could not be opened, in the system's words and without secrets."""
    reason, permanent = next((reason, permanent) for kind, reason, permanent in _FAILURES if isinstance(error, kind))
    return SendFailed(f"{reason} ({server.place}){words_of_system(error)}", sent=False, permanent=permanent)


def _serialized(request: Request, target: str, host: str, *, fresh: bool) -> memoryview:
    """Return the bytes of *request*, behind a view: tracebacks show variables (CONTRIBUTING: frames)."""
    body = request.body
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {host}", *map(": ".join, request.headers.items())]
    if fresh:
        lines.append("Connection: close")
    if body or request.method not in _BODILESS:
        lines.append(f"Content-Length: {len(body)}")
    return memoryview("\r\n".join((*lines, "", "")).encode() + body)


def _split(url: str) -> tuple[str, str]:
    """Return the beginning of *url* up to its path, and the rest without the fragment, which is not sent."""
    url = url.partition("#")[0]
    end = url.find("/", HOST_BEGINS)
    return (url, "/") if end < 0 else (url[:end], url[end:])


@cache
def _context(*, verify: bool) -> tls.SSLContext:
    """Return the context that all transports without their own context share; making one takes 20 ms."""
    context = tls.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = tls.CERT_NONE
    return context
