"""Responses to single questions: how long a pause is, what Retry-After says, what a retry costs."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import (
    RetryPolicy,
)
from paymentsdk._call.failures import AttemptFailed, History
from paymentsdk._call.retry import Failure, RetryBudgets, delay
from paymentsdk._contract.error_response import retry_after
from paymentsdk._contract.rules import TABLE as VERDICTS
from paymentsdk._contract.rules import RetryClass
from paymentsdk.errors import ServerError

DATE = "Fri, 31 Jan 2026 12:00:00 GMT"


@given(
    st.builds(RetryPolicy, base_delay=st.floats(0, 100), max_delay=st.floats(0, 100)),
    st.integers(1, 20),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 100),
)
def test_pauses_have_full_jitter(policy: RetryPolicy, number: int, chance: float, asked: float) -> None:
    """A pause is what was asked for, and any share of the base on top, doubled each time up to the cap."""
    failure = AttemptFailed(Failure.SERVER, "", error=ServerError(503, retry_after=asked))

    seconds = delay(policy, number, failure, chance)

    assert seconds >= asked
    assert seconds == asked + chance * min(policy.max_delay, policy.base_delay * 2.0 ** (number - 1))


@pytest.mark.parametrize("asked", [0, 30])
def test_the_pauses_of_many_calls_are_spread(asked: int) -> None:
    """Full jitter: some pauses are next to nothing, some next to the cap, so that callers do not come back as one.

    Nor do they when all of them were asked for the same pause.
    """
    policy = RetryPolicy(base_delay=1.0, max_delay=8.0)
    failure = AttemptFailed(Failure.SERVER, "", error=ServerError(503, retry_after=float(asked)))
    chance = random.Random(7).random

    pauses = [delay(policy, 9, failure, chance()) - asked for _ in range(1000)]

    assert min(pauses) < 0.1
    assert max(pauses) > 7.9
    assert 3.5 < sum(pauses) / 1000 < 4.5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": " 0120 "}, 120.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "9" * 400}, 999_999_999.0),
        ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 GMT", "Date": DATE}, 30.0),
        ({"RETRY-AFTER": "Fri, 31 Jan 2026 12:00:30 GMT", "DATE": DATE}, 30.0),
        ({"Retry-After": "Fri, 31 Jan 2026 11:00:00 GMT", "Date": DATE}, 0.0),
        ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 GMT"}, None),
        ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 GMT", "Date": "yesterday"}, None),
        ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 -0000", "Date": DATE}, 30.0),
        ({"Retry-After": "soon", "Date": DATE}, None),
        ({"Retry-After": "-5", "Date": DATE}, None),
        ({"Retry-After": "1.5", "Date": DATE}, None),
        ({"Retry-After": "0000000000030"}, 30.0),
        ({"Retry-After": "000"}, 0.0),
        ({"Retry-After": "1e9", "Date": DATE}, None),
        ({"Retry-After": "٣", "Date": DATE}, None),
        ({"Retry-After": "", "Date": DATE}, None),
        ({}, None),
    ],
)
def test_retry_after_is_digits_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """Digits, or an HTTP date relative to the response's own Date; anything else was not said."""
    assert seconds == retry_after(headers)


@given(st.dictionaries(st.sampled_from(["Retry-After", "Date"]), st.text(max_size=40)))
def test_any_retry_after_can_be_read(headers: dict[str, str]) -> None:
    """Whatever the header holds, reading it gives a number of seconds, 0 or more, or nothing."""
    seconds = retry_after(headers)

    assert seconds is None or 0 <= seconds < inf


def test_a_timeout_costs_twice() -> None:
    """A retry after a timeout costs 10, any other 5, and none is made on credit."""
    budgets, read = RetryBudgets(), RetryClass.READ
    late, failed = AttemptFailed(Failure.NO_TRUSTED_RESPONSE, "", timed_out=True), AttemptFailed(Failure.SERVER, "")

    assert (10, 5) == (budgets.withdraw("shop-1", read, late), budgets.withdraw("shop-1", read, failed))
    while budgets.left("shop-1", read) > 5 / 500:
        budgets.withdraw("shop-1", read, failed)
    assert budgets.withdraw("shop-1", read, late) is None
    assert 5 / 500 == budgets.left("shop-1", read)
    assert 1.0 == budgets.left("shop-2", read) == budgets.left("shop-1", RetryClass.KEYED)


def test_every_failure_has_a_verdict() -> None:
    """The table of the engine has no hole, and a fresh call has no ambiguous_attempts."""
    assert all(set(Failure) == set(row) for row in VERDICTS.values())
    assert 0 == History().ambiguous_attempts
