"""The default transport: an adapter for `aiohttp.ClientSession` that only uses public parts of aiohttp.

Read `PooledTransport.send` first, and `AiohttpTransport._exchange`, which it calls. aiohttp opens, keeps and closes the
connections. To move money safely, the adapter adds:

- If anything has arrived on a connection since its last response, it carries no further request (`Connector._gives`).
- Requests beyond the limit wait in turn (`Pool`).
- aiohttp resends a GET, PUT or DELETE on its own. It asks for a second connection to do so, and gets none
  (`Connector.connect`).
- A request that is ambiguous as HTTP is not sent (`checked_url`). A response that is ambiguous, cut off or too large
  fails (`read`).
- Every failure says whether a byte of the request can have left this machine: no byte has before `Connector.connect`
  returns. No failure holds a credential, which the text of aiohttp's errors can show (`send_failed`).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import inf
from ssl import SSLContext
from typing import TYPE_CHECKING, TypedDict, Unpack
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.hdrs import CONNECTION
from msgspec import Struct
from multidict import CIMultiDictProxy

from paymentsdk._secrets import masked
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports._aiohttp_messages import check_proxied, checked_url, proxy_of, read, send_failed
from paymentsdk.transports._pool import (
    LARGE,
    POOL_SIZE,
    ConnectionResponse,
    Pool,
    PooledTransport,
    closed_while_waiting,
    overslept,
    unread_on,
)
from paymentsdk.transports.base import CASELESS, Request, Response, SendFailed

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

__all__ = ["ConnectorOptions"]  # `AiohttpTransport` is public at the top level.

#: The most bytes of a line of a head; aiohttp allows 128 of these lines.
_LONGEST_LINE = 64 * 1024
#: Seconds that connections have to close.
_PARTING = 1.0

CASELESS.add(CIMultiDictProxy)


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


class AiohttpTransport(PooledTransport["SessionPool"]):
    """The default transport: sends requests over an aiohttp session.

    The session is an ordinary `aiohttp.ClientSession`, its own or yours. Proxies, resolvers, `trace_configs` and
    instrumentation of aiohttp work as usual. It opens its session at the first request, which binds it to that event
    loop and process. Once that loop is closed, the next request binds it to its own loop, with new connections. It
    follows no redirects, keeps no cookies, resends nothing, and rejects a response with a `Content-Encoding`. If a
    response or garbage arrives on an idle connection, the connection carries no further request. Requests that wait for
    a connection are served in turn.

    A request with `fresh`, or of more than 64 KiB, uses a new connection, which is closed after it. If a part of the
    head of another response arrives before the next request, and the rest during it, that request fails as sent. If a
    whole surplus response arrives after the next request was sent, it counts as the response to that request, as
    with any HTTP/1.1 client. Over TLS, a response that has neither a length nor chunks may be cut off, which asyncio
    does not report. Then it is not valid JSON, and the engine treats it as no response.

    The caller enforces `Request.timeout` by cancelling `send`. The transport then closes the connection. The transport
    enforces `Request.connect_timeout`, which limits the wait for a place in the pool, DNS, TCP and TLS together. As
    long as it is the shorter of the two, a request that the caller's timeout cancels may have been sent.

    Args:
        session: A session to use instead of opening one. It is neither changed nor closed. Its default headers,
            cookies, proxy, middlewares and traces apply. **The pool belongs to the session's owner, and some defences
            are missing**: bytes that arrive on an idle connection are not noticed; a `fresh` request can use a kept
            connection; aiohttp can resend a GET, PUT or DELETE, so that a PUT or DELETE without a connection counts as
            sent; a middleware can send anything; under a limit, waiting requests are not served in turn; a machine that
            is suspended while it connects sends late; `discard` cannot close a single connection, so the next requests
            ask the server to close theirs, as many as the session may have. So **a call can get the response to another
            request**, if a server or a proxy leaves bytes on a connection. Prefer the transport's own session with
            `trace_configs`. The session must have no credentials of its own, neither in `auth` nor from `.netrc`.
        proxy: The http or https URL of a proxy for all requests.
        drain: Seconds that requests in flight get to end when the transport is closed. The default is 5.
        trace_configs: aiohttp's trace configurations for the transport's own session.
        **connector: Options of `aiohttp.TCPConnector`: `family`, `happy_eyeballs_delay`, `interleave`,
            `keepalive_timeout` (seconds that an idle connection is kept, 15 by default), `limit` (the most connections
            in use, 500 by default), `local_addr`, `resolver`, `socket_factory`, `ssl` (a context or a fingerprint),
            `ttl_dns_cache` and `use_dns_cache`. See `ConnectorOptions`.

    Raises:
        RequestInvalid: *session* was combined with another option, is not aiohttp's, or has an `auth`; or *proxy* is
            not an http or https URL.
    """

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        drain: float = 5.0,
        trace_configs: Sequence[aiohttp.TraceConfig] = (),
        **connector: Unpack[ConnectorOptions],
    ) -> None:
        proxy = masked(proxy)
        self._proxy, self._login = proxy_of(proxy)
        if session is not None:
            if proxy is not None or trace_configs or connector:
                raise RequestInvalid("session", "cannot be combined with options, which its owner sets")
            if not isinstance(session, aiohttp.ClientSession):
                # Another library's session would send the request, and then fail with an unknown outcome.
                raise RequestInvalid("session", f"must be an aiohttp.ClientSession, not {type(session).__name__}")
            if session.auth is not None:
                raise RequestInvalid("session", "has its own auth, but a request carries only one token")
        super().__init__(partial(SessionPool, session, connector, tuple(trace_configs)), drain)

    async def _exchange(self, pool: SessionPool, request: Request, within: float | None) -> Response:
        task = asyncio.current_task()
        if task is None:
            raise SendFailed("a request must be sent from a task", sent=False, permanent=True)
        attempt = pool.attempts[task] = Attempt(task.cancelling())
        try:
            return await self._request(pool, request, within, attempt)
        except BaseException as error:  # noqa: BLE001 - no other exception may leave here
            attempt.abandon()
            failure = pool.failure_of(error, attempt, task, request.method)
            if failure is None:
                # Its traceback goes through frames of aiohttp that hold the token (CONTRIBUTING: frames).
                raise error.with_traceback(None) from None
        finally:
            del pool.attempts[task]
        # Outside the handlers: the repr of aiohttp's errors holds the token, so they must not become its context.
        raise failure

    async def _request(
        self, pool: SessionPool, request: Request, within: float | None, attempt: Attempt
    ) -> ConnectionResponse:
        url = checked_url(request)
        # A plain dict: multidict reads it twice as fast as a subclass.
        headers, body = dict(request.headers), request.body
        if request.fresh or len(body) > LARGE or pool.emptying:
            headers[CONNECTION] = "close"
            pool.emptying = max(0, pool.emptying - 1)
        if self._proxy is not None:
            check_proxied(url, self._proxy)
            if url.scheme == "http":
                headers |= self._login  # There is no tunnel: the proxy reads the request itself.
        response = await pool.session.request(
            request.method,
            url,
            headers=headers,
            data=io.BytesIO(body) if len(body) > LARGE else body or None,  # aiohttp warns of much larger bytes.
            allow_redirects=False,
            raise_for_status=False,
            auto_decompress=False,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            timeout=_connecting_within(within),
            proxy=self._proxy,
            proxy_headers=self._login,
        )
        try:
            content = await read(response, request.max_response)
        except BaseException:
            response.close()
            raise
        if pool.ended:
            raise ConnectionAbortedError  # The transport was closed: the response may be cut off.
        transport = attempt.transport
        if transport is not None and transport.get_write_buffer_size():
            # The server has not read the request yet. Closing the connection would wait for the server.
            attempt.abandon()
        discard = pool.empty if transport is None else transport.abort
        return ConnectionResponse(response.status, response.headers, content, attempt.reused, discard)


@lru_cache(maxsize=16)
def _connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection must be opened: the caller enforces the rest."""
    # To aiohttp, 0 means no limit. Without the threshold it would round up to a whole second.
    connect = None if seconds is None else max(0.001, seconds)
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=inf)


class SessionPool(Pool):
    """The requests and connections of the transport's own session, or of the caller's session.

    Raises:
        SendFailed: aiohttp rejects the *options*.
        ClientClosed: The caller's session belongs to another event loop.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession | None,
        options: ConnectorOptions,
        trace_configs: Sequence[aiohttp.TraceConfig],
    ) -> None:
        self.owned: bool = session is None
        super().__init__(options.get("limit", POOL_SIZE) if self.owned else 0)
        self.attempts: dict[asyncio.Task[object], Attempt] = {}
        #: The connections, each with a function that tells whether it has unread bytes.
        self.connections: WeakKeyDictionary[ResponseHandler, Callable[[], object]] = WeakKeyDictionary()
        #: How many requests still ask the server to close their connections, since one of these is not trusted.
        self.emptying: int = 0
        if session is not None:
            self.session: aiohttp.ClientSession = session
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                if session.loop is not self.loop:
                    raise ClientClosed("the session belongs to another event loop")
            return
        try:
            connector = Connector(self, options)
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
    def open_connections(self) -> int:
        """See `Pool.open_connections`; 0 with the caller's session."""
        # `keyrefs` returns a list: metrics are read in a thread of their own.
        handlers = (reference() for reference in self.connections.keyrefs())
        return sum(handler is not None and handler.is_connected() for handler in handlers)

    @property
    def ended(self) -> bool:
        """Whether the requests in flight were ended."""
        return self.closed and self.owned

    def empty(self) -> None:
        """Let the next requests ask the server to close their connections, as many as the session may have."""
        self.emptying = (self.session.connector and self.session.connector.limit) or POOL_SIZE

    def failure_of(
        self, error: BaseException, attempt: Attempt, task: asyncio.Task[object], method: str
    ) -> SendFailed | ClientClosed | None:
        """Return the outcome if *attempt* ended in *error*; `None` if the caller gets the error itself."""
        is_sent = attempt.connection is not None
        if isinstance(error, asyncio.CancelledError) and self.session.closed:
            # `abort` has cancelled the task, or the session's owner has closed it and aiohttp has cancelled the wait.
            if self.ended and not is_sent:
                task.uncancel()
            if task.cancelling() <= attempt.cancelling:
                return closed_while_waiting()
        if not isinstance(error, Exception):
            return None
        if self.ended:
            return SendFailed("the transport was closed") if is_sent else closed_while_waiting()
        if self.session.closed and isinstance(error, RuntimeError):
            return ClientClosed("the session is closed")
        # With our own session, only the connection tells whether the request may have been sent.
        return send_failed(error, method, sent=is_sent if self.owned else None)

    async def abort(self) -> None:
        """See `Pool.abort`. Requests on the caller's session go on."""
        if self.ended:
            return  # A task is cancelled only once: `failure_of` takes one cancellation back.
        await super().abort()
        if self.owned:
            for task, attempt in () if self.loop.is_closed() else tuple(self.attempts.items()):
                if attempt.connection is None:
                    task.cancel()
                attempt.abandon()
            # RuntimeError: a stopped loop can wait for nothing. It closes the connections when it goes on.
            with contextlib.suppress(TimeoutError, RuntimeError):
                # A peer that reads nothing must not block us: aiohttp waits until the peer has read what was written.
                async with asyncio.timeout(_PARTING):
                    await self.session.close()


class Attempt(Struct, eq=False):
    """One request that is being sent."""

    cancelling: int
    """How many cancellations of its task were pending when it began."""
    connection: Connection | None = None
    """Its connection; `None` as long as nothing can have been sent."""
    transport: asyncio.Transport | None = None
    """The transport of its connection. `None` in the caller's session."""
    reused: bool | None = None
    """Whether the connection has carried a request before. `None` in the caller's session."""

    def abandon(self) -> None:
        """Abort its connection, unless that is back in the pool. Closing would still write the rest of the request."""
        connection, transport = self.connection, self.transport
        if connection is not None and transport is not None and (connection.transport or transport.is_closing()):
            # Nothing can be sent on a closed event loop.
            with contextlib.suppress(RuntimeError):
                transport.abort()


class Connector(aiohttp.TCPConnector):
    """aiohttp's pool, which gives each request one connection, and only if nothing has arrived on it."""

    def __init__(self, pool: SessionPool, options: ConnectorOptions) -> None:
        self.pool = pool
        # `Pool` has the limit: a request that waits there takes less memory.
        unlimited: ConnectorOptions = {**options, "limit": 0}
        super().__init__(**unlimited)

    def __del__(self, *_: object) -> None:
        if not self.pool.inherited:  # CONTRIBUTING: forks.
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
        attempt = self.pool.attempts.get(task) if task is not None else None
        if attempt is None or attempt.connection is not None:
            # aiohttp resends a GET, PUT or DELETE when a kept connection breaks. The engine counts attempts instead.
            raise SendFailed("the server closed the connection without a response")
        began = time.time()
        while True:
            connection = await super().connect(req, traces, timeout)
            late = overslept(began, timeout.connect)
            if not late and self._gives(connection, req, attempt):
                return connection
            connection.close()
            if late:
                raise SendFailed("no connection in time", sent=False)

    def _gives(self, connection: Connection, req: aiohttp.ClientRequest, attempt: Attempt) -> bool:
        """Give *connection* to *attempt*, unless the connection is closed, or something has arrived on it."""
        handler, transport = connection.protocol, connection.transport
        if handler is None or transport is None:
            return False
        has_unread = self.pool.connections.get(handler)
        if has_unread is None:
            # A new connection. With TLS there may be session tickets to read, so unread bytes mean nothing.
            self.pool.connections[handler] = unread_on(transport.get_extra_info("socket"))
        elif handler.should_close or transport.get_write_buffer_size() or has_unread():
            return False
        if req.headers.get(CONNECTION) == "close":
            handler.force_close()
        attempt.connection, attempt.transport, attempt.reused = connection, transport, has_unread is not None
        return True


class OutgoingRequest(aiohttp.ClientRequest):
    """A request that finds no kept connection in aiohttp's pool if it needs a new connection."""

    @property
    def connection_key(self) -> ConnectionKey:
        """See `aiohttp.ClientRequest`. A hash is never -1, so this key matches no kept connection."""
        key = super().connection_key
        return key._replace(proxy_headers_hash=-1) if self.headers.get(CONNECTION) == "close" else key
