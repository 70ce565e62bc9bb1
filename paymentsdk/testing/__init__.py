"""Tools for tests of programs that use the SDK: a transport in memory, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from paymentsdk.errors import ClientClosed
from paymentsdk.transports.base import Request, Response, SendFailed

__all__ = ["FakeClock", "MemoryTransport"]

Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]
Reply: TypeAlias = Response | BaseException | int
_USED_UP = object()


class MemoryTransport:
    """Responds from a function or a script, without a socket.

    Args:
        handler: A function of a `Request` that returns a `Response` or an awaitable of it, or raises. A `SendFailed` is
            raised unchanged; after any other exception the request counts as sent. Or a script: an iterable of
            responses, statuses and exceptions, which are used in order.
    """

    def __init__(self, handler: Handler | Iterable[Reply] = ()) -> None:
        self.requests: list[Request] = []
        """All requests, in order."""
        self.discarded: list[Response] = []
        """The responses that the client has discarded, in order: their connections must not be used again."""
        self.closed: bool = False
        self._handler: Handler | None = handler if callable(handler) else None
        self._script: Iterator[Reply] = iter(() if callable(handler) else handler)
        self._added: deque[Reply] = deque()

    def replies(self, *replies: Reply) -> None:
        """Add to the script: responses, statuses (with ``{}`` as their body), and exceptions to raise."""
        self._added.extend(replies)

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        if self.closed:
            raise ClientClosed("the transport is closed")
        self.requests.append(request)
        try:
            return await self._reply(request)
        except (SendFailed, asyncio.CancelledError):
            raise
        except Exception as error:
            # The text shows which assertion of a handler has failed.
            raise SendFailed(f"the handler raised {type(error).__name__}: {error}", sent=True) from error
        finally:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A handler may move the clock past the deadline of its own call: only a wait lets the cancellation in.
                await asyncio.sleep(0)

    def discard(self, response: Response) -> None:
        """See `paymentsdk.DiscardingTransport`."""
        self.discarded.append(response)

    async def aclose(self) -> None:
        """See `Transport`."""
        self.closed = True

    async def _reply(self, request: Request) -> Response:
        # The script is read step by step, as it may be endless.
        reply: object = next(self._script, _USED_UP)
        if reply is _USED_UP and self._added:
            reply = self._added.popleft()
        if reply is not _USED_UP:
            if isinstance(reply, BaseException):
                raise reply
            if isinstance(reply, int):
                reply = Response(reply, {}, b"{}")
        elif self._handler is None:
            raise LookupError("the script is used up")
        else:
            returned = self._handler(request)
            reply = await returned if inspect.isawaitable(returned) else returned
        if not isinstance(reply, Response):
            raise TypeError(f"it returned {type(reply).__name__}, not a Response")
        return reply


class FakeClock:
    """A clock that stands still until it is moved. Sleeping moves it immediately, so that no test waits.

    Args:
        now: The first time, in seconds since the epoch.
        seed: The seed of the random numbers and keys, which are the same each time.
    """

    def __init__(self, now: float = 1_700_000_000.0, *, seed: int = 0) -> None:
        self.slept: list[float] = []
        """The length of every sleep in seconds, in order."""
        self._now = now
        self._monotonic = 0.0
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """See `Clock`."""
        return self._now

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._monotonic

    def random(self) -> float:
        """See `Clock`."""
        return self._random.random()

    def key(self) -> str:
        """See `Clock`."""
        return f"{self._random.getrandbits(128):032x}"

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def call_at(self, when: float, callback: Callable[[], None]) -> _Alarm:
        """See `Clock`."""
        alarm = _Alarm(callback)
        heapq.heappush(self._alarms, (when, next(self._order), alarm))
        return alarm

    def advance(self, seconds: float) -> None:
        """Move the clock by *seconds*, 0 or more, and call every callback on the way at its own time.

        Raises:
            ValueError: *seconds* is negative.
        """
        if not seconds >= 0:
            raise ValueError("time does not go backwards")
        end = self._monotonic + seconds
        while self._alarms and self._alarms[0][0] <= end:
            when, _, alarm = heapq.heappop(self._alarms)
            self._move(max(when, self._monotonic))
            if alarm.callback is not None:
                alarm.callback()
        # A callback may have moved the clock further.
        self._move(max(end, self._monotonic))

    def _move(self, monotonic: float) -> None:
        self._now += monotonic - self._monotonic
        self._monotonic = monotonic


class _Alarm(Struct, eq=False):
    callback: Callable[[], None] | None
    """`None` once it is cancelled."""

    def cancel(self) -> None:
        self.callback = None
