"""Amounts that decode and cannot be used: NaN, infinities, and numbers of a monstrous size.

They decode like any other, and each is a trap: the first comparison with NaN raises, and the first rounding of
`1e999999999` fills the memory. So every amount of every answer is looked at, thousands of them in a page.
"""

from __future__ import annotations

from decimal import Decimal

from paymentsdk._codec.codegen import Search, compile_visitor

#: An amount with more digits before or behind the point is a memory bomb for the first who rounds or prints it.
MOST_PLACES = 99


def is_sound(amount: Decimal) -> bool:
    """Return whether *amount* can be used: finite, and with no more than `MOST_PLACES` before or behind the point."""
    return amount.is_finite() and -MOST_PLACES <= amount.adjusted() < MOST_PLACES


def compile_check(kind: type) -> Search:
    """Return what says whether a decoded value of *kind* holds an unusable amount: `is_sound`, but fast."""
    condition = "suspect[{0}.adjusted()] and not {0}.is_finite()"
    return compile_visitor(kind, {Decimal: condition}, {"suspect": _suspects(MOST_PLACES)})


def _suspects(most: int) -> list[bool]:
    """Return what to think of an amount, by the place of its first digit (`Decimal.adjusted`).

    At 0 it must be looked at more closely: NaN and the infinities give 0 as well. At all other places up to *most* it
    is sound, before the point and behind it (a list is read from its end as well); beyond there is no entry, and the
    search ends. A look into a list costs a third of two comparisons.
    """
    return [True] + [False] * (most - 1)
