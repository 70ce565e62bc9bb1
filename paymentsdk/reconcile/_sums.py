"""The sums of a reconciliation, by seller, currency and outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import cast

from msgspec import Struct

from paymentsdk.money import EXACTLY, total
from paymentsdk.reconcile._outcome import Outcome

_PLACES = 2
_CENT = Decimal(1).scaleb(-_PLACES)


class Sum(Struct, frozen=True):
    """The sums of a seller's orders with one outcome and currency.

    For every outcome except `MATCH`, they are the sums of the same columns in the file with the differences. An amount
    is `None` if no order has it.
    """

    account: str
    """The seller; empty for a client of one seller, and in totals."""
    currency: str
    """The currency, such as `ARS`; empty if neither side has one. An order with two currencies is in two sums."""
    outcome: Outcome | None
    """The outcome; `None` in a total of all outcomes."""
    orders: int
    """The number of orders."""
    book_paid: Decimal | None
    """The paid amount in the book."""
    paid: Decimal | None
    """The paid amount on the platform. For `MATCH`, it is the amount in the book. It is `None` for `TWICE_IN_BOOK`,
    because the other line has the amount."""
    paid_difference: Decimal | None
    """The sum of the known differences."""
    book_refunded: Decimal | None
    """The refunded amount in the book."""
    refunded: Decimal | None
    """The refunded amount on the platform, with the same rules as `paid`."""
    refunded_difference: Decimal | None
    """The sum of the known differences."""

    @property
    def amounts(self) -> Sequence[Decimal | None]:
        """The six amounts, in the order of the fields."""
        return [getattr(self, name) for name in _AMOUNTS]


_AMOUNTS = Sum.__struct_fields__[4:]


def sum_of_columns(columns: Sequence[object]) -> Sum:
    """Return a row of the comparison as a `Sum`."""
    account, currency, outcome, orders, *amounts = columns
    exact = (None if amount is None else amount_of(cast("Decimal", amount)) for amount in amounts)
    return Sum(str(account), str(currency), Outcome(str(outcome)), cast("int", orders), *exact)


def add_up(sums: Iterable[Sum], key: Callable[[Sum], tuple[str, str, Outcome | None]]) -> tuple[Sum, ...]:
    """Add up the sums with the same *key*, which becomes the account, currency and outcome of the result."""
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
    summands = [(1, amount) for amount in amounts if amount is not None]
    return total(summands) if summands else None


def amount_of(stored: Decimal) -> Decimal:
    """Return an amount with two decimals, or with more if it needs them."""
    amount = stored.normalize(EXACTLY)
    exponent = amount.as_tuple().exponent
    is_coarse = isinstance(exponent, int) and exponent > -_PLACES
    return amount.quantize(_CENT, context=EXACTLY) if is_coarse else amount
