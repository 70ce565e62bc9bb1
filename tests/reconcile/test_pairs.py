"""Several orders of one reference: which of the platform's stands for which of the book's, against all other ways."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import pytest

from paymentsdk.reconcile import Outcome
from tests.reconcile.planted import BEGIN, END, World
from tests.reconcile.platform import DAY, milliseconds
from tests.reconcile.test_reconcile import reconciled

NAME = "shop-0"
#: Days before or after the first that is asked for, on which orders of the book are made. The search shows 80 of them.
DAYS = (-99, -81, -2, -1, -1, 0, 0, 1, 2)
#: And those of the platform.
SHOWN_DAYS = (-80, *DAYS[2:])


class One(NamedTuple):
    """An order of one side."""

    at: int
    total: int
    paid: int
    id: str = ""
    """Of an order of the platform."""

    @property
    def is_here(self) -> bool:
        return BEGIN <= self.at < END

    @property
    def is_old(self) -> bool:
        return self.at < END - 90 * DAY


#: What orders of a pair have in common, at best.
ALIKE: tuple[Callable[[One], object], ...] = (
    lambda order: (order.total, order.paid),  # And by their state, of those that were paid.
    lambda order: order.paid,
    lambda order: order.paid > 0,
    lambda order: None,
)


def distance(pair: tuple[One, One]) -> int:
    """The time between two orders."""
    return abs(pair[0].at - pair[1].at)


def closest(ours: list[One], theirs: list[One]) -> dict[One, One]:
    """Of all ways to make as many pairs as there can be, the one with the least time between them.

    Where both of the book are before both of the platform, each way has as much; then the nearest two are a pair.
    """
    short, long = sorted((ours, theirs), key=len)
    pairings = (list(zip(short, ordering, strict=True)) for ordering in permutations(long, len(short)))
    best = min(
        pairings, key=lambda pairing: (sum(map(distance, pairing)), -sum(distance(pair) ** 2 for pair in pairing))
    )
    return dict(best) if short is ours else {order: row for row, order in best}


def in_reach(ours: list[One], theirs: list[One]) -> list[One]:
    """Those that an order may stand for: older ones than the search shows if the first payment is nearer to them."""
    young = [order for order in ours if not order.is_old]
    first = min((order.at for order in theirs if order.paid), default=END)
    return [order for order in ours if not young or not order.is_old or 2 * first < order.at + min(young).at]


def stand_for(ours: list[One], theirs: list[One]) -> dict[One, list[One]]:
    """What stands for each order of the book."""
    pairs: dict[One, list[One]] = {}
    free = list(theirs)
    ours = in_reach(ours, theirs)
    for key in ALIKE:
        for value in {key(order) for order in ours}:
            open_orders = [order for order in ours if order not in pairs and key(order) == value]
            nearest = closest(open_orders, [candidate for candidate in free if key(candidate) == value])
            pairs |= {order: [match] for order, match in nearest.items()}
            free = [candidate for candidate in free if candidate not in nearest.values()]
    for payment in free if pairs else ():
        if payment.paid:
            same = [candidate for candidate in pairs if ALIKE[0](candidate) == ALIKE[0](payment)]
            pairs[min(same or pairs, key=lambda candidate: abs(candidate.at - payment.at))].append(payment)
    return pairs


def differences(ours: list[One], theirs: list[One]) -> Iterator[tuple[Outcome, int | None, frozenset[str]]]:
    """What differs: the outcome, the date of the order in the book, and the orders of the platform."""
    here = [row for row in theirs if row.is_here]
    pairs = stand_for(ours, here)
    paid = {candidate for candidate, matches in pairs.items() if any(row.paid for row in matches)}
    unsure = (
        candidate not in pairs or (candidate.paid and candidate not in paid) if candidate.is_here else candidate in paid
        for candidate in ours
    )
    if any(unsure):  # A look-up has to tell.
        pairs = stand_for(ours, theirs)
    for order in ours:
        rows = pairs.get(order, [])
        ids = frozenset(row.id for row in rows)
        if not order.is_here and not any(row.is_here and row.paid for row in rows):
            continue
        if not rows:
            if order.paid:
                yield Outcome.NOT_PAID_OR_MISSING, order.at, ids
        elif sum(row.paid > 0 for row in rows) > 1:
            yield Outcome.DOUBLE, order.at, ids
        elif order.paid != sum(row.paid for row in rows):
            yield Outcome.PAID_AMOUNT, order.at, ids
        elif order.total != sum(row.total for row in rows):
            yield Outcome.TOTAL_AMOUNT, order.at, ids
    if not ours:
        yield from ((Outcome.EXTRA, None, frozenset({row.id})) for row in here)


def drawn(chance: random.Random, days: tuple[int, ...]) -> One:
    """An order: few amounts, so that many agree."""
    paid = chance.choice((0, 10, 10, 20))
    at = BEGIN + chance.choice(days) * DAY + chance.randrange(DAY)
    return One(at, paid + chance.choice((0, 0, 5)), paid)


def planted(seed: int, references: int, ours: int, theirs: int) -> tuple[World, list[tuple]]:
    """A world of references with up to so many orders on each side, and what differs in it."""
    world, chance, expected = World(0), random.Random(seed), []
    for i in range(references):
        book = [drawn(chance, DAYS) for _ in range(chance.randrange(ours + 1))]
        rows = [drawn(chance, SHOWN_DAYS) for _ in range(chance.randrange(theirs + 1))]
        for order in book:
            status = "processed" if order.paid else "created"
            world._book(NAME, f"r-{i}", order.at, paid=Decimal(order.paid), total=Decimal(order.total), status=status)
        for j, order in enumerate(rows):
            status = "paid" if order.paid else "payment_required"
            row = world._show(NAME, f"r-{i}", order.at, Decimal(order.paid), total=Decimal(order.total), status=status)
            rows[j] = order._replace(id=str(row.id))
        expected += [(f"r-{i}", *difference) for difference in differences(book, rows)]
    world.freeze()
    return world, sorted(expected, key=str)


async def differing(world: World, out: Path) -> list[tuple]:
    """What a reconciliation finds."""
    report = await reconciled(world, out)
    return sorted(
        (
            (
                difference.reference,
                difference.outcome,
                None if difference.book_created is None else milliseconds(difference.book_created),
                frozenset((difference.merchant_order_ids or "").split()),
            )
            for difference in report.differences()
        ),
        key=str,
    )


def leaving_out_the_last(read_sql: Callable[[], dict[str, str]]) -> Callable[[], dict[str, str]]:
    """Leave out the last of a line, however near it is."""
    old, new = "place % 2 DESC, cost, place DESC", "place DESC"
    return lambda: {name: part.replace(old, new) for name, part in read_sql().items()}


@pytest.mark.control("paymentsdk.reconcile._diff.read_sql", around=leaving_out_the_last)
async def test_pairs_match_an_exhaustive_search(tmp_path: Path) -> None:
    """Those that agree first, then those of the same amount; the nearest in time; what was paid besides is a double."""
    world, expected = planted(0, references=150, ours=4, theirs=5)

    assert expected == await differing(world, tmp_path)
