"""Laws of amounts: exact or rejected, never rounded."""

from __future__ import annotations

import re
import runpy
from decimal import Decimal, DefaultContext, Inexact

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import money

#: Every amount that has a form on the wire.
AMOUNTS = st.decimals(
    min_value=-(10**18) + 1, max_value=10**18 - 1, allow_nan=False, allow_infinity=False, places=2
) | st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal)


@given(AMOUNTS)
def test_the_notation_is_fixed(amount: Decimal) -> None:
    """On the wire an amount is digits and perhaps a point with two more: as a string and as a number."""
    exact = money.exact(amount)
    plain = re.compile(r"-?[0-9]{1,18}(\.[0-9]{2})?")

    for written in (
        msgspec.json.Encoder(decimal_format="string").encode(exact).strip(b'"').decode(),
        msgspec.json.Encoder(decimal_format="number").encode(exact).decode(),
    ):
        assert plain.fullmatch(written)
        assert amount == Decimal(written)


@given(st.decimals(allow_nan=True, allow_infinity=True))
def test_it_is_exact_or_it_is_rejected(amount: Decimal) -> None:
    """There is no third way: what is not rejected has the same value and one of the two forms."""
    try:
        exact = money.exact(amount)
    except ValueError:
        finite = amount.is_finite()
        exponent = amount.as_tuple().exponent
        assert not finite or exponent > 0 or exponent < -2 or abs(amount) >= 10**18
    else:
        assert amount == exact
        assert abs(exact) < 10**18


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("24.905", "two decimals or none"),
        ("24.900", "two decimals or none"),
        ("1E-3", "two decimals or none"),
        ("1E-999999999", "two decimals or none"),
        ("1E+1", "without an exponent"),
        ("1E+2", "without an exponent"),
        ("1E+999999999", "without an exponent"),
        ("NaN", "finite"),
        ("sNaN", "finite"),
        ("Infinity", "finite"),
        ("-Infinity", "finite"),
        ("1000000000000000000", "18 digits"),
        ("1000000000000000000.00", "18 digits"),
    ],
)
def test_the_rule_that_is_broken_is_named(text: str, reason: str) -> None:
    """What has no exact form is rejected, with the rule; a hostile exponent costs no time and no memory."""
    with pytest.raises(ValueError, match=reason):
        money.exact(Decimal(text))


def test_a_part_can_be_taken_under_any_decimal_traps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that lets none of its own amounts be rounded says nothing of ours, also if it says so first."""
    monkeypatch.setitem(DefaultContext.traps, Inexact, True)
    exactly = runpy.run_path(money.__file__)["EXACTLY"]

    assert "33.33" == f"{exactly.divide(Decimal(100), 3):.2f}"
