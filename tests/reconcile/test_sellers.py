"""Runs over many sellers of which some cannot be read: the others are reconciled, and the report names them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from paymentsdk import AuthenticationFailed, PermissionDenied, RateLimited, Request, Response, ServerError
from paymentsdk.reconcile import Book, Outcome, Progress, Report, reconcile
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.reconcile.planted import CREATED, World
from tests.reconcile.test_reconcile import client_of

#: What tells the calls of each phase: the proof, the walk, the changes and the look-ups.
PHASES = ("offset=0&limit", "date_created_from", "last_updated_from", "reference")
#: Without the last hours, which a run that goes on walks again.
SETTLED = (CREATED[0], CREATED[1] - timedelta(hours=2))


class Failing:
    """A platform that rejects some calls of some sellers.

    Args:
        world: It responds to all others.
        fails: The response to a call of a seller, if it is rejected.
    """

    def __init__(self, world: World, fails: Callable[[str, str], Response | None]) -> None:
        self.world = world
        self.fails = fails
        self.calls = Counter[str]()

    async def __call__(self, request: Request) -> Response:
        seller = request.headers["Authorization"].removeprefix("Bearer TEST-").removesuffix("-123")
        self.calls[seller] += 1
        return self.fails(seller, request.url) or await self.world(request)


def rejected(status: int, **headers: str) -> Response:
    """A response without a body that says more."""
    return Response(status, headers, b"{}")


async def reconciled(failing: Failing, out: Path, **options: object) -> Report:
    """Reconcile the book of its world."""
    async with client_of(failing.world, transport=MemoryTransport(failing)) as client:
        book = Book.rows(failing.world.book)
        return await reconcile(book, client, **{"created": SETTLED, "out": out, "max_window": 60, **options})


async def test_sellers_that_cannot_be_read_leave_the_others_alone(tmp_path: Path) -> None:
    """Of thirty, one has a dead token, one may not search, and one gets 500 for good: 27 are reconciled."""
    statuses = {"shop-3": 401, "shop-11": 403, "shop-29": 500}
    failing = Failing(
        World(90, sellers=30, grain=10**9),
        lambda seller, url: rejected(statuses[seller]) if seller in statuses else None,
    )

    report = await reconciled(failing, tmp_path)

    kinds = {"shop-3": AuthenticationFailed, "shop-11": PermissionDenied, "shop-29": ServerError}
    assert kinds == {name: type(error) for name, error in report.failed.items()}
    assert [*report.failed] == [error.account for error in report.failed.values()]
    assert not report.is_same
    assert {Outcome.MATCH: 81, Outcome.NOT_READ: 9} == report.counts
    unread = [*report.differences()]
    assert {(difference.account, difference.reason) for difference in unread} == {
        (name, str(error)) for name, error in report.failed.items()
    }
    assert {(None, None)} == {(difference.paid, difference.merchant_order_ids) for difference in unread}

    statuses.clear()
    report = await reconciled(failing, tmp_path)

    assert ({Outcome.MATCH: 90}, {}, True) == (report.counts, report.failed, report.is_same)


async def test_a_seller_that_fails_in_any_phase_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once more at the end of the phase, and what it was matched with before does not count."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", map(float, count()).__next__)  # All steps are reported.
    steps = list[Progress]()
    world, failing = World(200, sellers=5, grain=4), {f"shop-{i}": part for i, part in enumerate(PHASES)}
    looked_up = iter([500])  # The first order alone cannot be read, and then none of its seller.

    def fails(seller: str, url: str) -> Response | None:
        if failing.get(seller, "nothing") not in url:
            return None
        return rejected(next(looked_up, 401) if "reference" in url else 401)

    report = await reconciled(Failing(world, fails), tmp_path, created=CREATED, progress=steps.append)

    assert {*failing} == {*report.failed}
    assert 0.2 == steps[0].share
    assert {AuthenticationFailed} == {type(error) for error in report.failed.values()}
    outcomes = {
        (difference.account, difference.reference): difference.outcome
        for difference in report.differences()
        if difference.account not in failing
    }
    assert {key: outcome for key, outcome in world.expected.items() if key[0] not in failing} == outcomes
    inside = [row for row in world.book if row["account"] in failing and CREATED[0] <= row["created"] < CREATED[1]]
    assert len(inside) == report.counts[Outcome.NOT_READ]
    assert {Outcome.NOT_READ} == {
        difference.outcome for difference in report.differences() if difference.account in failing
    }


async def test_if_no_seller_can_be_read_the_run_raises(tmp_path: Path) -> None:
    """The first error, with its account; none of them is tried again."""
    failing = Failing(World(30), lambda seller, url: rejected(401))

    with pytest.raises(AuthenticationFailed) as caught:
        await reconciled(failing, tmp_path)

    assert caught.value.account in failing.world.sellers
    assert {1} == {*failing.calls.values()}


async def test_the_same_directory_goes_on_with_fewer_and_more_sellers(tmp_path: Path) -> None:
    """What was read of a seller counts only in a run that asks for it, and is not read again."""
    world, dead = World(60, grain=10**9), {"shop-1"}
    failing = Failing(world, lambda seller, url: rejected(401) if seller in dead and "updated" in url else None)
    first = await reconciled(failing, tmp_path)
    assert [*dead] == [*first.failed]

    book, failing.calls = world.book, Counter()
    world.book = [row for row in book if row["account"] not in dead]
    fewer = await reconciled(failing, tmp_path)
    assert ({}, True, 40) == (fewer.failed, fewer.is_same, fewer.rows)
    assert {Outcome.MATCH: 40} == fewer.counts
    assert 0 == failing.calls["shop-1"]

    world.book = book
    dead.clear()
    more = await reconciled(failing, tmp_path)
    assert ({}, True, 60) == (more.failed, more.is_same, more.rows)
    assert more.calls < first.calls


# --- a seller that is asked to wait -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "slept"), [(900, [900.0]), (901, []), (0, [])])
async def test_a_seller_that_is_never_served_is_set_aside(tmp_path: Path, seconds: int, slept: list[float]) -> None:
    """After 15 minutes of 429s, or at once if it would wait longer, or if nothing says how long."""
    world, clock = World(3, sellers=1), FakeClock()
    failing = Failing(world, lambda seller, url: rejected(429, **{"Retry-After": f"{seconds}"}))
    async with client_of(world, transport=MemoryTransport(failing), clock=clock) as client:
        with pytest.raises(RateLimited):
            await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path)

    assert slept == clock.slept


async def test_a_run_waits_as_long_as_a_429_asks(tmp_path: Path) -> None:
    """A minute is longer than a call waits; the run has the time, at the start and among the look-ups."""
    world, clock, rejections = World(40, sellers=1, grain=4), FakeClock(), ["", "reference"]

    def fails(seller: str, url: str) -> Response | None:
        if rejections and rejections[0] in url:
            rejections.pop(0)
            return rejected(429, **{"Retry-After": "60"})
        return None

    failing = Failing(world, fails)
    async with client_of(world, transport=MemoryTransport(failing), clock=clock) as client:
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path, in_flight=1)

    assert world.counts == report.counts
    assert 120 == sum(clock.slept)
