"""The common parts of both transports: a pool on one event loop, the queue for its places, and its end."""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from ssl import SSLCertVerificationError, SSLError
from typing import ClassVar, Generic, TypeVar
from weakref import WeakSet

from paymentsdk.errors import ClientClosed
from paymentsdk.transports.base import UNSENT, PoolFull, Request, Response

#: The most connections. aiohttp's 100 makes a busy service wait for a place; many more would come near the 1,024 files
#: that many systems allow a process to open.
POOL_SIZE = 500
#: The path of a URL begins after this position, as the host comes first.
HOST_BEGINS = len("https://")
#: A larger request may not have left this machine when its response comes, so no other request may follow it.
LARGE = 64 * 1024
#: The name of a header field (RFC 9110, 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FLAW = "the method, the URL or a header has a character in it that cannot be sent"
#: Characters that no part of a request may have: control characters (a header field may have a tab), and characters
#: that UTF-8 cannot encode.
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
#: Characters that every part of a request may have.
_PRINTABLE = bytes(range(ord(" "), ord("~") + 1))


P = TypeVar("P", bound="Pool")


class Pool(ABC):
    """The connections of one transport on one event loop, and a place for each request, in turn.

    A request that gives a place back does not overtake the waiting ones. If connections went to the first that asks, a
    few tasks that send one request after the other would keep all others out.
    """

    #: All pools of this process.
    known: ClassVar[WeakSet[Pool]] = WeakSet()

    def __init__(self, limit: int) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        #: The same loop, until the pool is closed or a child is forked: a request then checks only one attribute.
        self.usable_on: asyncio.AbstractEventLoop | None = self.loop
        self.inherited: bool = False
        self.closed: bool = False
        self.limit: float = limit or inf
        self._taken = 0
        #: The requests that wait for a place, in order of arrival.
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._emptied = asyncio.Event()
        #: Closes the connections when the event loop ends: later it is impossible.
        self._end: AsyncGenerator[None, None] | None = None
        Pool.known.add(self)

    @property
    @abstractmethod
    def open_connections(self) -> int:
        """The number of open connections, in use or idle."""

    def enter(self) -> bool:
        """Take a place for a request if one is free, and no request waits for it."""
        if self._taken >= self.limit:
            return False
        self._taken += 1
        return True

    async def wait(self, within: float | None) -> float | None:
        """Wait for a place for at most *within* seconds; return the seconds that are left to connect.

        Raises:
            PoolFull: No place became free in time.
            ClientClosed: The pool was closed meanwhile.
        """
        place = self.loop.create_future()
        self._waiting[place] = None
        since, began = self.loop.time(), time.time()
        try:
            async with asyncio.timeout(within):
                await place
        except (TimeoutError, asyncio.CancelledError) as error:
            if not place.cancelled():
                self.leave()  # It got a place at the same moment.
            if isinstance(error, asyncio.CancelledError):
                setattr(error, UNSENT, True)
                raise
        else:
            if self.closed:
                raise closed_while_waiting()
            if not overslept(began, within):
                return None if within is None else within - (self.loop.time() - since)
            self.leave()
        finally:
            self._waiting.pop(place, None)
        raise PoolFull("no connection in time: all connections that the pool may have are in use", sent=False)

    def leave(self) -> None:
        """Give a place back, to the request that has waited longest for one."""
        self._taken -= 1
        if self._waiting:
            self._serve_next()
        if self.usable_on is None and not self._taken:
            self._emptied.set()  # `close` waits for this.

    def _serve_next(self) -> None:
        for place in self._waiting:
            # A place that is done was cancelled, and its request is about to leave.
            if not place.done():
                self._taken += 1
                place.set_result(None)
                return

    async def close_with_loop(self, drain: float) -> None:
        """Close all connections like `close` when the event loop ends, unless they are closed before."""
        self._end = self._until_the_end(drain)
        await anext(self._end)  # This does not wait.

    async def _until_the_end(self, drain: float) -> AsyncGenerator[None, None]:
        """Wait for the event loop to end: it closes the generators that it has begun."""
        try:
            yield
        finally:
            self._end = None
            if not (self.closed or self.inherited):
                await self.close(drain)

    async def close(self, drain: float) -> None:
        """Give requests *drain* seconds to end, and close all connections."""
        self.usable_on = None
        try:
            if self._taken:
                with suppress(TimeoutError):
                    async with asyncio.timeout(drain):
                        await self._emptied.wait()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Close all connections now; their requests fail, and for waiting requests nothing was sent."""
        self.closed, self.usable_on = True, None
        if self._end is not None:
            await self._end.aclose()
        with suppress(RuntimeError):  # No task waits on a closed event loop.
            self._emptied.set()  # Requests may never end from here on, so closing again waits for none.
            for place in tuple(self._waiting):
                if not place.done():
                    place.set_result(None)


class ConnectionResponse(Response, frozen=True):
    """A response that knows its connection."""

    discard: Callable[[], object] | None = None
    """Closes its connection before another request uses it."""


class PooledTransport(ABC, Generic[P]):
    """A transport whose connections belong to the event loop and the process of its first request."""

    def __init__(self, new_pool: Callable[[], P], drain: float) -> None:
        self._new_pool = new_pool
        self._drain = drain
        self._closed = False
        self._pool: P | None = None

    @property
    def open_connections(self) -> int:
        """The number of open connections, in use or idle; 0 with your own session."""
        return 0 if self._pool is None else self._pool.open_connections

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`.

        Raises:
            SendFailed: No usable response came.
            ClientClosed: The transport is closed, or belongs to another event loop or process. Nothing was sent.
        """
        loop, pool = asyncio.get_running_loop(), self._pool
        if pool is None or pool.usable_on is not loop:
            pool = await self._bind()
        within = request.connect_timeout
        if not pool.enter():
            within = await pool.wait(within)
        try:
            return await self._exchange(pool, request, within)
        finally:
            pool.leave()

    @abstractmethod
    async def _exchange(self, pool: P, request: Request, within: float | None) -> Response:
        """Send *request*, which has a place in *pool* and *within* seconds to get a connection."""

    def discard(self, response: Response) -> None:
        """Start no further request on the connection of *response*.

        A request that has started on it meanwhile fails: it would get the next response, which belongs to another
        request.
        """
        if isinstance(response, ConnectionResponse) and response.discard is not None:
            response.discard()

    async def aclose(self) -> None:
        """Reject new requests, give requests in flight `drain` seconds to end, and close the connections.

        A request that has not ended by then fails. A request that still waits for a connection fails as not sent.
        Closing twice is allowed. Your own session stays open, and its requests go on. In a child process that was
        forked meanwhile, the connections are left to its parent.

        Raises:
            ClientClosed: The connections belong to another event loop that still runs: close the transport there.
        """
        self._closed, pool = True, self._pool
        if pool is None or pool.inherited:
            return  # Parent and child share a selector: closing here would take it from the parent.
        if pool.loop is asyncio.get_running_loop():
            await pool.close(self._drain)
        elif pool.loop.is_running():
            pool.usable_on = None
            raise ClientClosed("the connections belong to another event loop: close the transport there")
        else:
            await pool.abort()

    async def _bind(self) -> P:
        """Open a pool on the running event loop, or raise if that is impossible."""
        if self._closed:
            raise ClientClosed("the transport is closed")
        former, loop = self._pool, asyncio.get_running_loop()
        if former is not None:
            if former.inherited:
                # Both processes would write on the same connections, and read each other's responses.
                raise ClientClosed("the connections belong to another process: make the client after the fork")
            if former.loop is not loop and not former.loop.is_closed():
                raise ClientClosed("the connections belong to another event loop: use one client per loop")
        pool = self._pool = self._new_pool()
        if former is None or former.loop is not loop:  # Otherwise the loop is ending, and its last tasks send requests.
            await pool.close_with_loop(self._drain)
            if former is not None:
                await former.abort()
        return pool


def flaw_of(request: Request, own_fields: frozenset[str] = frozenset()) -> str | None:
    """Return why HTTP cannot express *request*, or `None`. Only the transport may set *own_fields*."""
    # No error passes this frame, which has the token (CONTRIBUTING: frames).
    headers = request.headers
    line = request.method + request.url
    text = "".join((line, *headers, *headers.values()))
    # The same as `isprintable`, in two thirds of the time.
    is_printable = text.isascii() and not text.encode().translate(None, _PRINTABLE)
    # A space would end the method or the target in the first line. yarl would drop a tab, and change the path.
    if " " in line or (not is_printable and (_UNSENDABLE.search(text) or "\t" in line)):
        return _FLAW
    return _flaw_of_names(tuple(headers), own_fields)


@lru_cache(maxsize=64)
def _flaw_of_names(names: tuple[str, ...], own_fields: frozenset[str]) -> str | None:
    if (own := next((name for name in names if name.lower() in own_fields), None)) is not None:
        return f"the header field {own.title()} is set by the transport"
    return None if all(map(_NAME.fullmatch, names)) else _FLAW


def overslept(began: float, within: float | None) -> bool:
    """Return whether a wait that *began* then took longer than *within* seconds by the wall clock.

    Timers stop while a machine is suspended: it may wake up a day later, when an idempotency key is forgotten.
    """
    return within is not None and time.time() - began > within


def closed_while_waiting() -> ClientClosed:
    return ClientClosed("the transport was closed while the request waited for a connection")


def unread_on(wire: socket.socket) -> Callable[[], object]:
    """Return a function that tells whether *wire* has unread bytes or its end."""
    if sys.platform == "win32":
        return lambda: select.select([wire.fileno()], [], [], 0)[0]
    poll = select.poll()  # Registered once: a new poll per request costs more than the check.
    poll.register(wire.fileno(), select.POLLIN)
    return partial(poll.poll, 0)


def words_of_system(error: BaseException | None) -> str:
    """Return the system's description of *error*, which cannot hold any secret."""
    if isinstance(error, SSLError):
        words = error.verify_message if isinstance(error, SSLCertVerificationError) else error.reason
    elif isinstance(error, OSError) and not isinstance(error, socket.gaierror) and (error.errno or 0) > 0:
        words = os.strerror(error.errno or 0)
    else:
        words = ""
    return f": {words}" if words else ""


#: In a forked child, the pools of its parent. They are kept until the end: freeing the connections, which share their
#: selector with the parent's, would take it from the parent.
_INHERITED: list[Pool] = []


def _leave_to_parent() -> None:
    for pool in tuple(Pool.known):
        pool.inherited, pool.usable_on = True, None
        _INHERITED.append(pool)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
