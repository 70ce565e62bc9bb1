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


@given(AMOUNTS | st.decimals(-(10**17), 10**17, places=1))
def test_what_is_let_through_is_equal(amount: Decimal) -> None:
    """An amount with two decimals or fewer comes out as the same number, with two decimals or none."""
    exact = money.exact(amount)

    assert amount == exact
    assert exact.as_tuple().exponent in (0, -2)


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


@given(AMOUNTS)
def test_what_is_exact_stays_as_it_is(amount: Decimal) -> None:
    """An amount in one of the two forms is not touched again."""
    exact = money.exact(amount)

    assert exact.as_tuple() == money.exact(exact).as_tuple()


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


@given(st.integers(-(10**30), 10**30))
def test_integers_are_amounts(number: int) -> None:
    """A whole number is an amount, unless it is longer than any."""
    if abs(number) < 10**18:
        assert Decimal(number) == money.exact(number)
    else:
        with pytest.raises(ValueError, match="18 digits"):
            money.exact(number)


@given(st.floats() | st.booleans() | st.text(max_size=9) | st.none() | st.binary(max_size=3) | st.complex_numbers())
def test_nothing_else_is_an_amount(value: object) -> None:
    """A float is not exact, and a text may be anything: only a Decimal or a whole number will do."""
    with pytest.raises(ValueError, match="an amount is a Decimal"):
        money.exact(value)


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
