"""A timeout for the headers of requests, which aiohttp does not have: a client that stops in them is closed.

Each connection's protocol is wrapped. A timer runs from the connection, or the first byte after a response, until the
application has the request; a middleware tells when. Half a request in one segment with a whole one is not noticed.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from paymentsdk.sandbox._keys import Route

#: Seconds for the headers of a request to arrive.
HEADER_TIMEOUT = 30.0


class HeaderTimeout(asyncio.Protocol):
    """Hands everything to the protocol *inner*, and closes a connection whose next request does not come in time."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the timer: whoever connects has something to ask."""
        self._transport = transport
        self._start()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass *data* on; unless it belongs to a request in progress, the headers of the next have begun."""
        if not self._requests and self._timer is None:
            self._start()
        self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop()
        self._inner.connection_lost(exc)

    def started(self) -> None:
        """Stop the timer: the headers are complete, and the body has a timeout of its own."""
        self._requests += 1
        self._stop()

    def finished(self) -> None:
        """Have the next byte start the timer."""
        self._requests -= 1

    def _start(self) -> None:
        if self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(HEADER_TIMEOUT, self._transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@web.middleware
async def timed(request: web.Request, handler: Route) -> web.StreamResponse:
    """Tell the connection of *request* when its headers are there and when it was handled."""
    connection = request.transport and request.transport.get_protocol()
    if not isinstance(connection, HeaderTimeout):
        return await handler(request)
    connection.started()
    try:
        return await handler(request)
    finally:
        connection.finished()
