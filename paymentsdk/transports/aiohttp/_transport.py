"""The transport: its options, the way that a request takes, and how it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Unpack

import aiohttp

from paymentsdk._core.secrets import hide
from paymentsdk._core.settings import check_proxy
from paymentsdk._core.wire import Request, Response, SendFailed
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports.aiohttp._failures import failure_of
from paymentsdk.transports.aiohttp._over_pool import over_pool
from paymentsdk.transports.aiohttp._over_session import over_session
from paymentsdk.transports.aiohttp._pool import Connector, ConnectorOptions, Pool, Server, find_server

#: Connections at a time. aiohttp's own 100 makes a busy service wait for a place, which costs it 3 to 4 microseconds a
#: call; much more would come near the 1,024 files that many systems let a process open.
POOL_SIZE = 500
#: The versions of aiohttp whose pool and protocol are known to do what is asked of them here. aiohttp does not promise
#: these parts to anybody, so with another version every request goes through a session.
_KNOWN = ("3.14.",)
#: Methods whose answer may have a body: a request with another one goes through a session.
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
#: Fields that say how a request is to be read: one that has any of them goes through a session.
_FIELDS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding"})
#: Seconds that connections get to close.
_PARTING = 1.0


class AiohttpTransport:
    """Carries requests over aiohttp.

    A request takes one of two ways. The usual one goes straight to aiohttp's pool of connections and to its parser,
    at about three fifths of the cost of a session. The other goes through a :class:`aiohttp.ClientSession`. It is taken
    for an injected session, a proxy, a fresh connection, an unusual URL or header field, and for every request if this
    transport has not been tested with the installed version of aiohttp.

    The connections are opened at the first request and belong to its event loop and process. The transport follows no
    redirects, keeps no cookies, and refuses an answer with a ``Content-Encoding``. aiohttp's habit of sending a GET,
    PUT or DELETE again is off. If an answer arrives on an idle connection, the connection is not used again; with an
    untested version of aiohttp, only as far as that can be seen.

    Over TLS, an answer that has neither a length nor chunks ends when its connection does. asyncio does not tell
    whether TLS was ended properly, so such an answer may have been cut off: then it is not valid JSON, and the engine
    treats it as no answer.

    The caller keeps ``Request.timeout``, by cancelling ``send``; the transport then closes the connection. The
    transport keeps ``Request.connect_timeout``, which includes the wait for a place in the pool. As long as that is the
    shorter of the two, a request that the caller's timeout cancels may have been sent.

    Args:
        session: A session to use instead of opening one. It is neither changed nor closed. Options that aiohttp takes
            per request are set on each request. The rest is up to the session's owner: its default headers, cookies,
            proxy, middlewares and traces apply, and its middlewares may send a request again. An unrequested answer is
            noticed on an idle connection once the loop has read its head: one that comes at the very moment of a
            request is taken for the answer to it. The pool is aiohttp's own: under a limit, waiting tasks are not
            served in turn. Next to a token, the session can have no credentials of its own, neither as ``auth`` nor
            from ``.netrc``.
        proxy: The http or https URL of a proxy for all requests.
        trust_env: Take proxies from the environment; ``False`` by default.
        drain: Seconds that requests in flight get to end when the transport is closed; 5 by default.
        **connector: Options of ``aiohttp.TCPConnector``. Some of them: ``ssl``, a context or a fingerprint;
            ``limit``, connections at a time, 500 by default; ``keepalive_timeout``, seconds that an idle connection
            is kept, 15 by default.

    Raises:
        RequestInvalid: *session* was given together with an option, is not aiohttp's, or has an ``auth``; *proxy* is
            not an http or https URL; or an option in seconds or connections is not such a number.
    """

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        trust_env: bool = False,
        drain: float = 5.0,
        **connector: Unpack[ConnectorOptions],
    ) -> None:
        proxy = hide(proxy)
        check_proxy(proxy)
        if session is not None and (proxy is not None or trust_env or connector):
            raise RequestInvalid("session", "cannot be combined with options: its owner has set its own")
        if session is not None and not isinstance(session, aiohttp.ClientSession):
            # Another library's would send, and then not know what came of it.
            raise RequestInvalid("session", f"must be an aiohttp.ClientSession, not {type(session).__name__}")
        if session is not None and session.auth is not None:
            raise RequestInvalid("session", "has an auth of its own, and a request carries only one token")
        if not _is_number(drain, (int, float)):
            raise RequestInvalid("drain", "must be 0 or more seconds")
        for name in ("limit", "limit_per_host"):
            if not _is_number(connector.get(name, 0), (int,)):
                raise RequestInvalid(name, "must be a whole number; 0 is no limit")
        if not _is_number(connector.get("keepalive_timeout") or 0, (int, float)):
            raise RequestInvalid("keepalive_timeout", "must be 0 or more seconds, or None")
        self._session = session
        self._owned = session is None
        self._proxy = proxy
        self._trust_env = trust_env
        self._drain = drain
        self._connector: ConnectorOptions = {"limit": POOL_SIZE, **connector}
        self._loop = None if session is None else _current_loop()
        self._process = None if session is None else os.getpid()
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._pool: Pool | None = None
        self._last_server: Server | None = None
        self._plain_names: tuple[str, ...] = ()

    async def send(self, request: Request) -> Response:
        """See :class:`~paymentsdk.Transport`.

        Raises:
            SendFailed: No answer came that can be used.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
        """
        session = self._session
        here = self._loop is asyncio.get_running_loop() and self._process == os.getpid()
        if session is None or self._closed or not here:
            session = self._open()
        failure: SendFailed | ClientClosed
        self._in_flight += 1
        try:
            server = self._server_of(request)
            if server is None:
                return await over_session(
                    session, request, owned=self._owned, proxy=self._proxy, trust_env=self._trust_env
                )
            return await over_pool(server, request)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not session.closed or task is None or task.cancelling():
                # Its traceback leads through frames of aiohttp that hold the token.
                raise error.with_traceback(None)  # noqa: B904 - it is the same error
            # A session that is closed cancels those who wait for a connection, though nobody cancelled their tasks.
            failure = ClientClosed("the transport was closed while the request waited for a connection")
        except Exception as error:  # noqa: BLE001 - nothing else may come out of here
            failure = failure_of(error)
        finally:
            self._in_flight -= 1
            if self._closed and not self._in_flight:
                self._idle.set()
        # Outside the handlers: the repr of aiohttp's errors holds the token, so they must not become its context.
        raise failure

    async def aclose(self) -> None:
        """Refuse new requests, give those in flight ``drain`` seconds to end, and close the connections.

        A request that has not ended by then fails with ``SendFailed``. An injected session stays open, and what is
        still in flight on it goes on. Closing twice is allowed. In a child that was forked meanwhile, the connections
        are left to its parent.

        Raises:
            ClientClosed: The connections belong to another event loop, which still runs: close the transport there.
        """
        self._closed = True
        if self._session is None or self._process != os.getpid():
            return  # Parent and child have one selector: to close a connection here would take it from the parent.
        here = self._loop is asyncio.get_running_loop()
        if not here and self._loop is not None and self._loop.is_running():
            raise ClientClosed("the connections belong to another event loop: close the transport there")
        try:
            if self._in_flight and here:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._drain):
                        await self._idle.wait()
        finally:
            if self._owned:
                _break_off(self._session)
                # RuntimeError: nothing of a loop that stands still can be waited for. They close when it goes on.
                with contextlib.suppress(TimeoutError, *(() if here else (RuntimeError,))):
                    # A peer that reads nothing must not hold us up: aiohttp waits until it has taken what was written.
                    async with asyncio.timeout(_PARTING):
                        await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        """Open the session and bind it to this loop, or say why there is none to use."""
        if self._closed:
            raise ClientClosed("the transport is closed")
        if self._process not in (None, os.getpid()):
            # Both would write on the same connections, and read the answers of each other.
            raise ClientClosed("the connections belong to another process: make the client after the fork")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise ClientClosed("the connections belong to another event loop: use one client per loop")
        if self._session is not None and getattr(self._session, "_loop", loop) is not loop:
            raise ClientClosed("the session belongs to another event loop")
        self._loop, self._process = loop, os.getpid()
        if self._session is None:
            self._session = self._new_session()
        return self._session

    def _new_session(self) -> aiohttp.ClientSession:
        """Return a session of our own; its pool is used without it where nothing but the pool is needed."""
        kind = Pool if aiohttp.__version__.startswith(_KNOWN) else Connector
        try:
            connector = kind(**self._connector)
        except (TypeError, ValueError) as error:
            # aiohttp looks at them only now, and nothing has been sent.
            reason = f"aiohttp does not take the options of its connector: {error}"
            raise SendFailed(reason, sent=False, permanent=True) from None
        if isinstance(connector, Pool) and self._proxy is None and not self._trust_env:
            self._pool = connector
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    def _server_of(self, request: Request) -> Server | None:
        """Return the server of *request*, or ``None`` if the request has to go through the session."""
        url = request.url
        end = url.find("/", len("https://"))
        odd = end < 0 or "#" in url or "\t" in url or request.method not in _METHODS
        if odd or request.fresh or self._pool is None:
            return None
        names = tuple(request.headers)
        if names != self._plain_names:  # Nearly always the same ones again.
            if not _FIELDS.isdisjoint(map(str.lower, names)):
                return None
            self._plain_names = names
        server = self._last_server  # Nearly always the right one.
        if server is None or server.origin != url[:end]:
            server = self._last_server = find_server(url[:end], self._pool)
        return server


def _is_number(value: object, kinds: tuple[type[int], ...] | tuple[type[int], type[float]]) -> bool:
    """Whether *value* is a number of one of *kinds*, and 0 or more."""
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= 0


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _break_off(session: aiohttp.ClientSession) -> None:
    """Break the connections of requests that have not ended. Closed, they would go on to write what is left."""
    for protocol in tuple(getattr(session.connector, "_acquired", ())):
        if protocol.transport is not None:
            content: aiohttp.StreamReader | None = getattr(protocol, "_payload", None)
            if content is not None and not content.is_eof():
                # That the connection is over would be the end of an answer that says nothing of its length.
                content.set_exception(aiohttp.ClientOSError())
            # Of a loop that is over nothing goes out any more, and there is nothing to break off with.
            with contextlib.suppress(RuntimeError):
                protocol.transport.abort()
