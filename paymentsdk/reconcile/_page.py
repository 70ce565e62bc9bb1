"""The report of a reconciliation as an HTML page for people, on a screen or on paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import TYPE_CHECKING

from paymentsdk.reconcile._outcome import Outcome
from paymentsdk.reconcile._sums import Sum, add_up

if TYPE_CHECKING:
    from paymentsdk.reconcile._report import Difference, Report

#: The maximum of differences on the page for each outcome.
_MOST = 1_000
_NUMBER = ' class="number"'
_AMOUNTS = ("Paid: book", "Paid: platform", "Difference", "Refunded: book", "Refunded: platform", "Difference")
_TOTALS = ("Currency", "Outcome", "Orders", *_AMOUNTS, "What to do")
_SELLERS = ("Seller", "Currency", "Outcome", "Orders", *_AMOUNTS)
_ORDERS = ("Seller", "Reference", "Order id", "Currency", *_AMOUNTS, "Reason")


def page(report: Report) -> str:
    """Return the report as HTML."""
    tables = [
        *_table("Totals", _TOTALS, _sums(report.totals, of_sellers=False)),
        *_table("Sellers", _SELLERS, _sums(report.sums, of_sellers=True)),
        *_differences(report),
    ]
    introduction = [f"<p>{escape(line)}</p>" for line in _introduction(report)]
    template = Template(files("paymentsdk.reconcile").joinpath("_page.html").read_text(encoding="utf-8"))
    return template.substitute(introduction="\n".join(introduction), tables="\n".join(tables))


def _introduction(report: Report) -> Iterator[str]:
    begin, end = map(_moment, report.created)
    yield f"Orders that were created from {begin} to before {end}."
    if report.as_of is not None:
        yield f"The report has all changes up to {_moment(report.as_of)}."
    yield (
        "A difference is the platform's amount minus the book's amount. It is empty if an amount is unknown, or if the "
        "two currencies differ. Totals of differences leave such orders out."
    )
    yield from notes(report)


def notes(report: Report) -> Iterator[str]:
    """Yield what limits the report: orders of different moments, and windows and sellers that could not be read."""
    if report.as_of is None:
        yield "Each order is as of the moment when it was read: changes came too fast, or are too old for the search."
    yield from map(str, report.not_whole)
    yield from (f"Not read: {name}: {error}" for name, error in report.failed.items())


def _sums(sums: Iterable[Sum], *, of_sellers: bool) -> Iterator[Sequence[object]]:
    """Yield the rows of a table of sums, with a total for each seller and currency."""
    for (account, currency), group in groupby(sums, lambda line: (line.account, line.currency)):
        lines = list(group)
        lines += add_up(lines, lambda line: (line.account, line.currency, None))
        for line in lines:
            outcome = line.outcome
            head = (account or "(one seller)",) if of_sellers else ()
            tail = () if of_sellers else ("" if outcome is None else outcome.action,)
            yield *head, currency, "Total" if outcome is None else outcome.title, line.orders, *line.amounts, *tail


def _differences(report: Report) -> Iterator[str]:
    """Yield a table for each outcome except `MATCH`."""
    rows: dict[Outcome, list[Difference]] = {outcome: [] for outcome in Outcome}
    for difference in report.differences():
        if len(rows[difference.outcome]) < _MOST:
            rows[difference.outcome].append(difference)
    for outcome, orders in rows.items():
        if orders:
            yield from _table(outcome.title, _ORDERS, map(_order, orders))
            yield f"<p>{escape(outcome.action)}</p>"
        if (count := report.counts[outcome]) > len(orders) and outcome is not Outcome.MATCH:
            yield f"<p>These are the first {len(orders):,} of {count:,}.</p>"


def _order(order: Difference) -> Sequence[object]:
    currency = " / ".join(dict.fromkeys(filter(None, (order.book_currency, order.currency))))
    ids = order.order_id or order.merchant_order_ids
    paid = order.book_paid, order.paid, order.paid_difference
    refunded = order.book_refunded, order.refunded, order.refunded_difference
    return order.account, order.reference, ids, currency, *paid, *refunded, order.reason


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2><div tabindex=0 role=region aria-label='{escape(title)}'><table><thead><tr>"
    numbers = {"Orders", *_AMOUNTS}
    yield from (f'<th scope="col"{_NUMBER if name in numbers else ""}>{escape(name)}</th>' for name in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield '<tr class="total">' if "Total" in row[:3] else "<tr>"
        yield from map(_cell, row)
        yield "</tr>"
    yield "</tbody></table></div>"


def _cell(value: object) -> str:
    match value:
        case Decimal():
            return f"<td{_NUMBER}>{value:,f}</td>"
        case int():
            return f"<td{_NUMBER}>{value:,}</td>"
        case _:
            return f"<td>{escape(str(value or ''))}</td>"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
