"""One call under way, what it shares with the others, and what comes out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakSet

from msgspec import Struct, field

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._engine.deadline import Deadline, Deadlines
from paymentsdk._engine.retry import History, RetryBudgets
from paymentsdk._operation.identity import Additions
from paymentsdk.errors import ClientClosed
from paymentsdk.transports.base import DiscardingTransport, Response, Transport, header

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import RefreshingToken
    from paymentsdk._clock import Clock
    from paymentsdk._operation.operation import Operation

B = TypeVar("B")
R = TypeVar("R")


class Result(Struct, Generic[R], frozen=True, kw_only=True):
    """The value of a call, and how it was obtained.

    A result cannot be pickled, as its body and headers may repeat credentials; its ``value`` can, unless it holds some.

    Attributes:
        value: What the platform answered.
        status: The HTTP status, 200 to 299.
        headers: The header fields of the answer.
        attempts: How many requests it took.
        elapsed: Seconds from the call to the answer.
        anomalies: What in the answer did not follow the contract; empty nearly always.
        raw: The body as it came.
        idempotency_key: The key that the write was sent with, or ``None``.
    """

    value: R
    status: int
    headers: Mapping[str, str]
    attempts: int
    elapsed: float
    anomalies: tuple[Anomaly, ...]
    raw: bytes
    idempotency_key: str | None = None

    @property
    def request_id(self) -> str | None:
        """The platform's ``X-Request-Id``; the platform's support will ask for it."""
        return header(self.headers, "X-Request-Id")

    def __repr__(self) -> str:
        return f"Result({self.value!r}, status={self.status}, attempts={self.attempts}, anomalies={self.anomalies!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in ("value", "status", "attempts", "anomalies")]

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Result may hold credentials and cannot be pickled: pickle its value")


class ClientState:
    """What a client and all its copies have in common: connections, time, and the budgets for retries."""

    __slots__ = (
        "_discarding",
        "_pausing",
        "additions",
        "budgets",
        "clock",
        "closed",
        "deadlines",
        "loop",
        "renewing",
        "transport",
    )

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self.transport: Transport = transport
        self._discarding: DiscardingTransport | None = transport if isinstance(transport, DiscardingTransport) else None
        self.additions: Additions = Additions()
        self.clock: Clock = clock
        self.deadlines: Deadlines = Deadlines(clock)
        self.budgets: RetryBudgets = RetryBudgets()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed: bool = False
        #: The tokens that were asked to renew themselves, as long as somebody has them.
        self.renewing: WeakSet[RefreshingToken] = WeakSet()
        self._pausing: set[asyncio.Future[None]] = set()

    def close(self) -> None:
        """Refuse further calls, and end the pauses of those that wait for their next attempt: it will not come.

        Raises:
            ClientClosed: The calls belong to another event loop, which still runs; nothing was closed.
        """
        if self.loop is not None and self.loop is not asyncio.get_running_loop() and self.loop.is_running():
            raise ClientClosed("the client belongs to another event loop: close it there")
        self.closed = True
        for pause in self._pausing:
            pause.cancel()

    async def pause(self, seconds: float) -> None:
        """Return when *seconds* have passed, or at once when the client is closed."""
        if self.closed:
            return
        pause = asyncio.ensure_future(self.clock.sleep(seconds))
        self._pausing.add(pause)
        try:
            await asyncio.wait((pause,))
            if not pause.cancelled():
                pause.result()
        finally:
            self._pausing.discard(pause)
            pause.cancel()

    def discard(self, response: Response | None) -> None:
        """Have no further request use the connection of *response*, where the transport can do that."""
        if self._discarding is not None and response is not None:
            with suppress(Exception):  # The outcome of the call must not depend on it.
                self._discarding.discard(response)

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
            self._pausing = set()
        self.loop = running


class Intent(Struct, Generic[B, R], kw_only=True, eq=False):
    """One thing that the caller wants done: one body, one key and one deadline for all attempts at it.

    Attributes:
        operation: What is to be done.
        body: What it is done with.
        path: The values in the path.
        content: The bytes of the body.
        url: The whole URL.
        headers: Further header fields.
        key: The idempotency key.
        offset: Where the page begins that is asked for.
        started: When the call began, on the monotonic clock, as the next two.
        sending: When the attempt under way began.
        deadline: When the call ends in any case.
        watch: What ends an attempt in time.
        sending_wall: When the attempt under way began, in seconds since the epoch.
        token: The bearer token of the attempt. It is in no variable of a function that waits, since tracebacks can
            show those.
        disputed: The additions that a response had and another call was told of.
        fresh: Send on a fresh connection: one before has brought a response that is not the response to its request.
        history: What has happened so far.
    """

    operation: Operation[B, R]
    body: B | None
    path: Mapping[str, str]
    content: bytes
    url: str
    headers: Mapping[str, str] | None
    key: str | None
    offset: object
    started: float
    sending: float
    deadline: float
    watch: Deadline
    sending_wall: float = 0.0
    token: str | None = None
    disputed: tuple[str, ...] = ()
    fresh: bool = False
    history: History = field(default_factory=History)

    def __repr__(self) -> str:
        return f"<Intent {self.operation.name}>"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("operation", self.operation)]
