"""The comparison of a book with the orders of a walk, in DuckDB, so the rows need not fit into memory."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from paymentsdk._files import whole
from paymentsdk._paging.proof import Window, moment_of
from paymentsdk.errors import NotWhole, PaymentsError
from paymentsdk.reconcile._book import STATES, Subject
from paymentsdk.reconcile._merchant_orders import arrow, duckdb, kinds
from paymentsdk.reconcile._sums import Sum, sum_of_columns

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: The memory of DuckDB; the rest is on disk.
_MEMORY = "256MB"
_BATCH = 10_000
#: Orders with repeated references that are compared in one step.
_MOST_REPEATED = 200_000
#: The keys by which orders are paired, the best first: all compared columns, all amounts, the paid amount, whether the
#: order was paid, or no key.
_ALIKE = ("f", "amounts", "paid", "got_paid", "true")
#: Columns that determine an outcome.
_COMPARED = ("currency", "total", "paid", "refunded", "status")


class Absent(NamedTuple):
    """An order of the book that the walk has not found."""

    n: int
    """The number of its row in the book."""
    account: str
    reference: str
    order_id: str


class LookedUp(Struct, frozen=True, kw_only=True):
    """The result of a look-up: a merchant order of the reference, or the order of the id.

    `id` is `None` if no order was found.
    """

    by_id: bool = False
    is_doubtful: bool = False
    """Whether the platform may have more orders of the reference than the search showed."""
    id: str | None = None
    currency: str | None = None
    total: Decimal | None = None
    paid: Decimal | None = None
    refunded: Decimal | None = None
    status: str | None = None
    created: datetime | None = None
    reason: str | None = None
    """Why the order could not be read."""
    read_at: datetime | None = None
    """`None` if the order could not be read."""


def read_sql() -> dict[str, str]:
    """Return the SQL of each part of the comparison, by name."""
    _, *parts = files("paymentsdk.reconcile").joinpath("_diff.sql").read_text(encoding="utf-8").split("-- @")
    return dict(part.split("\n", 1) for part in parts)


class Diff:
    """A running comparison, with its database in memory and partly in files.

    Args:
        directory: The directory of these files.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._parts = read_sql()
        config = {
            "memory_limit": _MEMORY,
            "threads": str(min(4, os.cpu_count() or 1)),
            "temp_directory": str(directory / "spill"),
            # DuckDB would download extensions.
            "autoinstall_known_extensions": "false",
        }
        self.database: DuckDBPyConnection = duckdb().connect(config=config)
        self._run("SET TimeZone = 'UTC'")
        cases = " ".join(f"WHEN '{name}' THEN '{state}'" for name, state in STATES.items())
        self._run(f"CREATE MACRO state_of(word) AS CASE lower(word) {cases} END")

    def close(self) -> None:
        """Close the database, after interrupting a thread that still uses it for a cancelled wait."""
        busy = True
        while busy:
            self.database.interrupt()
            try:
                self.database.close()
                busy = False
            except duckdb().Error:
                time.sleep(0.001)

    def accounts(self) -> list[str]:
        """Return the accounts of the book, sorted."""
        return [str(row[0]) for row in self._run("SELECT DISTINCT account FROM book ORDER BY account")]

    def compare(
        self,
        created: Window,
        parts: Sequence[Path],
        changes: Sequence[Path],
        *,
        columns: Collection[str],
        settled: int,
        oldest: int,
        doubtful: Iterable[NotWhole],
        accounts: Iterable[str],
        open_writes: Iterable[Subject],
    ) -> int:
        """Compare the *columns* of the book with the rows in *parts*, and return how many orders were not found."""
        moments = {"begin": created.begin, "end": created.end, "settled": settled, "oldest": oldest}
        for name, moment in moments.items():
            self._run(f'SET VARIABLE "{name}" = ?::TIMESTAMPTZ', moment_of(moment).isoformat())
        # Parts may have rows of other accounts, from an earlier run in the directory.
        self._run("SET VARIABLE accounts = ?", list(accounts))
        for name, paths in (("walked", parts), ("changed_rows", changes)):
            self._view(name, paths)
        compared = ", ".join(["''", *(name for name in _COMPARED if name in columns)])
        self._run(f"CREATE MACRO fingerprint({', '.join(_COMPARED)}) AS (hash({compared}) >> 1)::BIGINT")
        self._part("setup")
        for write in open_writes:
            self._run("INSERT INTO open_writes VALUES (?, ?, ?)", *write)
        for error in doubtful:
            begin, end = (moment.isoformat() for moment in error.window)
            self._run("INSERT INTO doubtful VALUES (?, ?, ?)", error.account or "", begin, end)
        self._run("SET VARIABLE is_looked_up = false")
        self._part("candidates")
        self._judge()
        self._part("look_up")
        return self._count("absent")

    def absent(self) -> Iterator[Absent]:
        """Yield the orders that were not found, alternating between the accounts."""
        rows = self.database.cursor().execute(self._parts["absent"])
        while batch := rows.fetchmany(_BATCH):
            for row in batch:
                yield Absent(*row)

    def add_looked_up(self, orders: Iterable[tuple[Absent, Iterable[LookedUp]]]) -> None:
        """Add the results of look-ups."""
        pa = arrow()
        types = {**kinds(), "n": pa.int64(), "by_id": pa.bool_(), "is_doubtful": pa.bool_(), "reason": pa.string()}
        schema = pa.schema([(name, types[name]) for name in ("n", "account", "reference", *LookedUp.__struct_fields__)])
        batch = [{**order._asdict(), **asdict(row)} for order, rows in orders for row in rows]
        self.database.register("batch", pa.Table.from_pylist(batch, schema))
        self._run("INSERT INTO looked_up FROM batch")
        self.database.unregister("batch")

    def forget_looked_up(self, accounts: Iterable[str]) -> None:
        """Delete the results of look-ups for *accounts*."""
        self._run("DELETE FROM looked_up WHERE account IN (SELECT unnest(?::VARCHAR[]))", list(accounts))

    def finish(self, path: Path, failed: Mapping[str, PaymentsError]) -> tuple[Sum, ...]:
        """Decide about the orders that were not found, write all differences to *path*, and return the sums."""
        self._run("SET VARIABLE is_looked_up = true")
        self._part("looked_up")
        self._judge()
        for account, error in failed.items():
            self._run("INSERT INTO failed VALUES (?, ?)", account, str(error))
        self._part("decide")
        self._part("differences")
        ordered = "SELECT * EXCLUDE n FROM differences ORDER BY account, reference, merchant_order_ids, order_id, n"
        with whole(path) as unfinished:
            target = str(unfinished).replace("'", "''")
            self._run(f"COPY ({ordered}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
        return tuple(sum_of_columns(columns) for columns in self._sums())

    def _sums(self) -> list[tuple[object, ...]]:
        try:
            return self._part("sums")
        except duckdb().OutOfRangeException:
            self._part("exact_sums")
            return self._part("sums")

    def _judge(self) -> None:
        """Pair the orders of both sides and judge the pairs, in steps that fit into memory."""
        steps = 1 + (self._count("ours_left") + self._count("theirs_left")) // _MOST_REPEATED
        for step in range(steps):
            self._run("SET VARIABLE steps = ?", steps)
            self._run("SET VARIABLE step = ?", step)
            self._part("orders")
            for key in _ALIKE:
                self._run(self._parts["pair"].replace(":key", key))
            for key in ("f", "true"):
                self._run(self._parts["double"].replace(":key", key))
            self._part("judge")

    def _count(self, table: str) -> int:
        return len(self.database.table(table))

    def _view(self, name: str, paths: Sequence[Path]) -> None:
        """Create a view of the rows in some files."""
        empty = name if not paths else f"no_{name}"
        self.database.register(empty, arrow().schema(list(kinds().items())).empty_table())
        if paths:
            self._run(f"SET VARIABLE {name} = ?", [str(path) for path in paths])
            # Files of version 0.2.0 have no column `unread`.
            files = f"FROM read_parquet(getvariable('{name}'), union_by_name = true)"
            self._run(f"CREATE VIEW {name} AS {files} UNION ALL BY NAME FROM {empty}")

    def _part(self, name: str) -> list[tuple[object, ...]]:
        return self._run(self._parts[name])

    def _run(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        engine = duckdb()
        try:
            return self.database.execute(statement, list(values)).fetchall()
        except (engine.IOException, engine.OutOfMemoryException) as error:
            raise OSError(f"the comparison lacks memory, disk space or a file: {error}") from None
