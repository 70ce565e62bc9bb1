"""The sessions of the transport on aiohttp, and their connections: what must not have happened on one that is used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import aiohttp
from msgspec import Struct

from paymentsdk.errors import ClientClosed
from paymentsdk.transports._pool import POOL_SIZE, of_another_process, overslept, shared_buffer, unread_on
from paymentsdk.transports._queue import FairPool
from paymentsdk.transports.base import Response, SendFailed

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace


#: Seconds that connections get to close.
_PARTING = 1.0


class ConnectorOptions(TypedDict, total=False):
    """Options of `aiohttp.TCPConnector`, passed through as they are."""

    ssl: SSLContext | aiohttp.Fingerprint | bool
    """How certificates are verified: a context, a fingerprint, or `True`, the default, for the system's rules."""
    limit: int
    """The most connections in use, beside which there may be idle ones; 0 for no limit."""
    limit_per_host: int
    """The most connections in use to one host and port; 0, the default, for no limit."""
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


class Wire(asyncio.BufferedProtocol):
    """Stands between a connection and aiohttp's protocol, and knows whether a request is on the connection.

    Bytes that arrive while there is none belong to nobody: aiohttp would take them for the response to the next
    request, and the response to that for the one after it, for as long as the connection lives.
    """

    def __init__(self, handler: ResponseHandler, transport: asyncio.Transport, connector: Connector) -> None:
        self.attempt: InFlightRequest | None = None
        self.handler = handler
        self.transport = transport
        self.buffer = connector.buffer
        self.connections = connector.connections
        #: Whether the system holds bytes, or the end, that the event loop has not read yet.
        self.is_readable = unread_on(transport.get_extra_info("socket"))
        self.connections.add(self)

    def release(self) -> None:
        """Say that no request is on the connection any more."""
        attempt, self.attempt = self.attempt, None
        if (attempt is not None and attempt.large) or self.transport.get_write_buffer_size():
            # The peer may not have taken the request yet: the next would wait behind it, and the end of the connection
            # for as long as the peer likes.
            self.handler.force_close()
            self.transport.abort()

    def discard(self) -> None:
        """Have no further request start on the connection, and fail one that has started."""
        self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # There is one for all connections.
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if (attempt := self.attempt) is not None:
            attempt.last_read = bytes(self.buffer[:nbytes])
            self.handler.data_received(attempt.last_read)
            if self.attempt is not None or not self.handler.should_close:
                return
            # With the end of its response came more, which aiohttp looks at after it has taken the connection back.
        self.transport.abort()

    def eof_received(self) -> None:
        self.handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self.handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()


class ConnectionResponse(Response, frozen=True):
    """A response that knows which connection it came over."""

    connection: Wire | None = None


class InFlightRequest(Struct, eq=False):
    """One request on its way."""

    cancelling: int
    """How many cancellations of its task were under way when it began."""
    large: bool
    wire: Wire | None = None
    """Its connection; `None` as long as nothing can have been sent."""
    reused: bool | None = None
    """Whether that has carried a request before; `None` if the pool is another's."""
    last_read: bytes = b""
    """What was read last on it. aiohttp keeps the beginning of a further response to itself."""
    ended: bool = False
    """Whether the transport was closed meanwhile."""

    __repr__ = object.__repr__  # Tracebacks show variables, and a response may hold a token.

    def end(self, task: asyncio.Task[object]) -> None:
        """End it: the transport is closed, and its time is over."""
        if self.wire is None and not self.ended:
            task.cancel()  # Once, however often it is closed: `SessionPool.cancelled` takes one back.
        self.ended = True
        self.abandon()

    def abandon(self) -> None:
        """Break its connection off, if it has one. Closed, it would go on to write what is left."""
        if self.wire is not None:
            # Nothing can be sent on a closed event loop.
            with contextlib.suppress(RuntimeError):
                self.wire.transport.abort()


InFlightRequests: TypeAlias = dict["asyncio.Task[object]", InFlightRequest]


class Connector(aiohttp.TCPConnector):
    """aiohttp's pool, whose connections are watched while they are idle."""

    def __init__(
        self, attempts: InFlightRequests, connections: set[Wire], options: ConnectorOptions, *, fresh: bool
    ) -> None:
        self.attempts = attempts
        self.connections = connections
        self.buffer = shared_buffer()
        self.process = os.getpid()
        # `Pool` has the limits: one for the kept and the fresh connections together.
        ours: ConnectorOptions = {**options, "limit": 0, "limit_per_host": 0}
        if fresh:
            ours.pop("keepalive_timeout", None)
        super().__init__(**ours, force_close=fresh)

    def __del__(self, *_: object) -> None:
        # A forked child has the selector of its parent: to close a connection here would take it from the parent.
        if self.process == os.getpid():
            super().__del__()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - it is aiohttp's
    ) -> Connection:
        """Return a connection on which nothing has happened since its last response.

        Raises:
            SendFailed: aiohttp asks a second time for one request.
        """
        task = asyncio.current_task()
        attempt = self.attempts.get(task) if task is not None else None
        if attempt is None or attempt.wire is not None:
            # aiohttp sends a GET, PUT or DELETE again when a kept connection breaks. The engine counts attempts.
            raise SendFailed("the server closed the connection without a response")
        began = time.time()
        while True:
            connection = await super().connect(req, traces, timeout)
            if overslept(began, timeout.connect):
                connection.close()
                raise SendFailed("no connection in time", sent=False)
            if self.takes(connection, attempt):
                return connection
            connection.close()

    def takes(self, connection: Connection, attempt: InFlightRequest) -> bool:
        """Give *connection* to *attempt*, unless it is gone, or something has arrived on it."""
        if (handler := connection.protocol) is None or (transport := handler.transport) is None:
            return False
        wire = transport.get_protocol()
        if isinstance(wire, Wire):
            if wire.is_readable(0):
                return False
            attempt.reused = True
        else:
            # It is new. With TLS there may be session tickets to read: these bytes say nothing.
            wire = Wire(handler, transport, self)
            transport.set_protocol(wire)
            attempt.reused = False
        wire.attempt, attempt.wire = attempt, wire
        connection.add_callback(wire.release)
        return True


class SessionPool(FairPool[Wire]):
    """A session that keeps its connections, and one that does not; or a session of the caller's for both.

    Raises:
        SendFailed: aiohttp does not take the *options*.
        ClientClosed: The session of the caller belongs to another event loop, or another *process* was given it.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession | None,
        options: ConnectorOptions,
        trace_configs: Sequence[aiohttp.TraceConfig],
        process: int,
    ) -> None:
        self.attempts: InFlightRequests = {}
        self.owned = session is None
        #: How many requests are to ask the server to close their connections, since one of them is not trusted.
        self.emptying = 0
        if session is not None:
            if process != os.getpid():
                raise of_another_process()  # It can have connections already, on which the other goes on.
            super().__init__(0, 0)
            self.kept = self.fresh = session
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                if session.loop is not self.loop:
                    raise ClientClosed("the session belongs to another event loop")
            return
        super().__init__(options.get("limit", POOL_SIZE), options.get("limit_per_host", 0))
        try:
            connectors = [Connector(self.attempts, self.connections, options, fresh=fresh) for fresh in (False, True)]
        except (TypeError, ValueError) as error:
            # aiohttp looks at them only now, and nothing has been sent.
            reason = f"aiohttp does not take the options of its connector: {error}"
            raise SendFailed(reason, sent=False, permanent=True) from None
        self.kept, self.fresh = (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[*trace_configs]
            )
            for connector in connectors
        )

    def cancelled(self, attempt: InFlightRequest, task: asyncio.Task[object]) -> bool:
        """Whether nobody but the transport or its session, by being closed, has cancelled *task*."""
        if attempt.ended and attempt.wire is None:
            return task.uncancel() <= attempt.cancelling
        # aiohttp cancels those who wait for a connection of a session that its owner closes.
        return self.kept.closed and not task.cancelling()

    async def abort(self) -> None:
        """See `Pool.abort`. What is in flight on a session of the caller's goes on."""
        await super().abort()
        if self.loop.is_closed():
            # Nothing ends there any more, so whoever has the transport must not keep it.
            self.attempts.clear()
            self.connections.clear()
        if self.owned:
            for task, attempt in tuple(self.attempts.items()):
                attempt.end(task)
            # The one is closed even if closing the other is cancelled: nobody does it later.
            async with contextlib.AsyncExitStack() as stack:
                for session in (self.kept, self.fresh):
                    stack.push_async_callback(_close, session)


async def _close(session: aiohttp.ClientSession) -> None:
    # RuntimeError: nothing of a loop that stands still can be waited for. It closes them when it goes on.
    with contextlib.suppress(TimeoutError, RuntimeError):
        # A peer that reads nothing must not hold us up: aiohttp waits until it has taken what was written.
        async with asyncio.timeout(_PARTING):
            await session.close()
