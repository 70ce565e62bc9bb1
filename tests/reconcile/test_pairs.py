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
from tests.reconcile.test_parts import replace_in_sql
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
    lambda one: (one.total, one.paid),  # And by their state, of those that were paid.
    lambda one: one.paid,
    lambda one: one.paid > 0,
    lambda one: None,
)


def distance(pair: tuple[One, One]) -> int:
    """The time between two orders."""
    return abs(pair[0].at - pair[1].at)


def closest(ours: list[One], theirs: list[One]) -> dict[One, One]:
    """Of all ways to make as many pairs as there can be, the one with the least time between them.

    Where both of the book are before both of the platform, each way has as much; then the nearest two are a pair.
    """
    short, long = sorted((ours, theirs), key=len)
    ways = (list(zip(short, some, strict=True)) for some in permutations(long, len(short)))
    best = min(ways, key=lambda way: (sum(map(distance, way)), -sum(distance(pair) ** 2 for pair in way)))
    return dict(best) if short is ours else {one: other for other, one in best}


def in_reach(ours: list[One], theirs: list[One]) -> list[One]:
    """Those that an order may stand for: older ones than the search shows if the first payment is nearer to them."""
    young = [one for one in ours if not one.is_old]
    first = min((one.at for one in theirs if one.paid), default=END)
    return [one for one in ours if not young or not one.is_old or 2 * first < one.at + min(young).at]


def stand_for(ours: list[One], theirs: list[One]) -> dict[One, list[One]]:
    """What stands for each order of the book."""
    pairs: dict[One, list[One]] = {}
    free = list(theirs)
    ours = in_reach(ours, theirs)
    for key in ALIKE:
        for value in {key(one) for one in ours}:
            left = [one for one in ours if one not in pairs and key(one) == value]
            found = closest(left, [one for one in free if key(one) == value])
            pairs |= {one: [other] for one, other in found.items()}
            free = [one for one in free if one not in found.values()]
    for other in free if pairs else ():
        if other.paid:
            same = [one for one in pairs if ALIKE[0](one) == ALIKE[0](other)]
            pairs[min(same or pairs, key=lambda one: abs(one.at - other.at))].append(other)
    return pairs


def differences(ours: list[One], theirs: list[One]) -> Iterator[tuple[Outcome, int | None, frozenset[str]]]:
    """What differs: the outcome, the date of the order in the book, and the orders of the platform."""
    here = [one for one in theirs if one.is_here]
    pairs = stand_for(ours, here)
    paid = {one for one, found in pairs.items() if any(other.paid for other in found)}
    unsure = (one not in pairs or (one.paid and one not in paid) if one.is_here else one in paid for one in ours)
    if any(unsure):  # A look-up has to tell.
        pairs = stand_for(ours, theirs)
    for one in ours:
        found = pairs.get(one, [])
        ids = frozenset(other.id for other in found)
        if not one.is_here and not any(other.is_here and other.paid for other in found):
            continue
        if not found:
            if one.paid:
                yield Outcome.NOT_PAID_OR_MISSING, one.at, ids
        elif sum(other.paid > 0 for other in found) > 1:
            yield Outcome.DOUBLE, one.at, ids
        elif one.paid != sum(other.paid for other in found):
            yield Outcome.PAID_AMOUNT, one.at, ids
        elif one.total != sum(other.total for other in found):
            yield Outcome.TOTAL_AMOUNT, one.at, ids
    if not ours:
        yield from ((Outcome.EXTRA, None, frozenset({other.id})) for other in here)


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
        shown = [drawn(chance, SHOWN_DAYS) for _ in range(chance.randrange(theirs + 1))]
        for one in book:
            status = "processed" if one.paid else "created"
            world._book(NAME, f"r-{i}", one.at, paid=Decimal(one.paid), total=Decimal(one.total), status=status)
        for j, one in enumerate(shown):
            status = "paid" if one.paid else "payment_required"
            row = world._show(NAME, f"r-{i}", one.at, Decimal(one.paid), total=Decimal(one.total), status=status)
            shown[j] = one._replace(id=str(row.id))
        expected += [(f"r-{i}", *one) for one in differences(book, shown)]
    world.freeze()
    return world, sorted(expected, key=str)


async def differing(world: World, out: Path) -> list[tuple]:
    """What a reconciliation finds."""
    report = await reconciled(world, out)
    return sorted(
        (
            (
                one.reference,
                one.outcome,
                None if one.book_created is None else milliseconds(one.book_created),
                frozenset((one.merchant_order_ids or "").split()),
            )
            for one in report.differences()
        ),
        key=str,
    )


@pytest.mark.parametrize("seed", range(3))
async def test_pairs_are_those_of_an_exhaustive_search(tmp_path: Path, seed: int) -> None:
    """Those that agree first, then those of the same amount; the nearest in time; what was paid besides is a double."""
    world, expected = planted(seed, references=400, ours=4, theirs=5)

    assert expected == await differing(world, tmp_path)


async def test_pairs_that_are_not_the_nearest_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the last of a line is left out, however near it is."""
    replace_in_sql(monkeypatch, ("place % 2 DESC, cost, place DESC", "place DESC"))
    world, expected = planted(0, references=400, ours=4, theirs=5)

    assert expected != await differing(world, tmp_path)
