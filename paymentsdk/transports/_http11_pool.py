"""The connections of the fast transport: opened, kept while they are idle, and closed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import AddressFamily, gaierror
from ssl import SSLCertVerificationError, SSLContext, SSLError

from msgspec import Struct, field

from paymentsdk.errors import ClientClosed
from paymentsdk.transports._http11_connection import Connection
from paymentsdk.transports._pool import Pool, closed_while_waiting, shared_buffer, words_of_system
from paymentsdk.transports.base import SendFailed

_PORTS = {"http": 80, "https": 443}
#: Seconds that a TLS connection gets to say good-bye.
_SHUTDOWN = 1.0
#: An idle connection is closed at the second tick of the sweeper.
_TICKS = 2
#: Why there is no connection, and whether there never will be one. The first that fits counts.
_FAILURES = (
    (SSLCertVerificationError, "the server's certificate does not verify", True),
    (SSLError, "the TLS handshake failed", False),
    (gaierror, "the host name was not resolved", False),
    (ValueError, "the host name is malformed", True),  # Of the codec for host names.
    (Exception, "no connection to the server", False),
)


class Server(Struct, eq=False):
    """A server that URLs lead to, with its connections."""

    host: str
    port: int
    host_field: str
    """The value of the header field `Host`."""
    place: str
    """Host and port, as failures name them."""
    secure: bool
    open: int = 0
    """How many connections there are, with those that are being opened."""
    idle: deque[Connection] = field(default_factory=deque)
    """The one that was used last is at the end: that end is taken from, so that those not needed grow old."""


class Options(Struct, frozen=True, kw_only=True):
    """What a pool is made with; see `Http11Transport`."""

    context: Callable[[], SSLContext]
    limit: int
    limit_per_host: int
    keepalive_timeout: float
    family: AddressFamily


class ConnectionPool(Pool[Connection]):
    """The connections of one transport on one event loop."""

    def __init__(self, options: Options) -> None:
        super().__init__(options.limit, options.limit_per_host)
        self._options = options
        self._buffer = shared_buffer()
        #: Those that there were requests to, by the beginning of their URLs.
        self.servers: dict[str, Server] = {}
        self._tick = 0
        self._sweeper: asyncio.TimerHandle | None = None
        #: Of those who connect; closing the pool ends them.
        self._bounds: set[asyncio.Timeout] = set()

    def take(self, server: Server) -> Connection | None:
        """Return the idle connection that was used last, if there is one on which nothing has arrived since."""
        while server.idle:
            connection = server.idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    async def connect(self, server: Server, within: float | None) -> Connection:
        """Open a connection in at most *within* seconds, for who has a place.

        Raises:
            SendFailed: It could not be opened.
            ClientClosed: The pool was closed meanwhile.
        """
        self._make_room(server)
        connection = Connection(self._buffer, partial(self._release, server), partial(self._forget, server))
        self.connections.add(connection)
        server.open += 1
        bound = asyncio.timeout(within)
        failure: SendFailed | ClientClosed | None = None
        try:
            async with bound:
                self._bounds.add(bound)
                await self.loop.create_connection(
                    lambda: connection,
                    server.host,
                    server.port,
                    family=self._options.family,
                    ssl=self._options.context() if server.secure else None,
                    ssl_shutdown_timeout=_SHUTDOWN if server.secure else None,
                )
            # A TLS connection may have a ticket to read; without TLS nothing comes before the request.
            if connection.closed if server.secure else not connection.is_usable():
                failure = SendFailed("the server closed the connection, or spoke, before the request", sent=False)
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

    def _make_room(self, server: Server) -> None:
        """Close the oldest idle connection where a limit has no room for another: idle ones count, too.

        There is one then, since who asks has a place for a request.
        """
        full = [server] if server.open >= self.limit_per_host else self.servers.values()
        if server.open >= self.limit_per_host or len(self.connections) >= self.limit:
            idle = [one.idle[0] for one in full if one.idle]
            min(idle, key=lambda one: one.generation).close()

    def _release(self, server: Server, connection: Connection) -> None:
        """Keep the *connection* to a *server*, whose request is done."""
        if not self._options.keepalive_timeout or self.closed:
            connection.close()
            return
        connection.generation = self._tick
        server.idle.append(connection)
        if self._sweeper is None:
            self._sweep_later()

    def _forget(self, server: Server, connection: Connection) -> None:
        """Take note that the *connection* to a *server* is closed."""
        self.connections.discard(connection)
        server.open -= 1
        with suppress(ValueError):
            server.idle.remove(connection)

    def _sweep_later(self) -> None:
        self._sweeper = self.loop.call_later(self._options.keepalive_timeout / _TICKS, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been idle for two ticks: between half and all of `keepalive_timeout`."""
        self._tick += 1
        self._sweeper = None
        for server in self.servers.values():
            while server.idle and server.idle[0].generation <= self._tick - _TICKS:
                server.idle[0].close()
        if any(server.idle for server in self.servers.values()):
            self._sweep_later()

    async def abort(self) -> None:
        """See `Pool.abort`."""
        await super().abort()
        # RuntimeError: nothing can be done on an event loop that is closed.
        with suppress(RuntimeError):
            if self._sweeper is not None:
                self._sweeper.cancel()
            for bound in self._bounds:
                bound.reschedule(self.loop.time())  # Their tasks are not to be cancelled: nobody has done so.
        for connection in tuple(self.connections):
            with suppress(RuntimeError):
                connection.abort(SendFailed("the transport was closed"))
        await asyncio.sleep(0)  # Sockets are closed in the next turn of the event loop.


def parse_origin(origin: str) -> Server:
    """Return the server that *origin* names.

    Raises:
        SendFailed: It is not the beginning of an http or https URL.
    """
    from urllib.parse import urlsplit  # once for each server, and not for who only imports

    try:
        url = urlsplit(origin)
        port = url.port
    except ValueError:
        failure = "the URL is malformed"
    else:
        scheme, host = url.scheme, url.hostname
        default = _PORTS.get(scheme)
        well_formed = origin.isascii() and origin.isprintable() and " " not in origin and "@" not in origin
        if default is not None and host and well_formed and origin == f"{scheme}://{url.netloc}":
            name = f"[{host}]" if ":" in host else host
            place = f"{name}:{port or default}"
            host_field = name if port in {None, default} else place
            return Server(host, port or default, host_field, place, secure=scheme == "https")
        failure = "the URL is not an http or https URL with a host name in ASCII"
    raise SendFailed(failure, sent=False, permanent=True)


def connect_error(error: Exception, server: Server, *, in_time: bool = True) -> SendFailed:
    """Say why there is no connection, in words of the system, which hold nothing of the request."""
    if not in_time:
        return SendFailed(f"no connection in time ({server.place})", sent=False)
    reason, permanent = next((reason, permanent) for kind, reason, permanent in _FAILURES if isinstance(error, kind))
    return SendFailed(f"{reason} ({server.place}){words_of_system(error)}", sent=False, permanent=permanent)
