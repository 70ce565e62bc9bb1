"""The sums of a report: they are those of the book, of the platform, and of the file, to the cent."""

from __future__ import annotations

import csv
import html
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from paymentsdk.reconcile import Book, Outcome, Report
from tests.reconcile.planted import BEGIN, CREATED, END, World
from tests.reconcile.test_reconcile import reconciled

AMOUNTS = ("book_paid", "paid", "paid_difference", "book_refunded", "refunded", "refunded_difference")
#: Their orders have no difference: an amount is not known, or the currencies differ.
NO_DIFFERENCE = {Outcome.CURRENCY, Outcome.NOT_READ, Outcome.NOT_WHOLE, Outcome.TOO_OLD}


def added(report: Report, name: str) -> Counter[tuple[str, str]]:
    """The sums of a column by seller and currency."""
    sums: Counter[tuple[str, str]] = Counter()
    for line in report.sums:
        sums[line.account, line.currency] += getattr(line, name) or 0
    return Counter({key: amount for key, amount in sums.items() if amount})


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_sums_match_both_sides(tmp_path: Path, seed: int) -> None:
    """Of 30 sellers with every planted difference, each amount counts once, under its own seller and currency."""
    world = World(1_500, sellers=30, seed=seed, grain=3)

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


async def test_the_sums_match_the_file(tmp_path: Path) -> None:
    """What differs has a difference of its own in each row, and the rows add up to the sums."""
    world = World(900, seed=3, grain=3)

    report = await reconciled(world, tmp_path)

    sums: dict[Outcome, Counter[str]] = {outcome: Counter() for outcome in Outcome}
    for order in report.differences():
        for ours, theirs, difference in (AMOUNTS[:3], AMOUNTS[3:]):
            expected = (getattr(order, theirs) or 0) - (getattr(order, ours) or 0)
            assert getattr(order, difference) == (None if order.outcome in NO_DIFFERENCE else expected), order
        sums[order.outcome].update({name: getattr(order, name) for name in AMOUNTS if getattr(order, name)})
    for line in report.totals:
        if line.outcome not in {Outcome.MATCH, Outcome.CURRENCY}:
            amounts = dict(zip(AMOUNTS, line.amounts, strict=True))
            assert {**sums[line.outcome]} == {name: amount for name, amount in amounts.items() if amount}, line
    matches = [line for line in report.totals if line.outcome is Outcome.MATCH]
    assert [line.book_paid for line in matches] == [line.paid for line in matches]
    assert not any(line.paid_difference or line.refunded_difference for line in matches)


async def test_a_book_without_currencies_or_amounts_has_sums_without_them(tmp_path: Path) -> None:
    """What nobody says is no zero."""
    world = World(60, grain=30)
    for row in world.book:
        del row["currency"], row["refunded"]

    report = await reconciled(world, tmp_path, Book.rows(world.book))

    [match] = [line for line in report.totals if line.outcome is Outcome.MATCH]
    assert ("", None, None, None) == (match.currency, *match.amounts[3:])


@pytest.mark.parametrize(("orders", "paid"), [(90, Decimal(89999999999999999910)), (200, None)])
async def test_a_sum_with_more_than_20_digits_becomes_none(tmp_path: Path, orders: int, paid: Decimal | None) -> None:
    """The largest amounts of a book add up exactly, or to `None`; the comparison does not fail."""
    world = World(60, grain=30)
    row = next(row for row in world.book if CREATED[0] <= row["created"] < CREATED[1])
    world.book = [{**row, "reference": f"large-{i}", "paid": Decimal(10**18 - 1)} for i in range(orders)]

    report = await reconciled(world, tmp_path)

    assert [paid] == [line.book_paid for line in report.totals if line.orders == orders]


async def test_the_page_has_the_sums_and_no_foreign_markup(tmp_path: Path) -> None:
    """An accountant can print it; a reference from a book cannot put anything into it."""
    world = World(300, seed=2, grain=3)
    _, reference = next(key for key, outcome in world.expected.items() if outcome is Outcome.NOT_PAID_OR_MISSING)
    evil = "<script>alert('1')</script>"
    for row in world.book:
        if row["reference"] == reference:
            row["reference"] = evil
    report = await reconciled(world, tmp_path)

    report.write_html(tmp_path / "page.html")
    report.write_csv(tmp_path / "rows.csv")

    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<script" not in page
    assert html.escape(evil) in page
    for line in report.totals:
        assert line.outcome.title in page
        assert html.escape(line.outcome.action) in page
        for amount in line.amounts:
            assert amount is None or f">{amount:,f}</td>" in page
    assert re.search(r"http(s)?://", page) is None
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    difference = sum(Decimal(row["paid_difference"] or 0) for row in rows)
    assert difference == sum(line.paid_difference or 0 for line in report.totals)
