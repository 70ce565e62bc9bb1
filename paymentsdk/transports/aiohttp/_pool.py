"""The pool of connections, which both ways take theirs from, and the servers that it knows."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
from collections.abc import Callable
from functools import lru_cache
from math import inf
from ssl import SSLContext
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import aiohttp
from yarl import URL

from paymentsdk.transports.aiohttp._failures import Full, unsent

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace


#: A key of the pool begins with so many parts that say which host it is: its name, the port, and whether it has TLS.
_HOST = 3


class ConnectorOptions(TypedDict, total=False):
    """Options of :class:`aiohttp.TCPConnector`, passed through as they are."""

    ssl: SSLContext | aiohttp.Fingerprint | bool
    limit: int
    limit_per_host: int
    keepalive_timeout: float | None
    resolver: AbstractResolver | None
    use_dns_cache: bool
    ttl_dns_cache: int | None
    family: socket.AddressFamily
    local_addr: tuple[str, int] | None
    happy_eyeballs_delay: float | None
    interleave: int | None
    socket_factory: Callable[[AddrInfoType], socket.socket] | None


class Unlisted(str):
    """A text that is not found in a set or a dict, although one that equals it may be there."""

    __slots__ = ()
    __hash__ = object.__hash__


class Connector(aiohttp.TCPConnector):
    """aiohttp's pool, which a forked child leaves to its parent."""

    def __init__(self, **options: Unpack[ConnectorOptions]) -> None:
        self._process = os.getpid()
        super().__init__(**options)

    def __del__(self, *_: object) -> None:
        # A forked child has the selector of its parent: to close a connection here would take it from the parent.
        if self._process == os.getpid():
            super().__del__()


class Pool(Connector):
    """aiohttp's pool, without some of its flaws: each method says which."""

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for a place, or has got one and had no turn to take it yet."""
        return bool(self._waiters)

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the method is aiohttp's
    ) -> Connection:
        """Return a connection, after those who wait for one.

        aiohttp lets a task that gives its place back take it again before the one that waits for it has a turn: a few
        that send one request after the other keep all others out. And it keeps a connection that nobody will ask for
        again, if the server does not close it.
        """
        try:
            if self.waited_for:
                async with asyncio.timeout(timeout.connect):
                    await self._wait_for_available_connection(req.connection_key, traces)
                    connection = await super().connect(req, traces, timeout)
            else:
                connection = await super().connect(req, traces, timeout)
        except Exception as error:  # noqa: BLE001 - whatever it is, it came before the request
            # Told here, since whoever gets it out of a session could no longer tell that nothing was sent: a proxy that
            # breaks off before it has heard of the request looks like a server that does so afterwards.
            if isinstance(error, TimeoutError) and self._available_connections(req.connection_key) < 1:
                error = Full()
            failure = unsent(error, self)
        else:
            if isinstance(req.server_hostname, Unlisted) and connection.protocol is not None:
                connection.protocol.force_close()
            return connection
        raise failure

    def _available_connections(self, key: ConnectionKey) -> int:
        """Say how many more there may be; less than one for none.

        To aiohttp each fresh connection goes to a host of its own, since nobody else is to find it.
        """
        free = self._limit - len(self._acquired) if self._limit else 1
        if self._limit_per_host:
            taken = [len(ours) for one, ours in self._acquired_per_host.items() if one[:_HOST] == key[:_HOST]]
            free = min(free, self._limit_per_host - sum(taken))
        return free

    async def _wait_for_available_connection(self, key: ConnectionKey, traces: list[Trace]) -> None:
        """Wait for a place.

        A task may wait for its turn while there are places, and aiohttp forgets the place of a waiter that is cancelled
        just as it gets it: once those who have got a place have taken it, what is left goes to the next.

        Whoever wants a fresh connection stands in the line of their host, like the others. In a line of each one's own,
        aiohttp would look through all of them for every place, and give it to any.
        """
        if isinstance(key.server_hostname, Unlisted):
            key = key._replace(server_hostname=None)
        self._loop.call_soon(self._release_waiter)
        try:
            await super()._wait_for_available_connection(key, traces)
        finally:
            self._loop.call_soon(self._release_waiter)

    async def idle(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        """Return a connection that is kept, and as idle as it should be.

        aiohttp would hand out one on which an answer has arrived meanwhile, and the next request would take it for its
        own. What the loop has not read yet is seen by asking the system. A new connection is not asked: with TLS it has
        a greeting to read. And aiohttp would not ask whether there is a place, which others can have taken that go to
        another host.
        """
        if self._available_connections(key) < 1:
            return None
        while (connection := await super()._get(key, traces)) is not None:
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close and not _readable(connection.transport):
                break
            connection.close()
        return connection

    #: By this name aiohttp asks for it.
    _get = idle


def _readable(transport: asyncio.Transport | None) -> bool:
    """Whether there is something to read, be it the end."""
    wire = None if transport is None else transport.get_extra_info("socket")
    # The first is for type checkers, which know what Windows lacks; the second for whatever else goes without.
    if wire is None or sys.platform == "win32" or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(wire.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Server(NamedTuple):
    """A server.

    Attributes:
        origin: Where its URLs begin, up to the path.
        host: Its name, as the ``Host`` field has it.
        pool: The connections.
        key: What the pool finds them by.
        request: What it opens them by.
    """

    origin: str
    host: str
    pool: Pool
    key: ConnectionKey
    request: aiohttp.ClientRequest


def find_server(origin: str, pool: Pool) -> Server | None:
    """Return the server of *origin*, or ``None`` if the way there is not a plain one."""
    try:
        url = URL(origin, encoded=True)
        host = url.host_port_subcomponent
    except ValueError:
        return None
    credentials = (url.raw_user, url.raw_password) != (None, None)
    if url.scheme not in {"http", "https"} or not host or credentials or url.raw_path_qs != "/" or "?" in origin:
        return None
    request = aiohttp.ClientRequest("GET", url, loop=asyncio.get_running_loop())
    return Server(origin, host, pool, request.connection_key, request)


@lru_cache(maxsize=16)
def connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection has to be opened or waited for."""
    # Without the threshold aiohttp would round it up to a whole second.
    return aiohttp.ClientTimeout(connect=seconds, ceil_threshold=inf)
