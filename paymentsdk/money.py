"""Exact amounts and their two forms on the wire.

The Orders API writes amounts as decimal strings (`"24.90"`). Every other endpoint writes JSON numbers (`24.90`). In
Python both are `Decimal`. An amount has two decimals or none, so `Decimal("24.9")` is sent as `24.90`. Amounts are
never rounded: `Decimal("24.905")` is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow

__all__ = ["EXACTLY", "ZERO", "exact", "total"]

ZERO = Decimal(0)

#: More digits than any currency needs. The limit keeps a hostile exponent from filling the memory.
MOST_DIGITS = 18
_MOST_DECIMALS = 2
#: Adds amounts without rounding, independent of the program's decimal context. The traps are named because a context
#: without them takes the traps of the program's default context.
EXACTLY = Context(prec=60, traps=[DivisionByZero, InvalidOperation, Overflow])


def exact(value: object) -> Decimal:
    """Return *value*, a finite `Decimal` or an `int`, as an amount with two decimals or none.

    Negative amounts are accepted: the member that holds the amount decides about its sign.

    Raises:
        ValueError: *value* is a float, a bool, NaN, an infinity or any other type, or has an exponent above zero, more
            than two decimals, or more than 18 digits before the point. The text names the rule, but not the place.
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
    exponent = int(exponent)  # Only NaN and infinities have a letter here.
    if exponent > 0:
        raise ValueError("an amount is written without an exponent")
    if exponent < -_MOST_DECIMALS:
        raise ValueError("an amount has two decimals or none")
    if len(digits) + exponent > MOST_DIGITS:
        raise ValueError(f"an amount has at most {MOST_DIGITS} digits before the point")
    # Amounts with one decimal get a second one, as the wire has none or two. A subclass becomes a plain `Decimal`,
    # because msgspec writes no subclass. `Decimal()` returns a plain one unchanged.
    return Decimal((sign, (*digits, 0), -2)) if exponent == -1 else Decimal(value)


def total(lines: Iterable[tuple[int | Decimal, Decimal]]) -> Decimal:
    """Return the sum of quantity times price over *lines*, without rounding."""
    result = ZERO
    for quantity, price in lines:
        result = EXACTLY.add(result, EXACTLY.multiply(quantity, price))
    return result
