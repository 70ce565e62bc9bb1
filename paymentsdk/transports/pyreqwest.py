"""A transport on pyreqwest, an HTTP client in Rust; it comes with the extra ``pyreqwest``."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from datetime import timedelta
from decimal import ROUND_DOWN, Context
from typing import TypeAlias

from paymentsdk._core.secrets import hide
from paymentsdk._core.settings import check_proxy
from paymentsdk._core.wire import Request, Response, SendFailed, too_long
from paymentsdk.errors import ClientClosed, RequestInvalid

try:
    from pyreqwest.client import Client, ClientBuilder
    from pyreqwest.exceptions import (
        BuilderError,
        ClientClosedError,
        DetailedPyreqwestError,
        RequestTimeoutError,
    )
    from pyreqwest.http import HeaderMap
    from pyreqwest.proxy import ProxyBuilder
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import Response as Answer
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{_error.msg}: pip install 'paymentsdk[pyreqwest]'", name=_error.name) from None

__all__ = ["PyreqwestTransport"]

#: Adds to how clients are built.
Configure: TypeAlias = Callable[[ClientBuilder], ClientBuilder]

#: A day: nothing that is sent takes longer, and the library counts in milliseconds.
_LONGEST = 86_400.0
#: It would take less for no bound at all.
_SHORTEST = 0.001
#: Pools are cheap, connections that nobody uses again are not.
_MOST_POOLS = 16
_TWO_DIGITS = Context(prec=2, rounding=ROUND_DOWN)
#: The library's words for the phase before a request is written. It raises ConnectError for later phases as well.
_CONNECTING = "client error (Connect)"
_CERTIFICATE = "invalid peer certificate"


class PyreqwestTransport:
    """Carries requests over pyreqwest.

    This transport keeps every rule of :mod:`paymentsdk.testing.transport_conformance` but one: **a cancelled request is
    not taken back**. It goes on in the background, with its connection, until its answer comes or ``Request.timeout``
    is over, and it may still be sent. That timeout covers the engine's own deadlines, so the exception matters only
    when other code cancels a task. The library swallows a cancellation that comes at the very moment of the answer: the
    engine then returns the answer to its caller, or sends nothing more.

    The library's threads have now and then aborted the process as it exits, after all work was done.

    The library rewrites ``.`` and ``..`` in paths, in any spelling, as browsers do; the engine sends none.

    Each value of ``Request.connect_timeout``, rounded down to two digits, has a pool of its own, and a second one for
    fresh connections; *limit* holds for all pools together.

    Args:
        ca: A certificate authority to trust in addition to the built-in ones, as PEM.
        proxy: URL of a proxy for all requests, of http or https.
        trust_env: Take proxies from the environment; ``False`` by default.
        limit: The most requests in flight, 100 by default; further ones wait.
        configure: Sets further options of the library (``lambda builder: builder.tcp_keepalive(...)``). The transport
            then sets those that it relies on itself.

    Raises:
        RequestInvalid: *proxy* is not an http or https URL, or *limit* is not a whole number above 0.
    """

    def __init__(
        self,
        *,
        ca: bytes | None = None,
        proxy: str | None = None,
        trust_env: bool = False,
        limit: int = 100,
        configure: Configure | None = None,
    ) -> None:
        proxy = hide(proxy)
        check_proxy(proxy)
        if type(limit) is not int or limit < 1:
            # With none, every request would wait for a place in vain.
            raise RequestInvalid("limit", "must be a whole number above 0")
        self._ca = ca
        self._proxy = proxy
        self._trust_env = trust_env
        self._configure = configure
        self._places = asyncio.Semaphore(limit)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: int | None = None
        self._closed = False
        self._clients: dict[tuple[float | None, bool], Client] = {}
        self._flying: set[asyncio.Timeout] = set()

    async def send(self, request: Request) -> Response:
        """See :class:`~paymentsdk.Transport`.

        Raises:
            SendFailed: No answer came that can be used.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
        """
        self._bind()
        failure: SendFailed | ClientClosed
        await self._place(request.connect_timeout)
        try:
            self._bind()
            return await self._exchange(request)
        except asyncio.CancelledError as error:
            # Its traceback leads through frames that hold the library's request, which breaks when it is shown.
            raise error.with_traceback(None)  # noqa: B904 - it is the same error
        except (SendFailed, ClientClosed) as error:
            failure = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - nothing else may come out of here
            failure = _failure(error)
        finally:
            self._places.release()
        # Outside the handlers, so that the library's error does not become its context.
        raise failure

    async def aclose(self) -> None:
        """Refuse new requests, fail those in flight, and close the connections. Closing twice is allowed."""
        self._closed = True
        clients = list(self._clients.values())
        # The connections go with the last reference.
        self._clients.clear()
        # The library fails none whose answer has begun, nor those of a pool that was given up.
        while self._flying and self._loop is asyncio.get_running_loop():
            self._flying.pop().reschedule(0)
        for client in clients:
            await client.close()

    def _bind(self) -> None:
        if self._closed:
            raise ClientClosed("the transport is closed")
        if self._process not in (None, os.getpid()):
            # The library's threads have stayed in the other one, and nobody would ever answer.
            raise ClientClosed("the connections belong to another process: make the client after the fork")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise ClientClosed("the connections belong to another event loop: use one client per loop")
        self._loop, self._process = loop, os.getpid()

    async def _place(self, seconds: float | None) -> None:
        """Wait for a place among the requests in flight."""
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError:
            failure = SendFailed("no connection in time", sent=False)
        else:
            return
        raise failure

    async def _exchange(self, request: Request) -> Response:
        async with asyncio.timeout(None) as flying:
            self._flying.add(flying)
            try:
                async with self._prepared(request) as answer:
                    body = await _read(answer, request.max_answer)
                    return Response(answer.status, _readable(answer.headers), body)
            finally:
                self._flying.discard(flying)

    def _prepared(self, request: Request) -> StreamRequest:
        client = self._client(request)
        try:
            builder = client.request(request.method, request.url).headers(request.headers)
            if request.body:
                builder = builder.body_bytes(request.body)
            timeout = timedelta(seconds=min(request.timeout, _LONGEST))
            # Without a buffer the head of an answer comes as soon as it has arrived.
            return builder.timeout(timeout).streamed_read_buffer_limit(0).build_streamed()
        except (ValueError, TypeError):
            failure = SendFailed("the URL or a header cannot be put into HTTP", sent=False, permanent=True)
        raise failure

    def _client(self, request: Request) -> Client:
        key = _rounded(request.connect_timeout), request.fresh
        if key in self._clients:
            return self._clients[key]
        if len(self._clients) == _MOST_POOLS:
            del self._clients[next(iter(self._clients))]  # Its requests keep it until they have ended.
        try:
            client = self._clients[key] = self._build(*key)
        except Exception as error:  # noqa: BLE001 - `configure` is another's, and nothing has been sent
            reason = f"the library does not take the transport's options ({type(error).__name__})"
            failure = SendFailed(reason, sent=False, permanent=True)
        else:
            return client
        raise failure

    def _build(self, connect_timeout: float | None, fresh: bool) -> Client:  # noqa: FBT001 - the key of the pools
        builder = ClientBuilder()
        if self._configure is not None:
            builder = self._configure(builder)
        builder = builder.follow_redirects(False).error_for_status(False).referer(False)  # noqa: FBT003
        builder = builder.default_cookie_store(False)  # noqa: FBT003 - it is the library's way
        builder = builder.gzip(False).brotli(False).zstd(False).deflate(False)  # noqa: FBT003
        if self._proxy is not None:
            builder = builder.proxy(ProxyBuilder.all(self._proxy))
        elif not self._trust_env:
            builder = builder.no_proxy()
        if self._ca is not None:
            builder = builder.add_root_certificate_pem(self._ca)
        if connect_timeout is not None:
            builder = builder.connect_timeout(timedelta(seconds=connect_timeout))
        if fresh:
            builder = builder.pool_max_idle_per_host(0)
        return builder.build()


def _rounded(seconds: float | None) -> float | None:
    """Return a bound that is not longer, with two digits: what is left of a deadline is another one for each call."""
    if seconds is None or seconds >= _LONGEST:
        return None
    return max(float(_TWO_DIGITS.create_decimal(repr(seconds))), _SHORTEST)


def _readable(headers: HeaderMap) -> HeaderMap:
    """Return *headers* without the values that are not ASCII: asked for one, the library raises ValueError."""
    readable = HeaderMap()
    for name in headers:
        with contextlib.suppress(ValueError):
            readable[name] = headers[name]
    return readable


async def _read(answer: Answer, most: int) -> bytes:
    """Return the body, if it has at most *most* bytes and came as it is."""
    if answer.status == 101:  # noqa: PLR2004
        raise SendFailed("the server switched to another protocol", permanent=True)
    if (answer.get_header("Content-Encoding") or "identity").lower() != "identity":
        raise SendFailed("the answer is compressed, which was not asked for", permanent=True)
    if int(answer.get_header("Content-Length") or 0) > most:
        raise too_long(most)
    chunks, size = [], 0
    while (chunk := await answer.body_reader.read_chunk()) is not None:
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise too_long(most)
    return b"".join(chunks)


def _failure(error: Exception) -> SendFailed:
    """Say what *error* means. Its own text is left out, since it holds the URL with its query."""
    causes = (error.details["causes"] or []) if isinstance(error, DetailedPyreqwestError) else []
    messages = [cause["message"] for cause in causes]
    for message in messages:
        if message.startswith(_CERTIFICATE):
            return SendFailed(f"the server's certificate does not verify: {message}", sent=False, permanent=True)
    if _CONNECTING in messages:
        return SendFailed("no connection to the server", sent=False)
    if isinstance(error, BuilderError):
        return SendFailed("the URL is not an http or https URL", sent=False, permanent=True)
    if isinstance(error, RequestTimeoutError):  # A TimeoutError, too.
        return SendFailed("the time ran out")
    if isinstance(error, ClientClosedError | TimeoutError):
        return SendFailed("the transport was closed")
    return SendFailed(f"the answer did not come or was not valid HTTP ({type(error).__name__})")
