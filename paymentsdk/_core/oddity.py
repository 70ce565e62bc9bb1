"""Amounts that decode and are none: NaN, infinities, and numbers of a monstrous size.

They decode like any other, and each is a trap: the first comparison with NaN raises, and the first rounding of
``1e999999999`` fills the memory. Two ways to look for them: one value is searched amount by amount, a page of
thousands of amounts column by column, in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from inspect import isclass
from itertools import chain
from operator import attrgetter
from typing import cast, get_args

from msgspec import Struct, structs

#: An amount with more digits before or behind the point is a memory bomb for the first who rounds or prints it.
MOST_DIGITS = 99

#: Says whether a decoded value holds an amount that is none.
Check = Callable[[object], bool]


def in_one(kind: type) -> Check:
    """Compile the search through a single value: quick to begin."""
    return _check(kind) or _never


def in_page(kind: type) -> Check:
    """Compile the search through a page of values: quick for each."""
    amounts = _amounts_in(kind)
    return _never if amounts is None else partial(_are_odd, amounts)


def _check(kind: object) -> Check | None:
    """Compile the search through one value, amount by amount."""
    for part in get_args(kind) or (kind,):
        if part is Decimal:
            return _odd_amount
        if isclass(part) and issubclass(part, Struct):
            return _odd_member(part)
        rows = _check(part) if get_args(part) else None
        if rows is not None:
            return partial(_odd_row, rows)
    return None


def _odd_amount(value: object) -> bool:
    amount = cast(Decimal, value)
    return not (amount.is_finite() and -MOST_DIGITS < amount.adjusted() < MOST_DIGITS)


def _odd_row(check: Check, rows: object) -> bool:
    return any(map(check, cast("tuple[object, ...]", rows)))


def _odd_member(cls: type[Struct]) -> Check | None:
    checks = [(field.name, check) for field in structs.fields(cls) if (check := _check(field.type)) is not None]
    amounts = [name for name, check in checks if check is _odd_amount]
    deeper = [(name, check) for name, check in checks if check is not _odd_amount]

    def search(value: object) -> bool:
        for name in amounts:
            amount = getattr(value, name)
            # What `_odd_amount` does, without the call: it is most of the work.
            if amount is not None and not (amount.is_finite() and -MOST_DIGITS < amount.adjusted() < MOST_DIGITS):
                return True
        for name, check in deeper:
            member = getattr(value, name)
            if member is not None and check(member):
                return True
        return False

    return search if checks else None


def _never(value: object) -> bool:  # noqa: ARG001 - see Check
    return False


#: Yields every amount at any depth of the values of one type, and what was not set.
Amounts = Callable[[Iterable[object]], Iterable[object]]


def _amounts_in(kind: object) -> Amounts | None:
    """Compile the way to all amounts of a type: column by column and in C, since a page holds thousands of them."""
    for part in get_args(kind) or (kind,):
        if part is Decimal:
            return iter
        if isclass(part) and issubclass(part, Struct):
            return _amounts_in_struct(part)
        rows = _amounts_in(part) if get_args(part) else None
        if rows is not None:
            return partial(_amounts_in_rows, rows)
    return None


def _amounts_in_rows(amounts: Amounts, lists: Iterable[object]) -> Iterable[object]:
    return amounts(chain.from_iterable(cast("Iterable[Iterable[object]]", lists)))


def _amounts_in_struct(cls: type[Struct]) -> Amounts | None:
    found = ((attrgetter(field.name), _amounts_in(field.type)) for field in structs.fields(cls))
    columns = [(member, amounts) for member, amounts in found if amounts is not None]

    def amounts_in(values: Iterable[object]) -> Iterable[object]:
        rows = list(values)
        return chain.from_iterable(amounts(filter(None, map(member, rows))) for member, amounts in columns)

    return amounts_in if columns else None


def _are_odd(amounts: Amounts, value: object) -> bool:
    # Not their sum, which is a little cheaper: a tiny number vanishes in it, and two monstrous ones can cancel out.
    found = cast("list[Decimal]", list(amounts((value,))))
    sizes = set(map(Decimal.adjusted, found))  # A handful, however many the amounts are.
    if not all(map(Decimal.is_finite, found)):
        return True
    return any(not -MOST_DIGITS < size < MOST_DIGITS for size in sizes)
