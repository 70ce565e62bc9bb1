"""The pool of the default transport: aiohttp's own, with the defences of `paymentsdk.transports.aiohttp`."""

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
from aiohttp.hdrs import CONNECTION
from msgspec import Struct
from multidict import CIMultiDictProxy

from paymentsdk.errors import ClientClosed
from paymentsdk.transports._aiohttp_messages import send_failed
from paymentsdk.transports._pool import (
    POOL_SIZE,
    Pool,
    closed_while_waiting,
    of_another_process,
    overslept,
    shared_buffer,
    unread_on,
)
from paymentsdk.transports.base import CASELESS, SendFailed

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

#: Seconds that connections have to close.
_PARTING = 1.0


class ConnectorOptions(TypedDict, total=False):
    """Options of `aiohttp.TCPConnector`, passed on unchanged."""

    ssl: SSLContext | aiohttp.Fingerprint | bool
    """How certificates are verified: a context, a fingerprint, or `True`, the default, for the system's rules."""
    limit: int
    """The most connections in use. There may be idle ones as well. 0 for no limit."""
    keepalive_timeout: float | None
    """Seconds that an idle connection is kept."""
    resolver: AbstractResolver | None
    """Finds the addresses of hosts."""
    use_dns_cache: bool
    """Whether addresses are cached. True by default."""
    ttl_dns_cache: int | None
    """Seconds that addresses are cached. `None` for ever."""
    family: socket.AddressFamily
    """The family of addresses: `socket.AF_INET`, `AF_INET6`, or 0 for either."""
    local_addr: tuple[str, int] | None
    """The address and port of this machine to connect from."""
    happy_eyeballs_delay: float | None
    """Seconds before the next address is tried in parallel (RFC 8305). `None` to try one after the other."""
    interleave: int | None
    """How many addresses of one family are tried before the other family (RFC 8305)."""
    socket_factory: Callable[[AddrInfoType], socket.socket] | None
    """Makes the sockets."""


class Wire(asyncio.BufferedProtocol):
    """Sits between a connection and aiohttp's protocol. Data that arrives without a request belongs to no request.

    All connections read into one buffer: by default, asyncio gets 256 KiB of memory from the system for each read.
    """

    def __init__(self, handler: ResponseHandler, transport: asyncio.Transport, connector: Connector) -> None:
        self.attempt: Attempt | None = None
        self.handler: ResponseHandler = handler
        self.transport: asyncio.Transport = transport
        self.buffer: memoryview = connector.buffer
        self.connections: set[Wire] = connector.connections
        #: Whether the system holds bytes, or the end of the connection, that the event loop has not read yet.
        self.is_readable: Callable[[int], object] = unread_on(transport.get_extra_info("socket"))
        self.connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # All connections share one buffer.
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.attempt is None:
            self.transport.abort()
        else:
            self.handler.data_received(bytes(self.buffer[:nbytes]))

    def discard(self) -> None:
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


class Attempt(Struct, eq=False):
    """One request that is being sent."""

    cancelling: int
    """How many cancellations of its task were pending when it began."""
    fresh: bool
    """Whether it uses a new connection."""
    wire: Wire | None = None
    """Its connection; `None` as long as nothing can have been sent."""
    reused: bool | None = None
    """Whether the connection has carried a request before. `None` if it belongs to the caller's session."""

    def abandon(self) -> None:
        """Abort its connection, unless another request uses it. Closing would still write the rest of the request."""
        if self.wire is not None and self.wire.attempt is self:
            # Nothing can be sent on a closed event loop.
            with contextlib.suppress(RuntimeError):
                self.wire.transport.abort()


Attempts: TypeAlias = dict["asyncio.Task[object]", Attempt]


class OutgoingRequest(aiohttp.ClientRequest):
    """A request that finds no kept connection in aiohttp's pool if it needs a new connection."""

    @property
    def connection_key(self) -> ConnectionKey:
        """See `aiohttp.ClientRequest`. A hash is never -1, so this key matches no kept connection."""
        key = super().connection_key
        return key._replace(proxy_headers_hash=-1) if self.headers.get(CONNECTION) == "close" else key


class Connector(aiohttp.TCPConnector):
    """aiohttp's pool, which gives each request one connection, and only if nothing has arrived on it."""

    def __init__(self, attempts: Attempts, connections: set[Wire], options: ConnectorOptions) -> None:
        self.attempts: Attempts = attempts
        self.connections: set[Wire] = connections
        self.buffer: memoryview = shared_buffer()
        self.process: int = os.getpid()
        # `Pool` has the limit: aiohttp's limit does not count idle connections.
        unlimited: ConnectorOptions = {**options, "limit": 0}
        super().__init__(**unlimited)

    def __del__(self, *_: object) -> None:
        # A forked child shares its parent's selector: closing a connection here would take it from the parent.
        if self.process == os.getpid():
            super().__del__()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """Return a connection on which nothing has arrived since its last response.

        Raises:
            SendFailed: No connection could be opened in time, or aiohttp asks a second time for one request.
        """
        task = asyncio.current_task()
        attempt = self.attempts.get(task) if task is not None else None
        if attempt is None or attempt.wire is not None:
            # aiohttp resends a GET, PUT or DELETE when a kept connection breaks. The engine counts attempts instead.
            raise SendFailed("the server closed the connection without a response")
        began = time.time()
        while True:
            connection = await super().connect(req, traces, timeout)
            late = overslept(began, timeout.connect)
            if not late and self._gives(connection, attempt):
                return connection
            if connection.transport is not None:
                connection.transport.abort()
            connection.close()
            if late:
                raise SendFailed("no connection in time", sent=False)

    def _gives(self, connection: Connection, attempt: Attempt) -> bool:
        """Give *connection* to *attempt*, unless the connection is closed, or something has arrived on it."""
        handler, transport = connection.protocol, connection.transport
        if handler is None or transport is None:
            return False
        wire = transport.get_protocol()
        attempt.reused = isinstance(wire, Wire)
        if not isinstance(wire, Wire):
            # A new connection. With TLS there may be session tickets to read, so unread bytes mean nothing.
            wire = Wire(handler, transport, self)
            transport.set_protocol(wire)
        elif attempt.fresh or handler.should_close or transport.get_write_buffer_size() or wire.is_readable(0):
            return False
        if attempt.fresh:
            handler.force_close()
        wire.attempt, attempt.wire = attempt, wire
        return True


class SessionPool(Pool[Wire]):
    """The requests and connections of the transport's own session, or of the caller's session.

    Raises:
        SendFailed: aiohttp rejects the *options*.
        ClientClosed: The caller's session belongs to another event loop, or was passed to another *process*.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession | None,
        options: ConnectorOptions,
        trace_configs: Sequence[aiohttp.TraceConfig],
        process: int,
    ) -> None:
        self.attempts: Attempts = {}
        self.owned: bool = session is None
        #: How many requests still ask the server to close their connections, since one of these is not trusted.
        self.emptying = 0
        if session is not None:
            if process != os.getpid():
                raise of_another_process()  # The other process may use connections that the session has already.
            super().__init__(0)
            self.session: aiohttp.ClientSession = session
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                if session.loop is not self.loop:
                    raise ClientClosed("the session belongs to another event loop")
            return
        super().__init__(options.get("limit", POOL_SIZE))
        try:
            connector = Connector(self.attempts, self.connections, options)
        except (TypeError, ValueError) as error:
            # aiohttp checks them only now, and nothing has been sent.
            reason = f"aiohttp rejects the options of its connector: {error}"
            raise SendFailed(reason, sent=False, permanent=True) from None
        self.session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[*trace_configs],
            request_class=OutgoingRequest,
        )

    @property
    def ended(self) -> bool:
        """Whether the requests in flight were ended."""
        return self.closed and self.owned

    def failure_of(
        self, error: BaseException, attempt: Attempt, task: asyncio.Task[object], method: str
    ) -> SendFailed | ClientClosed | None:
        """Return the outcome if *attempt* ended in *error*; `None` if the caller gets the error itself."""
        if isinstance(error, asyncio.CancelledError):
            if self.ended and attempt.wire is None:
                ours = task.uncancel() <= attempt.cancelling
            else:
                # aiohttp cancels requests that wait for a connection when the session's owner closes the session.
                ours = self.session.closed and not task.cancelling()
            if ours:
                return closed_while_waiting()
        if not isinstance(error, Exception):
            return None
        if self.ended:
            return SendFailed("the transport was closed", sent=attempt.wire is not None)
        if self.session.closed and isinstance(error, RuntimeError):
            return ClientClosed("the session is closed")
        # With our own session, only the connection tells whether the request may have been sent.
        return send_failed(error, method, sent=attempt.wire is not None if self.owned else None)

    async def abort(self) -> None:
        """See `Pool.abort`. Requests on the caller's session go on."""
        had_ended = self.ended
        await super().abort()
        if self.loop.is_closed():
            # The loop is closed, so these attempts never end. They must not keep the transport alive.
            self.attempts.clear()
            self.connections.clear()
        if self.owned:
            for task, attempt in tuple(self.attempts.items()):
                if attempt.wire is None and not had_ended:
                    task.cancel()  # Once, even if closed twice: `failure_of` takes one back.
                attempt.abandon()
            # RuntimeError: a stopped loop can wait for nothing. It closes the connections when it goes on.
            with contextlib.suppress(TimeoutError, RuntimeError):
                # A peer that reads nothing must not block us: aiohttp waits until the peer has read what was written.
                async with asyncio.timeout(_PARTING):
                    await self.session.close()


CASELESS.add(CIMultiDictProxy)
