"""The default transport: an adapter over `aiohttp.ClientSession`, built on public parts of aiohttp only.

Read `AiohttpTransport.send` first, and `_exchange`, which it calls. What moving money needs, and aiohttp does not do by
itself:

- A connection on which bytes arrived while it was idle carries no further request (`_aiohttp_connections.Wire`).
- Requests that wait for a connection are served in the order in which they asked (`_gate.Gate`).
- Nothing is sent twice within one attempt: aiohttp resends some requests by itself (`Connector.connect`).
- What could be read in two ways is not sent (`_checked`), and not believed (`_unusable`).
- A response that is cut off fails, however its connection ended (`_read`), and none is larger than was asked for.
- Every failure says whether a byte of the request can have left this machine, and holds no credential
  (`_failure_of`, `_aiohttp_failures`): the text of aiohttp's errors can show the token.

What a service needs that lives longer than a request:

- It is closed in good order: requests in flight get their time, and whoever waits learns that nothing was sent
  (`aclose`, `_cancelled_it`).
- It follows its program to a new event loop, and a forked child leaves the connections to its parent (`_open`,
  `Process`).
- A session, proxies, traces and the options of the connector are the program's own (`_aiohttp_options`).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import warnings
import weakref
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from math import inf
from typing import Unpack

import aiohttp
from aiohttp.hdrs import CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING
from yarl import URL

from paymentsdk._secrets import masked
from paymentsdk._validate import check_proxy
from paymentsdk.errors import ClientClosed
from paymentsdk.transports._aiohttp_connections import (
    Attempt,
    Attempts,
    Connector,
    ConnectorOptions,
    Process,
    Wire,
    ending_with_its_connection,
)
from paymentsdk.transports._aiohttp_failures import failure_of, raised_by_session
from paymentsdk.transports._aiohttp_options import check_numbers, check_session, proxy_for
from paymentsdk.transports._gate import Gate
from paymentsdk.transports.base import Request, Response, SendFailed, too_long

__all__ = ["ConnectorOptions"]  # `AiohttpTransport` is public at the top level.

#: Connections at a time. aiohttp's own 100 makes a busy service wait for a place; much more would come near the 1,024
#: files that many systems let a process open.
POOL_SIZE = 500
#: Seconds that connections get to close.
_PARTING = 1.0
#: A request of more bytes may not have left this machine when its response comes.
_LARGE = 64 * 1024
#: aiohttp warns of bytes that are longer than this, but not of a file.
_WARNED_OF = 2**20
#: Where the host of a URL can begin at the latest: the path comes after.
_SCHEME = len("https://")
#: The status codes of a response; aiohttp passes over the interim ones below, except 101.
_FINAL = range(200, 600)
#: What no header field may hold; a tab may stand in its value.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
#: What may stand in any of them.
_PRINTABLE = bytes(range(ord(" "), ord("~") + 1))


# --- messages ---------------------------------------------------------------------------------------------------------


class _Answer(Response, frozen=True):
    """A response that knows its connection, for as long as that lives."""

    wire: weakref.ReferenceType[Wire] | None = None


@lru_cache(maxsize=64)
def _url_of(url: str) -> URL:
    path = url.find("/", _SCHEME)
    if path < 0 or "?" in url or "#" in url:
        return _parsed(url)
    # Most URLs differ from the last one in their path alone, and to parse one takes yarl longer than all checks here.
    return _parsed(url[:path]).with_path(url[path:], encoded=True)


@lru_cache(maxsize=64)
def _parsed(url: str) -> URL:
    parsed = URL(url, encoded=True)
    parsed.port  # noqa: B018 - it is read when it is asked for
    return parsed


def _checked(request: Request) -> URL:
    """Return the URL of *request*, which can be put into HTTP: aiohttp would leave some of it out, and send the rest.

    Raises:
        SendFailed: It cannot.
    """
    headers = request.headers
    text = "".join((request.method, request.url, *headers, *headers.values()))
    # The second says the same as `isprintable`, in two thirds of its time.
    is_printable = text.isascii() and not text.encode().translate(None, _PRINTABLE)
    flaw = None if is_printable else _flaw(request.url, text)
    if flaw is None:
        try:
            return _url_of(request.url)
        except ValueError:
            flaw = "the URL is malformed"
    raise SendFailed(flaw, sent=False, permanent=True)


def _flaw(url: str, text: str) -> str | None:
    if _CONTROL.search(url) or "\t" in url:  # yarl would leave a tab out, and it is another path then.
        return "the URL has a control character in it"
    if _CONTROL.search(text):
        return "a header has a line break or another control character in it"
    if text.encode(errors="replace").decode() != text:
        return "the URL or a header has a character that UTF-8 cannot hold"
    return None


@lru_cache(maxsize=16)
def _connecting_within(seconds: float | None) -> aiohttp.ClientTimeout:
    """Return a timeout that starts no timer unless a connection has to be opened: the caller keeps the rest."""
    # Without the threshold aiohttp would round it up to a whole second.
    return aiohttp.ClientTimeout(total=None, connect=seconds, ceil_threshold=inf)


def _read_at_once(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Return the body that came along with the head, as a small one does; `None` if there is more to wait for.

    Raises:
        SendFailed: The response cannot be used.
    """
    headers, content = response.headers, response.content
    length = headers.get(CONTENT_LENGTH)
    is_chunked = TRANSFER_ENCODING in headers
    if is_chunked or CONTENT_ENCODING in headers or response.status not in _FINAL:
        transfer = headers.getall(TRANSFER_ENCODING, ())
        if unusable := _unusable(response.status, length, headers.get(CONTENT_ENCODING), transfer):
            raise unusable
    if content.is_eof() and (is_chunked or length is not None):
        body = content.read_nowait()
        if len(body) > most:
            raise too_long(most)
        return body
    if length is not None and length.isdecimal() and int(length) > most:
        raise too_long(most)
    return None


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body, if it is whole, and has at most *most* bytes.

    Raises:
        SendFailed: It is not; or aiohttp's error for one that is cut off.
    """
    headers, content = response.headers, response.content
    with ending_with_its_connection(response) as broken:
        chunks, size = [], 0
        # Bounded whatever the header says, unlike `response.read()`.
        while chunk := await content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise too_long(most)
        if broken() and CONTENT_LENGTH not in headers and TRANSFER_ENCODING not in headers:
            # It had nothing but the end of the connection to end it, and aiohttp takes a reset for that.
            raise SendFailed("the response is cut off or malformed")
    return b"".join(chunks)


def _unusable(status: int, length: str | None, coding: str | None, transfer: Sequence[str]) -> SendFailed | None:
    """Say why a response with this head is none: what aiohttp's parser lets pass, and must not be believed."""
    if status == HTTPStatus.SWITCHING_PROTOCOLS:
        return SendFailed("the server switched to another protocol", permanent=True)
    if status not in _FINAL:
        return SendFailed("the response is not valid HTTP")
    if transfer and length is not None:
        return SendFailed("the response has both a length and chunks")
    if transfer and [coding.lower() for coding in transfer] != ["chunked"]:
        # aiohttp would hand the chunks out as they are, with their sizes.
        return SendFailed("the response has a transfer coding other than chunked")
    if coding is not None and coding.lower() != "identity":
        return SendFailed("the response is compressed, which was not asked for", permanent=True)
    return None


# --- the transport ----------------------------------------------------------------------------------------------------


class AiohttpTransport:
    """The default transport: carries requests over an aiohttp session.

    It is an ordinary `aiohttp.ClientSession`, its own or yours: proxies, resolvers, `trace_configs` and whatever
    instruments aiohttp work as ever. It opens its session at the first request, which binds it to that event loop and
    process; once that loop is closed, the next request binds it to its own loop, with new connections. It follows no
    redirects, keeps no cookies, sends nothing again by itself, and rejects a response with a `Content-Encoding`. With
    every version of aiohttp, a connection on which bytes arrive while it is idle carries no further request, and
    requests that wait for a connection are served in turn. A request with `fresh` goes out on a connection of its own,
    which is closed after it.

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
            GET, PUT or DELETE can be sent once more by aiohttp, and anything by a middleware; under a limit, waiting
            requests are not served in turn. So **a call can still get the response to another**, if a server or a proxy
            leaves bytes on a connection; where nothing in it contradicts the request, it is believed. Prefer the
            transport's own session with `trace_configs`. Next to a token the session can have no credentials of its
            own, neither as `auth` nor from `.netrc`.
        proxy: The http or https URL of a proxy for all requests.
        trust_env: Take proxies from the environment; `False` by default.
        drain: Seconds that requests in flight get to end when the transport is closed; 5 by default.
        trace_configs: What observes the requests of the transport's own session, as aiohttp has it.
        **connector: Options of `aiohttp.TCPConnector`. Some of them: `ssl`, a context or a fingerprint; `limit`,
            connections at a time, 500 by default; `limit_per_host`; `keepalive_timeout`, seconds that an idle
            connection is kept, 15 by default.

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
            check_session(session, options=bool(proxy is not None or trust_env or trace_configs or connector))
        check_numbers(drain, connector)
        self._session = session
        self._fresh: aiohttp.ClientSession | None = None
        self._owned = session is None
        self._proxy = proxy
        self._proxied = proxy is not None or trust_env
        self._drain = drain
        self._trace_configs = tuple(trace_configs)
        self._connector: ConnectorOptions = {"limit": POOL_SIZE, **connector}
        self._loop = None if session is None else _current_loop()
        self._process = None if session is None else Process.number
        self._closed = False
        self._emptying = 0
        self._idle = asyncio.Event()
        self._attempts: Attempts = {}
        self._gate: Gate | None = None

    @property
    def open_connections(self) -> int:
        """How many connections are open, in use or idle; 0 with a session of the caller's, whose pool is its own."""
        return 0 if self._gate is None else self._gate.connections

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`.

        Raises:
            SendFailed: No response came that can be used.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
        """
        loop, session = asyncio.get_running_loop(), self._session
        if session is None or self._closed or self._loop is not loop or self._process != Process.number:
            left = self._leave_closed_loop()
            session = self._open(loop)
            if left:
                await _close(left, here=False)
        task = asyncio.current_task(loop)
        if task is None:
            raise SendFailed("requests are sent from a task", sent=False, permanent=True)
        attempt = self._attempts[task] = Attempt(task.cancelling(), len(request.body) > _LARGE)
        failure: SendFailed | ClientClosed
        try:
            response = await self._exchange(session, request, attempt)
            if not attempt.ended:
                return response
            failure = SendFailed("the transport was closed")
        except asyncio.CancelledError as error:
            if not self._cancelled_it(attempt, task):
                # Its traceback leads through frames of aiohttp that hold the token.
                raise error.with_traceback(None) from None
            failure = ClientClosed("the transport was closed while the request waited for a connection")
        except Exception as error:  # noqa: BLE001 - nothing else may come out of here
            failure = self._failure_of(error, attempt)
        except BaseException as error:  # noqa: BLE001 - as above: it ends the program
            raise error.with_traceback(None) from None
        finally:
            self._attempts.pop(task, None)  # It is gone if the loop was closed under the task.
            if self._closed and not self._attempts:
                self._idle.set()
        # Outside the handlers: the repr of aiohttp's errors holds the token, so they must not become its context.
        raise failure

    def discard(self, response: Response) -> None:
        """Start no further request on the connection that *response* came on.

        A request that has started on it meanwhile fails: the next response would be taken for its own. The pool of an
        injected session is not the transport's: there, as many requests as it may have connections ask the server to
        close theirs, which empties it.
        """
        wire = response.wire() if isinstance(response, _Answer) and response.wire is not None else None
        if wire is not None:
            wire.discard()
        elif not self._owned and self._session is not None and self._session.connector is not None:
            self._emptying = self._session.connector.limit or POOL_SIZE

    async def aclose(self) -> None:
        """Reject new requests, give those in flight `drain` seconds to end, and close the connections.

        A request that has not ended by then fails. An injected session stays open, and what is still in flight on it
        goes on. Closing twice is allowed. In a child that was forked meanwhile, the connections are left to its parent.

        Raises:
            ClientClosed: The connections belong to another event loop, which still runs: close the transport there.
        """
        self._closed = True
        if self._session is None or self._process != Process.number:
            return  # Parent and child have one selector: to close a connection here would take it from the parent.
        here = self._loop is asyncio.get_running_loop()
        if not here and self._loop is not None and self._loop.is_running():
            raise ClientClosed("the connections belong to another event loop: close the transport there")
        try:
            if self._attempts and here:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._drain):
                        await self._idle.wait()
        finally:
            if self._owned:
                await self._close_connections(here=here)

    async def _close_connections(self, *, here: bool) -> None:
        for task, attempt in tuple(self._attempts.items()):
            attempt.end(task)
        await _close([session for session in (self._session, self._fresh) if session is not None], here=here)

    def _leave_closed_loop(self) -> list[aiohttp.ClientSession]:
        """Forget everything that belongs to an event loop that is closed, and return the sessions to close."""
        if not self._owned or self._closed or self._loop is None or not self._loop.is_closed():
            return []
        if self._process != Process.number:
            return []  # They are those of the parent.
        left = [session for session in (self._session, self._fresh) if session is not None]
        self._session = self._fresh = self._loop = self._gate = None
        self._attempts, self._idle, self._emptying = {}, asyncio.Event(), 0
        return left

    async def _exchange(self, session: aiohttp.ClientSession, request: Request, attempt: Attempt) -> Response:
        url = _checked(request)
        if request.fresh and self._fresh is not None:
            session = self._fresh
        # A plain dict, which multidict reads in half the time that it takes for a subclass.
        headers, body = dict(request.headers), request.body
        if request.fresh or self._emptying:
            headers["Connection"] = "close"
            self._emptying = max(0, self._emptying - 1)
        proxy, login = proxy_for(url, self._proxy) if self._proxied else (None, None)
        if login and url.scheme == "http":
            headers |= login  # There is no tunnel: the proxy reads the request itself.
        try:
            response = await session.request(
                request.method,
                url,
                headers=headers,
                data=(io.BytesIO(body) if len(body) > _WARNED_OF else body) if body else None,
                allow_redirects=False,
                raise_for_status=False,
                auto_decompress=False,
                timeout=_connecting_within(request.connect_timeout),
                proxy=proxy,
                proxy_headers=login,
            )
            try:
                content = _read_at_once(response, request.max_response)
                if content is None:
                    content = await _read(response, request.max_response)
            except BaseException:
                response.close()
                raise
        except BaseException:
            attempt.abandon()
            raise
        wire = None if attempt.wire is None else attempt.wire.reference
        return _Answer(response.status, response.headers, content, attempt.reused, wire)

    def _failure_of(self, error: Exception, attempt: Attempt) -> SendFailed | ClientClosed:
        if self._session is not None and self._session.closed and isinstance(error, RuntimeError):
            return ClientClosed("the session is closed")
        failure = failure_of(error)
        if isinstance(error, ValueError) and raised_by_session(error, but_not=__name__):
            # Once it has a connection, it raises none itself: its user has credentials in `.netrc`, or in the URL.
            reason = "next to a token, a session or a URL can have no credentials of its own"
            return SendFailed(reason, sent=False, permanent=True)
        if self._owned and attempt.wire is None:
            # There never was a connection. That also holds for what nobody expects.
            return SendFailed(failure.reason, sent=False, permanent=failure.permanent)
        return SendFailed(failure.reason, permanent=failure.permanent) if self._owned else failure

    def _cancelled_it(self, attempt: Attempt, task: asyncio.Task[object]) -> bool:
        """Whether nobody but the transport or its session, by being closed, has cancelled *task*."""
        if attempt.ended:
            return task.uncancel() <= attempt.cancelling
        # aiohttp cancels those who wait for a connection of a session that its owner closes.
        return self._session is not None and self._session.closed and not task.cancelling()

    def _open(self, loop: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
        """Open the sessions and bind them to *loop*, or say why there is none to use."""
        if self._closed:
            raise ClientClosed("the transport is closed")
        if self._process not in (None, Process.number):
            # Both would write on the same connections, and read the responses of each other.
            raise ClientClosed("the connections belong to another process: make the client after the fork")
        if self._loop not in (None, loop):
            raise ClientClosed("the connections belong to another event loop: use one client per loop")
        if self._session is None:
            self._session, self._fresh = self._new_sessions()
        elif _loop_of(self._session) not in (None, loop):
            raise ClientClosed("the session belongs to another event loop")
        self._loop, self._process = loop, Process.number
        return self._session

    def _new_sessions(self) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        """Return a session that keeps its connections, and one that does not."""
        gate = self._gate = Gate(self._connector.get("limit", 0), self._connector.get("limit_per_host", 0))
        try:
            connectors = [Connector(gate, self._attempts, self._connector, fresh=fresh) for fresh in (False, True)]
        except (TypeError, ValueError) as error:
            # aiohttp looks at them only now, and nothing has been sent.
            reason = f"aiohttp does not take the options of its connector: {error}"
            raise SendFailed(reason, sent=False, permanent=True) from None
        kept, fresh = (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[*self._trace_configs]
            )
            for connector in connectors
        )
        return kept, fresh


async def _close(sessions: Sequence[aiohttp.ClientSession], *, here: bool) -> None:
    """Close *sessions*, whose loop runs *here* or is another."""
    cancelled: asyncio.CancelledError | None = None
    for session in sessions:
        try:
            # RuntimeError: nothing of a loop that stands still can be waited for. They close when it goes on.
            with contextlib.suppress(TimeoutError, *(() if here else (RuntimeError,))):
                # A peer that reads nothing must not hold us up: aiohttp waits until it has taken what was written.
                async with asyncio.timeout(_PARTING):
                    await session.close()
        except asyncio.CancelledError as error:
            cancelled = error  # The others are closed all the same: nobody does it later.
    if cancelled is not None:
        raise cancelled


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _loop_of(session: aiohttp.ClientSession) -> asyncio.AbstractEventLoop | None:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return session.loop
