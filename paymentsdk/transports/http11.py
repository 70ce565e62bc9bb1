"""The fast transport: an `asyncio.Protocol` of our own.

This file sends a request, and opens, keeps and closes the connections for it. `_http11_connection` reads and writes one
connection. `_pool` has the queue for connections, and their end.
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
from paymentsdk.transports._http11_connection import Connection, ConnectionResponse
from paymentsdk.transports._pool import (
    HOST_BEGINS,
    LARGE,
    POOL_SIZE,
    Pool,
    PooledTransport,
    closed_while_waiting,
    overslept,
    shared_buffer,
    words_of_system,
)
from paymentsdk.transports.base import Exchange, Request, Response, SendFailed

__all__: list[str] = []  # Public at the top level, which is where to import them from.

#: What no line of a request may hold; a tab may stand in the value of a header field.
_CONTROLS = bytes({*range(32), 127} - {ord("\t")})
#: Header fields that say how the request is framed, or whether its connection goes on: they are the transport's.
_OWN_FIELDS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"})

#: A method, or the name of a header field (RFC 9110, 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Methods whose requests have no `Content-Length` without a body.
_BODILESS = frozenset({"GET", "HEAD"})
#: How a URL begins that leads to a server: its scheme, its host, and its port, if it names one.
_ORIGIN = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}
_PORTS_END = 2**16
#: Seconds that a TLS connection gets to say good-bye.
_SHUTDOWN = 1.0
#: Why there is no connection, and whether there never will be one. The first that fits counts.
_FAILURES = (
    (tls.SSLCertVerificationError, "the server's certificate does not verify", True),
    (tls.SSLError, "the TLS handshake failed", False),
    (gaierror, "the host name was not resolved", False),
    (ValueError, "the host name is malformed", True),  # Of the codec for host names.
    (Exception, "no connection to the server", False),
)


class Http11Transport(PooledTransport["ConnectionPool"]):
    """Carries requests over connections of its own, at less than half of the cost of a bare aiohttp session.

    It speaks HTTP/1.1 over TCP and TLS, one request at a time on each connection, and nothing else: for proxies,
    traces or resolvers use `AiohttpTransport`. It follows no redirects, keeps no cookies, sends nothing twice, and
    takes no compressed response. A request with `fresh`, or of more than 64 KiB, has a connection of its own. What
    different parsers read differently is no response: a bare line feed, a blank in the name of a header field, a folded
    field, two lengths, a length with chunks. If more bytes arrive than the response has, or anything arrives on an idle
    connection, the connection is not used again. A surplus response that arrives once the next request is on its way
    passes for the response to that, as with any client of HTTP/1.1.

    The connections are opened by the first requests, and belong to their event loop and process. When that loop is
    closed, the next one to use the transport begins with new connections. Over TLS, a response that has neither a
    length nor chunks ends when its connection does, and may be cut off, since asyncio does not tell. Then it is not
    valid JSON, and the engine does not trust it.

    The caller keeps `Request.timeout`, by cancelling `send`; the transport then closes the connection. The transport
    keeps `Request.connect_timeout`, which covers the wait for a place in the pool, DNS, TCP and TLS.

    Args:
        ssl: A context for https; by default one that trusts the authorities of the system. `False` checks no
            certificate: for tests.
        limit: Connections at a time, 500 by default, idle ones included; 0 is no limit. Requests beyond it wait in
            turn.
        keepalive_timeout: Seconds after which an idle connection carries no further request, 15 by default; 0 keeps
            none. It is closed when another becomes idle, or when it is its turn.
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
        keepalive_timeout: float = 15.0,
        family: AddressFamily = AF_UNSPEC,
        drain: float = 5.0,
    ) -> None:
        if not isinstance(ssl, tls.SSLContext | bool):
            raise RequestInvalid("ssl", "must be an ssl.SSLContext, True or False")
        new_pool = partial(ConnectionPool, limit, keepalive_timeout, ssl=ssl, family=family)
        super().__init__(new_pool, drain)
        self._checked_names: tuple[str, ...] = ()

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`.

        Raises:
            SendFailed: No response came that can be used.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
        """
        loop, pool = asyncio.get_running_loop(), self._pool
        if pool is None or pool.usable_on is not loop:
            pool = await self._bind()
        url = request.url
        end = url.find("/", HOST_BEGINS)
        if end < 0 or "#" in url:
            url = _with_path(url)
            end = url.find("/", HOST_BEGINS)
        server = pool.servers.get(url[:end])
        if server is None:
            server = pool.servers[url[:end]] = _parse(url[:end])
        # A view, since tracebacks show variables, but not what is behind a view; and no exception passes its frame.
        fresh = request.fresh or len(request.body) > LARGE
        message = self._serialize(request, url[end:], server.host_field, fresh=fresh)
        if message is None:
            raise SendFailed(_flaw(request), sent=False, permanent=True)
        within = request.connect_timeout
        if not pool.enter():
            within = await pool.wait(within)
        try:
            connection = None if fresh else pool.take(server)
            if connection is None:
                connection = await pool.connect(server, within)
            head = request.method == "HEAD"
            response = connection.send(message, loop, request.max_response, head=head, keep=not fresh)
            try:
                return await response
            except asyncio.CancelledError:
                connection.cancel(response)
                raise
        finally:
            pool.leave()

    def prepare(self, request: Request, key_header: str | None) -> object | None:
        """See `paymentsdk.transports.base.DirectTransport`."""
        pool, url = self._pool, request.url
        end = url.find("/", HOST_BEGINS)
        origin = url if end < 0 else url[:end]
        server = None if pool is None or request.method == "HEAD" else pool.servers.get(origin)
        if pool is None or server is None or self._serialize(request, "/", server.host_field, fresh=False) is None:
            return None
        fields = {"Host": server.host_field, **request.headers}
        lines = "".join(f"\r\n{name}: {value}" for name, value in fields.items())
        return PreparedHead(
            origin,
            f"{request.method} {url[len(origin) :]}".encode(),
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

    def discard(self, response: Response) -> None:
        """See `paymentsdk.DiscardingTransport`."""
        if isinstance(response, ConnectionResponse) and response.connection is not None:
            response.connection.discard()

    def _serialize(self, request: Request, target: str, host: str, *, fresh: bool) -> memoryview | None:
        """Return the bytes of *request*; `None` if they would not be HTTP."""
        names = tuple(request.headers)
        if names != self._checked_names:  # Nearly always the same ones again.
            if not all(map(_NAME.fullmatch, names)) or not _OWN_FIELDS.isdisjoint(map(str.lower, names)):
                return None
            self._checked_names = names
        body = request.body
        line = f"{request.method} {target}"
        lines = [f"{line} HTTP/1.1", f"Host: {host}", *map(": ".join, request.headers.items())]
        if fresh:
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
        return memoryview(head + body)


class PreparedHead(HiddenRepr, Struct, eq=False):
    """The head of requests that differ in their target, their key and their body alone. It holds a token."""

    origin: str
    """The beginning of the URLs, up to the path."""
    start: bytes
    """What comes before the target."""
    fields: bytes
    """What comes behind it, up to the value of the key, if the operation takes one."""
    has_length: bool
    """Whether the length of the body follows, also that of none."""
    most: int
    """The most bytes that the body of a response may have."""


class Server(Struct, eq=False):
    """A server that URLs lead to, with its connections."""

    host: str
    port: int
    host_field: str
    """The value of the header field `Host`."""
    place: str
    """Host and port, as failures name them."""
    secure: bool
    idle: deque[Connection] = field(default_factory=deque)
    """The one that was used last is at the end: that end is taken from, so that those not needed grow old."""


class ConnectionPool(Pool[Connection]):
    """The connections of one transport on one event loop; see `Http11Transport` for its options."""

    def __init__(
        self,
        limit: int,
        keepalive_timeout: float,
        *,
        ssl: tls.SSLContext | bool,
        family: AddressFamily,
    ) -> None:
        super().__init__(limit)
        self._keepalive_timeout = keepalive_timeout
        self._ssl = ssl
        self._family = family
        self._buffer = shared_buffer()
        #: Those that there were requests to, by the beginning of their URLs.
        self.servers: dict[str, Server] = {}
        #: Of those who connect; closing the pool ends them.
        self._bounds: set[asyncio.Timeout] = set()

    def take(self, server: Server) -> Connection | None:
        """Return the idle connection that was used last, if there is one on which nothing has arrived since."""
        while server.idle:
            connection = server.idle.pop()
            if connection.is_usable() and time.monotonic() < connection.idle_until:
                return connection
            connection.abort()
        return None

    def end(self, connection: Connection, response: asyncio.Future[Response]) -> None:
        """End a request: break its *connection* off if the *response* has not come."""
        if not response.done() or response.cancelled():
            connection.cancel(response)
        self.leave()

    async def connect(self, server: Server, within: float | None) -> Connection:
        """Open a connection in at most *within* seconds, for who has a place.

        Raises:
            SendFailed: It could not be opened.
            ClientClosed: The pool was closed meanwhile.
        """
        self._make_room()
        connection = Connection(self._buffer, partial(self._release, server), partial(self._forget, server))
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
                    ssl_shutdown_timeout=_SHUTDOWN if server.secure else None,
                )
            # A TLS connection may have a ticket to read; without TLS nothing comes before the request.
            if not connection.is_usable(unread=server.secure):
                failure = SendFailed("the server closed the connection, or spoke, before the request", sent=False)
            elif overslept(began, within):
                failure = connect_error(TimeoutError(), server, in_time=False)
        except (OSError, ValueError, RuntimeError) as error:
            failure = connect_error(error, server, in_time=not bound.expired())
        except BaseException:
            connection.abort()
            raise
        finally:
            self._bounds.discard(bound)
        if self.closed:
            failure = closed_while_waiting()
        if failure is not None:
            connection.abort()
            raise failure  # Outside the handler: the system's error is not its context.
        return connection

    def _make_room(self) -> None:
        """Close the oldest idle connection where the limit has no room for another: idle ones count, too.

        There is one then, since who asks has a place for a request.
        """
        if len(self.connections) >= self.limit:
            oldest = [server.idle[0] for server in self.servers.values() if server.idle]
            min(oldest, key=lambda connection: connection.idle_until).close()

    def _release(self, server: Server, connection: Connection) -> None:
        """Keep the *connection* to a *server*, whose request is done, and close those that were idle for too long."""
        now = time.monotonic()
        while server.idle and server.idle[0].idle_until <= now:
            server.idle[0].close()
        if self._keepalive_timeout and not self.closed:
            connection.idle_until = now + self._keepalive_timeout
            server.idle.append(connection)
        else:
            connection.close()

    def _forget(self, server: Server, connection: Connection) -> None:
        """Take note that the *connection* to a *server* is closed."""
        self.connections.discard(connection)
        with suppress(ValueError):
            server.idle.remove(connection)

    async def abort(self) -> None:
        """See `Pool.abort`."""
        await super().abort()
        for bound in () if self.loop.is_closed() else self._bounds:
            if not bound.expired():
                bound.reschedule(self.loop.time())  # Their tasks are not to be cancelled: nobody has done so.
        for connection in tuple(self.connections):
            # RuntimeError: nothing can be done on an event loop that is closed.
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
        raise SendFailed("the URL is not one of http or https with a host in ASCII", sent=False, permanent=True)
    place = f"{name}:{port}"
    return Server(name.strip("[]"), port, name if port == default else place, place, secure=scheme == "https")


def connect_error(error: Exception, server: Server, *, in_time: bool = True) -> SendFailed:
    """Say why there is no connection, in words of the system, which hold nothing of the request."""
    if not in_time:
        return SendFailed(f"no connection in time ({server.place})", sent=False)
    reason, permanent = next((reason, permanent) for kind, reason, permanent in _FAILURES if isinstance(error, kind))
    return SendFailed(f"{reason} ({server.place}){words_of_system(error)}", sent=False, permanent=permanent)


def _flaw(request: Request) -> str:
    """Say why *request* cannot be written as HTTP."""
    for name in request.headers:
        if name.lower() in _OWN_FIELDS:
            return f"the header field {name.title()} is up to the transport"
    return "the method, the URL or a header has a character in it that cannot be sent"


def _with_path(url: str) -> str:
    """Return *url* with a path, and without a fragment, which is not sent."""
    url = url.partition("#")[0]
    return url if "/" in url[HOST_BEGINS:] else f"{url}/"


@cache
def _context(*, verify: bool) -> tls.SSLContext:
    """Return the context that all transports without their own have in common; making one takes 20 ms."""
    context = tls.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = tls.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
