"""The report of a reconciliation: outcomes, differences, and a CSV file for spreadsheets."""

import csv
import glob
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
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
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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
    """The result of a reconciliation. Its files stay in the directory of the run."""

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
        differs = any(number and outcome.is_difference for outcome, number in self.counts.items())
        return not (self.not_whole or self.failed or differs)

    def differences(self, *outcomes: Outcome) -> Iterator[Difference]:
        """Yield all that is no match, or what has one of *outcomes*, by account and reference."""
        values = {outcome.value for outcome in outcomes or Outcome}
        with parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    if row["outcome"] in values:
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
            lines.writerows(_csv_fields(difference) for difference in self.differences())


def _amount(stored: Decimal) -> Decimal:
    """Return an amount as people write it: with two places, or as many as it needs."""
    amount = stored.normalize(EXACTLY)
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
