"""What is known of a seller with a rate limit: what each response changes, and when the next request may go."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk._call.limiter import (
    CUT,
    FIRST_CONCURRENCY,
    HOLD,
    MAX_DELAY,
    MAX_HOLD,
    MIN_RATE,
    NO_RETRY_AFTER,
    RECOVERY,
    Limiter,
    Meter,
    RateEstimate,
)

SECONDS = st.floats(0.0, 100.0)


def limited(*rejections: tuple[float, float, float]) -> Limiter:
    """Return a seller who got a 429 for each request that was sent then, rejected then, and asked to wait so long."""
    limiter = Limiter("shop-1", 0.0)
    for sent_at, now, retry_after in rejections:
        limiter.limited(sent_at, now, retry_after)
    return limiter


def busy(times: Iterable[float], estimate: RateEstimate | None = None, concurrency: float = inf) -> Limiter:
    """Return a seller of whom a request was served at each of *times*."""
    limiter = Limiter("shop-1", 0.0, Meter(0.0, 0.0), concurrency, estimate=estimate)
    for now in times:
        limiter.in_flight = int(min(concurrency, 1000.0))
        limiter.responded(now, now, "served")
    return limiter


def test_the_first_429_holds_for_a_tenth_of_a_second() -> None:
    """Not for the whole Retry-After: a limiter refills before that is over."""
    gate = limited((9.9, 10.0, 5.0)).gate

    assert (10.0 + HOLD, 15.0) == (gate.blocked_until, gate.open_at)


def test_a_429_without_a_retry_after_asks_for_a_second() -> None:
    """Nobody is sent one at a time for ever."""
    assert 10.0 + NO_RETRY_AFTER == limited((9.9, 10.0, 0.0)).gate.open_at


def test_each_rejected_request_through_the_gate_doubles_the_hold() -> None:
    """Rejected requests count against the limit, too; it ends at one second."""
    limiter, holds = limited((0.0, 0.0, 3600.0)), []
    for _ in range(6):
        now = limiter.gate.blocked_until
        limiter.limited(now, now, 3600.0)
        holds.append(round(limiter.gate.blocked_until - now, 6))

    assert [0.2, 0.4, 0.8, MAX_HOLD, MAX_HOLD, MAX_HOLD] == holds


def test_the_429s_of_requests_in_flight_are_one_rejection() -> None:
    """Two hundred that were sent before the first 429 came hold the others for no longer than one."""
    gate = limited((0.0, 1.0, 1.0), *[(0.5, 1.05, 1.0)] * 200).gate

    assert (1.05 + HOLD, 2.0, 1) == (gate.blocked_until, gate.open_at, gate.rejected)


def test_asked_for_more_the_gate_stays_closed_for_longer() -> None:
    """The same number again is what the platform says to everybody; a larger one is news."""
    assert 1.0 == limited((0.0, 0.0, 1.0), (0.1, 0.5, 1.0)).gate.open_at
    assert 60.5 == limited((0.0, 0.0, 1.0), (0.1, 0.5, 60.0)).gate.open_at


@given(st.lists(st.tuples(SECONDS, st.floats(0.0, 60.0)), min_size=1))
def test_the_gate_is_open_when_every_retry_after_is_over(rejections) -> None:
    """Whatever comes in whatever order, nobody is held for longer than the platform asked for."""
    limiter, now, latest = limited(), 0.0, 0.0
    for wait, retry_after in rejections:
        sent_at, now = now, now + wait
        limiter.limited(sent_at, now, retry_after)
        latest = max(latest, now + (retry_after or NO_RETRY_AFTER))

    assert limiter.gate.open_at <= latest


@pytest.mark.parametrize(
    ("sent_at", "service", "opens"), [(0.5, "served", False), (1.5, "served", True), (1.5, "failed", False)]
)
def test_a_request_that_was_sent_after_the_429_and_served_opens_the_gate(sent_at, service, opens) -> None:
    """One from before it says nothing, and a 5xx may be the same limit, said by a gateway."""
    limiter = limited((0.0, 1.0, 1.0))
    limiter.responded(sent_at, 1.6, service)

    assert opens == (limiter.gate is None)


def test_a_rate_comes_back_to_where_it_was_cut_and_then_goes_on() -> None:
    """It starts at nine tenths, is back after six seconds, nearly the same just after, and tenfold within a minute."""
    estimate = RateEstimate(100.0, 0.0)

    assert pytest.approx(CUT * 100.0) == estimate.at(0.0)
    assert pytest.approx(100.0) == estimate.at(RECOVERY)
    assert estimate.at(RECOVERY + 2.0) < 101.0
    assert estimate.at(60.0) > 1000.0


@given(st.floats(0.1, 1e6), SECONDS, SECONDS, st.booleans())
def test_a_rate_grows_until_the_next_429(ceiling, earlier, later, is_guess) -> None:
    """Never does it fall by itself, nor below the least."""
    estimate = RateEstimate(max(ceiling, MIN_RATE), 0.0, is_guess)
    first, second = sorted((earlier, later))

    assert MIN_RATE * CUT <= estimate.at(first) <= estimate.at(second) * (1 + 1e-9)


def test_a_guess_grows_by_half_each_second() -> None:
    """What was not measured may be far off."""
    estimate = RateEstimate(10.0, 0.0, is_guess=True)

    assert pytest.approx([9.0, 13.5, 20.25]) == [estimate.at(second) for second in (0.0, 1.0, 2.0)]


def test_a_burst_becomes_a_rate_with_the_time_that_the_gate_was_closed() -> None:
    """A hundred served in 60 ms, then nothing for a second, is about a hundred per second."""
    limiter = busy(number * 0.0006 for number in range(100))
    limiter.limited(0.06, 0.06, 1.0)
    limiter.update(1.06)

    assert limiter.estimate.is_guess
    assert pytest.approx(1.06 + 1 / limiter.estimate.at(1.06)) == limiter.next_at
    assert pytest.approx(100, rel=0.1) == limiter.estimate.ceiling


def test_a_steady_rate_is_measured_over_the_last_second() -> None:
    """However long the seller has been busy, and wherever a window begins."""
    limiter = busy(number * 0.01 for number in range(1, 351))
    limiter.limited(3.5, 3.5, 1.0)

    assert pytest.approx(100, rel=0.03) == limiter.served


def test_measuring_restarts_after_an_idle_time() -> None:
    """What was served a minute ago is no part of the rate."""
    limiter = busy([*(number * 0.01 for number in range(200)), 60.0])
    limiter.limited(60.5, 60.5, 1.0)

    assert 0.0 == limiter.served
    assert pytest.approx(2.0) == limiter.meter.rate(60.5)


def test_a_rate_that_got_a_429_was_too_much() -> None:
    """Even if more was served in some second: else a burst would keep a rate up that is rejected again and again."""
    limiter = busy((number * 0.01 for number in range(300)), RateEstimate(50.0, 3.0 - RECOVERY))
    limiter.limited(3.0, 3.0, 1.0)

    assert 50.0 == limiter.served


@pytest.mark.parametrize(
    ("next_at", "now", "following_at"),
    [(10.0, 10.0, 10.01), (-0.02, 0.0, -0.01), (-100.0, 0.0, 0.01 - MAX_DELAY)],
    ids=["in time", "late", "idle"],
)
def test_lateness_is_caught_up_with_but_idle_time_is_not_saved(next_at, now, following_at) -> None:
    """A timer that rings 20 ms late lowers no rate; after a pause no burst goes out."""
    limiter = Limiter("shop-1", next_at, estimate=RateEstimate(100.0, now - RECOVERY))
    limiter.grant(now, now)

    assert pytest.approx(following_at) == limiter.next_at


@pytest.mark.parametrize(
    ("estimate", "after"),
    [(None, 21.0), (RateEstimate(100.0, 0.0), 40.0), (RateEstimate(100.0, 0.0, is_guess=True), 21.0)],
    ids=["unknown", "learned", "guessed"],
)
def test_the_concurrency_grows_by_a_twentieth_in_a_round_trip(estimate, after) -> None:
    """Each of 20 requests that are served adds its part, or a whole one under a learned rate."""
    limiter = Limiter("shop-1", 0.0, Meter(0.0, 0.0), 20.0, estimate=estimate)
    for _ in range(20):
        limiter.in_flight = int(limiter.concurrency)
        limiter.responded(0.0, 0.0, "served")

    assert pytest.approx(after) == limiter.concurrency


@pytest.mark.parametrize(("before", "after"), [(20.0, 14.0), (8.0, 8.0), (FIRST_CONCURRENCY, 11.2)])
def test_the_concurrency_is_cut_by_a_third(before, after) -> None:
    """A 429 leaves eight at least."""
    limiter = Limiter("shop-1", 0.0, Meter(0.0, 0.0), before)
    limiter.limited(0.0, 0.0, 1.0)
    limiter.update(1.0)

    assert pytest.approx(after) == limiter.concurrency
