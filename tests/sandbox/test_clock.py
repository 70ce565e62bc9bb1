"""One clock for every rule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from paymentsdk.sandbox import Clock, Platform, Sandbox

#: As far as a clock moves at once.
TEN_YEARS = timedelta(days=3660)


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A clock that nothing hangs on."""
    with closing(Platform()) as platform:
        yield platform.clock


def test_a_frozen_clock_stands_still_until_it_is_advanced_or_resumed(clock):
    """And stays frozen when it is advanced; it can be frozen at any moment, and time goes on from there."""
    moment = datetime(2020, 2, 29, 12, tzinfo=UTC)
    clock.freeze(moment)
    time.sleep(0.01)
    assert moment == clock.now()
    clock.advance("PT15M")
    assert (moment + timedelta(minutes=15), True) == (clock.now(), clock.frozen)

    clock.freeze(moment)
    clock.resume()
    time.sleep(0.01)
    assert timedelta(0) < clock.now() - moment < timedelta(minutes=5)
    assert not clock.frozen


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), "P1M", "soon", timedelta(days=3661)])
def test_time_does_not_go_backwards_or_to_no_known_place(clock, duration):
    """Negative, unknown or absurd durations are rejected."""
    with pytest.raises(ValueError, match=r"backwards|duration|at most"):
        clock.advance(duration)


async def test_freezing_later_runs_what_falls_due_up_to_then(client, plain, sandbox, order):
    """At once, and it says so; freezing earlier undoes nothing."""
    new_order = await client.orders.create(order())
    later = sandbox.clock.now() + timedelta(minutes=20)

    answer = (await plain("POST", "/_sandbox/clock/freeze", {"at": later.isoformat()})).json
    expired = [(entry.kind, entry.tenant) for entry in sandbox.ledger() if entry.kind == "order_expired"]
    back = sandbox.clock.freeze(later - timedelta(days=1))

    assert [("order.expired", new_order.id)] == [(event["kind"], event["id"]) for event in answer["happened"]]
    assert [("order_expired", sandbox.tenant.user_id)] == expired
    assert () == back
    assert "expired" == (await client.orders.get(new_order.id)).status


async def test_what_falls_due_happens_in_time_order(client, sandbox, order):
    """Orders, invoices and what follows from them, each at its own moment, although all were looked at late."""
    late = await client.orders.create(order(expiration_time="PT90M"))
    early = await client.orders.create(order(expiration_time="PT1H"))
    sandbox.buyer.subscribe(rejections=1)

    happened = sandbox.clock.advance("P1D")

    assert ["invoice.recycling", "order.expired", "order.expired", "invoice.processed"] == [
        event.kind for event in happened
    ]
    assert [early.id, late.id] == [event.id for event in happened if event.kind == "order.expired"]
    moments = [event.at - happened[0].at for event in happened]
    assert [timedelta(0), timedelta(hours=1), timedelta(minutes=90), timedelta(days=1)] == moments


async def test_the_clock_survives_a_restart(tmp_path, order, connect):
    """With a file, time does not jump back."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path, frozen=True) as first:
        first.clock.advance("P30D")
        moment = first.clock.now()
    async with Sandbox(db=path) as second:
        assert moment == second.clock.now()
        assert second.clock.frozen


def expired_in(sandbox: Sandbox) -> set[str]:
    """Return the orders that have expired so far. A request, or `Sandbox.ledger`, would expire the others first."""
    entries = map(msgspec.json.decode, sandbox.platform.store.ledger())
    return {entry["order_id"] for entry in entries if entry["kind"] == "order_expired"}


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.control("paymentsdk.sandbox._platform._SLICE", 1000)
async def test_the_event_loop_goes_on_while_the_clock_is_moved(client, plain, sandbox, order, by_hand):
    """What falls due runs once, in time order and in slices, so that requests are served in between.

    If time goes on by itself, the next request runs it.
    """
    created = [await client.orders.create(order(expiration_time=f"PT{90 - number}S")) for number in range(50)]
    counts = set()

    request = ("POST", "/_sandbox/clock/advance", {"duration": "PT2M"})
    if not by_hand:
        sandbox.set_clock(lambda: sandbox.clock.state_advanced("PT2M"))
        request = ("GET", "/preapproval_plan/search")
    response = asyncio.ensure_future(plain(*request))
    while not response.done():
        counts.add(len(expired_in(sandbox)))
        await asyncio.sleep(0)

    expired = [entry.order_id for entry in sandbox.ledger() if entry.kind == "order_expired"]
    assert (200, [order.id for order in reversed(created)]) == ((await response).status, expired)
    assert len(counts - {0, 50}) >= 2


async def test_due_changes_are_visible_as_a_whole(client, plain, sandbox, order, until):
    """A request that comes while the clock is moved is handled after everything that was due before it."""
    *_, last = [await client.orders.create(order()) for _ in range(50)]
    advance = asyncio.ensure_future(plain("POST", "/_sandbox/clock/advance", {"duration": "PT1H"}))
    await until(lambda: expired_in(sandbox))

    assert last.id not in expired_in(sandbox)
    assert "expired" == (await client.orders.get(last.id)).status
    assert 50 == len((await advance).json["happened"])


def test_the_clock_reaches_its_ends_and_nothing_beyond(clock):
    """Ten years at once, the first moment of 1970 and that of 3000; a millisecond more is rejected."""
    step, beginning = timedelta(milliseconds=1), datetime(1970, 1, 1, tzinfo=UTC)
    clock.freeze()
    now = clock.now()
    with pytest.raises(ValueError, match="ten years"):
        clock.advance(TEN_YEARS + step)
    with pytest.raises(ValueError, match="ten years"):
        clock.freeze(now + TEN_YEARS + step)
    clock.freeze(now + TEN_YEARS)
    clock.freeze(beginning)
    assert beginning == clock.now()
    with pytest.raises(ValueError, match="the year 1970 to 3000"):
        clock.freeze(beginning - step)

    while clock.now() + TEN_YEARS <= (end := datetime(3000, 1, 1, tzinfo=UTC)):
        clock.advance(TEN_YEARS)
    clock.freeze(end)
    with pytest.raises(ValueError, match="the year 1970 to 3000"):
        clock.advance(step)
