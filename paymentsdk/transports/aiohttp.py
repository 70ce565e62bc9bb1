"""The default transport, on aiohttp.

It adds to aiohttp what moving money asks for: nothing is sent twice, followed, unpacked or read without bound, and
every failure says whether a byte of the request can have left this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import TYPE_CHECKING, NamedTuple, Self, TypedDict, Unpack

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from paymentsdk._core.secrets import hide
from paymentsdk._core.settings import check_proxy, is_http
from paymentsdk._core.wire import Request, Response, SendFailed, too_long
from paymentsdk.errors import ClientClosed, RequestInvalid

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

__all__ = ["AiohttpTransport", "ConnectorOptions"]

#: Connections at a time. aiohttp's own 100 makes a busy service wait for a place, which costs it 3 to 4 microseconds a
#: call; much more would come near the 1,024 files that many systems let a process open.
POOL_SIZE = 500
#: The versions of aiohttp whose pool and protocol are known to do what is asked of them here. aiohttp does not promise
#: these parts to anybody, so with another version every request goes through a session.
_KNOWN = ("3.14.",)
#: Methods whose answer may have a body.
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
#: Fields that say how a request is to be read: one that has any of them goes through a session.
_FIELDS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding"})
#: A request of more bytes may not have left when its answer comes.
_LARGE = 64 * 1024
#: Seconds that connections get to close.
_PARTING = 1.0
#: What no line of a request may hold; a tab may stand in the value of a field.
_CONTROLS = bytes({*range(32), 127} - {ord("\t")})
_CONTROL = re.compile(f"[{re.escape(_CONTROLS.decode())}]")
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


class AiohttpTransport:
    """Carries requests over aiohttp.

    A request takes one of two ways. The usual one goes straight to aiohttp's pool of connections and to its parser,
    which costs about three fifths of what a session does. What is out of the ordinary goes through a
    :class:`aiohttp.ClientSession`: an injected session, a proxy, a fresh connection, an unusual URL or header field,
    and every request if this transport has not been tested with the installed version of aiohttp.

    The connections are opened at the first request and belong to its event loop and process. Redirects are not
    followed, cookies not kept, answers not unpacked: one with a ``Content-Encoding`` is refused. aiohttp's habit of
    sending a GET, PUT or DELETE again is off. A connection on which an answer has arrived while it was idle is not used
    again; with an untested version of aiohttp, as far as that can be seen.

    Over TLS, an answer that has neither a length nor chunks ends when its connection does. asyncio does not tell
    whether TLS was ended properly, so such an answer may have been cut off: it is no JSON then, and the engine takes it
    for no answer.

    ``Request.timeout`` is the caller's to keep, by cancelling ``send``; the connection is closed with it.
    ``Request.connect_timeout`` is kept here and includes the wait for a place in the pool: as long as it is the shorter
    of the two, a cancelled request is one that may have been sent.

    Args:
        session: A session to use instead of opening one. It is neither changed nor closed. What aiohttp lets a single
            request decide is decided for each of ours. The rest is up to the session's owner: its default headers,
            cookies, proxy, middlewares and traces apply, and its middlewares may send a request again. An answer that
            nobody asked for is noticed on an idle connection once the loop has read its head: one that comes at the
            very moment of a request is taken for the answer to it. The pool is aiohttp's own: under a limit, tasks that
            wait are not served in turn. The session can have no credentials of its own, be it as ``auth`` or from
            ``.netrc``, beside a token.
        proxy: URL of a proxy for all requests, of http or https.
        trust_env: Take proxies from the environment; not unless given.
        drain: Seconds that requests in flight get to end when the transport is closed; 5 unless given.
        **connector: Options of ``aiohttp.TCPConnector``. Some of them: ``ssl``, a context or a fingerprint;
            ``limit``, connections at a time, 500 unless given; ``keepalive_timeout``, seconds that an idle connection
            is kept, 15 unless given.

    Raises:
        RequestInvalid: *session* was given together with an option, is not aiohttp's, or has an ``auth``; *proxy* is no
            URL of http or https; or an option that is a number of seconds or connections has another value.
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
            raise RequestInvalid("session", "has the options of its owner: give either a session or options")
        if session is not None and not isinstance(session, aiohttp.ClientSession):
            # Another library's would send, and then not know what came of it.
            raise RequestInvalid("session", f"must be an aiohttp.ClientSession, not {type(session).__name__}")
        if session is not None and session.auth is not None:
            raise RequestInvalid("session", "has an auth of its own, and there is room for one token only")
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
        self._pool: _Pool | None = None
        self._last_server: _Server | None = None
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
                return await self._over_session(session, request)
            return await self._over_pool(server, request)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not session.closed or task is None or task.cancelling():
                # Its traceback leads through frames of aiohttp that hold the token.
                raise error.with_traceback(None)  # noqa: B904 - it is the same error
            # A session that is closed cancels those who wait for a connection, though nobody cancelled their tasks.
            failure = ClientClosed("the transport was closed while the request waited for a connection")
        except Exception as error:  # noqa: BLE001 - nothing else may come out of here
            failure = _failure(error)
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
        kind = _Pool if aiohttp.__version__.startswith(_KNOWN) else aiohttp.TCPConnector
        try:
            connector = kind(**self._connector)
        except (TypeError, ValueError) as error:
            # aiohttp looks at them only now, and nothing has been sent.
            reason = f"aiohttp does not take the options of its connector: {error}"
            raise SendFailed(reason, sent=False, permanent=True) from None
        if isinstance(connector, _Pool) and self._proxy is None and not self._trust_env:
            self._pool = connector
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    async def _over_session(self, session: aiohttp.ClientSession, request: Request) -> Response:
        if flaw := _flaw(request):
            # aiohttp would leave some of it out, and send the rest.
            raise SendFailed(flaw, sent=False, permanent=True)
        if not isinstance(session.connector, _Pool):
            _drop_spoiled(session)
        url = URL(request.url, encoded=True)
        headers = {**request.headers, "Connection": "close"} if request.fresh else request.headers
        # aiohttp's own `trust_env` takes credentials from `.netrc` as well, and then refuses the token beside them.
        proxy, login = _without_login(self._proxy or (_proxy_of_environment(url) if self._trust_env else None))
        if login and url.scheme == "http":
            headers = {**headers, **login}  # There is no tunnel: the proxy reads the request itself.
        exchange = session.request(
            _ONCE.get(request.method) or _Once(request.method),
            url,
            headers=headers,
            data=request.body or None,
            allow_redirects=False,
            raise_for_status=False,
            auto_decompress=False,
            timeout=_connecting_within(request.connect_timeout),
            proxy=proxy,
            proxy_headers=login,
            # Part of what aiohttp finds a pooled connection by.
            server_hostname=_Unlisted(url.raw_host) if request.fresh else None,
        )
        response = await (exchange if self._owned else _through_middlewares(session, exchange))
        try:
            body = await _read(response.status, response.headers, response.content, request.max_answer)
        except BaseException:
            response.close()
            raise
        return Response(response.status, response.headers, body)

    async def _over_pool(self, server: _Server, request: Request) -> Response:
        message = _message(request, server)
        connection, protocol, transport = await self._connected(server, request)
        large = len(message) > _LARGE
        try:
            protocol.set_response_params(read_until_eof=True, auto_decompress=False)
            transport.write(message)
            del message  # A traceback can show variables.
            while True:
                head, content = await protocol.read()
                if not 100 <= head.code < 200 or head.code == 101:  # noqa: PLR2004
                    break
            body = await _read(head.code, head.headers, content, request.max_answer)
        except BaseException:
            if large:
                transport.abort()  # Closed, it would go on to write what is left.
            connection.close()
            raise
        if large or transport.get_write_buffer_size():
            connection.close()  # It may not have taken all of the request yet: the next one would wait behind it.
        else:
            # Without the parser of this answer, whatever else comes is seen, be it half a line: no other can read it.
            protocol._parser = None  # noqa: SLF001 - it is how a new connection begins
            connection.release()
        return Response(head.code, head.headers, body)

    async def _connected(
        self, server: _Server, request: Request
    ) -> tuple[Connection, ResponseHandler, asyncio.Transport]:
        """Return a connection on which nothing has happened yet. Whatever is raised, nothing was sent."""
        failure: SendFailed | ClientClosed
        pool = server.pool
        try:
            # What `connect` does first, without what it does for a connection that has to be opened or waited for.
            idle = None if pool.waited_for else await pool.idle(server.key, [])
            connection = idle or await pool.connect(server.request, [], _connecting_within(request.connect_timeout))
        except Exception as error:  # noqa: BLE001 - whatever it is, it came before the request
            failure = _unsent(error, pool)
        else:
            protocol = connection.protocol
            transport = None if protocol is None else protocol.transport
            if (
                protocol is not None
                and transport is not None
                # The idle one was looked at a moment ago.
                and (connection is idle or not (transport.is_closing() or protocol.should_close))
            ):
                return connection, protocol, transport
            connection.close()
            failure = SendFailed("the connection was closed, or answered, before the request was sent", sent=False)
        # Outside the handler: aiohttp's error must not become its context.
        raise failure

    def _server_of(self, request: Request) -> _Server | None:
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
            server = self._last_server = _find_server(url[:end], self._pool)
        return server


async def _read(status: int, headers: Mapping[str, str], content: aiohttp.StreamReader, most: int) -> bytes:
    """Return the body, if it has at most *most* bytes and came as it is."""
    if status == 101:  # noqa: PLR2004
        raise SendFailed("the server switched to another protocol", permanent=True)
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise SendFailed("the answer is compressed, which was not asked for", permanent=True)
    if content.is_eof() and content.total_bytes <= most and not _broken(content):
        return content.read_nowait()  # It came along with the head, as a small answer does.
    length = headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > most:
        raise too_long(most)
    chunks, size = [], 0
    with _ending_with_its_connection(content):
        # Cheaper than `response.read()`, and bounded whatever the header says.
        while chunk := await content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise too_long(most)
    if _broken(content) and not length and "chunked" not in headers.get("Transfer-Encoding", "").lower():
        # It had nothing but the end of the connection to end it, and aiohttp takes a reset for that.
        raise SendFailed("the answer is cut off or malformed")
    return b"".join(chunks)


@contextlib.contextmanager
def _ending_with_its_connection(content: aiohttp.StreamReader) -> Iterator[None]:
    """Have *content* fail if its connection ends before it does.

    aiohttp closes a connection on which a chunk is malformed, and lets the body wait for ever.
    """
    connection: ResponseHandler | None = getattr(content, "_protocol", None)
    closed = None if connection is None else connection.closed

    def fail(_: object) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError())

    if closed is None:  # It is over already.
        fail(closed)
        yield
        return
    closed.remove_done_callback(_heard)  # Once is enough.
    closed.add_done_callback(_heard)
    closed.add_done_callback(fail)
    try:
        yield
    finally:
        closed.remove_done_callback(fail)


def _heard(closed: asyncio.Future[None]) -> None:
    # Or asyncio would report how the connection ended, perhaps much later, as an error that nobody has asked for.
    if not closed.cancelled():
        closed.exception()


def _broken(content: aiohttp.StreamReader) -> bool:
    """Whether the connection of *content* has ended otherwise than by being closed."""
    connection: ResponseHandler | None = getattr(content, "_protocol", None)
    return connection is not None and isinstance(connection.exception(), aiohttp.ClientOSError)


async def _through_middlewares(
    session: aiohttp.ClientSession, exchange: Awaitable[aiohttp.ClientResponse]
) -> aiohttp.ClientResponse:
    """Return what comes of *exchange* on somebody's session, whose middlewares may send more than once.

    Then the last failure says nothing of the first request: whatever it is, something may have been sent.
    """
    try:
        return await exchange
    except Exception as error:
        failure = _failure(error)
        if not getattr(session, "_middlewares", ()) or not isinstance(failure, SendFailed):
            raise
    raise SendFailed(failure.reason, sent=True, permanent=failure.permanent)


@lru_cache(maxsize=16)
def _connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection has to be opened or waited for."""
    # Without the threshold aiohttp would round it up to a whole second.
    return aiohttp.ClientTimeout(connect=seconds, ceil_threshold=inf)


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


def _drop_spoiled(session: aiohttp.ClientSession) -> None:
    """Close the next connections of a pool that is not ours if an answer has arrived on them while they were idle.

    aiohttp would hand them out: the next request would take that answer, the one after it the answer to the next, and
    so on as long as the connection lives. Those that were fresh are closed as well: nobody will ask for them again, and
    the server need not close them.
    """
    with contextlib.suppress(Exception):  # With an untested version of aiohttp it may all be different.
        kept: dict[ConnectionKey, Iterable[tuple[ResponseHandler, float]]] = getattr(session.connector, "_conns", {})
        for key in tuple(kept):
            fresh = isinstance(key.server_hostname, _Unlisted)
            for protocol, _ in kept.pop(key) if fresh else kept[key]:
                if not fresh and protocol.is_connected() and not protocol.should_close:
                    break  # It is handed out before those behind it.
                protocol.close()


def _proxy_of_environment(url: URL) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - only who asks for it pays for it

    proxy = None if proxy_bypass(url.host or "") else hide(getproxies().get(url.scheme))
    if proxy is not None and not is_http(proxy):
        # aiohttp would speak HTTP to it all the same, and tell it the token.
        raise SendFailed("the proxy in the environment is not of http or https", sent=False, permanent=True)
    return proxy


def _without_login(proxy: str | None) -> tuple[URL | None, dict[str, str] | None]:
    """Return *proxy* without its user and password, and the header field that tells it both, if there are any.

    In the URL, aiohttp would show them in its warning of a connection that nobody has closed.
    """
    proxy = hide(proxy)
    if proxy is None:
        return None, None
    url = URL(proxy)
    if (url.raw_user, url.raw_password) == (None, None):
        return url, None
    login = aiohttp.encode_basic_auth(url.user or "", url.password or "", encoding="latin1")
    return url.with_user(None), {"Proxy-Authorization": login}


def _is_number(value: object, kinds: tuple[type[int], ...] | tuple[type[int], type[float]]) -> bool:
    """Whether *value* is a number of one of *kinds*, and 0 or more."""
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= 0


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# --- what goes out on a pooled connection -----------------------------------------------------------------------------


class _Server(NamedTuple):
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
    pool: _Pool
    key: ConnectionKey
    request: aiohttp.ClientRequest


def _find_server(origin: str, pool: _Pool) -> _Server | None:
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
    return _Server(origin, host, pool, request.connection_key, request)


def _message(request: Request, server: _Server) -> bytes:
    """Return the bytes of *request*.

    Raises:
        SendFailed: It cannot be put into HTTP.
    """
    lines = [f"{request.method} {request.url[len(server.origin) :]} HTTP/1.1", f"Host: {server.host}"]
    lines += map(": ".join, request.headers.items())
    if request.body or request.method != "GET":
        lines.append(f"Content-Length: {len(request.body)}")
    lines += ("", "")
    head = _utf8("\r\n".join(lines))
    # The only control characters are those that end the lines.
    if head is None or len(head) - len(head.translate(None, _CONTROLS)) != 2 * (len(lines) - 1):
        raise SendFailed(_flaw(request) or "it cannot be put into HTTP", sent=False, permanent=True)
    return head + request.body


def _utf8(text: str) -> bytes | None:
    # Its own error would hold the text.
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


# --- what is sent once, and on what -----------------------------------------------------------------------------------


class _Unlisted(str):
    """A text that is not found in a set or a dict, although one that equals it may be there."""

    __slots__ = ()
    __hash__ = object.__hash__


class _Once(str):  # noqa: SLOT000 - a str cannot have slots
    """A method that aiohttp does not send again by itself.

    It does so with GET, HEAD, PUT, DELETE and others when a kept connection breaks: it puts the method in capitals and
    looks it up in a set. What this gives for capitals is not found there. In the request it is a plain text again.
    """

    _capitals: _Unlisted

    def __new__(cls, method: str) -> Self:
        self = super().__new__(cls, method)
        self._capitals = _Unlisted(method)
        return self

    def upper(self) -> str:
        return self._capitals


_ONCE = {method: _Once(method) for method in ("GET", "POST", "PUT", "DELETE")}


class _Full(TimeoutError):  # noqa: N818 - it says what is the matter
    """As many connections as the pool may have are in use, and none came free in time."""


class _Pool(aiohttp.TCPConnector):
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
                error = _Full()
            failure = _unsent(error, self)
        else:
            if isinstance(req.server_hostname, _Unlisted) and connection.protocol is not None:
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
        if isinstance(key.server_hostname, _Unlisted):
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
    socket = None if transport is None else transport.get_extra_info("socket")
    # The first is for type checkers, which know what Windows lacks; the second for whatever else goes without.
    if socket is None or sys.platform == "win32" or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


# --- what a failure means ---------------------------------------------------------------------------------------------


class _Meaning(NamedTuple):
    kind: type[Exception]
    reason: str
    sent: bool = False
    permanent: bool = False


#: The first that fits counts. A certificate error is a connect error too: it stands before it.
_MEANINGS = (
    _Meaning(aiohttp.ClientConnectorCertificateError, "the server's certificate does not verify", permanent=True),
    _Meaning(aiohttp.ServerFingerprintMismatch, "the server's certificate has another fingerprint", permanent=True),
    _Meaning(aiohttp.ClientConnectorSSLError, "the TLS handshake failed"),
    _Meaning(aiohttp.ClientConnectorDNSError, "the host name was not resolved"),
    _Meaning(aiohttp.ClientProxyConnectionError, "no connection to the proxy"),
    _Meaning(aiohttp.ClientConnectorError, "no connection to the server"),
    _Meaning(aiohttp.ConnectionTimeoutError, "no connection in time"),
    _Meaning(aiohttp.ClientHttpProxyError, "the proxy refused to connect"),
    _Meaning(aiohttp.InvalidURL, "the URL, or that of the proxy, has no host", permanent=True),
    _Meaning(aiohttp.NonHttpUrlClientError, "the URL is not of http or https", permanent=True),
    _Meaning(aiohttp.ServerDisconnectedError, "the server closed the connection without an answer", sent=True),
    _Meaning(aiohttp.ClientPayloadError, "the answer is cut off or malformed", sent=True),
    # aiohttp gives it the status 400, but nobody has answered that.
    _Meaning(aiohttp.ClientResponseError, "the answer is not valid HTTP", sent=True),
    _Meaning(HttpProcessingError, "the answer is not valid HTTP", sent=True),
    _Meaning(aiohttp.ClientOSError, "the connection broke", sent=True),
)


def _unsent(error: Exception, pool: aiohttp.TCPConnector) -> SendFailed | ClientClosed:
    """Say what *error* means that came instead of a connection."""
    if pool.closed:
        return ClientClosed("the transport was closed while the request waited for a connection")
    if isinstance(error, TimeoutError):
        return SendFailed("no connection in time" + _detail(error), sent=False)
    found = _failure(error)
    return SendFailed(str(found), sent=False, permanent=isinstance(found, SendFailed) and found.permanent)


def _failure(error: Exception) -> SendFailed | ClientClosed:
    """Say what *error* means, without a trace of it."""
    if isinstance(error, SendFailed | ClientClosed):
        return error.with_traceback(None)
    if isinstance(error, RuntimeError) and str(error) == "Session is closed":
        return ClientClosed("the session is closed")
    for meaning in _MEANINGS:
        if isinstance(error, meaning.kind):
            reason = meaning.reason + _place(error) + _detail(error)
            return SendFailed(reason, meaning.sent, permanent=meaning.permanent)
    if isinstance(error, ValueError) and str(error).startswith("Cannot combine AUTHORIZATION"):
        return SendFailed("the session has credentials of its own for this host", sent=False, permanent=True)
    return SendFailed(f"aiohttp raised {type(error).__name__}")


def _place(error: Exception) -> str:
    """Return whom there was no connection to: a wrong address is the first thing to look for."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return ""
    try:
        return f" ({error.host}:{error.port})"
    except AttributeError:  # One that a middleware has made knows of no connection.
        return ""


def _detail(error: Exception) -> str:
    """Return what the system says about it, in words that cannot hold anything of ours."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f" (status {error.status})"
    if isinstance(error, _Full):
        return ": all that the pool may have are in use"
    cause = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, SSLError):
        words = cause.verify_message if isinstance(cause, SSLCertVerificationError) else cause.reason
        return f": {words}" if words else ""
    number = cause.errno if isinstance(cause, OSError) else None
    return f": {os.strerror(number)}" if number and number > 0 else ""


def _flaw(request: Request) -> str | None:
    """Say why *request* cannot be put into HTTP, so that aiohttp refused it before it wrote anything."""
    lines = (request.method, *request.headers, *request.headers.values())
    if any(map(_CONTROL.search, lines)):
        return "a header has a line break or another control character in it"
    if _CONTROL.search(request.url) or "\t" in request.url:  # yarl would leave a tab out, and it is another path then.
        return "the URL has a control character in it"
    if None in map(_utf8, (request.url, *lines)):
        return "the URL or a header has a character that UTF-8 cannot hold"
    try:
        URL(request.url, encoded=True).port  # noqa: B018 - it is read when it is asked for
    except ValueError:
        return "the URL is malformed"
    return None
