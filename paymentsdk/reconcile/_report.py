"""What a reconciliation has found, and how it is shown to people: as CSV for spreadsheets, and as a page of HTML."""

import csv
import glob
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from html import escape
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from paymentsdk._files import whole
from paymentsdk.errors import NotWhole, PaymentsError
from paymentsdk.journal import Record
from paymentsdk.money import EXACTLY
from paymentsdk.reconcile._merchant_orders import duckdb, parquet

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

_PLACES = 2
_CENT = Decimal(1).scaleb(-_PLACES)
#: Columns by which orders are found.
_KEYS = ("account", "reference", "order_id", "created")
#: Differences of each kind on the page.
_MOST = 1_000
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --bad: #b3261e; --good: #1b7f3b }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #7bd88f } }
* { box-sizing: border-box }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem }
h1 { font-size: 1.5rem; margin: .5rem 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem } p { margin: .25rem 0 .75rem }
.verdict { border-left: .3rem solid var(--bad); padding: .4rem .8rem; background: var(--soft) }
.verdict.good { border-color: var(--good) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
th { font-size: .85rem; font-weight: 600 } td { overflow-wrap: anywhere }
td.number { text-align: right; white-space: nowrap }
b { color: var(--bad) } small { opacity: .75 } time { white-space: nowrap }
@media (max-width: 40rem) {
  .rows thead { display: none }
  .rows tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0 }
  .rows td { display: grid; grid-template-columns: 6.5rem 1fr; border: 0; padding: .1rem 0 }
  .rows td::before { content: attr(data-name); font-size: .85rem; opacity: .75 }
  .rows td:empty { display: none }
}
"""


class Outcome(Enum):
    """What a reconciliation says about an order of the book, or of the platform."""

    MATCH = "match"
    """They agree in all that both of them say. What the book does not say is not compared, and neither is a currency or
    a status that the platform does not send, nor a status in no known word. A paid or refunded amount that it does not
    send is 0."""
    PAID_AMOUNT = "paid_amount"
    """Another amount was paid; nothing, if the platform shows an order that nobody has paid."""
    REFUNDED_AMOUNT = "refunded_amount"
    """Another amount was refunded."""
    TOTAL_AMOUNT = "total_amount"
    """The order is about another amount; what was paid and refunded is the same."""
    CURRENCY = "currency"
    """The amounts are in another currency."""
    STATUS = "status"
    """The amounts are the same, and the status is another."""
    NOT_COMPARED = "not_compared"
    """The book has an amount that could not be read on the platform, or a total that the platform does not send; all
    else is the same. The `reason` names the amount."""
    DOUBLE = "double"
    """The reference was paid more often than the book has it. At least one of these orders, or the one of the book, is
    of the time that was asked for."""
    MISSING = "missing"
    """The platform has no order of the id that the book has (404), or one of another reference; or it was paid, and
    other lines of the book have all payments of its reference."""
    NOT_PAID_OR_MISSING = "not_paid_or_missing"
    """The book expects money and has no id, and no order of the reference was ever paid: unpaid, expired and canceled
    orders do not enter the search."""
    TWICE_IN_BOOK = "twice_in_book"
    """Another line of the book has the order: both have the same account, reference or id, and amounts, their dates do
    not differ, and the platform has fewer orders. The `reason` names the other line."""
    EXTRA = "extra"
    """The book does not have it."""
    TOO_RECENT = "too_recent"
    """Only one side has it yet, and it is younger than the lag of the search: the next run tells."""
    UNKNOWN = "unknown"
    """The sides differ, and a write of it is open in the journal: `client.recover()` finishes it, then run again."""
    TOO_OLD = "too_old"
    """The search does not show orders of that age, and the book has no id to look it up by."""
    NOT_READ = "not_read"
    """The order, or all orders of its seller, could not be read: nothing is claimed. The `reason` says why."""
    NOT_WHOLE = "not_whole"
    """It was not found, and where it should be, not all orders could be seen: nothing is claimed."""

    @property
    def is_difference(self) -> bool:
        """Whether somebody has to look at it: all but a match and what is too recent."""
        return self not in (Outcome.MATCH, Outcome.TOO_RECENT)


class Difference(Struct, frozen=True, kw_only=True):
    """An order about which the book and the platform differ, or cannot be compared.

    What a side does not say is `None`.
    """

    outcome: Outcome
    """What is wrong; of several things the first of: double, currency, paid, refunded, total, status."""
    account: str
    """Its seller; empty for a client of one seller."""
    reference: str | None
    """Its external reference."""
    order_id: str | None
    """Its id in the book."""
    merchant_order_ids: str | None
    """The merchant orders that stand for it, separated by spaces, or the order that was looked up by its id."""
    book_currency: str | None
    """Its currency in the book, such as `ARS`."""
    currency: str | None
    """Its currency on the platform."""
    book_total: Decimal | None
    """What it costs, as the book says."""
    total: Decimal | None
    """What it costs, as the platform says."""
    book_paid: Decimal | None
    """What was paid of it, as the book says."""
    paid: Decimal | None
    """What was paid, in sum over all orders of a double. A sum with more than 20 digits before the point is `None`."""
    book_refunded: Decimal | None
    """What was given back of it, as the book says."""
    refunded: Decimal | None
    """What was given back of it, as the platform says; in sum over all orders of a double."""
    book_status: str | None
    """Its state in the book, in the words of `status`."""
    status: str | None
    """Its state: `open`, `created`, `paid`, `refunded`, `expired` or `canceled`."""
    book_created: datetime | None
    """When it was made, as the book says."""
    created: datetime | None
    """When it was made, as the platform says."""
    read_at: datetime | None
    """When it was read: the rest is as of then."""
    reason: str | None = None
    """Why it could not be read or compared, which line of the book has it too, or what its reference looks like. Lines
    are counted from `book[0]`."""


class Report(Struct, frozen=True, kw_only=True):
    """What a reconciliation has found. Its files stay in the directory of the run."""

    directory: Path
    """`out`."""
    counts: Counter[Outcome]
    """How many orders have each outcome: those of the book that are in question, and those that it does not have."""
    columns: tuple[str, ...]
    """The columns that the book has: others were not compared."""
    created: tuple[datetime, datetime]
    """The time that was asked for."""
    rows: int
    """Orders that the platform has in that time."""
    calls: int
    """Calls that this run has made; those of earlier runs do not count."""
    as_of: datetime | None
    """All changes that the search showed by this moment are in it; later ones may be. `None` if changes came faster
    than they could be read, or if orders that were read before are now older than the 90 days that the search shows:
    each row is as it was at its `read_at`."""
    not_whole: tuple[NotWhole, ...]
    """Windows in which orders may be missing. Run again to walk them again."""
    failed: Mapping[str, PaymentsError]
    """The accounts that could not be read, and the error of each; their orders are `Outcome.NOT_READ`. Run again to
    read them."""
    open_records: tuple[Record, ...]
    """Open records in the client's journal, for `client.recover()`: a reconciliation moves no money."""

    @property
    def path(self) -> Path:
        """The Parquet file with the differences; its columns are the fields of `Difference`."""
        return self.directory / "differences.parquet"

    @property
    def is_same(self) -> bool:
        """Whether nobody has to look at anything."""
        return not (self.not_whole or self.failed or any(self.counts[one] for one in Outcome if one.is_difference))

    def differences(self, *outcomes: Outcome) -> Iterator[Difference]:
        """Yield all that is no match, or what has one of *outcomes*, by account and reference."""
        wanted = {one.value for one in outcomes or Outcome}
        with parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    if row["outcome"] in wanted:
                        amounts = {name: _amount(row[name]) for name in row if isinstance(row[name], Decimal)}
                        yield Difference(**{**row, **amounts, "outcome": Outcome(row["outcome"])})

    def table(self) -> "DuckDBPyRelation":
        """Return the differences as a relation of DuckDB, to be asked further."""
        relation: DuckDBPyRelation = duckdb().connect().read_parquet(glob.escape(str(self.path)))
        return relation

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the differences to a CSV file. A field that a spreadsheet would take for a formula begins with `'`."""
        with whole(Path(path)) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(Difference.__struct_fields__)
            lines.writerows(_csv_fields(one) for one in self.differences())

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write a page for people: one file that loads nothing. It shows the first 1,000 differences of each kind."""
        with whole(Path(path)) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            file.writelines(_page(self))


def _amount(kept: Decimal) -> Decimal:
    """Return an amount as people write it: with two places, or as many as it needs."""
    amount = kept.normalize(EXACTLY)
    exponent = amount.as_tuple().exponent
    is_coarse = isinstance(exponent, int) and exponent > -_PLACES
    return amount.quantize(_CENT, context=EXACTLY) if is_coarse else amount


def _csv_fields(difference: Difference) -> list[object]:
    """Return a line of a CSV file. A text that a spreadsheet would take for a formula begins with `'`."""
    fields: list[object] = []
    for name in Difference.__struct_fields__:
        match getattr(difference, name):
            case Decimal() as amount:
                fields.append(f"{amount:f}")
            case datetime() as moment:
                fields.append(moment.isoformat())
            case Outcome() as outcome:
                fields.append(outcome.value)
            case str() as text if text.startswith(_FORMULA):
                fields.append(f"'{text}")
            case other:
                fields.append(other)
    return fields


# --- the page ---------------------------------------------------------------------------------------------------------

_HEADINGS = {
    Outcome.PAID_AMOUNT: "Another amount was paid",
    Outcome.REFUNDED_AMOUNT: "Another amount was refunded",
    Outcome.TOTAL_AMOUNT: "Another total",
    Outcome.CURRENCY: "Another currency",
    Outcome.STATUS: "Another status",
    Outcome.NOT_COMPARED: "An amount could not be compared",
    Outcome.DOUBLE: "Paid more often than in the book",
    Outcome.MISSING: "The platform has no such order",
    Outcome.NOT_PAID_OR_MISSING: "Not paid, or missing",
    Outcome.TWICE_IN_BOOK: "Twice in the book",
    Outcome.EXTRA: "Not in the book",
    Outcome.TOO_RECENT: "Too recent to tell",
    Outcome.UNKNOWN: "A write is open in the journal",
    Outcome.TOO_OLD: "Too old for the search, and without an id",
    Outcome.NOT_READ: "Could not be read",
    Outcome.NOT_WHOLE: "Not found where not all orders could be seen",
}
#: What a side says, in words, and the outcome that is about it.
_WORDS = {
    "paid": ("paid {:f}", (Outcome.PAID_AMOUNT, Outcome.DOUBLE)),
    "refunded": ("refunded {:f}", (Outcome.REFUNDED_AMOUNT,)),
    "total": ("total {:f}", (Outcome.TOTAL_AMOUNT,)),
    "currency": ("{}", (Outcome.CURRENCY,)),
    "status": ("{}", (Outcome.STATUS,)),
    "created": ("<small><time>{:%Y-%m-%d %H:%M:%S} UTC</time></small>", ()),
}


def _page(report: Report) -> Iterator[str]:
    begin, end = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in report.created)
    title = f"Reconciliation of {begin[:10]}" + (f" to {end[:10]}" if end[:10] > begin[:10] else "")
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>{_verdict(report)}\n"
    facts = {
        "Orders made": f"from {begin} to {end} UTC",
        "Orders of the platform": f"{report.rows:,}",
        "Compared": ", ".join(one for one in report.columns if one not in _KEYS) or "only whether they exist",
        "As of": "each order at its own time" if report.as_of is None else f"{report.as_of:%Y-%m-%d %H:%M:%S} UTC",
    }
    yield "<table><tbody>"
    yield from (f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts.items())
    yield "</tbody></table>\n<h2>Outcomes</h2><table><tbody>"
    for outcome, number in report.counts.most_common():
        link = f'<a href="#{outcome.value}">{_HEADINGS[outcome]}</a>' if outcome in _HEADINGS else "Both say the same"
        yield f'<tr><td>{link}</td><td class="number">{number:,}</td></tr>'
    yield "</tbody></table>\n"
    yield _list("Sellers that could not be read", [f"{name}: {error}" for name, error in report.failed.items()])
    yield _list("Not whole: orders may be missing here", report.not_whole)
    yield _list("Open in the journal: run `paymentsdk journal recover`", [one.name for one in report.open_records])
    for outcome, heading in _HEADINGS.items():
        if report.counts[outcome]:
            yield f'<h2 id="{outcome.value}">{heading} <small>{report.counts[outcome]:,}</small></h2>'
            yield from _table(report, outcome)
    yield "</body></html>\n"


def _verdict(report: Report) -> str:
    wrong = sum(number for outcome, number in report.counts.items() if outcome.is_difference)
    words = f"{wrong:,} of {report.counts.total():,} orders need a look." if wrong else "Nothing differs."
    if not wrong and not report.is_same:
        words += " Not all orders could be seen."
    return f'<p class="verdict{" good" if report.is_same else ""}">{words}</p>'


def _list(heading: str, lines: Sequence[object]) -> str:
    items = "".join(f"<li>{escape(str(line))}</li>" for line in lines)
    return f"<h2>{heading}</h2><ul>{items}</ul>\n" if items else ""


def _table(report: Report, outcome: Outcome) -> Iterator[str]:
    yield '<table class="rows"><thead><tr><th>Order</th><th>Book</th><th>Platform</th></tr></thead><tbody>\n'
    for one in islice(report.differences(outcome), _MOST):
        names = dict.fromkeys((one.account, one.order_id, one.merchant_order_ids, one.reason))
        reference = escape(one.reference) if one.reference else "<i>no reference</i>"
        order = reference + "".join(f"<br><small>{escape(name)}</small>" for name in names if name)
        cells = {"Order": order, "Book": _side(one, "book_"), "Platform": _side(one, "")}
        row = "".join(f'<td data-name="{name}"><span>{cell}</span></td>' for name, cell in cells.items())
        yield f"<tr>{row}</tr>\n"
    yield "</tbody></table>\n"
    if report.counts[outcome] > _MOST:
        yield f"<p>The first {_MOST:,} of {report.counts[outcome]:,}; all are in differences.parquet.</p>"


def _side(one: Difference, side: str) -> str:
    """Return what a side says; what differs stands out."""
    said = []
    for name, (words, outcomes) in _WORDS.items():
        value = getattr(one, side + name)
        if value is not None:
            text = words.format(escape(value) if isinstance(value, str) else value)
            said.append(f"<b>{text}</b>" if one.outcome in outcomes else text)
    return ", ".join(said)
