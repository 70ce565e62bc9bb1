"""A platform with a rate limit, callers that share a flow, and a clock that moves when everybody waits."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from paymentsdk._call.flow import Flow
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
    """A platform that serves 100 requests per second, 10 of them at once, and says 429 to the others."""

    clock: FakeClock
    rate: float = 100.0
    statuses: Counter[int] = field(default_factory=Counter)
    _tokens: float = 10.0
    _updated: float = 0.0

    async def send(self) -> int:
        """Return the status code."""
        now = self.clock.monotonic()
        self._tokens, self._updated = min(10.0, self._tokens + (now - self._updated) * self.rate), now
        status = 200 if self._tokens >= 1.0 else 429
        self._tokens -= status == 200
        await self.clock.sleep(0.01)
        self.statuses[status] += 1
        return status

    @property
    def rejected(self) -> float:
        """Return the part of the requests that got a 429."""
        return self.statuses[429] / max(1, self.statuses.total())


class Callers:
    """Programs that call as the engine does: a permit for each attempt, a pause after a 429, four attempts."""

    def __init__(self, flow: Flow, platform: Limiter, clock: FakeClock, count: int) -> None:
        self.flow, self.platform, self.clock = flow, platform, clock
        self.failed = 0
        self.tasks = [asyncio.ensure_future(self._loop()) for _ in range(count)]

    async def _loop(self) -> None:
        while True:
            self.failed += not await self._call()
            await self.clock.sleep(0.0)

    async def _call(self) -> bool:
        for number in range(1, 5):
            permit = self.flow.try_acquire("shop-1") or await self.flow.acquire("shop-1", "interactive")
            if permit is None:
                return False
            status = None
            try:
                status = await self.platform.send()
            finally:
                self.flow.release(permit, SERVICE.get(status), 1.0 if status == 429 else 0.0)
            if status != 429:
                return True
            await self.clock.sleep(1.0 + self.clock.random() * min(8.0, 0.5 * 2.0 ** (number - 1)))
        return False

    async def stop(self) -> None:
        """Cancel all."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
