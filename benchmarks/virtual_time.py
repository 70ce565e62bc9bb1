"""An event loop of virtual time: it measures the waits of a walk, independent of the load of the machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from paymentsdk._clock import Alarm, SystemClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Advances the time instead of waiting for a timer."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        ready = super().select(0)
        if not ready and timeout > 0:
            self.time += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time advances only by sleeping."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the slept seconds."""
        return self._virtual.time

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[[], T]
    ) -> asyncio.Future[T]:
        """Call *func* immediately: time would pass while a thread works."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        future.set_result(func())
        return future


class LoopClock(SystemClock):
    """The time of the running loop."""

    def monotonic(self) -> float:  # type: ignore[override]
        """See `Clock.monotonic`."""
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Alarm:
        """See `Clock.call_at`."""
        return asyncio.get_running_loop().call_at(when, callback)
