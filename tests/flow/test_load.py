"""What the flow does for many callers at once, on a platform with a rate limit, in simulated time."""

from __future__ import annotations

import statistics

import pytest

from paymentsdk._call.flow import Flow, FlowControl
from tests.flow.platform import Callers, Limiter, SimulatedClock

ADAPTIVE, GATE, OFF = FlowControl(adaptive=True), FlowControl(), FlowControl(gate=False)


@pytest.fixture
async def run(clock: SimulatedClock):
    """Let callers call a platform for a while."""
    started: list[Callers] = []

    async def run(platform: Limiter, control: FlowControl, *loads: dict[str, object], seconds: float = 30.0) -> Callers:
        callers = Callers(Flow(control, clock), platform, clock)
        started.append(callers)
        for load in loads:
            callers.start(**load)
        await clock.run(seconds)
        return callers

    yield run
    for callers in started:
        await callers.stop()


@pytest.mark.parametrize(("count", "burst"), [(16, None), (64, 10)])
async def test_callers_stay_below_an_undeclared_limit(clock, run, count, burst):
    """At most 2 % of the requests get a 429, no call fails, and nine tenths of what the platform serves are used."""
    platform = Limiter(clock, burst=burst)
    callers = await run(platform, ADAPTIVE, {"count": count})

    assert platform.rejected <= 0.02
    assert 0 == callers.failed
    assert platform.statuses[200] >= 0.90 * 30 * platform.rate


async def test_without_the_adaptive_form_a_fifth_is_rejected(clock, run):
    """Negative control: the platform does reject."""
    platform = Limiter(clock)
    callers = await run(platform, OFF, {"count": 256}, seconds=15.0)

    assert platform.rejected > 0.5
    assert callers.failed > 100


async def test_a_limit_that_is_raised_is_found(clock, run):
    """Within 20 seconds the callers use three times as much."""
    platform = Limiter(clock, burst=10)
    await run(platform, ADAPTIVE, {"count": 64})
    platform.rate = 300.0
    await clock.run(20.0)
    platform.statuses.clear()
    await clock.run(10.0)

    assert platform.statuses[200] >= 0.85 * 10 * 300


async def test_an_interactive_call_during_a_batch_job_is_quick(clock, run):
    """Half take under 50 ms beside 64 batch callers, and none fails; among calls of one priority it waits its turn."""
    beside = {"count": 64, "priority": "batch"}
    callers = await run(Limiter(clock), ADAPTIVE, beside, {"count": 1, "pause": 0.1})
    alike = await run(Limiter(clock), ADAPTIVE, {"count": 64}, {"count": 1, "pause": 0.1})

    assert 0 == callers.failed
    assert statistics.median(callers.times) <= 0.05
    assert statistics.median(alike.times) > 0.3
