"""Amounts that decode and cannot be used: NaN, infinities, and numbers of a monstrous size.

They decode like any other, and each is a trap: the first comparison with NaN raises, and the first rounding of
`1e999999999` fills the memory. So every amount of every response is looked at, thousands of them in a page.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import inspect

from paymentsdk._codec import type_walk
from paymentsdk._codec.type_walk import Check, MemberType

#: An amount with more digits before or behind the point is a memory bomb for the first who rounds or prints it.
MOST_PLACES = 99


def read_number(text: str) -> Decimal | float:
    """Read a number with a point or an exponent, so that nothing of an amount is lost."""
    try:
        amount = Decimal(text)
    except InvalidOperation:  # An exponent of twenty digits.
        return float(text)
    # A hostile exponent stays a float: as a Decimal it would be a memory bomb for the first who rounds it.
    return amount if is_sound(amount) else float(text)


#: Reads JSON of any shape: a number that no amount can be does not make it malformed.
read_untyped = msgspec.json.Decoder(float_hook=read_number).decode


def is_sound(amount: Decimal) -> bool:
    """Return whether *amount* can be used: finite, and with no more than `MOST_PLACES` before or behind the point."""
    return amount.is_finite() and -MOST_PLACES <= amount.adjusted() < MOST_PLACES


def compile_check(kind: type) -> Check:
    """Return what names the member of a decoded value of *kind* that holds an unusable amount: `is_sound`, but fast."""
    return type_walk.compile_check(kind, _unusable, {"suspect": _suspects(MOST_PLACES)})


def _unusable(member: MemberType, value: str) -> str | None:
    is_amount = isinstance(member.type, inspect.DecimalType)
    return f"suspect[{value}.adjusted()] and not {value}.is_finite()" if is_amount else None


def _suspects(most: int) -> list[bool]:
    """Return what to think of an amount, by the place of its first digit (`Decimal.adjusted`).

    At 0 it must be looked at more closely: NaN and the infinities give 0 as well. At all other places up to *most* it
    is sound, before the point and behind it (a list is read from its end as well); beyond there is no entry, and the
    check ends. A look into a list costs a third of two comparisons.
    """
    return [True] + [False] * (most - 1)
