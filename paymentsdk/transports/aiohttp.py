"""The default transport: an adapter over `aiohttp.ClientSession`, built on public parts of aiohttp only.

Read `AiohttpTransport.send` first, and `_exchange`, which it calls. aiohttp opens, keeps and closes the connections.
Moving money needs more:

- A connection on which anything has arrived since its last response carries no further request (`Wire`, and
  `Connector._gives`).
- The limits hold for idle connections as well, and requests wait in turn (`Pool`).
- aiohttp sends a GET, PUT or DELETE again by itself. It asks for a second connection to do so, and gets none
  (`Connector.connect`).
- A request that is ambiguous as HTTP is not sent (`checked_url`). A response that is ambiguous, cut off or too large
  fails (`read`).
- Every failure says whether a byte of the request can have left this machine: none has before `Connector.connect`
  returns. No failure holds a credential, which the text of aiohttp's errors can show (`send_failed`).
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from functools import lru_cache, partial
from math import inf
from typing import Unpack

import aiohttp
from aiohttp.hdrs import CONNECTION

from paymentsdk._secrets import masked
from paymentsdk._validate import check_proxy
from paymentsdk.errors import RequestInvalid
from paymentsdk.transports._aiohttp_messages import checked_url, proxy_for, read
from paymentsdk.transports._aiohttp_pool import Attempt, ConnectionResponse, ConnectorOptions, SessionPool
from paymentsdk.transports._pool import LARGE, POOL_SIZE, PooledTransport
from paymentsdk.transports.base import Request, Response, SendFailed

__all__ = ["ConnectorOptions"]  # `AiohttpTransport` is public at the top level.

#: The most bytes of a line of a head; of these, aiohttp takes 128.
_LONGEST_LINE = 64 * 1024


@lru_cache(maxsize=16)
def _connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection has to be opened: the caller keeps the rest."""
    # To aiohttp, 0 is no bound; without the threshold it would round it up to a whole second.
    connect = None if seconds is None else max(0.001, seconds)
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=inf)


class AiohttpTransport(PooledTransport["SessionPool"]):
    """The default transport: carries requests over an aiohttp session.

    It is an ordinary `aiohttp.ClientSession`, its own or yours: proxies, resolvers, `trace_configs` and whatever
    instruments aiohttp work as ever. It opens its session at the first request, which binds it to that event loop and
    process; once that loop is closed, the next request binds it to its own loop, with new connections. It follows no
    redirects, keeps no cookies, sends nothing again by itself, and rejects a response with a `Content-Encoding`. A
    connection on which bytes arrive while it is idle carries no further request, and requests that wait for a
    connection are served in turn.

    A request with `fresh`, or of more than 64 KiB, goes out on a connection of its own, which is closed after it. If
    the beginning of another response comes with the end of a response and the rest during the next request, that
    request fails as sent. A surplus response that arrives once the next request is on its way passes for the response
    to that, as with any client of HTTP/1.1. Over TLS, a response that has neither a length nor chunks may be cut off:
    asyncio does not tell. Then it is not valid JSON, and the engine treats it as no response.

    The caller keeps `Request.timeout`, by cancelling `send`; the transport then closes the connection. The transport
    keeps `Request.connect_timeout`, which bounds the wait for a place in the pool, DNS, TCP and TLS together. As long
    as that is the shorter of the two, a request that the caller's timeout cancels may have been sent.

    Args:
        session: A session to use instead of opening one. It is neither changed nor closed. Its default headers,
            cookies, proxy, middlewares and traces apply. **The pool is the owner's, and some defences are missing**:
            bytes that arrive on an idle connection are not noticed; a `fresh` request can go out on a kept connection;
            aiohttp can send a GET, PUT or DELETE once more, so that a PUT or DELETE without a connection counts as
            sent, and anything by a middleware; under a limit, waiting requests are not served in turn; a machine that
            is suspended while it connects sends late. So **a call can get the response to another**, if a server or a
            proxy leaves bytes on a connection. Prefer the transport's own session with `trace_configs`. Next to a
            token the session can have no credentials of its own, neither as `auth` nor from `.netrc`.
        proxy: The http or https URL of a proxy for all requests.
        drain: Seconds that requests in flight get to end when the transport is closed; 5 by default.
        trace_configs: What observes the requests of the transport's own session, as aiohttp has it.
        **connector: Options of `aiohttp.TCPConnector`. Some of them: `ssl`, a context or a fingerprint; `limit`,
            connections in use at a time, 500 by default; `keepalive_timeout`, seconds that an idle connection is kept,
            15 by default.

    Raises:
        RequestInvalid: *session* was given together with an option, is not aiohttp's, or has an `auth`; or *proxy* is
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
        check_proxy(proxy)
        if session is not None:
            if proxy is not None or trace_configs or connector:
                raise RequestInvalid("session", "cannot be combined with options: its owner has set its own")
            if not isinstance(session, aiohttp.ClientSession):
                # Another library's would send, and then not know what came of it.
                raise RequestInvalid("session", f"must be an aiohttp.ClientSession, not {type(session).__name__}")
            if session.auth is not None:
                raise RequestInvalid("session", "has an auth of its own, and a request carries only one token")
        super().__init__(partial(SessionPool, session, connector, tuple(trace_configs), os.getpid()), drain)
        self._proxy = proxy

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`.

        Raises:
            SendFailed: No response came that can be used.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
        """
        loop, pool = asyncio.get_running_loop(), self._pool
        if pool is None or pool.usable_on is not loop:
            pool = await self._bind()
        task = asyncio.current_task(loop)
        if task is None:
            raise SendFailed("requests are sent from a task", sent=False, permanent=True)
        fresh = request.fresh or len(request.body) > LARGE
        attempt = pool.attempts[task] = Attempt(task.cancelling(), fresh)
        try:
            return await self._exchange(pool, request, attempt)
        except BaseException as error:  # noqa: BLE001 - nothing else may come out of here
            attempt.abandon()
            failure = pool.failure_of(error, attempt, task, request.method)
            if failure is None:
                # Its traceback leads through frames of aiohttp that hold the token.
                raise error.with_traceback(None) from None
        finally:
            pool.attempts.pop(task, None)  # It is gone if the loop was closed under the task.
        # Outside the handlers: the repr of aiohttp's errors holds the token, so they must not become its context.
        raise failure

    def discard(self, response: Response) -> None:
        """Start no further request on the connection that *response* came on.

        A request that has started on it meanwhile fails: the next response would be taken for its own. The pool of an
        injected session is not the transport's: there, as many requests as it may have connections ask the server to
        close theirs, which empties it.
        """
        if isinstance(response, ConnectionResponse) and response.connection is not None:
            response.connection.transport.abort()
        elif (pool := self._pool) is not None and not pool.owned and pool.session.connector is not None:
            pool.emptying = pool.session.connector.limit or POOL_SIZE

    async def _exchange(self, pool: SessionPool, request: Request, attempt: Attempt) -> Response:
        url = checked_url(request)
        # A plain dict, which multidict reads in half the time that it takes for a subclass.
        headers, body = dict(request.headers), request.body
        if attempt.fresh or pool.emptying:
            headers[CONNECTION] = "close"
            pool.emptying = max(0, pool.emptying - 1)
        proxy, login = (None, None) if self._proxy is None else proxy_for(url, self._proxy)
        if login and url.scheme == "http":
            headers |= login  # There is no tunnel: the proxy reads the request itself.
        within = request.connect_timeout
        if not pool.enter():
            within = await pool.wait(within)
        try:
            response = await pool.session.request(
                request.method,
                url,
                headers=headers,
                data=io.BytesIO(body) if len(body) > LARGE else body or None,  # aiohttp warns of much longer bytes.
                allow_redirects=False,
                raise_for_status=False,
                auto_decompress=False,
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
                timeout=_connecting_within(within),
                proxy=proxy,
                proxy_headers=login,
            )
            try:
                content = await read(response, request.max_response)
            except BaseException:
                response.close()
                raise
        finally:
            pool.leave()
        if attempt.ended:
            raise ConnectionAbortedError  # The transport was closed: this may be a part of a response without a length.
        if (wire := attempt.wire) is not None:
            if wire.transport.get_write_buffer_size():
                # The server has not taken the request yet: to close the connection would take as long as it likes.
                wire.transport.abort()
            if wire.attempt is attempt:
                wire.attempt = None
        return ConnectionResponse(response.status, response.headers, content, attempt.reused, wire)
