"""The sums of a reconciliation, by seller, currency and outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import cast

from msgspec import Struct

from paymentsdk.money import EXACTLY, ZERO
from paymentsdk.reconcile._outcome import Outcome

_PLACES = 2
_CENT = Decimal(1).scaleb(-_PLACES)


class Sum(Struct, frozen=True):
    """The sums of a seller's orders of one outcome and currency.

    For every outcome but `MATCH`, they are the sums of the same columns in the file with the differences. An amount is
    `None` if no order has one.
    """

    account: str
    """The seller; empty for a client of one seller, and in totals."""
    currency: str
    """The currency, such as `ARS`; empty if neither side says. An order with two currencies is in two sums."""
    outcome: Outcome | None
    """The outcome; `None` in a total of all outcomes."""
    orders: int
    """How many orders."""
    book_paid: Decimal | None
    """What was paid, as the book says."""
    paid: Decimal | None
    """What was paid, as the platform says. For `MATCH`, it is what the book says. `TWICE_IN_BOOK` has none: the other
    line has it."""
    paid_difference: Decimal | None
    """The sum of the differences that are known."""
    book_refunded: Decimal | None
    """What was given back, as the book says."""
    refunded: Decimal | None
    """What was given back, as the platform says; for `MATCH` and `TWICE_IN_BOOK`, as `paid`."""
    refunded_difference: Decimal | None
    """The sum of the differences that are known."""

    @property
    def amounts(self) -> Sequence[Decimal | None]:
        """The six amounts, in the order of the fields."""
        return [getattr(self, name) for name in _AMOUNTS]


_AMOUNTS = Sum.__struct_fields__[4:]


def sum_of_columns(columns: Sequence[object]) -> Sum:
    """Return the sums in a row of the comparison."""
    account, currency, outcome, orders, *amounts = columns
    exact = (None if amount is None else amount_of(cast("Decimal", amount)) for amount in amounts)
    return Sum(str(account), str(currency), Outcome(outcome), cast("int", orders), *exact)


def add_up(sums: Iterable[Sum], key: Callable[[Sum], tuple[str, str, Outcome | None]]) -> tuple[Sum, ...]:
    """Return the sums of those that have the same *key*, which becomes their account, currency and outcome."""
    groups: dict[tuple[str, str, Outcome | None], list[Sum]] = defaultdict(list)
    for line in sums:
        groups[key(line)].append(line)
    return tuple(
        Sum(
            *group,
            sum(line.orders for line in lines),
            *map(_added, zip(*(line.amounts for line in lines), strict=True)),
        )
        for group, lines in groups.items()
    )


def _added(amounts: Iterable[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    result = ZERO
    for amount in known:
        result = EXACTLY.add(result, amount)
    return result if known else None


def amount_of(stored: Decimal) -> Decimal:
    """Return an amount as people write it: with two places, or as many as it needs."""
    amount = stored.normalize(EXACTLY)
    exponent = amount.as_tuple().exponent
    is_coarse = isinstance(exponent, int) and exponent > -_PLACES
    return amount.quantize(_CENT, context=EXACTLY) if is_coarse else amount
