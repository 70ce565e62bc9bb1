"""The sums of a report: they are those of the book, of the platform, and of the file, to the cent."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

from paymentsdk.reconcile import Book, Outcome, Report
from tests.reconcile.planted import BEGIN, CREATED, END, World
from tests.reconcile.test_reconcile import reconciled

AMOUNTS = ("book_paid", "paid", "paid_difference", "book_refunded", "refunded", "refunded_difference")


def added(report: Report, name: str) -> Counter[tuple[str, str]]:
    """The sums of a column by seller and currency."""
    sums: Counter[tuple[str, str]] = Counter()
    for line in report.sums:
        sums[line.account, line.currency] += getattr(line, name) or 0
    return Counter({key: amount for key, amount in sums.items() if amount})


async def test_the_sums_match_both_sides(tmp_path: Path) -> None:
    """Of 30 sellers with every planted difference, each amount counts once, under its own seller and currency."""
    world = World(400, sellers=30, grain=3)

    report = await reconciled(world, tmp_path)

    paid, refunded, theirs, returned = Counter(), Counter(), Counter(), Counter()
    in_question = {
        (row["account"], row["reference"]) for row in world.book if CREATED[0] <= row["created"] < CREATED[1]
    }
    for row in world.book:
        if CREATED[0] <= row["created"] < CREATED[1]:
            paid[row["account"], row["currency"]] += row["paid"]
            refunded[row["account"], row["currency"]] += row["refunded"]
    anywhere = {(row["account"], row["reference"]) for row in world.book}
    for name, seller in world.sellers.items():
        for order in seller.shown:
            key = name, order.reference
            if key in in_question or (key not in anywhere and BEGIN <= order.created < END):
                theirs[name, order.currency] += order.paid
                returned[name, order.currency] += order.refunded
    for expected, name in ((paid, "book_paid"), (refunded, "book_refunded"), (theirs, "paid"), (returned, "refunded")):
        assert +expected == added(report, name)
    for name in AMOUNTS:
        assert sum(added(report, name).values()) == sum(getattr(line, name) or 0 for line in report.totals)


async def test_a_book_without_currencies_or_amounts_has_sums_without_them(tmp_path: Path) -> None:
    """What nobody says is no zero."""
    world = World(60, grain=30)
    for row in world.book:
        del row["currency"], row["refunded"]

    report = await reconciled(world, tmp_path, Book.rows(world.book))

    [match] = [line for line in report.totals if line.outcome is Outcome.MATCH]
    assert ("", None, None, None) == (match.currency, *match.amounts[3:])


async def test_a_sum_with_more_than_20_digits_becomes_none(tmp_path: Path) -> None:
    """The largest amounts of a book add up exactly, or to `None`; the comparison does not fail."""
    world = World(60, grain=30)
    row = next(row for row in world.book if CREATED[0] <= row["created"] < CREATED[1])
    largest = {**row, "paid": Decimal(10**18 - 1)}
    world.book = [
        {**largest, "currency": currency, "reference": f"{currency}-{i}"}
        for currency, orders in (("EUR", 90), ("USD", 200))
        for i in range(orders)
    ]

    report = await reconciled(world, tmp_path)

    sums = {line.currency: line.book_paid for line in report.totals if line.orders in {90, 200}}
    assert {"EUR": Decimal(89999999999999999910), "USD": None} == sums
