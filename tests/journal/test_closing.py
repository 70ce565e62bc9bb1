"""Closing a client under journaled calls: what came of them is in the journal before that is closed, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from paymentsdk import (
    AiohttpTransport,
    ClientClosed,
    Http11Transport,
    JournalUnavailable,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.events import AttemptEnded
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport
from tests.flow.platform import SimulatedClock
from tests.journal.platform import TOKEN, URL, Platform, order


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


async def kept(path: Path, now: Callable[[], float] | None = None) -> list[tuple[RecordState, str]]:
    """Return what the journal says of its records, and who holds them."""
    journal = SQLiteJournal(path) if now is None else SQLiteJournal(path, now=now)
    try:
        return [(row.state, row.owner) for row in await journal.records(tuple(RecordState))]
    finally:
        await journal.aclose()


ENDS = [
    (limited, ClientClosed, RecordState.NOT_SENT),
    (lost, OutcomeUnknown, RecordState.UNKNOWN),
]


@pytest.mark.control("paymentsdk.journal._turns.Journaling.drain", lambda self, grace: asyncio.sleep(0))
@pytest.mark.parametrize(("fail", "error", "state"), ENDS, ids=["429", "lost"])
async def test_closing_keeps_the_results_of_calls_that_pause(
    tmp_path: Path, until, fail: Callable[[Request], Response], error: type[PaymentsError], state: RecordState
) -> None:
    """No lease is left, and recovery sends nothing that the caller knows not to be sent; also of two calls at once."""
    clock, failures, path = SimulatedClock(), Failures(), tmp_path / "payments.db"
    platform = Platform(clock)
    platform.fail = fail
    client = PaymentsClient(
        TOKEN,
        base_url=URL,
        clock=clock,
        journal=SQLiteJournal(path, now=clock.now),
        transport=MemoryTransport(platform),
        observers=[failures],
    )
    calls = [asyncio.ensure_future(client.orders.create(order(), once="table-7/1")) for _ in range(2)]
    await until(lambda: failures.count)
    await clock.settle()
    await client.aclose()
    first, _ = await asyncio.gather(*calls, return_exceptions=True)

    assert (error, 1) == (type(first), first.attempts)
    assert [(state, "")] == await kept(path, clock.now)


@pytest.mark.parametrize("transport", [AiohttpTransport, Http11Transport])
async def test_closing_keeps_the_results_of_calls_over_sockets(tmp_path: Path, until, transport: type) -> None:
    """The same over both transports, which end their connections first."""
    failures, path = Failures(), tmp_path / "payments.db"
    async with Sandbox() as sandbox:
        client = PaymentsClient(
            sandbox.access_token,
            base_url=sandbox.base_url,
            journal=SQLiteJournal(path),
            transport=transport(),
            retry=RetryPolicy(base_delay=60, max_delay=60),
            timeout=Timeout(total=600),
            observers=[failures],
        )
        sandbox.faults.add(FaultRule(effect="rate_limit", operation="orders.create"))
        call = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
        await until(lambda: failures.count)
        await client.aclose()
        with pytest.raises(ClientClosed):
            await call

    assert [(RecordState.NOT_SENT, "")] == await kept(path)


def drains_until_cancelled(
    drain: Callable[[object, float], Awaitable[None]],
) -> Callable[[object, float], Awaitable[None]]:
    """Return *drain* as it would be if a cancellation ended it."""

    async def drains(self: object, grace: float) -> None:
        await asyncio.ensure_future(drain(self, grace))

    return drains


@pytest.mark.control("paymentsdk.journal._turns.Journaling.drain", around=drains_until_cancelled)
async def test_a_cancelled_scope_keeps_the_results_of_its_calls(tmp_path: Path) -> None:
    """Whoever leaves it waits for the journal all the same: else recovery would send what was cancelled in time."""
    clock, path = SimulatedClock(), tmp_path / "payments.db"
    platform = Platform(clock)
    with anyio.CancelScope() as scope:
        async with PaymentsClient(
            TOKEN,
            base_url=URL,
            clock=clock,
            journal=SQLiteJournal(path, now=clock.now),
            transport=MemoryTransport(platform),
        ) as client:
            await client.plans.search().first()  # The platform's time is known.
            call = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
            await asyncio.sleep(0)
            call.cancel()  # As its record is being begun.
            scope.cancel()
            await asyncio.wait([call])

    rows = await kept(path, clock.now)
    if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks)  # Only the control leaves some.
    assert scope.cancelled_caught
    assert ([(RecordState.NOT_SENT, "")], []) == (rows, platform.posts)


class Full(SQLiteJournal):
    """A journal whose disk is full when a record is to be closed."""

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """Fail."""
        raise JournalUnavailable("disk full")
