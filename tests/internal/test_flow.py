"""Who gets a permit, and when: the controller, with a clock that is moved by hand, and under load."""

from __future__ import annotations

import asyncio
import random

import pytest

from paymentsdk._call.flow import Flow, FlowControl
from paymentsdk._call.limiter import Permit
from tests.flow.platform import Callers, Limiter, SimulatedClock

ADAPTIVE = FlowControl(adaptive=True)


@pytest.fixture
def clock() -> SimulatedClock:
    """A clock that moves when everybody waits."""
    return SimulatedClock()


@pytest.fixture
def flow(clock: SimulatedClock) -> Flow:
    """What every client has."""
    return Flow(FlowControl(), clock)


class Waiters:
    """Tasks that ask for a permit and keep it."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.granted: list[tuple[str, Permit | None]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, name: str, seller: str = "shop-1", priority: str = "interactive") -> None:
        """Ask for one, and note it."""
        self.granted.append((name, await self.flow.acquire(seller, priority)))

    def start(self, count: int, seller: str = "shop-1", priority: str = "interactive", name: str = "") -> None:
        """Have *count* ask."""
        for number in range(count):
            self.tasks.append(asyncio.ensure_future(self.ask(f"{name}{number}", seller, priority)))

    @property
    def names(self) -> list[str]:
        """Who has got one, in order."""
        return [name for name, permit in self.granted if permit is not None]

    async def stop(self) -> None:
        """Cancel those who still wait."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def waiters(flow: Flow):
    """Tasks that ask `flow`."""
    waiters = Waiters(flow)
    yield waiters
    await waiters.stop()


def reject(flow: Flow, seller: str = "shop-1", retry_after: float = 5.0) -> None:
    """Have *seller* get a 429."""
    permit = flow.try_acquire(seller)
    assert permit is not None
    flow.release(permit, "limited", retry_after)


# --- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", ["interactive", "batch"])
async def test_a_seller_for_whom_somebody_waits_is_not_forgotten(clock, flow, waiters, monkeypatch, priority):
    """Whoever is let through the gate, or waits for that, finds it as it was, however many others are limited."""
    monkeypatch.setattr(Flow, "MAX_LIMITERS", 1)
    reject(flow, "tries")
    waiters.start(1, "tries", priority)
    await clock.run(0.15)
    reject(flow, "waits")
    waiters.start(1, "waits", priority)
    await clock.settle()
    for number in range(3):
        reject(flow, f"shop-{number}")

    assert {"tries", "waits"} < set(flow.limiters)
    assert 3 == len(flow.limiters)


# --- the bound on waiting ---------------------------------------------------------------------------------------------


# --- cancellation -----------------------------------------------------------------------------------------------------


async def leak(self, seller, priority):
    """Wait without giving back what was granted at the moment of the cancellation."""
    limiter, turn = self._limiter(seller), asyncio.get_running_loop().create_future()
    (limiter.batch if priority == "batch" else limiter.interactive)[turn] = self._now()
    self._dispatch(limiter, self._now())
    return await turn


@pytest.mark.control("paymentsdk._call.flow.Flow.wait", leak)
async def test_a_storm_of_cancellations_loses_no_permit(clock):
    """However many are cancelled at whatever turn of the loop: in the end nothing is in flight, and nobody waits."""
    for seed in range(3):
        flow = await storm(clock, random.Random(seed))

        assert 0 == flow._in_flight
        assert all(limiter.is_idle for limiter in flow.limiters.values())
        assert all(limiter.probe is None for limiter in flow.limiters.values())


async def storm(clock: SimulatedClock, chance: random.Random) -> Flow:
    """Make 120 calls of three sellers, many of which cancel another one; return the flow when all are over."""
    flow, asking = Flow(FlowControl(adaptive=True, max_in_flight=4), clock), list[asyncio.Task[None]]()

    async def call(seller: str) -> None:
        asking.append(asyncio.current_task())
        try:
            permit = flow.try_acquire(seller) or await flow.acquire(seller, chance.choice(["interactive", "batch"]))
        finally:
            asking.remove(asyncio.current_task())
        service = None
        try:
            await clock.sleep(chance.random() * 0.1)
            service = chance.choice(["served", "served", "limited", "failed"])
        finally:
            flow.release(permit, service, 0.5)
            if asking and chance.random() < 0.3:
                chance.choice(asking[:6]).cancel()  # It may be the one that has just been let go.

    tasks = [asyncio.ensure_future(call(f"shop-{number % 3}")) for number in range(120)]
    await clock.run(60.0)
    assert all(task.done() for task in tasks)
    await asyncio.gather(*tasks, return_exceptions=True)
    flow.close()
    return flow


# --- the adaptive form ------------------------------------------------------------------------------------------------


async def test_the_first_requests_of_a_seller_are_few_at_once(clock, waiters):
    """Sixteen, so that the first 429 does not come with hundreds; with all of them served, one more."""
    waiters.flow = flow = Flow(ADAPTIVE, clock)
    waiters.start(100)
    await clock.settle()
    assert 16 == len(waiters.names)
    for _, permit in list(waiters.granted):
        flow.release(permit, "served")
    for _ in range(4):
        await clock.settle()

    assert 16 + 17 == len(waiters.names)


async def test_a_rate_is_forgotten_two_minutes_after_the_last_429(clock):
    """By then it has grown so far that it holds nobody."""
    flow = Flow(ADAPTIVE, clock)
    reject(flow, retry_after=1.0)
    await clock.run(1.0)
    assert flow.try_acquire("shop-1") is None  # The gate opens, and the rate holds.

    estimated = []
    for seconds in (119.0, 2.0):
        await clock.run(seconds)
        flow.release(flow.try_acquire("shop-1"), "served")
        estimated.append(flow.limiters["shop-1"].estimate is not None)

    assert [True, False] == estimated


async def test_all_sellers_together_have_no_more_in_flight_than_allowed(clock, waiters):
    """And they take turns: whoever waits with a hundred calls gets no more than whoever waits with one."""
    waiters.flow = flow = Flow(FlowControl(adaptive=True, max_in_flight=2), clock)
    waiters.start(2, "shop-0", name="first-")
    await clock.settle()
    waiters.start(10, "big", name="big-")
    await clock.settle()
    for number in range(3):
        waiters.start(1, f"small-{number}", name=f"small-{number}-")
    await clock.settle()
    assert 2 == len(waiters.names)
    for number in range(5):
        flow.release(waiters.granted[number][1], "served")
        await clock.settle()

    assert ["big-0", "small-0-0", "small-1-0", "small-2-0", "big-1"] == waiters.names[2:]


@pytest.mark.control("paymentsdk._call.flow.Flow._next_turn", lambda self: self._turns.popitem(last=False)[0])
async def test_a_call_that_gives_up_takes_its_precedence_along(clock, waiters):
    """Where only batch calls of a seller are left, they go after the interactive calls of all others."""
    waiters.flow = flow = Flow(FlowControl(adaptive=True, max_in_flight=1, max_wait=2.0), clock)
    waiters.start(1, "shop-0", name="first-")
    await clock.settle()
    waiters.start(1, "shop-1", name="gives-up-")
    await clock.run(1.5)
    waiters.start(2, "shop-1", "batch", name="batch-")
    await clock.settle()
    waiters.tasks[1].cancel()
    await clock.run(1.0)
    waiters.start(1, "shop-2", name="interactive-")
    await clock.settle()
    flow.release(waiters.granted[0][1], "served")
    await clock.settle()

    assert "interactive-0" == waiters.names[-1]


# --- load -------------------------------------------------------------------------------------------------------------


async def load(clock: SimulatedClock, control: FlowControl, seconds: float) -> tuple[Limiter, int]:
    """Let 32 callers call a platform for a while; return it, and how many calls have failed."""
    platform = Limiter(clock)
    callers = Callers(Flow(control, clock), platform, clock, 32)
    await clock.run(seconds)
    await callers.stop()
    return platform, callers.failed


async def test_callers_stay_below_an_undeclared_limit(clock):
    """At most 2 % of the requests get a 429, no call fails, and nine tenths of what the platform serves are used."""
    platform, failed = await load(clock, ADAPTIVE, 12.0)

    assert platform.rejected <= 0.02
    assert 0 == failed
    assert platform.statuses[200] >= 0.90 * 12 * platform.rate


async def test_without_the_adaptive_form_more_is_rejected(clock):
    """Negative control: the platform does reject."""
    platform, _ = await load(clock, FlowControl(gate=False), 4.0)

    assert platform.rejected > 0.1
