"""What a reconciliation has found."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Context, Decimal, Inexact
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from paymentsdk.errors import NotWhole
from paymentsdk.journal import Record
from paymentsdk.reconcile._outcome import Difference, Outcome
from paymentsdk.reconcile._page import csv_fields, page
from paymentsdk.reconcile._rows import DIGITS, duckdb, parquet

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation


_PLACES = 2
_CENT = Decimal(1).scaleb(-_PLACES)
_EXACTLY = Context(prec=DIGITS, traps=[Inexact])
#: Columns by which orders are found.
_KEYS = ("account", "reference", "order_id", "created")


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
    """All changes up to this moment are in it, as far as the search showed them then. `None` if changes came faster
    than they could be read: each row is as it was at its `read_at`."""
    not_whole: tuple[NotWhole, ...]
    """Windows in which orders may be missing. Run again to walk them again."""
    open_records: tuple[Record, ...]
    """Open records in the client's journal, for `client.recover()`: a reconciliation moves no money."""

    @property
    def path(self) -> Path:
        """The Parquet file with the differences; its columns are the fields of `Difference`."""
        return self.directory / "differences.parquet"

    @property
    def is_same(self) -> bool:
        """Whether nobody has to look at anything."""
        return not self.not_whole and not any(self.counts[one] for one in Outcome if one.is_difference)

    def differences(self, *outcomes: Outcome) -> Iterator[Difference]:
        """Yield all that is no match, or what has one of *outcomes*, by account and reference."""
        wanted = {one.value for one in outcomes or Outcome}
        with parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    if row["outcome"] in wanted:
                        amounts = {name: _amount(row[name]) for name in row if isinstance(row[name], Decimal)}
                        yield Difference(**{**row, **amounts, "outcome": Outcome(row["outcome"])})

    def table(self) -> DuckDBPyRelation:
        """Return the differences as a relation of DuckDB, to be asked further."""
        relation: DuckDBPyRelation = duckdb().connect().read_parquet(str(self.path))
        return relation

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the differences to a CSV file. A field that a spreadsheet would take for a formula begins with `'`."""
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(Difference.__struct_fields__)
            lines.writerows(map(csv_fields, self.differences()))

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write a page for people: one file that loads nothing. It shows the first 1,000 differences of each kind."""
        begin, end = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in self.created)
        as_of = "each order at its own time" if self.as_of is None else f"{self.as_of:%Y-%m-%d %H:%M:%S} UTC"
        notes = [
            ("Not whole: orders may be missing here", [str(one) for one in self.not_whole]),
            ("Open in the journal: run `paymentsdk journal recover`", [str(one.name) for one in self.open_records]),
        ]
        lines = page(
            title=f"Reconciliation of {begin[:10]}" + (f" to {end[:10]}" if end[:10] > begin[:10] else ""),
            is_good=self.is_same,
            facts=[
                ("Orders made", f"from {begin} to {end} UTC"),
                ("Orders of the platform", f"{self.rows:,}"),
                ("Compared", ", ".join(one for one in self.columns if one not in _KEYS) or "only whether they exist"),
                ("As of", as_of),
            ],
            counts=self.counts,
            notes=[(heading, lines) for heading, lines in notes if lines],
            differences=self.differences,
        )
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(lines)


def _amount(kept: Decimal) -> Decimal:
    """Return an amount as people write it: with two places, or as many as it needs."""
    amount = kept.normalize(_EXACTLY)
    exponent = amount.as_tuple().exponent
    is_coarse = isinstance(exponent, int) and exponent > -_PLACES
    return amount.quantize(_CENT, context=_EXACTLY) if is_coarse else amount
