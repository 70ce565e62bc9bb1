"""`Runtime`: the parts that a client and all its copies share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from paymentsdk._call.deadline import Deadlines
from paymentsdk._call.flow import Flow, FlowControl
from paymentsdk._call.retry import RetryBudgets
from paymentsdk.errors import ClientClosed
from paymentsdk.transports.base import DiscardingTransport, Response, Transport

if TYPE_CHECKING:
    from paymentsdk._auth.refresh import RefreshingToken
    from paymentsdk._auth.token_store import TokenPair
    from paymentsdk._call.settings import Settings
    from paymentsdk._clock import Clock


@dataclass(eq=False, repr=False)
class Runtime:
    """Connections, time, retry budgets and permits: a client and all its copies share one."""

    transport: Transport
    clock: Clock
    settings: Settings
    """The settings of the client itself; a copy has others."""
    flow_control: FlowControl
    exchange: Callable[..., Awaitable[TokenPair]]
    """Exchanges a refresh token; it takes the engine of the call, and the token."""
    read: Callable[..., Awaitable[None]]
    """Reads a page: for the platform's `Date`, and to get a token if there is none yet. It takes the engine."""
    budgets: RetryBudgets = field(default_factory=RetryBudgets)
    refreshing: WeakSet[RefreshingToken] = field(default_factory=WeakSet)
    """The tokens whose refresh was requested. A weak set, so it keeps no token alive."""
    asking: set[int] = field(default_factory=set)
    """The ids of the tokens whose refresh token this client has sent, and whose response has not come yet."""
    write_by_name: Callable[..., Awaitable[Any]] | None = None
    """Carries out a write as a record of the journal; it takes the engine, the intent and the name."""
    observe: Callable[[Mapping[str, str]], None] | None = None
    """Learns the platform's time from the header fields of a response; only with a journal."""
    platform_time: Callable[[], float | None] = lambda: None
    """Returns the platform's time, in seconds since the epoch, if it is known."""
    loop: asyncio.AbstractEventLoop | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        """Make the parts that belong to one event loop."""
        self.deadlines: Deadlines = Deadlines(self.clock)
        self.flow: Flow = Flow(self.flow_control, self.clock)

    def close(self) -> None:
        """Reject further calls, and end the waits of calls that still have something to send.

        Raises:
            ClientClosed: The calls belong to another event loop that still runs. Nothing was closed.
        """
        if self.loop is not None and self.loop is not asyncio.get_running_loop() and self.loop.is_running():
            raise ClientClosed("the client belongs to another event loop: close it there")
        self.closed = True
        if self.loop is None or not self.loop.is_closed():  # Nothing wakes up on a closed loop.
            self.flow.close()

    def discard(self, response: Response | None) -> None:
        """Make the transport close the connection of *response* before another request uses it, if it can."""
        if isinstance(self.transport, DiscardingTransport) and response is not None:
            with suppress(Exception):  # The outcome of the call must not depend on it.
                self.transport.discard(response)

    def ensure_open(self) -> asyncio.AbstractEventLoop:
        """Check that a call may begin, and return the loop that it runs on.

        Raises:
            ClientClosed: The client is closed, belongs to another event loop that is not closed, or no asyncio event
                loop runs.
        """
        if self.closed:
            raise ClientClosed("the client is closed")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientClosed("a call needs a running event loop of asyncio; trio is not supported") from None
        if self.loop is not running:
            self._bind(running)
        return running

    def _bind(self, running: asyncio.AbstractEventLoop) -> None:
        """Bind the client to the *running* loop, if it has no loop yet or its loop is closed.

        A loop that is stopped but not closed keeps the client: it may go on, with calls and token refreshes in flight.
        """
        if self.loop is not None:
            if not self.loop.is_closed():
                raise ClientClosed("the client belongs to another event loop; make one client per loop")
            # Nothing of the closed loop wakes up again: neither its calls nor the timer of their deadlines.
            self.__post_init__()
        self.loop = running
