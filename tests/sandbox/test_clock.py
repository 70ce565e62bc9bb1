"""One clock for every rule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, date, datetime, timedelta

import pytest

from paymentsdk.sandbox import Clock, Sandbox, _clock, _platform
from paymentsdk.sandbox._clock import ClockState
from paymentsdk.sandbox._records import ORDERS


def clock(wall=lambda: 1_800_000_000.1239, **state: object) -> Clock:
    """Return a clock that nothing hangs on."""

    def move(to) -> tuple[()]:
        one.state = to()
        return ()

    one = Clock(ClockState(**state), move, wall)
    return one


def test_time_is_counted_in_whole_milliseconds():
    """What is stored, shown and compared is the same."""
    assert 123_000 == clock().now().microsecond


def test_a_live_clock_goes_on():
    """It follows the machine's."""
    walls = iter([1.0, 2.5])
    live = clock(lambda: next(walls))

    assert timedelta(seconds=-1.5) == live.now() - live.now()


def test_the_time_is_that_of_one_state():
    """A clock that another thread freezes while it is looked at tells the time from before."""

    def wall() -> float:
        one.state = ClockState(frozen_at=datetime(2020, 1, 1, tzinfo=UTC))
        return 100.0

    one = clock(wall, ahead=timedelta(days=300))

    assert datetime.fromtimestamp(100, UTC) + timedelta(days=300) == one.now()


def test_a_frozen_clock_stands_still_until_it_is_advanced():
    """And stays frozen then."""
    walls = iter(range(100))
    one = clock(lambda: next(walls))
    one.freeze()
    moment = one.now()

    assert moment == one.now() == one.now()
    one.advance("PT15M")
    assert moment + timedelta(minutes=15) == one.now() == one.now()
    assert one.frozen


def test_a_clock_can_be_frozen_at_any_moment_and_go_on_from_there():
    """Also in the past; and time goes on from where it stood."""
    walls = iter([100.0, 100.0, 100.0, 107.0])
    one = clock(lambda: next(walls) + datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    moment = datetime(2020, 2, 29, 12, tzinfo=UTC)

    one.freeze(moment)
    one.resume()
    assert (moment, moment + timedelta(seconds=7)) == (one.now(), one.now())
    assert not one.frozen


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), "P1M", "soon", timedelta(days=3661)])
def test_time_does_not_go_backwards_or_to_no_known_place(duration):
    """Negative, unknown or absurd durations are rejected."""
    with pytest.raises(ValueError, match=r"backwards|duration|at most"):
        clock().advance(duration)


def test_a_clock_is_frozen_ten_years_ahead_at_most():
    """As far as it can be advanced: from further away nobody could count what falls due."""
    live = clock(lambda: datetime(2026, 1, 1, tzinfo=UTC).timestamp())

    with pytest.raises(ValueError, match="ten years"):
        live.freeze(live.now() + timedelta(days=3661))
    assert not live.frozen


@pytest.mark.parametrize("frozen", [False, True])
def test_a_clock_is_not_advanced_beyond_the_year_3000(frozen):
    """Live or frozen: beyond it, what falls due could not be counted. It stays where it was."""
    one = clock(lambda: datetime(2998, 1, 1, tzinfo=UTC).timestamp())
    if frozen:
        one.freeze()

    with pytest.raises(ValueError, match="3000"):
        one.advance(timedelta(days=800))

    assert datetime(2998, 1, 1, tzinfo=UTC) == one.now()


def test_a_clock_can_be_frozen_any_time_ago():
    """A date in a test holds in ten years as well, and nothing falls due on the way back."""
    live = clock(lambda: datetime(2026, 1, 1, tzinfo=UTC).timestamp())

    live.freeze(datetime(1970, 1, 1, tzinfo=UTC))
    assert datetime(1970, 1, 1, tzinfo=UTC) == live.now()


@pytest.mark.parametrize("duration", [5, 1.5, None])
def test_a_duration_has_a_unit(duration):
    """Five of what? The error names both forms."""
    with pytest.raises(TypeError, match="timedelta, or a string such as PT15M"):
        clock().advance(duration)


@pytest.mark.parametrize("moment", ["2026-01-31T12:00:00Z", date(2026, 1, 31), 1_800_000_000])
def test_a_moment_is_a_datetime(moment):
    """Also at a start; the error shows what was given, and lets go of the file."""
    with pytest.raises(TypeError, match="a moment is a datetime with its time zone, not"):
        clock().freeze(moment)
    with pytest.raises(TypeError, match="a moment is a datetime with its time zone, not"):
        Sandbox(frozen_at=moment)


async def test_freezing_later_runs_what_falls_due_up_to_then(client, plain, sandbox, order):
    """At once, and it says so; freezing earlier undoes nothing."""
    made = await client.orders.create(order())
    later = sandbox.clock.now() + timedelta(minutes=20)

    answer = (await plain("POST", "/_sandbox/clock/freeze", {"at": later.isoformat()})).json
    expired = [(one.kind, one.tenant) for one in sandbox.ledger() if one.kind == "order_expired"]
    back = sandbox.clock.freeze(later - timedelta(days=1))

    assert [("order.expired", made.id)] == [(one["kind"], one["id"]) for one in answer["happened"]]
    assert [("order_expired", sandbox.tenant.user_id)] == expired
    assert () == back
    assert "expired" == (await client.orders.get(made.id)).status


def test_a_moment_needs_a_zone():
    """Nobody could say which moment it is."""
    with pytest.raises(ValueError, match="time zone"):
        clock().freeze(datetime(2026, 1, 1))  # noqa: DTZ001 - the point


async def test_what_falls_due_happens_in_time_order(client, sandbox, order):
    """Orders, invoices and what follows from them, each at its own moment, although all were looked at late."""
    late = await client.orders.create(order(expiration_time="PT90M"))
    early = await client.orders.create(order(expiration_time="PT1H"))
    sandbox.buyer.subscribe(rejections=1)

    happened = sandbox.clock.advance("P1D")

    assert ["invoice.recycling", "order.expired", "order.expired", "invoice.processed"] == [
        one.kind for one in happened
    ]
    assert [early.id, late.id] == [one.id for one in happened if one.kind == "order.expired"]
    moments = [one.at - happened[0].at for one in happened]
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
    said = []
    sandbox.platform.store._connection.set_trace_callback(said.append)

    happened = sandbox.clock.advance("P3650D")

    collected = [entry for entry in sandbox.ledger() if entry.kind == "invoice_payment"]
    assert {entry.order_id for entry in collected} >= {one.id for one in happened}
    assert len(happened) > 350
    assert said.count("COMMIT") < 10


async def _states_seen_during(advance: Awaitable[object], sandbox: Sandbox) -> set[int]:
    """Return how many orders had expired at each turn of the event loop until *advance* was done."""
    task, seen = asyncio.ensure_future(advance), set()
    while not task.done():
        seen.add(sandbox.platform.store.count(ORDERS, None, [("status", "=", "expired")]))
        await asyncio.sleep(0)
    await task
    return seen


async def test_the_event_loop_goes_on_while_the_clock_is_moved(client, plain, sandbox, order, monkeypatch):
    """What falls due is done in slices, in time order and each thing once; in one piece nobody is served meanwhile."""
    monkeypatch.setattr(_platform, "_SLICE", 2)
    created = [await client.orders.create(order(expiration_time=f"PT{40 - i}S")) for i in range(8)]
    sandbox.platform.snapshot()
    happened = []

    async def advance() -> None:
        response = await plain("POST", "/_sandbox/clock/advance", {"duration": "PT1M"})
        happened.append([event["id"] for event in response.json["happened"]])

    in_slices = await _states_seen_during(advance(), sandbox)
    sandbox.platform.restore()
    monkeypatch.setattr(_platform, "_SLICE", 1000)
    in_one_piece = await _states_seen_during(advance(), sandbox)

    assert [[one.id for one in reversed(created)]] * 2 == happened
    assert {0, 2, 4, 6, 8} == in_slices | {0, 8}
    assert {0, 8} >= in_one_piece


async def test_nobody_sees_a_part_of_what_was_due(client, plain, sandbox, order, monkeypatch):
    """A request that comes while the clock is moved is handled after everything that was due before it."""
    monkeypatch.setattr(_platform, "_SLICE", 1)
    *_, last = [await client.orders.create(order()) for _ in range(6)]
    advance = asyncio.ensure_future(plain("POST", "/_sandbox/clock/advance", {"duration": "PT1H"}))
    for _ in range(100_000):
        await asyncio.sleep(0)
        if sandbox.platform.store.count(ORDERS, None, [("status", "=", "expired")]):
            break
    half = sandbox.platform.store.get(ORDERS, last.id).order.status

    assert ("created", "expired") == (half, (await client.orders.get(last.id)).status)
    assert 6 == len((await advance).json["happened"])


def test_the_clock_reaches_its_ends_and_nothing_beyond():
    """Ten years at once, the first moment of 1970 and that of 3000; a millisecond more is rejected."""
    step = timedelta(milliseconds=1)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    one = clock(now.timestamp)
    beginning, end = _clock.EARLIEST, _clock.LATEST

    one.freeze(now + _clock.LONGEST_ADVANCE)
    assert now + _clock.LONGEST_ADVANCE == one.now()
    one.advance(_clock.LONGEST_ADVANCE)
    one.freeze(beginning)
    one.advance(timedelta(0))
    assert beginning == one.now()
    one.state = ClockState(frozen_at=end - step)
    one.advance(step)
    assert end == one.now()

    with pytest.raises(ValueError, match="the year 1970 to 3000"):
        one.advance(step)
    with pytest.raises(ValueError, match="the year 1970 to 3000"):
        one.freeze(beginning - step)
    with pytest.raises(ValueError, match="ten years"):
        clock(now.timestamp).advance(_clock.LONGEST_ADVANCE + step)
    frozen = clock(now.timestamp, frozen_at=now)
    with pytest.raises(ValueError, match="ten years"):
        frozen.freeze(now + _clock.LONGEST_ADVANCE + step)
