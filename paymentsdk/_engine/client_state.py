"""What a client and all its copies share."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

from paymentsdk._engine.deadline import Deadlines
from paymentsdk._engine.flow import Flow, FlowControl
from paymentsdk._engine.retry import RetryBudgets
from paymentsdk._operation.identity import Additions
from paymentsdk.errors import ClientClosed
from paymentsdk.transports.base import DiscardingTransport, Response, Transport, header

if TYPE_CHECKING:
    from paymentsdk._auth.refresh import RefreshingToken
    from paymentsdk._clock import Clock
    from paymentsdk.journal._call import Journaling


class ClientState:
    """What a client and all its copies have in common: connections, time, budgets for retries, permits."""

    def __init__(
        self, transport: Transport, clock: Clock, flow: FlowControl, journaling: Journaling | None = None
    ) -> None:
        self.transport: Transport = transport
        self._discarding: DiscardingTransport | None = transport if isinstance(transport, DiscardingTransport) else None
        self.additions: Additions = Additions()
        self.clock: Clock = clock
        self.journaling: Journaling | None = journaling
        self.deadlines: Deadlines = Deadlines(clock)
        self.budgets: RetryBudgets = RetryBudgets()
        self.flow: Flow = Flow(flow, clock)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed: bool = False
        self.refreshing: WeakSet[RefreshingToken] = WeakSet()
        """The tokens that were asked to refresh themselves, as long as somebody has them."""
        self._pause_tasks: set[asyncio.Future[None]] = set()

    def close(self) -> None:
        """Reject further calls, and end the pauses of those that wait for their next attempt: it will not come.

        Raises:
            ClientClosed: The calls belong to another event loop, which still runs; nothing was closed.
        """
        if self.loop is not None and self.loop is not asyncio.get_running_loop() and self.loop.is_running():
            raise ClientClosed("the client belongs to another event loop: close it there")
        self.closed = True
        for pause in self._pause_tasks:
            pause.cancel()
        if self.loop is None or not self.loop.is_closed():  # Else nobody can be told any more.
            self.flow.close()

    async def pause(self, seconds: float) -> None:
        """Return when *seconds* have passed, or at once when the client is closed."""
        if self.closed:
            return
        pause = asyncio.ensure_future(self.clock.sleep(seconds))
        self._pause_tasks.add(pause)
        try:
            await asyncio.wait((pause,))
            if not pause.cancelled():
                pause.result()
        finally:
            self._pause_tasks.discard(pause)
            pause.cancel()

    def discard(self, response: Response | None) -> None:
        """Have no further request use the connection of *response*, where the transport can do that."""
        if self._discarding is not None and response is not None:
            with suppress(Exception):  # The outcome of the call must not depend on it.
                self._discarding.discard(response)

    def observe_platform_time(self, response: Response) -> None:
        """Take the platform's time from *response*, if a journal counts on it."""
        if self.journaling is not None:
            self.journaling.platform_clock.observe(header(response.headers, "Date"))

    def ensure_open(self) -> asyncio.AbstractEventLoop:
        """Let a call begin, and return the loop that it runs on.

        Raises:
            ClientClosed: The client is closed, its connections belong to another event loop that is not closed, or no
                loop of asyncio runs.
        """
        if self.closed:
            raise ClientClosed("the client is closed")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientClosed("a call needs a running event loop of asyncio; trio has none") from None
        if self.loop is not running:
            self._bind(running)
        return running

    def _bind(self, running: asyncio.AbstractEventLoop) -> None:
        """Have the calls belong to the *running* loop, if there is none yet or the former one is closed.

        A loop that stands still is not given up: it may go on, and with it calls and token refreshes in flight.
        """
        if self.loop is not None:
            if not self.loop.is_closed():
                raise ClientClosed("the client belongs to another event loop; make one client per loop")
            # Nothing of that loop will ever wake up: neither its calls nor the alarm for their deadlines.
            self.deadlines = Deadlines(self.clock)
            self.flow = self.flow.moved()
            self._pause_tasks = set()
        self.loop = running
