"""Amounts that decode but cannot be used: NaN, infinities, and numbers of an extreme size.

They decode like any other number and fail later: the first comparison with NaN raises, and the first rounding of
`1e999999999` fills the memory. So every amount of every response is checked, thousands of them in a page.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import inspect

from paymentsdk._codec import type_walk
from paymentsdk._codec.type_walk import Check, MemberType

#: The most digits before or after the point. Rounding or printing a larger number could exhaust the memory.
MOST_PLACES = 99


def read_number(text: str) -> Decimal | float:
    """Read a number with a point or an exponent, without losing any digit of an amount."""
    try:
        amount = Decimal(text)
    except InvalidOperation:  # An exponent of twenty digits.
        return float(text)
    # A number with a hostile exponent stays a float: rounding it as a Decimal could exhaust the memory.
    return amount if is_sound(amount) else float(text)


#: Reads JSON of any shape, even with a number that cannot be an amount.
read_untyped = msgspec.json.Decoder(float_hook=read_number).decode


def is_sound(amount: Decimal) -> bool:
    """Return whether *amount* is finite, with at most `MOST_PLACES` digits before and after the point."""
    return amount.is_finite() and -MOST_PLACES <= amount.adjusted() < MOST_PLACES


def compile_check(kind: type) -> Check:
    """Compile a check that names the member of a *kind* with an unusable amount: a fast form of `is_sound`."""
    return type_walk.compile_check(kind, _unusable, {"suspect": _suspects(MOST_PLACES)})


def _unusable(member: MemberType, value: str) -> str | None:
    is_amount = isinstance(member.type, inspect.DecimalType)
    return f"suspect[{value}.adjusted()] and not {value}.is_finite()" if is_amount else None


def _suspects(most: int) -> list[bool]:
    """Return which amounts need a closer look, by the place of their first digit (`Decimal.adjusted`).

    Place 0 needs a closer look, since NaN and the infinities return 0 as well. All other places up to *most* are sound,
    before and after the point (a list is read from its end as well). There is no entry beyond, which ends the check. A
    look into a list costs a third of two comparisons.
    """
    return [True] + [False] * (most - 1)
