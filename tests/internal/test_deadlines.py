"""Deadlines of many calls on one alarm, and the clock of the machine."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from paymentsdk import Timeout
from paymentsdk._call.deadline import Deadlines
from paymentsdk._clock import SystemClock
from paymentsdk.testing import FakeClock


class CountingClock(FakeClock):
    """Counts the alarms that are set."""

    alarms = 0

    def call_at(self, when, callback):
        self.alarms += 1
        return super().call_at(when, callback)


@pytest.mark.control("paymentsdk._call.deadline.REST", 0.0)
async def test_deadlines_close_together_ring_together() -> None:
    """When a thousand calls hang that began one after the other, the alarm does not ring a thousand times."""
    clock = CountingClock()
    deadlines, ended = Deadlines(clock), []

    async def work(number: int) -> None:
        watch = deadlines.add(Timeout(30 + number / 100_000, attempt=None), 0.0)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        ended.append(watch.uncancel())

    tasks = [asyncio.create_task(work(number)) for number in range(100)]
    await asyncio.sleep(0)
    clock.advance(31)
    await asyncio.wait(tasks)

    assert [True] * 100 == ended
    assert clock.alarms < 10


async def test_the_system_clock_rings_and_sleeps() -> None:
    """The machine's clock calls back on the running loop, sleeps, rolls dice and makes keys of 32 characters."""
    clock = SystemClock()
    rang = asyncio.Event()

    clock.call_at(clock.monotonic(), rang.set)
    cancelled = clock.call_at(clock.monotonic(), lambda: pytest.fail("a cancelled alarm rang"))
    cancelled.cancel()
    await rang.wait()
    await clock.sleep(0)

    assert 0 <= clock.random() < 1
    assert clock.now() > 1_700_000_000
    keys = {clock.key() for _ in range(1000)}
    assert 1000 == len(keys)
    assert {32} == set(map(len, keys))
