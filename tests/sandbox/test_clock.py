"""One clock for every rule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta

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


def test_time_is_counted_in_whole_milliseconds(clock):
    """What is stored, shown and compared is the same."""
    assert 0 == clock.now().microsecond % 1000


def test_a_live_clock_goes_on(clock):
    """It follows the machine's."""
    before = clock.now()
    time.sleep(0.01)

    assert timedelta(0) < clock.now() - before < timedelta(minutes=5)


def test_a_frozen_clock_stands_still_until_it_is_advanced(clock):
    """And stays frozen then."""
    clock.freeze()
    moment = clock.now()
    time.sleep(0.01)

    assert moment == clock.now()
    clock.advance("PT15M")
    time.sleep(0.01)
    assert moment + timedelta(minutes=15) == clock.now()
    assert clock.frozen


def test_a_clock_can_be_frozen_at_any_moment_and_go_on_from_there(clock):
    """Also in the past; and time goes on from where it stood."""
    moment = datetime(2020, 2, 29, 12, tzinfo=UTC)

    clock.freeze(moment)
    assert moment == clock.now()
    clock.resume()
    time.sleep(0.01)
    assert timedelta(0) < clock.now() - moment < timedelta(minutes=5)
    assert not clock.frozen


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), "P1M", "soon", timedelta(days=3661)])
def test_time_does_not_go_backwards_or_to_no_known_place(clock, duration):
    """Negative, unknown or absurd durations are rejected."""
    with pytest.raises(ValueError, match=r"backwards|duration|at most"):
        clock.advance(duration)


def test_a_clock_is_frozen_ten_years_ahead_at_most(clock):
    """The limit is the same as for advancing, so that what falls due stays countable."""
    with pytest.raises(ValueError, match="ten years"):
        clock.freeze(clock.now() + TEN_YEARS + timedelta(days=1))
    assert not clock.frozen


@pytest.mark.parametrize("frozen", [False, True])
def test_a_clock_is_not_advanced_beyond_the_year_3000(clock, frozen):
    """Live or frozen: beyond it, what falls due could not be counted. It stays where it was."""
    if frozen:
        clock.freeze()
    while clock.now().year < 2990:
        clock.advance(TEN_YEARS)
    before = clock.now()

    with pytest.raises(ValueError, match="3000"):
        clock.advance(TEN_YEARS)

    assert clock.now() - before < timedelta(minutes=5)


def test_a_clock_can_be_frozen_any_time_ago(clock):
    """A date in a test holds in ten years as well, and nothing falls due on the way back."""
    clock.freeze(datetime(1970, 1, 1, tzinfo=UTC))

    assert datetime(1970, 1, 1, tzinfo=UTC) == clock.now()


@pytest.mark.parametrize("duration", [5, 1.5, None])
def test_a_duration_has_a_unit(clock, duration):
    """A bare number is rejected; the error names both forms of a duration."""
    with pytest.raises(TypeError, match="timedelta, or a string such as PT15M"):
        clock.advance(duration)


@pytest.mark.parametrize("moment", ["2026-01-31T12:00:00Z", date(2026, 1, 31), 1_800_000_000])
def test_a_moment_is_a_datetime(clock, moment):
    """Also at a start; the error shows what was given, and lets go of the file."""
    with pytest.raises(TypeError, match="a moment is a datetime with its time zone, not"):
        clock.freeze(moment)
    with pytest.raises(TypeError, match="a moment is a datetime with its time zone, not"):
        Sandbox(frozen_at=moment)


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


def test_a_moment_needs_a_zone(clock):
    """Without a zone the moment would be ambiguous."""
    with pytest.raises(ValueError, match="time zone"):
        clock.freeze(datetime(2026, 1, 1))  # noqa: DTZ001 - the point


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


async def test_a_sandbox_can_begin_at_a_moment():
    """`frozen_at`."""
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    async with Sandbox(frozen_at=moment) as sandbox:
        assert moment == sandbox.clock.now()


@pytest.mark.parametrize("moment", [datetime(2026, 1, 31), datetime(1960, 1, 1, tzinfo=UTC)])  # noqa: DTZ001 - the point
def test_a_sandbox_that_cannot_begin_at_a_moment_lets_go_of_its_file(tmp_path, moment):
    """Whoever repairs the moment can use the file at once."""
    path = str(tmp_path / "sandbox.db")
    with pytest.raises(ValueError, match=r"time zone|1970"):
        Sandbox(db=path, frozen_at=moment)

    Sandbox(db=path).platform.close()


async def test_what_falls_due_is_committed_in_parts(sandbox):
    """Not one by one, which takes a file several times as long; and nothing is left out."""
    for _ in range(3):
        sandbox.buyer.subscribe()
    statements = []
    sandbox.platform.store._connection.set_trace_callback(statements.append)

    happened = sandbox.clock.advance("P3650D")

    collected = [entry for entry in sandbox.ledger() if entry.kind == "invoice_payment"]
    assert {entry.order_id for entry in collected} >= {event.id for event in happened}
    assert len(happened) > 350
    assert statements.count("COMMIT") < 10


def expired_in(sandbox: Sandbox) -> set[str]:
    """Return the orders that have expired so far. A request, or `Sandbox.ledger`, would expire the others first."""
    entries = map(msgspec.json.decode, sandbox.platform.store.ledger())
    return {entry["order_id"] for entry in entries if entry["kind"] == "order_expired"}


@pytest.mark.control("paymentsdk.sandbox._platform._SLICE", 1000)
async def test_the_event_loop_goes_on_while_the_clock_is_moved(client, plain, sandbox, order):
    """What falls due runs once, in time order and in slices, so that requests are served in between."""
    created = [await client.orders.create(order(expiration_time=f"PT{90 - number}S")) for number in range(50)]
    counts = set()

    advance = asyncio.ensure_future(plain("POST", "/_sandbox/clock/advance", {"duration": "PT2M"}))
    while not advance.done():
        counts.add(len(expired_in(sandbox)))
        await asyncio.sleep(0)

    assert [order.id for order in reversed(created)] == [event["id"] for event in (await advance).json["happened"]]
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
    step = timedelta(milliseconds=1)
    beginning, end = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="ten years"):
        clock.advance(TEN_YEARS + step)
    clock.freeze()
    now = clock.now()
    with pytest.raises(ValueError, match="ten years"):
        clock.freeze(now + TEN_YEARS + step)

    clock.freeze(now + TEN_YEARS)
    assert now + TEN_YEARS == clock.now()
    clock.advance(TEN_YEARS)
    clock.freeze(beginning)
    clock.advance(timedelta(0))
    assert beginning == clock.now()
    with pytest.raises(ValueError, match="the year 1970 to 3000"):
        clock.freeze(beginning - step)

    while end - clock.now() > TEN_YEARS:
        clock.advance(TEN_YEARS)
    clock.advance(end - clock.now())
    assert end == clock.now()
    with pytest.raises(ValueError, match="the year 1970 to 3000"):
        clock.advance(step)
