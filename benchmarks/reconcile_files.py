"""Writes a book and the files of a walk, to compare them or only to read them."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow import parquet

from paymentsdk._paging.proof import Window, milliseconds
from paymentsdk.reconcile import Book
from paymentsdk.reconcile._diff import Diff
from paymentsdk.reconcile._merchant_orders import kinds

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
SPAN = timedelta(days=30)
LATER = milliseconds(BEGIN + 2 * SPAN)
SELLERS = 20
#: One order in so many differs.
RARE = 200


def write(directory: Path, count: int) -> int:
    """Write a book of *count* orders, and 20 files of a walk; one order in `RARE` differs."""
    chance = random.Random(7)  # noqa: S311 - repeatable on purpose
    amounts = [Decimal(chance.randrange(100, 90_000)) / 100 for _ in range(count)]
    book = {
        "account": [f"shop-{i % SELLERS}" for i in range(count)],
        "reference": [f"order-{chance.randrange(10**12):012}-{i}" for i in range(count)],
        "currency": ["EUR"] * count,
        "total": amounts,
        "paid": amounts,
        "refunded": [Decimal(0)] * count,
        "created": [BEGIN + SPAN * (i / count) for i in range(count)],
    }
    parquet.write_table(_table(book), directory / "book.parquet")
    columns = {
        **book,
        "id": [str(10**10 + i) for i in range(count)],
        "preference_id": [None] * count,
        "paid": [amount + 1 if i % RARE == 0 else amount for i, amount in enumerate(amounts)],
        "status": ["closed"] * count,
        "order_status": ["paid"] * count,
        "updated": book["created"],
        "read_at": [LATER] * count,
    }
    order = sorted(range(count), key=lambda i: (book["account"][i], book["reference"][i]))
    walked = _table(columns).take(order)
    step = -(-count // SELLERS)
    for i in range(SELLERS):
        parquet.write_table(walked.slice(i * step, step), directory / f"part-{i:02}.parquet", compression="lz4")
    return 0


def _table(columns: dict[str, list[object]]) -> pa.Table:
    """Return *columns* with the types and in the order of a walk."""
    return pa.table({name: pa.array(columns[name], kind) for name, kind in kinds().items() if name in columns})


def compare(directory: Path, count: int) -> int:
    """Compare the book with the files; return by how much the number of differences is wrong."""
    folder = directory / "own"
    folder.mkdir()
    diff = Diff(folder)
    columns = asyncio.run(Book.parquet(directory / "book.parquet").load(diff.database, folder))
    created = Window(milliseconds(BEGIN), milliseconds(BEGIN + SPAN))
    parts = [directory / f"part-{i:02}.parquet" for i in range(SELLERS)]
    accounts = [f"shop-{i}" for i in range(SELLERS)]
    settings = {"settled": LATER, "oldest": 0, "doubtful": [], "accounts": accounts, "open_writes": []}
    diff.compare(created, parts, [], columns=columns, **settings)
    sums = diff.finish(folder / "differences.parquet", {})
    diff.close()
    differences = sum(line.orders for line in sums if line.outcome is not None and line.outcome.is_difference)
    return abs(differences - count // RARE)


def read(directory: Path, count: int) -> int:
    """Read every column of both."""
    del count
    database = duckdb.connect(config={"threads": "2"})
    for pattern in ("book.parquet", "part-*.parquet"):
        database.execute("SELECT max(COLUMNS(*)) FROM read_parquet(?)", [str(directory / pattern)]).fetchall()
    return 0


TASKS = {"write": write, "read": read, "diff": compare}
