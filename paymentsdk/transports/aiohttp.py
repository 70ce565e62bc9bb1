"""The default transport: an adapter for `aiohttp.ClientSession` that only uses public parts of aiohttp.

Read `AiohttpTransport.send` first, and `_exchange`, which it calls. aiohttp opens, keeps and closes the connections. To
move money safely, the adapter adds:

- If anything has arrived on a connection since its last response, it carries no further request (`Wire`, and
  `Connector._gives`).
- The limit also counts idle connections, and requests wait in turn (`Pool`).
- aiohttp resends a GET, PUT or DELETE on its own. It asks for a second connection to do so, and gets none
  (`Connector.connect`).
- A request that is ambiguous as HTTP is not sent (`checked_url`). A response that is ambiguous, cut off or too large
  fails (`read`).
- Every failure says whether a byte of the request can have left this machine: no byte has before `Connector.connect`
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
from paymentsdk.errors import RequestInvalid
from paymentsdk.transports._aiohttp_messages import check_proxied, checked_url, proxy_of, read
from paymentsdk.transports._aiohttp_pool import Attempt, ConnectorOptions, SessionPool
from paymentsdk.transports._pool import LARGE, POOL_SIZE, ConnectionResponse, PooledTransport
from paymentsdk.transports.base import Request, Response, SendFailed

__all__ = ["ConnectorOptions"]  # `AiohttpTransport` is public at the top level.

#: The most bytes of a line of a head; aiohttp allows 128 of these lines.
_LONGEST_LINE = 64 * 1024


@lru_cache(maxsize=16)
def _connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection must be opened: the caller enforces the rest."""
    # To aiohttp, 0 means no limit. Without the threshold it would round up to a whole second.
    connect = None if seconds is None else max(0.001, seconds)
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=inf)


class AiohttpTransport(PooledTransport["SessionPool"]):
    """The default transport: sends requests over an aiohttp session.

    The session is an ordinary `aiohttp.ClientSession`, its own or yours. Proxies, resolvers, `trace_configs` and
    instrumentation of aiohttp work as usual. It opens its session at the first request, which binds it to that event
    loop and process. Once that loop is closed, the next request binds it to its own loop, with new connections. It
    follows no redirects, keeps no cookies, resends nothing, and rejects a response with a `Content-Encoding`. If bytes
    arrive on an idle connection, the connection carries no further request. Requests that wait for a connection are
    served in turn.

    A request with `fresh`, or of more than 64 KiB, uses a new connection, which is closed after it. If the beginning of
    another response comes with the end of a response, and the rest during the next request, that request fails as sent.
    If a whole surplus response arrives after the next request was sent, it counts as the response to that request, as
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
            is suspended while it connects sends late. So **a call can get the response to another request**, if a
            server or a proxy leaves bytes on a connection. Prefer the transport's own session with `trace_configs`. The
            session must have no credentials of its own, neither in `auth` nor from `.netrc`.
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
        super().__init__(partial(SessionPool, session, connector, tuple(trace_configs), os.getpid()), drain)

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`.

        Raises:
            SendFailed: No usable response came.
            ClientClosed: The transport is closed, or belongs to another event loop or process. Nothing was sent.
        """
        loop, pool = asyncio.get_running_loop(), self._pool
        if pool is None or pool.usable_on is not loop:
            pool = await self._bind()
        task = asyncio.current_task(loop)
        if task is None:
            raise SendFailed("a request must be sent from a task", sent=False, permanent=True)
        fresh = request.fresh or len(request.body) > LARGE
        attempt = pool.attempts[task] = Attempt(task.cancelling(), fresh)
        try:
            return await self._exchange(pool, request, attempt)
        except BaseException as error:  # noqa: BLE001 - no other exception may leave here
            attempt.abandon()
            failure = pool.failure_of(error, attempt, task, request.method)
            if failure is None:
                # Its traceback goes through frames of aiohttp that hold the token (CONTRIBUTING: frames).
                raise error.with_traceback(None) from None
        finally:
            pool.attempts.pop(task, None)  # It is missing if the loop was closed under the task.
        # Outside the handlers: the repr of aiohttp's errors holds the token, so they must not become its context.
        raise failure

    def discard(self, response: Response) -> None:
        """Start no further request on the connection of *response*.

        A request that has started on it meanwhile fails: it would get the next response, which belongs to another
        request. In your own session, the transport cannot close a single connection. Instead, the next requests ask the
        server to close theirs, as many as the session may have connections.
        """
        super().discard(response)
        if (pool := self._pool) is not None and not pool.owned and pool.session.connector is not None:
            pool.emptying = pool.session.connector.limit or POOL_SIZE

    async def _exchange(self, pool: SessionPool, request: Request, attempt: Attempt) -> Response:
        url = checked_url(request)
        # A plain dict: multidict reads it twice as fast as a subclass.
        headers, body = dict(request.headers), request.body
        if attempt.fresh or pool.emptying:
            headers[CONNECTION] = "close"
            pool.emptying = max(0, pool.emptying - 1)
        if self._proxy is not None:
            check_proxied(url, self._proxy)
            if url.scheme == "http":
                headers |= self._login  # There is no tunnel: the proxy reads the request itself.
        within = request.connect_timeout
        if not pool.enter():
            within = await pool.wait(within)
        try:
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
        finally:
            pool.leave()
        if pool.ended:
            raise ConnectionAbortedError  # The transport was closed: the response may be cut off.
        if (wire := attempt.wire) is not None:
            if wire.transport.get_write_buffer_size():
                # The server has not read the request yet. Closing the connection would wait for the server.
                wire.transport.abort()
            if wire.attempt is attempt:
                wire.attempt = None
        return ConnectionResponse(response.status, response.headers, content, attempt.reused, wire)
