"""Writes a book and the files of a walk, to compare them or only to read them."""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import parquet

from paymentsdk._paging.proof import Window, milliseconds
from paymentsdk.reconcile import Book
from paymentsdk.reconcile._diff import Diff
from paymentsdk.reconcile._merchant_orders import kinds

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
SPAN = timedelta(days=30)
SELLERS = 20
#: One order in so many differs.
RARE = 200


class Comparing(Struct):
    """The measurements of a process."""

    what: str
    directory: str
    number: int
    """The number of written orders, or of orders that differ."""


def write(directory: Path, count: int) -> None:
    """Write a book of *count* orders, and 20 files of a walk; one order in `RARE` differs."""
    chance = random.Random(7)  # noqa: S311 - repeatable on purpose
    amounts = [Decimal(chance.randrange(100, 90_000)) / 100 for _ in range(count)]
    moments = [BEGIN + SPAN * (i / count) for i in range(count)]
    names = [f"shop-{i % SELLERS}" for i in range(count)]
    references = [f"order-{chance.randrange(10**12):012}-{i}" for i in range(count)]
    table = {
        "account": names,
        "reference": references,
        "currency": ["EUR"] * count,
        "total": amounts,
        "paid": amounts,
        "refunded": [Decimal(0)] * count,
        "created": moments,
    }
    types = kinds()
    book = pa.table({name: pa.array(column, types[name]) for name, column in table.items()})
    parquet.write_table(book, directory / "book.parquet")
    wrong = [amount + 1 if i % RARE == 0 else amount for i, amount in enumerate(amounts)]
    order = sorted(range(count), key=lambda i: (names[i], references[i]))
    columns = {
        "account": names,
        "id": [str(10**10 + i) for i in range(count)],
        "reference": references,
        "preference_id": [None] * count,
        "currency": ["EUR"] * count,
        "total": amounts,
        "paid": wrong,
        "refunded": [Decimal(0)] * count,
        "status": ["closed"] * count,
        "order_status": ["paid"] * count,
        "created": moments,
        "updated": moments,
        "read_at": [milliseconds(BEGIN + 2 * SPAN)] * count,
    }
    walked = pa.table({name: pa.array(column, types[name]) for name, column in columns.items()}).take(order)
    step = -(-count // 20)
    for i in range(20):
        parquet.write_table(walked.slice(i * step, step), directory / f"part-{i:02}.parquet", compression="lz4")


async def compare(directory: Path) -> int:
    """Return the number of orders that differ."""
    folder = directory / "own"
    folder.mkdir()
    diff = Diff(folder)
    columns = await Book.parquet(directory / "book.parquet").load(diff.database, folder)
    created = Window(milliseconds(BEGIN), milliseconds(BEGIN + SPAN))
    later = milliseconds(BEGIN + 2 * SPAN)
    parts = [directory / f"part-{i:02}.parquet" for i in range(SELLERS)]
    accounts = [f"shop-{i}" for i in range(SELLERS)]
    settings = {"settled": later, "oldest": 0, "doubtful": [], "accounts": accounts, "open_writes": []}
    diff.compare(created, parts, [], columns=columns, **settings)
    sums = diff.finish(folder / "differences.parquet", {})
    diff.close()
    return sum(line.orders for line in sums if line.outcome is not None and line.outcome.is_difference)


def read(directory: Path) -> None:
    """Read every column of both."""
    database = duckdb.connect(config={"threads": "2"})
    for pattern in ("book.parquet", "part-*.parquet"):
        database.execute("SELECT max(COLUMNS(*)) FROM read_parquet(?)", [str(directory / pattern)]).fetchall()


def main() -> None:
    """Measure the comparison or the read in a new process."""
    task = msgspec.json.decode(sys.argv[1], type=Comparing)
    directory = Path(task.directory)
    cpu, wall, wrong = time.process_time(), time.perf_counter(), 0
    match task.what:
        case "write":
            write(directory, task.number)
        case "read":
            read(directory)
        case _:
            wrong = abs(asyncio.run(compare(directory)) - task.number)
    sample = {
        "cpu_ms": (time.process_time() - cpu) * 1e3,
        "wall_ms": (time.perf_counter() - wall) * 1e3,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "wrong": float(wrong),
    }
    sys.stdout.buffer.write(msgspec.json.encode(sample))


if __name__ == "__main__":
    main()
