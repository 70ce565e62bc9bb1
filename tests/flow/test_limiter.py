"""The decisions about a rate limit: values in, values out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk._call.limiter import (
    CUT,
    HOLD,
    MAX_DELAY,
    MAX_HOLD,
    MIN_RATE,
    NO_RETRY_AFTER,
    RECOVERY,
    Meter,
    RateEstimate,
    close_gate,
    estimate_rate,
    following_at,
    higher_concurrency,
    lower_concurrency,
    rate_at,
    rate_at_limit,
    should_open_gate,
)

SECONDS = st.floats(0.0, 100.0)


def test_the_first_429_holds_for_a_tenth_of_a_second() -> None:
    """Not for the whole Retry-After: a limiter refills before that is over."""
    gate = close_gate(None, 9.9, 10.0, 5.0)

    assert (10.0 + HOLD, 15.0) == (gate.blocked_until, gate.open_at)


def test_a_429_without_a_retry_after_asks_for_a_second() -> None:
    """Nobody is sent one at a time for ever."""
    assert 10.0 + NO_RETRY_AFTER == close_gate(None, 9.9, 10.0, 0.0).open_at


def test_each_rejected_request_through_the_gate_doubles_the_hold() -> None:
    """Rejected requests count against the limit, too; it ends at one second."""
    gate, now, holds = close_gate(None, 0.0, 0.0, 3600.0), 0.0, []
    for _ in range(6):
        now = gate.blocked_until
        gate = close_gate(gate, now, now, 3600.0)
        holds.append(round(gate.blocked_until - now, 6))

    assert [0.2, 0.4, 0.8, MAX_HOLD, MAX_HOLD, MAX_HOLD] == holds


def test_the_429s_of_requests_in_flight_are_one_rejection() -> None:
    """Two hundred that were sent before the first 429 came hold the others for no longer than one."""
    gate = close_gate(None, 0.0, 1.0, 1.0)
    for _ in range(200):
        gate = close_gate(gate, 0.5, 1.05, 1.0)

    assert (1.05 + HOLD, 2.0, 1) == (gate.blocked_until, gate.open_at, gate.rejected)


def test_asked_for_more_the_gate_stays_closed_for_longer() -> None:
    """The same number again is what the platform says to everybody; a larger one is news."""
    gate = close_gate(None, 0.0, 0.0, 1.0)

    assert 1.0 == close_gate(gate, 0.1, 0.5, 1.0).open_at
    assert 60.5 == close_gate(gate, 0.1, 0.5, 60.0).open_at


@given(st.lists(st.tuples(SECONDS, st.floats(0.0, 60.0)), min_size=1))
def test_the_gate_is_open_when_every_retry_after_is_over(rejections) -> None:
    """Whatever comes in whatever order, nobody is held for longer than the platform asked for."""
    gate, now, latest = None, 0.0, 0.0
    for wait, retry_after in rejections:
        sent_at, now = now, now + wait
        gate = close_gate(gate, sent_at, now, retry_after)
        latest = max(latest, now + (retry_after or NO_RETRY_AFTER))

    assert gate.open_at <= latest


@pytest.mark.parametrize(
    ("sent_at", "service", "opens"), [(0.5, "served", False), (1.5, "served", True), (1.5, "failed", False)]
)
def test_a_request_that_was_sent_after_the_429_and_served_opens_the_gate(sent_at, service, opens) -> None:
    """One from before it says nothing, and a 5xx may be the same limit, said by a gateway."""
    assert opens == should_open_gate(close_gate(None, 0.0, 1.0, 1.0), sent_at, service)


def test_a_rate_comes_back_to_where_it_was_cut_and_then_goes_on() -> None:
    """It starts at nine tenths, is back after six seconds, nearly the same just after, and tenfold within a minute."""
    estimate = RateEstimate(100.0, 0.0)

    assert pytest.approx(CUT * 100.0) == rate_at(estimate, 0.0)
    assert pytest.approx(100.0) == rate_at(estimate, RECOVERY)
    assert rate_at(estimate, RECOVERY + 2.0) < 101.0
    assert rate_at(estimate, 60.0) > 1000.0


@given(st.floats(0.1, 1e6), SECONDS, SECONDS, st.booleans())
def test_a_rate_grows_until_the_next_429(ceiling, earlier, later, is_guess) -> None:
    """Never does it fall by itself, nor below the least."""
    estimate = RateEstimate(max(ceiling, MIN_RATE), 0.0, is_guess)
    first, second = sorted((earlier, later))

    assert MIN_RATE * CUT <= rate_at(estimate, first) <= rate_at(estimate, second) * (1 + 1e-9)


def test_a_guess_grows_by_half_each_second() -> None:
    """What was not measured may be far off."""
    estimate = RateEstimate(10.0, 0.0, is_guess=True)

    assert pytest.approx([9.0, 13.5, 20.25]) == [rate_at(estimate, second) for second in (0.0, 1.0, 2.0)]


def test_a_burst_becomes_a_rate_with_the_time_that_the_gate_was_closed() -> None:
    """A hundred served in 60 ms, then nothing for a second, is about a hundred per second."""
    meter = Meter(0.0, 0.0)
    for number in range(100):
        meter.add(number * 0.0006)

    assert 0.0 == rate_at_limit(meter, None, 0.06)
    estimate = estimate_rate(0.0, meter, 1.06)
    assert estimate.is_guess
    assert pytest.approx(100, rel=0.1) == estimate.ceiling


def test_a_seller_of_whom_nothing_was_served_has_no_rate() -> None:
    """Counting begins with nothing."""
    assert 0.0 == Meter(0.0, 0.0).rate(0.5)


def test_a_steady_rate_is_measured_over_the_last_second() -> None:
    """However long the seller has been busy, and wherever a window begins."""
    meter = Meter(0.0, 0.0)
    for number in range(1, 351):
        meter.add(number * 0.01)

    assert pytest.approx(100, rel=0.03) == rate_at_limit(meter, None, 3.5)


def test_after_an_idle_time_the_measuring_begins_anew() -> None:
    """What was served a minute ago is no part of the rate."""
    meter = Meter(0.0, 0.0)
    for number in range(200):
        meter.add(number * 0.01)
    meter.add(60.0)

    assert 0.0 == rate_at_limit(meter, None, 60.5)
    assert pytest.approx(2.0) == meter.rate(60.5)


def test_a_rate_that_got_a_429_was_too_much() -> None:
    """Even if more was served in some second: else a burst would keep a rate up that is rejected again and again."""
    meter = Meter(0.0, 0.0)
    for number in range(300):
        meter.add(number * 0.01)

    assert 50.0 == rate_at_limit(meter, RateEstimate(50.0, 3.0 - RECOVERY), 3.0)


def test_lateness_is_caught_up_with_but_idle_time_is_not_saved() -> None:
    """A timer that rings 20 ms late lowers no rate; after a pause no burst goes out."""
    estimate = RateEstimate(100.0, 0.0 - RECOVERY)

    assert pytest.approx(10.01) == following_at(RateEstimate(100.0, 10.0 - RECOVERY), 10.0, 10.0)
    assert pytest.approx(0.01) == following_at(estimate, 0.0, 0.02 - 0.02)
    assert following_at(estimate, -0.02, 0.0) == pytest.approx(-0.01)
    assert following_at(estimate, -100.0, 0.0) == pytest.approx(0.01 - MAX_DELAY)


def test_the_concurrency_grows_by_a_twentieth_in_a_round_trip_and_is_cut_by_a_third() -> None:
    """Each of 20 requests that are served adds its part, or a whole one under a learned rate; a 429 leaves eight."""
    concurrency = 20.0
    for _ in range(20):
        concurrency = higher_concurrency(concurrency, None)

    assert pytest.approx(21.0) == concurrency
    assert 21.0 == higher_concurrency(20.0, RateEstimate(100.0, 0.0))
    assert 20.05 == higher_concurrency(20.0, RateEstimate(100.0, 0.0, is_guess=True))
    assert pytest.approx(14.0) == lower_concurrency(20.0)
    assert 8.0 == lower_concurrency(8.0)
