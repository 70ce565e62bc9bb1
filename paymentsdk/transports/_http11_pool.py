"""The connections that are kept, the places that there are for them, and the queue of those who wait for one."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import AddressFamily, gaierror
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import TypeAlias
from weakref import WeakSet

from msgspec import Struct, field

from paymentsdk.errors import ClientClosed
from paymentsdk.transports._http11_connection import Connection
from paymentsdk.transports._sockets import shared_buffer
from paymentsdk.transports.base import SendFailed

_PORTS = {"http": 80, "https": 443}
#: Seconds that a TLS connection gets to say good-bye.
_SHUTDOWN = 1.0
#: Servers without a connection are forgotten when there are more: most programs know one or two.
_MOST_SERVERS = 64
#: An idle connection is closed at the second tick of the sweeper.
_TICKS = 2
#: What a waiter gets: a connection, or a place to open one in.
Granted: TypeAlias = "asyncio.Future[Connection | None]"


class Server(Struct, eq=False):
    """A server that URLs lead to, with its connections and those who wait for one."""

    origin: str
    """Scheme, host and port, as its URLs begin."""
    host: str
    port: int
    host_field: str
    """The value of the header field `Host`."""
    secure: bool
    places: int = 0
    """How many connections there are, with those that are being opened."""
    idle: deque[Connection] = field(default_factory=deque)
    """The one that was used last is at the end: that end is taken from, so that those not needed grow old."""
    waiters: deque[Waiter] = field(default_factory=deque)


class Waiter(Struct, eq=False):
    """One who waits for a connection."""

    ticket: int
    fresh: bool
    granted: Granted


class Options(Struct, frozen=True, kw_only=True):
    """What a pool is made with; see `Http11Transport`."""

    context: Callable[[], SSLContext]
    limit: int
    limit_per_host: int
    keepalive_timeout: float
    family: AddressFamily


class Pool:
    """The connections of one transport on one event loop.

    Whoever has a connection, opens one, or keeps an idle one occupies a place. A place that comes free goes at once to
    the one who has waited longest among those whom the limits let have it, so that nobody is overtaken.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: Options) -> None:
        self.loop = loop
        #: The same, until the pool is closed, or a child is forked: what a request has to look at is one thing.
        self.usable_on: asyncio.AbstractEventLoop | None = loop
        self.inherited = False
        self.closed = False
        self.connections: set[Connection] = set()
        self.buffer = shared_buffer()
        self._options = options
        self._servers: dict[str, Server] = {}
        self._places = 0
        self._waiting = 0
        self._tickets = 0
        self._tick = 0
        self._sweeper: asyncio.TimerHandle | None = None
        #: Of those who connect or wait; closing the pool ends them.
        self._bounds: set[asyncio.Timeout] = set()
        self._drained: asyncio.Future[None] | None = None
        _POOLS.add(self)

    def server(self, origin: str) -> Server:
        """Return the server that *origin* names.

        Raises:
            SendFailed: It is not the beginning of an http or https URL.
        """
        server = self._servers.get(origin)
        if server is None:
            server = _parse(origin)
            if len(self._servers) >= _MOST_SERVERS:
                unused = [name for name, one in self._servers.items() if not one.places and not one.waiters]
                for name in unused:
                    del self._servers[name]
            self._servers[origin] = server
        return server

    # --- getting a connection ------------------------------------------------------------------------------------

    def take(self, server: Server) -> Connection | None:
        """Return the idle connection that was used last, if there is one on which nothing has arrived since."""
        while server.idle:
            connection = server.idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    async def connect(self, server: Server, *, fresh: bool, within: float | None) -> Connection:
        """Wait for a connection, or open one, for at most *within* seconds.

        Raises:
            SendFailed: There was none in time, or it could not be opened.
            ClientClosed: The pool was closed meanwhile.
        """
        bound = asyncio.timeout(within)
        step = ": all connections that the pool may have are in use"
        try:
            async with bound:
                self._bounds.add(bound)
                connection = await self._place(server, fresh=fresh)
                step = ""
                return connection or await self._open(server)
        except TimeoutError:
            pass
        finally:
            self._bounds.discard(bound)
        if self.closed:
            raise _closed()
        raise SendFailed(f"no connection in time{step} ({server.host_field})", sent=False)

    async def _place(self, server: Server, *, fresh: bool) -> Connection | None:
        """Return a connection, or `None` with a place to open one in."""
        if self._has_room(server) or self._evict(server):
            self._occupy(server)
            return None
        self._tickets += 1
        self._waiting += 1
        waiter = Waiter(self._tickets, fresh, self.loop.create_future())
        server.waiters.append(waiter)
        try:
            connection = await waiter.granted
        except asyncio.CancelledError:
            self._give_back(server, waiter.granted)
            raise
        if connection is not None and not connection.is_usable():
            self._occupy(server)  # First: its place is not for others, who have not waited as long.
            connection.abort()
            connection = None
        return connection

    def _give_back(self, server: Server, granted: Granted) -> None:
        """Let somebody else have what was *granted* to one who was cancelled at that very moment."""
        if granted.cancelled() or granted.exception() is not None:
            return
        connection = granted.result()
        if connection is None:
            self._vacate(server)
        else:
            self.release(server, connection)

    async def _open(self, server: Server) -> Connection:
        """Open a connection in a place that is occupied already."""
        connection = Connection(self.buffer, partial(self.release, server), partial(self.forget, server))
        self.connections.add(connection)
        options = self._options
        failure: SendFailed | None = None
        try:
            context = options.context() if server.secure else None
            await self.loop.create_connection(
                lambda: connection,
                server.host,
                server.port,
                family=options.family,
                ssl=context,
                ssl_shutdown_timeout=None if context is None else _SHUTDOWN,
            )
            # A TLS connection may have a ticket to read; without TLS nothing comes before the request.
            usable = not connection.closed if server.secure else connection.is_usable()
            if not usable and not self.closed:
                failure = SendFailed("the server closed the connection, or spoke, before the request", sent=False)
        except (OSError, ValueError, RuntimeError) as error:
            failure = connect_error(error, server)
        except BaseException:
            connection.abort()
            raise
        if self.closed:
            connection.abort()
            raise _closed()
        if failure is not None:
            connection.abort()
            raise failure  # Outside the handler: the system's error is not its context.
        return connection

    # --- places --------------------------------------------------------------------------------------------------

    def release(self, server: Server, connection: Connection) -> None:
        """Give the *connection* to a *server*, whose request is done, to the next who waits for one, or keep it."""
        following = self._next(server) if self._waiting else None
        if following is server and not server.waiters[0].fresh:
            self._waiting -= 1
            server.waiters.popleft().granted.set_result(connection)
        elif following is not None or self.closed or not self._options.keepalive_timeout:
            connection.close()
        else:
            connection.generation = self._tick
            server.idle.append(connection)
            if self._sweeper is None:
                self._sweep_later()

    def forget(self, server: Server, connection: Connection) -> None:
        """Free the place of the *connection* to a *server*, which is closed."""
        self.connections.discard(connection)
        with suppress(ValueError):
            server.idle.remove(connection)
        self._vacate(server)
        self._check_drained()

    def _has_room(self, server: Server) -> bool:
        limit, per_host = self._options.limit, self._options.limit_per_host
        return (not limit or self._places < limit) and (not per_host or server.places < per_host)

    def _occupy(self, server: Server) -> None:
        self._places += 1
        server.places += 1

    def _vacate(self, server: Server) -> None:
        self._places -= 1
        server.places -= 1
        while self._waiting and (following := self._next()) is not None:
            self._occupy(following)
            self._waiting -= 1
            following.waiters.popleft().granted.set_result(None)

    def _evict(self, server: Server) -> bool:
        """Close an idle connection, if that makes room for one to *server*."""
        per_host = self._options.limit_per_host
        own = bool(per_host) and server.places >= per_host
        candidates = [one.idle[0] for one in ([server] if own else self._servers.values()) if one.idle]
        if candidates:
            min(candidates, key=lambda one: one.generation).close()
        return self._has_room(server)

    def _next(self, freeing: Server | None = None) -> Server | None:
        """Return the server whose first waiter has waited longest among those who can have a place.

        With *freeing*, a connection to that server is about to be closed or handed over.
        """
        found = None
        for server in self._servers.values():
            waiters = server.waiters
            while waiters and waiters[0].granted.done():  # Cancelled.
                waiters.popleft()
                self._waiting -= 1
            if not waiters or (found is not None and found.waiters[0].ticket < waiters[0].ticket):
                continue
            per_host = self._options.limit_per_host
            has_place = not per_host or server.places < per_host if freeing is not None else self._has_room(server)
            if server is freeing or has_place:
                found = server
        return found

    # --- the end of connections ----------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._sweeper = self.loop.call_later(self._options.keepalive_timeout / _TICKS, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been idle for two ticks: between half and all of `keepalive_timeout`."""
        self._tick += 1
        self._sweeper = None
        for server in self._servers.values():
            while server.idle and server.idle[0].generation <= self._tick - _TICKS:
                server.idle[0].close()
        if any(server.idle for server in self._servers.values()):
            self._sweep_later()

    async def close(self, drain: float) -> None:
        """Reject who waits or connects, give requests in flight *drain* seconds to end, and close all connections."""
        self._refuse()
        try:
            if any(connection.busy for connection in self.connections):
                self._drained = self._drained or self.loop.create_future()
                await asyncio.wait((self._drained,), timeout=drain)
        finally:
            self.abort()
        await asyncio.sleep(0)  # Sockets are closed in the next turn of the event loop.

    def _refuse(self) -> None:
        self.closed, self.usable_on = True, None
        if self._sweeper is not None:
            self._sweeper.cancel()
        for server in self._servers.values():
            for waiter in server.waiters:
                if not waiter.granted.done():
                    waiter.granted.set_exception(_closed())
            server.waiters.clear()
        self._waiting = 0
        for bound in self._bounds:
            bound.reschedule(self.loop.time())  # They are not to be cancelled: nobody has cancelled their tasks.
        for connection in [one for one in self.connections if not one.busy]:
            connection.abort()

    def _check_drained(self) -> None:
        drained = self._drained
        if drained is not None and not drained.done() and not any(one.busy for one in self.connections):
            drained.set_result(None)

    def abort(self) -> None:
        """Close all connections now; the requests on them fail."""
        self.closed, self.usable_on = True, None
        for connection in tuple(self.connections):
            # RuntimeError: nothing can be done on an event loop that is closed.
            with suppress(RuntimeError):
                connection.fail(SendFailed("the transport was closed"))


def _closed() -> ClientClosed:
    return ClientClosed("the transport was closed while the request waited for a connection")


def _parse(origin: str) -> Server:
    """Return the server that *origin* names."""
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
            host_field = name if port in {None, default} else f"{name}:{port}"
            return Server(origin, host, port or default, host_field, secure=scheme == "https")
        failure = "the URL is not an http or https URL with a host name in ASCII"
    raise SendFailed(failure, sent=False, permanent=True)


def connect_error(error: Exception, server: Server) -> SendFailed:
    """Say why there is no connection, in words of the system, which hold nothing of the request."""
    where = f" ({server.host_field if ':' in server.host_field else f'{server.host_field}:{server.port}'})"
    if isinstance(error, SSLCertVerificationError):
        reason = f"the server's certificate does not verify{where}: {error.verify_message}"
        return SendFailed(reason, sent=False, permanent=True)
    if isinstance(error, SSLError):
        return SendFailed(
            f"the TLS handshake failed{where}" + (f": {error.reason}" if error.reason else ""), sent=False
        )
    if isinstance(error, gaierror):
        return SendFailed(f"the host name was not resolved{where}", sent=False)
    if isinstance(error, ValueError):  # Of the codec for host names, which would show the name.
        return SendFailed(f"the host name is malformed{where}", sent=False, permanent=True)
    number = error.errno if isinstance(error, OSError) else None
    detail = f": {os.strerror(number)}" if number and number > 0 else ""
    return SendFailed(f"no connection to the server{where}{detail}", sent=False)


#: The pools of this process.
_POOLS: WeakSet[Pool] = WeakSet()
#: In a forked child, those of its parent. They are kept to the end: with the connections, which share their selector
#: with the parent's, the parent would lose its own.
_INHERITED: list[Pool] = []


def _leave_to_parent() -> None:
    for pool in tuple(_POOLS):
        pool.inherited, pool.usable_on = True, None
        _INHERITED.append(pool)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
