"""A platform with a rate limit, callers that share a flow, and a clock that moves when everybody waits."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from paymentsdk.testing import FakeClock

#: Turns of the loop in which whoever can go on has gone on.
TURNS = 12
#: What a status says of the seller.
SERVICE = {200: "served", 429: "limited"}


class SimulatedClock(FakeClock):
    """A clock for many tasks at once: `run` moves it to the next thing that anybody waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._times: list[float] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> object:
        """See `Clock.call_at`."""
        heapq.heappush(self._times, when)
        return super().call_at(when, callback)

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was moved so far."""
        awake = asyncio.get_running_loop().create_future()
        self.call_at(self.monotonic() + seconds, lambda: awake.done() or awake.set_result(None))
        await awake

    async def settle(self) -> None:
        """Let all go on who can."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def run(self, seconds: float) -> None:
        """Let *seconds* pass."""
        end = self.monotonic() + seconds
        await self.settle()
        while self._times and self._times[0] <= end:
            when = heapq.heappop(self._times)
            if when >= self.monotonic():
                self.advance(when - self.monotonic())
                await self.settle()
        self.advance(end - self.monotonic())
        await self.settle()


@dataclass
class Limiter:
    """A platform that serves so many requests per second, and says 429 to the others.

    Args:
        rate: Requests per second.
        burst: Of a token bucket; `None` for windows of one second, in which *rate* requests are served.
        places: Requests that it handles at once; the others wait.
    """

    clock: FakeClock
    rate: float = 100.0
    burst: float | None = None
    latency: float = 0.01
    retry_after: float = 1.0
    statuses: Counter[int] = field(default_factory=Counter)
    served: Counter[object] = field(default_factory=Counter)
    in_flight: int = 0
    most_in_flight: int = 0
    _tokens: dict[object, tuple[float, float]] = field(default_factory=dict)

    async def send(self, seller: object = "shop-1") -> tuple[int, float]:
        """Return the status code and the Retry-After."""
        status = 200 if self._allows(seller) else 429
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.clock.sleep(self.latency)
        finally:
            self.in_flight -= 1
        self.statuses[status] += 1
        self.served[seller] += status == 200
        return status, self.retry_after if status == 429 else 0.0

    def _allows(self, seller: object) -> bool:
        now = self.clock.monotonic()
        full = self.rate if self.burst is None else self.burst
        tokens, when = self._tokens.get(seller, (full, now))
        if self.burst is not None:
            tokens, when = min(full, tokens + (now - when) * self.rate), now
        elif now - when >= 1.0:
            tokens, when = full, now - (now - when) % 1.0
        allowed = tokens >= 1.0
        self._tokens[seller] = (tokens - allowed, when)
        return allowed

    @property
    def rejected(self) -> float:
        """Return the part of the requests that got a 429."""
        return self.statuses[429] / max(1, self.statuses.total())


@dataclass
class Callers:
    """Programs that call as the engine does: a permit for each attempt, a pause after a 429, four attempts."""

    flow: object
    platform: Limiter
    clock: FakeClock
    calls: int = 0
    failed: int = 0
    times: list[float] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _numbers: object = field(default_factory=itertools.count)

    async def call(self, seller: object = "shop-1", priority: str = "interactive") -> bool:
        """Make one call, and tell whether it succeeded."""
        for number in range(1, 5):
            permit = self.flow.try_acquire(seller) or await self.flow.acquire(seller, priority)
            if permit is None:
                return False
            status, retry_after = None, 0.0
            try:
                status, retry_after = await self.platform.send(seller)
            finally:
                self.flow.release(permit, SERVICE.get(status), retry_after)
            if status != 429:
                return True
            await self.clock.sleep(retry_after + self.clock.random() * min(8.0, 0.5 * 2.0 ** (number - 1)))
        return False

    async def loop(self, seller: object, priority: str, pause: float) -> None:
        """Call again and again."""
        while True:
            began = self.clock.monotonic()
            succeeded = await self.call(seller, priority)
            self.calls += 1
            self.failed += not succeeded
            if priority == "interactive":
                self.times.append(self.clock.monotonic() - began)
            await self.clock.sleep(pause)

    def start(self, count: int, seller: object = "shop-1", priority: str = "interactive", pause: float = 0.0) -> None:
        """Start *count* of them."""
        for _ in range(count):
            self.spawn(self.loop(seller, priority, pause))

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start one task that ends with the test."""
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def stop(self) -> None:
        """Cancel all."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
