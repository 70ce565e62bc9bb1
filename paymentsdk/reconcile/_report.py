"""The report of a reconciliation: outcomes, differences, and a CSV file for spreadsheets."""

import csv
import glob
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import astuple

from paymentsdk._files import whole
from paymentsdk._paging.export import csv_field
from paymentsdk.errors import NotWhole, PaymentsError
from paymentsdk.journal import Record
from paymentsdk.reconcile._merchant_orders import duckdb, parquet
from paymentsdk.reconcile._outcome import Outcome
from paymentsdk.reconcile._page import page
from paymentsdk.reconcile._sums import Sum, add_up, amount_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation


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
    paid_difference: Decimal | None
    """What was paid on the platform less what was paid in the book; an order that one side does not have is 0 there.
    `None` if it is not known, or if the two currencies differ."""
    book_refunded: Decimal | None
    """What was given back of it, as the book says."""
    refunded: Decimal | None
    """What was given back of it, as the platform says; in sum over all orders of a double."""
    refunded_difference: Decimal | None
    """As `paid_difference`, of what was given back."""
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
    """The result of a reconciliation. Its files stay in the directory of the run."""

    directory: Path
    """`out`."""
    sums: tuple[Sum, ...]
    """How many orders have each outcome, and their amounts: by seller, currency and outcome."""
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
    def counts(self) -> Counter[Outcome]:
        """How many orders have each outcome, of the book's that are in question and of those that it does not have."""
        counts: Counter[Outcome] = Counter()
        for line in self.sums:
            if line.outcome is not None and line.orders:
                counts[line.outcome] += line.orders
        return counts

    @property
    def totals(self) -> tuple[Sum, ...]:
        """The sums over all sellers, by currency and outcome."""
        return add_up(self.sums, lambda line: ("", line.currency, line.outcome))

    @property
    def path(self) -> Path:
        """The Parquet file with the differences; its columns are the fields of `Difference`."""
        return self.directory / "differences.parquet"

    @property
    def is_same(self) -> bool:
        """Whether nobody has to look at anything."""
        differs = any(number and outcome.is_difference for outcome, number in self.counts.items())
        return not (self.not_whole or self.failed or differs)

    def differences(self, *outcomes: Outcome) -> Iterator[Difference]:
        """Yield all that is no match, or what has one of *outcomes*, by account and reference."""
        values = {outcome.value for outcome in outcomes or Outcome}
        with parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    if row["outcome"] in values:
                        amounts = {name: amount_of(row[name]) for name in row if isinstance(row[name], Decimal)}
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
            lines.writerows(map(csv_field, astuple(difference)) for difference in self.differences())

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write a page for people: the totals, the sums of each seller, and the differences. It needs no other file.

        It has the first 1,000 differences of each outcome; all are in the CSV file.
        """
        with whole(Path(path)) as unfinished:
            unfinished.write_text(page(self), encoding="utf-8")
