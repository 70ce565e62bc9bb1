"""The connections of the transport on aiohttp: who gets one, and what must not have happened on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from ssl import SSLContext
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypedDict

import aiohttp
from msgspec import Struct

from paymentsdk.transports._gate import ANY, Gate, Host
from paymentsdk.transports._sockets import unread_on
from paymentsdk.transports.base import SendFailed

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace


class ConnectorOptions(TypedDict, total=False):
    """Options of `aiohttp.TCPConnector`, passed through as they are."""

    ssl: SSLContext | aiohttp.Fingerprint | bool
    """How certificates are verified: a context, a fingerprint, or `True`, the default, for the system's rules."""
    limit: int
    """The most connections; 0 for no limit."""
    limit_per_host: int
    """The most connections to one host; 0, the default, for no limit."""
    keepalive_timeout: float | None
    """Seconds that an idle connection is kept."""
    resolver: AbstractResolver | None
    """Finds the addresses of hosts."""
    use_dns_cache: bool
    """Whether addresses are kept; by default they are."""
    ttl_dns_cache: int | None
    """Seconds that they are kept; `None` for ever."""
    family: socket.AddressFamily
    """The family of addresses: `socket.AF_INET`, `AF_INET6`, or 0 for either."""
    local_addr: tuple[str, int] | None
    """The address and port of this machine to connect from."""
    happy_eyeballs_delay: float | None
    """Seconds before the next address is tried beside the first (RFC 8305); `None` to try one after the other."""
    interleave: int | None
    """How many addresses of one family are tried before the other (RFC 8305)."""
    socket_factory: Callable[[AddrInfoType], socket.socket] | None
    """Makes the sockets."""


class Process:
    """The process that this is: to ask for it at each request would be a call of the system."""

    number: ClassVar[int] = os.getpid()

    @classmethod
    def ask(cls) -> None:
        """Note the number of a forked child."""
        cls.number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process.ask)


class Wire(asyncio.BufferedProtocol):
    """Stands between a connection and aiohttp's protocol, and knows whether a request is on the connection.

    Bytes that arrive while there is none belong to nobody: aiohttp would take them for the response to the next
    request, and the response to that for the one after it, for as long as the connection lives.
    """

    def __init__(self, handler: ResponseHandler, transport: asyncio.Transport, gate: Gate, host: Host) -> None:
        self.buffer = gate.buffer
        self.busy = False
        self.large = False
        self.gate = gate
        self.host = host
        self.handler = handler
        self.transport = transport
        self.reference = weakref.ref(self)
        #: Whether the system holds bytes, or the end, that the event loop has not read yet.
        self.is_readable = unread_on(transport.get_extra_info("socket"))
        gate.connections += 1

    def release(self) -> None:
        """Say that no request is on the connection any more, and give its place to the next."""
        self.busy = False
        self.gate.leave(self.host)
        if self.large or self.transport.get_write_buffer_size():
            # The peer may not have taken the request yet: the next would wait behind it, and the end of the connection
            # for as long as the peer likes.
            self.handler.force_close()
            self.transport.abort()

    def discard(self) -> None:
        """Have no further request start on the connection, and fail one that has started."""
        self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # There is one for all connections, see `Gate.buffer`.
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.busy:
            self.handler.data_received(bytes(self.buffer[:nbytes]))
        else:
            self.transport.abort()

    def eof_received(self) -> None:
        self.handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.connections -= 1
        self.handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()


def _cut_off(content: aiohttp.StreamReader, _: object = None) -> None:
    """Have *content* fail, unless it is whole. aiohttp leaves a body waiting when it closes a malformed response."""
    if not content.is_eof() and content.exception() is None:
        content.set_exception(aiohttp.ClientPayloadError())


class Attempt(Struct, eq=False):
    """One request on its way."""

    cancelling: int
    """How many cancellations of its task were under way when it began."""
    large: bool
    wire: Wire | None = None
    """Its connection; `None` as long as nothing can have been sent."""
    reused: bool | None = None
    """Whether that has carried a request before; `None` if the pool is another's."""
    ended: bool = False
    """Whether the transport was closed meanwhile."""

    def end(self, task: asyncio.Task[object]) -> None:
        """End it: the transport is closed, and its time is over."""
        self.ended = True
        if self.wire is None:
            task.cancel()
        self.abandon()

    def abandon(self) -> None:
        """Break its connection off, if it has one. Closed, it would go on to write what is left."""
        if self.wire is not None:
            # Nothing can be sent on a closed event loop.
            with contextlib.suppress(RuntimeError):
                self.wire.transport.abort()


Attempts: TypeAlias = dict["asyncio.Task[object]", Attempt]


class Connector(aiohttp.TCPConnector):
    """aiohttp's pool behind a gate, whose connections are watched while they are idle."""

    def __init__(self, gate: Gate, attempts: Attempts, options: ConnectorOptions, *, fresh: bool) -> None:
        self.gate = gate
        self.attempts = attempts
        self.process = Process.number
        # The gate has the limits: one for the kept and the fresh connections together.
        ours: ConnectorOptions = {**options, "limit": 0, "limit_per_host": 0}
        if fresh:
            ours.pop("keepalive_timeout", None)
        super().__init__(**ours, force_close=fresh)

    def __del__(self, *_: object) -> None:
        # A forked child has the selector of its parent: to close a connection here would take it from the parent.
        if self.process == Process.number:
            super().__del__()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - it is aiohttp's
    ) -> Connection:
        """Return a connection on which nothing has happened since its last response.

        Raises:
            SendFailed: There is none, and nothing was sent; or aiohttp asks a second time for one request.
        """
        task = asyncio.current_task()
        attempt = self.attempts.get(task) if task is not None else None
        if attempt is None or attempt.wire is not None:
            # aiohttp sends a GET, PUT or DELETE again when a kept connection breaks. The engine counts attempts.
            raise SendFailed("the server closed the connection without a response")
        host = ANY if self.gate.per_host is inf else req.connection_key[:3]
        if not self.gate.enter(host):
            timeout = await self.in_turn(host, timeout)
        try:
            connection = await super().connect(req, traces, timeout)
            while not self.takes(connection, attempt, host):
                connection.close()
                connection = await super().connect(req, traces, timeout)
        except BaseException:
            self.gate.leave(host)
            raise
        return connection

    async def in_turn(self, host: Host, bounds: aiohttp.ClientTimeout) -> aiohttp.ClientTimeout:
        """Wait for a place, and return *bounds* with what is left of them to connect in."""
        clock = asyncio.get_running_loop().time
        since = clock()
        try:
            async with asyncio.timeout(bounds.connect):
                await self.gate.wait(host)
        except TimeoutError:
            pass
        else:
            # To aiohttp, 0 is no bound.
            left = None if bounds.connect is None else max(0.001, bounds.connect - (clock() - since))
            return aiohttp.ClientTimeout(total=None, connect=left, ceil_threshold=bounds.ceil_threshold)
        raise SendFailed("no connection in time: all connections that the pool may have are in use", sent=False)

    def takes(self, connection: Connection, attempt: Attempt, host: Host) -> bool:
        """Give *connection* to *attempt*, unless it is gone, or something has arrived on it."""
        handler = connection.protocol
        transport = None if handler is None else handler.transport
        if handler is None or transport is None:
            return False
        wire = transport.get_protocol()
        if isinstance(wire, Wire):
            if wire.is_readable(0):
                return False
            attempt.reused = True
        else:
            # It is new. With TLS there may be session tickets to read: these bytes say nothing.
            wire = Wire(handler, transport, self.gate, host)
            transport.set_protocol(wire)
            attempt.reused = False
        wire.busy, wire.large = True, attempt.large
        attempt.wire = wire
        connection.add_callback(wire.release)
        return True


@contextlib.contextmanager
def ending_with_its_connection(response: aiohttp.ClientResponse) -> Iterator[Callable[[], bool]]:
    """Have the body fail if its connection ends before it does; yield what says whether the connection broke."""
    content, connection = response.content, response.connection
    protocol = None if connection is None else connection.protocol
    closed = None if protocol is None else protocol.closed
    if protocol is None or closed is None:  # Once its connection is back in the pool there is nothing to watch.
        _cut_off(content)
        yield lambda: False
        return
    fail = partial(_cut_off, content)
    closed.add_done_callback(_heard)
    closed.add_done_callback(fail)
    try:
        yield lambda: isinstance(protocol.exception(), aiohttp.ClientOSError)
    finally:
        closed.remove_done_callback(fail)


def _heard(closed: asyncio.Future[None]) -> None:
    # Or asyncio would report how the connection ended, perhaps much later, as an error that nobody has asked for.
    if not closed.cancelled():
        closed.exception()
