"""The default transport: an adapter over `aiohttp.ClientSession`, built on public parts of aiohttp only.

Read `AiohttpTransport.send` first, and `_exchange`, which it calls. What moving money needs, and aiohttp does not do by
itself:

- A connection on which bytes arrived while it was idle carries no further request (`_aiohttp_pool.Wire`).
- Requests that wait for a connection are served in the order in which they asked (`_queue.FairPool`).
- Nothing is sent twice within one attempt: aiohttp resends some requests by itself (`_aiohttp_pool.Connector`).
- What could be read in two ways is not sent (`_aiohttp_messages.checked_url`), and not believed (`read_at_once`).
- A response that is cut off fails, however its connection ended (`read`), and none is larger than was asked for.
- Every failure says whether a byte of the request can have left this machine, and holds no credential
  (`send_failed`): the text of aiohttp's errors can show the token.

What a service needs that lives longer than a request:

- It is closed in good order: requests in flight get their time, and whoever waits learns that nothing was sent. It
  follows its program to a new event loop. A forked child leaves the connections to its parent (`_pool`).
- A session, proxies, traces and the options of the connector are the program's own.
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
from multidict import CIMultiDictProxy

from paymentsdk._public import publish
from paymentsdk._secrets import masked
from paymentsdk._validate import check_proxy
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports._aiohttp_messages import (
    checked_url,
    has_surplus,
    proxy_for,
    read,
    read_at_once,
    send_failed,
)
from paymentsdk.transports._aiohttp_pool import ConnectionResponse, ConnectorOptions, InFlightRequest, SessionPool
from paymentsdk.transports._pool import POOL_SIZE, PooledTransport, check_numbers, closed_while_waiting
from paymentsdk.transports.base import CASELESS, PoolFull, Request, Response, SendFailed

__all__ = ["ConnectorOptions"]  # `AiohttpTransport` is public at the top level.

#: A request of more bytes may not have left this machine when its response comes.
_LARGE = 64 * 1024
#: The most bytes of a line of a head; of these, aiohttp takes 128.
_LONGEST_LINE = 64 * 1024
#: aiohttp warns of bytes that are longer than this, but not of a file.
_WARNED_OF = 2**20


@lru_cache(maxsize=16)
def _connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection has to be opened: the caller keeps the rest."""
    # To aiohttp, 0 is no bound; without the threshold it would round it up to a whole second.
    connect = None if seconds is None else max(0.001, seconds)
    return aiohttp.ClientTimeout(total=None, connect=connect, ceil_threshold=inf)


class AiohttpTransport(PooledTransport[SessionPool]):
    """The default transport: carries requests over an aiohttp session.

    It is an ordinary `aiohttp.ClientSession`, its own or yours: proxies, resolvers, `trace_configs` and whatever
    instruments aiohttp work as ever. It opens its session at the first request, which binds it to that event loop and
    process; once that loop is closed, the next request binds it to its own loop, with new connections. It follows no
    redirects, keeps no cookies, sends nothing again by itself, and rejects a response with a `Content-Encoding`. With
    every version of aiohttp, a connection on which bytes arrive while it is idle carries no further request, and
    requests that wait for a connection are served in turn. A request with `fresh` goes out on a connection of its own,
    which is closed after it. A surplus response that arrives once the next request is on its way passes for the
    response to that, as with any client of HTTP/1.1.

    Over TLS, a response that has neither a length nor chunks ends when its connection does. asyncio does not tell
    whether TLS was ended properly, so such a response may have been cut off: then it is not valid JSON, and the engine
    treats it as no response.

    The caller keeps `Request.timeout`, by cancelling `send`; the transport then closes the connection. The transport
    keeps `Request.connect_timeout`, which bounds the wait for a place in the pool, DNS, TCP and TLS together. As long
    as that is the shorter of the two, a request that the caller's timeout cancels may have been sent.

    Args:
        session: A session to use instead of opening one. It is neither changed nor closed. What aiohttp takes per
            request is set on each request; the rest is up to the session's owner: its default headers, cookies,
            proxy, middlewares and traces apply. **The pool is the owner's, and with it some of the defences**: bytes
            that arrive on an idle connection are not noticed; a `fresh` request can go out on a kept connection; a
            GET, PUT or DELETE can be sent once more by aiohttp, so that a PUT or DELETE without a connection counts as
            sent, and anything by a middleware; under a limit, waiting requests are not served in turn; a machine that
            is suspended while it connects sends late. So **a call can still get the response to another**, if a server
            or a proxy leaves bytes on a connection; where nothing in it contradicts the request, it is believed. Prefer
            the transport's own session with `trace_configs`. Next to a token the session can have no credentials of its
            own, neither as `auth` nor from `.netrc`.
        proxy: The http or https URL of a proxy for all requests.
        trust_env: Take proxies from the environment; `False` by default.
        drain: Seconds that requests in flight get to end when the transport is closed; 5 by default.
        trace_configs: What observes the requests of the transport's own session, as aiohttp has it.
        **connector: Options of `aiohttp.TCPConnector`. Some of them: `ssl`, a context or a fingerprint; `limit`,
            connections in use at a time, 500 by default; `limit_per_host`; `keepalive_timeout`, seconds that an idle
            connection is kept, 15 by default; a day is the most, as for `drain`.

    Raises:
        RequestInvalid: *session* was given together with an option, is not aiohttp's, or has an `auth`; *proxy* is
            not an http or https URL; or an option in seconds or connections is not such a number.
    """

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        trust_env: bool = False,
        drain: float = 5.0,
        trace_configs: Sequence[aiohttp.TraceConfig] = (),
        **connector: Unpack[ConnectorOptions],
    ) -> None:
        proxy = masked(proxy)
        check_proxy(proxy)
        if session is not None:
            if proxy is not None or trust_env or trace_configs or connector:
                raise RequestInvalid("session", "cannot be combined with options: its owner has set its own")
            if not isinstance(session, aiohttp.ClientSession):
                # Another library's would send, and then not know what came of it.
                raise RequestInvalid("session", f"must be an aiohttp.ClientSession, not {type(session).__name__}")
            if session.auth is not None:
                raise RequestInvalid("session", "has an auth of its own, and a request carries only one token")
        check_numbers(
            {name: connector.get(name, 0) for name in ("limit", "limit_per_host")},
            {"keepalive_timeout": connector.get("keepalive_timeout") or 0, "drain": drain},
        )
        super().__init__(partial(SessionPool, session, connector, tuple(trace_configs), os.getpid()), drain)
        self._proxy = proxy
        self._proxied = proxy is not None or trust_env

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
        attempt = pool.attempts[task] = InFlightRequest(task.cancelling(), len(request.body) > _LARGE)
        failure: SendFailed | ClientClosed
        try:
            response = await self._exchange(pool, request, attempt)
            if not attempt.ended:
                return response
            failure = _broken_off(attempt)
        except asyncio.CancelledError as error:
            if not pool.cancelled(attempt, task):
                # Its traceback leads through frames of aiohttp that hold the token.
                raise error.with_traceback(None) from None
            failure = closed_while_waiting()
        except PoolFull as error:
            failure = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - nothing else may come out of here
            if attempt.ended:
                failure = _broken_off(attempt)
            elif pool.kept.closed and isinstance(error, RuntimeError):
                failure = ClientClosed("the session is closed")
            else:
                # Over sessions of ours: there was a connection, or there never was, whatever nobody expects.
                there_was_one = attempt.wire is not None if pool.owned else None
                failure = send_failed(error, request.method, sent=there_was_one)
        except BaseException as error:  # noqa: BLE001 - as above: it ends the program
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
            response.connection.discard()
        elif (pool := self._pool) is not None and not pool.owned and pool.kept.connector is not None:
            pool.emptying = pool.kept.connector.limit or POOL_SIZE

    async def _exchange(self, pool: SessionPool, request: Request, attempt: InFlightRequest) -> Response:
        url = checked_url(request)
        # A plain dict, which multidict reads in half the time that it takes for a subclass.
        headers, body = dict(request.headers), request.body
        if request.fresh or pool.emptying:
            headers["Connection"] = "close"
            pool.emptying = max(0, pool.emptying - 1)
        proxy, login = proxy_for(url, self._proxy) if self._proxied else (None, None)
        if login and url.scheme == "http":
            headers |= login  # There is no tunnel: the proxy reads the request itself.
        host = (url.scheme, url.raw_host, url.port) if pool.counts_hosts else None
        within = request.connect_timeout
        if not pool.enter(host):
            within = await pool.wait(host, within)
        try:
            response = await (pool.fresh if request.fresh else pool.kept).request(
                request.method,
                url,
                headers=headers,
                data=(io.BytesIO(body) if len(body) > _WARNED_OF else body) if body else None,
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
                content = read_at_once(response, request.max_response)
                if content is None:
                    content = await read(response, request.max_response)
                if attempt.wire is not None and has_surplus(response, content, attempt.last_read):
                    attempt.wire.discard()
            except BaseException:
                response.close()
                raise
        except BaseException:
            attempt.abandon()
            raise
        finally:
            pool.leave(host)
        return ConnectionResponse(response.status, response.headers, content, attempt.reused, attempt.wire)


def _broken_off(attempt: InFlightRequest) -> SendFailed:
    return SendFailed("the transport was closed", sent=attempt.wire is not None)


CASELESS.add(CIMultiDictProxy)
publish(__name__, globals())
