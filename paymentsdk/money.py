"""Exact amounts and their two forms on the wire.

The Orders API writes amounts as decimal strings (`"24.90"`), every other endpoint as JSON numbers (`24.90`). In
Python both are `Decimal`. An amount has two decimals or none, so `Decimal("24.9")` goes out as
`24.90` and `Decimal("24.905")` is rejected: nothing is ever rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow

__all__ = ["EXACTLY", "ZERO", "exact", "total"]

#: No money.
ZERO = Decimal(0)

#: More digits than any currency has ever needed; it keeps a hostile exponent from filling the memory.
MOST_DIGITS = 18
_MOST_DECIMALS = 2
#: Never rounds a sum of amounts, whatever the program's own decimal context is. The traps are named, because a context
#: without them takes those of the program's default context.
EXACTLY = Context(prec=60, traps=[DivisionByZero, InvalidOperation, Overflow])


def exact(value: object) -> Decimal:
    """Return *value* as an amount with two decimals or none.

    Accepts a finite `Decimal` or an `int`. The sign is kept: whether an amount may be negative is up
    to the member that holds it.

    Raises:
        ValueError: For a float, a bool, NaN, an infinity, an exponent above zero, more than two decimals, more than 18
            digits before the point, or any other type. The text names the rule, but not the place.
    """
    match value:
        case int() if not isinstance(value, bool):
            value = Decimal(int(value))
        case Decimal() if value.is_finite():
            pass
        case Decimal():
            raise ValueError(f"an amount is finite, not {value}")
        case _:
            raise ValueError(f"an amount is a Decimal, not {type(value).__name__}")
    sign, digits, exponent = value.as_tuple()
    exponent = int(exponent)  # It is a letter only where there is no finite number.
    if exponent > 0:
        raise ValueError("an amount is written without an exponent")
    if exponent < -_MOST_DECIMALS:
        raise ValueError("an amount has two decimals or none")
    if len(digits) + exponent > MOST_DIGITS:
        raise ValueError(f"an amount has at most {MOST_DIGITS} digits before the point")
    # One decimal is the only exact form that the wire does not know.
    # Of a subclass, a plain one, as msgspec writes no other; any other stays the very same.
    return Decimal((sign, (*digits, 0), -2)) if exponent == -1 else Decimal(value)


def total(lines: Iterable[tuple[int | Decimal, Decimal]]) -> Decimal:
    """Return the sum of quantity times price over *lines*, without rounding."""
    result = ZERO
    for quantity, price in lines:
        result = EXACTLY.add(result, EXACTLY.multiply(quantity, price))
    return result
