"""Time and randomness, in one place, so that a test can control both."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """The return value of `Clock.call_at`."""

    def cancel(self) -> None:
        """Cancel the callback."""
        ...


class Clock(Protocol):
    """The engine's source of time, sleep and randomness."""

    def now(self) -> float:
        """Return the seconds since the epoch, UTC: for expiry dates and for people."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back: for deadlines and elapsed time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when *seconds* have passed."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Alarm:
        """Call *callback* on the running loop once `monotonic` has reached *when*."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to 1, for the jitter of the back-off."""
        ...

    def key(self) -> str:
        """Return a new idempotency key: 32 characters that were never used before."""
        ...


class SystemClock:
    """The machine's own time."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Alarm:
        """See `Clock.call_at`."""
        return asyncio.get_running_loop().call_later(when - time.monotonic(), callback)

    def random(self) -> float:
        """See `Clock.random`."""
        return int.from_bytes(os.urandom(6)) / 2**48

    def key(self) -> str:
        """See `Clock.key`."""
        # From the kernel, not from `random`: a forked worker must not repeat its parent's keys.
        return os.urandom(16).hex()
