"""The report of a reconciliation, with its outcomes, differences and files: Parquet, CSV and an HTML page."""

import csv
import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib.resources import files
from itertools import groupby
from os import PathLike
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import astuple

from paymentsdk._files import whole
from paymentsdk._paging.export import csv_field
from paymentsdk.errors import NotWhole, PaymentsError
from paymentsdk.journal import Record
from paymentsdk.reconcile._merchant_orders import duckdb, parquet
from paymentsdk.reconcile._outcome import Outcome
from paymentsdk.reconcile._sums import Sum, add_up, amount_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

#: The maximum of differences on the page for each outcome.
_MOST = 1_000
_NUMBER = ' class="number"'
_AMOUNTS = ("Paid: book", "Paid: platform", "Difference", "Refunded: book", "Refunded: platform", "Difference")
_TOTALS = ("Currency", "Outcome", "Orders", *_AMOUNTS, "What to do")
_SELLERS = ("Seller", "Currency", "Outcome", "Orders", *_AMOUNTS)
_ORDERS = ("Seller", "Reference", "Order id", "Currency", *_AMOUNTS, "Reason")


class Difference(Struct, frozen=True, kw_only=True):
    """An order that differs between the book and the platform, or that could not be compared.

    Values that a side does not have are `None`.
    """

    outcome: Outcome
    """The difference. If there are several, the first of: double, currency, paid, refunded, total, status."""
    account: str
    """The seller; empty for a client of one seller."""
    reference: str | None
    """The external reference."""
    order_id: str | None
    """The id in the book."""
    merchant_order_ids: str | None
    """The ids of the merchant orders that were paired with it, separated by spaces, or the id of the order that was
    looked up."""
    book_currency: str | None
    """The currency in the book, such as `ARS`."""
    currency: str | None
    """The currency on the platform."""
    book_total: Decimal | None
    """The total in the book."""
    total: Decimal | None
    """The total on the platform."""
    book_paid: Decimal | None
    """The paid amount in the book."""
    paid: Decimal | None
    """The paid amount on the platform, as a sum over all orders of a double. A sum with more than 20 digits before the
    point is `None`."""
    paid_difference: Decimal | None
    """The paid amount on the platform minus the paid amount in the book. An order that a side does not have counts as
    0. `None` if an amount is unknown, or if the two currencies differ."""
    book_refunded: Decimal | None
    """The refunded amount in the book."""
    refunded: Decimal | None
    """The refunded amount on the platform, as a sum over all orders of a double."""
    refunded_difference: Decimal | None
    """The difference of the refunded amounts, by the rules of `paid_difference`."""
    book_status: str | None
    """The state in the book, in the words of `status`."""
    status: str | None
    """The state on the platform: `open`, `created`, `paid`, `refunded`, `expired` or `canceled`."""
    book_created: datetime | None
    """The time of creation in the book."""
    created: datetime | None
    """The time of creation on the platform."""
    read_at: datetime | None
    """The time at which the order was read; the other values are as of then."""
    reason: str | None = None
    """Why the order could not be read or compared, which other line of the book has it, or what is odd about its
    reference. Lines are counted from `book[0]`."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of a reconciliation. Its files stay in the directory of the run."""

    directory: Path
    """`out`."""
    sums: tuple[Sum, ...]
    """The numbers of orders and their amounts, by seller, currency and outcome."""
    columns: tuple[str, ...]
    """The columns of the book; others were not compared."""
    created: tuple[datetime, datetime]
    """The period: its first moment, and the first moment after it."""
    rows: int
    """The number of orders that the platform has in the period."""
    calls: int
    """Calls that this run has made, without earlier runs."""
    as_of: datetime | None
    """The report has all changes that the search showed by this moment, and may have later changes. `None` if changes
    came faster than they could be read, or if orders that an earlier run read are now too old for the search (90 days).
    Then each row is as of its `read_at`."""
    not_whole: tuple[NotWhole, ...]
    """The windows in which orders may be missing. Run again to walk them again."""
    failed: Mapping[str, PaymentsError]
    """The accounts that could not be read, with the error of each; their orders are `Outcome.NOT_READ`. Run again to
    read them."""
    open_records: tuple[Record, ...]
    """The open records in the client's journal. `client.recover()` finishes them; a reconciliation moves no money."""

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of orders with each outcome, of the book's orders in the period and of extra orders."""
        counts: Counter[Outcome] = Counter()
        for line in self.sums:
            if line.outcome is not None:
                counts[line.outcome] += line.orders
        return counts

    @property
    def totals(self) -> tuple[Sum, ...]:
        """The sums over all sellers, by currency and outcome."""
        return add_up(self.sums, lambda line: ("", line.currency, line.outcome))

    @property
    def path(self) -> Path:
        """The Parquet file with the differences. Its columns are the fields of `Difference`."""
        return self.directory / "differences.parquet"

    @property
    def is_same(self) -> bool:
        """Whether both sides agree and everything could be read, so that nobody has to act."""
        differs = any(number and outcome.is_difference for outcome, number in self.counts.items())
        return not (self.not_whole or self.failed or differs)

    def differences(self, *outcomes: Outcome) -> Iterator[Difference]:
        """Yield the differences, ordered by account and reference: all, or only those with one of *outcomes*."""
        values = {outcome.value for outcome in outcomes or Outcome}
        with parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    if row["outcome"] in values:
                        amounts = {name: amount_of(row[name]) for name in row if isinstance(row[name], Decimal)}
                        yield Difference(**{**row, **amounts, "outcome": Outcome(row["outcome"])})

    def table(self) -> "DuckDBPyRelation":
        """Return the differences as a DuckDB relation, for further queries."""
        relation: DuckDBPyRelation = duckdb().connect().read_parquet(glob.escape(str(self.path)))
        return relation

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the differences to a CSV file. Fields that look like a formula to a spreadsheet get a leading `'`."""
        with whole(Path(path)) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(Difference.__struct_fields__)
            lines.writerows(map(csv_field, astuple(difference)) for difference in self.differences())

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write an HTML page for people, with the totals, the sums of each seller, and the differences.

        The page needs no other file. It has the first 1,000 differences of each outcome; the CSV file has all.
        """
        with whole(Path(path)) as unfinished:
            unfinished.write_text(_page(self), encoding="utf-8")


# --- the page -------------------------------------------------------------------------------------------------------


def _page(report: Report) -> str:
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
