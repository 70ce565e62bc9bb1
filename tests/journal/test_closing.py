"""Closing a client under journaled calls: what came of them is in the journal before that is closed, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from paymentsdk import ClientClosed, OutcomeUnknown, PaymentsError, Request, Response, SendFailed
from paymentsdk.events import AttemptEnded
from paymentsdk.journal import RecordState
from tests.flow.platform import SimulatedClock
from tests.journal.platform import World, order


def limited(request: Request) -> Response:
    """A platform that has no time."""
    return Response(429)


def lost(request: Request) -> Response:
    """Nothing comes back."""
    raise SendFailed("connection reset", sent=True)


class Failures:
    """An observer that says when an attempt at an order has failed: then its call pauses before the next."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: object) -> None:
        self.count += isinstance(event, AttemptEnded) and event.operation == "orders.create"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world in which pauses take no time."""
    world = World(tmp_path / "payments.db")
    world.clock = world.platform.clock = SimulatedClock()
    return world


async def kept(world: World) -> list[tuple[RecordState, str]]:
    """Return what the journal says of its records, and who holds them."""
    return [(row.state, row.owner) for row in await world.rows()]


ENDS = [(limited, ClientClosed, RecordState.NOT_SENT), (lost, OutcomeUnknown, RecordState.UNKNOWN)]


@pytest.mark.control("paymentsdk.journal._turns.Journaling.drain", lambda self, grace: asyncio.sleep(0))
@pytest.mark.parametrize(("fail", "error", "state"), ENDS, ids=["429", "lost"])
async def test_closing_keeps_the_results_of_calls_that_pause(
    world: World, until, fail: Callable[[Request], Response], error: type[PaymentsError], state: RecordState
) -> None:
    """No lease is left, and recovery sends nothing that the caller knows not to be sent; also of two calls at once."""
    failures, world.platform.fail = Failures(), fail
    client = world.connect(observers=[failures])
    calls = [asyncio.ensure_future(client.orders.create(order(), once="table-7/1")) for _ in range(2)]
    await until(lambda: failures.count)
    await world.clock.settle()
    await client.aclose()
    first, _ = await asyncio.gather(*calls, return_exceptions=True)

    assert (error, 1) == (type(first), first.attempts)
    assert [(state, "")] == await kept(world)


def drains_until_cancelled(
    drain: Callable[[object, float], Awaitable[None]],
) -> Callable[[object, float], Awaitable[None]]:
    """Return *drain* as it would be if a cancellation ended it."""

    async def drains(self: object, grace: float) -> None:
        await asyncio.ensure_future(drain(self, grace))

    return drains


@pytest.mark.control("paymentsdk.journal._turns.Journaling.drain", around=drains_until_cancelled)
async def test_a_cancelled_scope_keeps_the_results_of_its_calls(world: World) -> None:
    """Whoever leaves it waits for the journal all the same: else recovery would send what was cancelled in time."""
    with anyio.CancelScope() as scope:
        async with world.connect() as client:
            await client.plans.search().first()  # The platform's time is known.
            call = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
            await asyncio.sleep(0)
            call.cancel()  # As its record is being begun.
            scope.cancel()
            await asyncio.wait([call])

    rows = await kept(world)
    if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks)  # Only the control leaves some.
    assert scope.cancelled_caught
    assert ([(RecordState.NOT_SENT, "")], []) == (rows, world.platform.posts)
