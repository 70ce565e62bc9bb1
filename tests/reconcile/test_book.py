"""Books from files, databases and rows: one meaning, and a clear error where a value cannot be."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from paymentsdk import PaymentsClient, RequestInvalid
from paymentsdk.reconcile import Book, BookRow, Report, reconcile
from paymentsdk.testing import MemoryTransport
from tests.reconcile.planted import CREATED, World
from tests.reconcile.test_reconcile import found, left_behind, reconciled

COLUMNS = ("account", "order_no", "order_id", "currency", "total", "paid", "refunded", "status", "created")
NAMES = {"reference": "order_no"}


def text(row: BookRow, name: str) -> str | None:
    """A value as text."""
    value = row["reference"] if name == "order_no" else row.get(name)
    return None if value is None else str(value)


def as_csv(rows: list[BookRow], path: Path) -> Book:
    """A CSV file with a column more."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*COLUMNS, "remark"])
        lines.writerows([*(text(row, name) for name in COLUMNS), 'says "hi", and more'] for row in rows)
    return Book.csv(path, names=NAMES)


def as_parquet(rows: list[BookRow], path: Path) -> Book:
    """Two Parquet files, with moments in a zone of their own."""
    kinds = {
        "created": pa.timestamp("us", "America/Sao_Paulo"),
        **dict.fromkeys(("total", "paid", "refunded"), pa.decimal128(12, 2)),
    }
    columns = {
        name: pa.array(
            [row["reference"] if name == "order_no" else row.get(name) for row in rows], kinds.get(name, pa.string())
        )
        for name in COLUMNS
    }
    path.mkdir()
    table = pa.table(columns)
    parquet.write_table(table.slice(0, 20), path / "a.parquet")
    parquet.write_table(table.slice(20), path / "b.parquet")
    return Book.parquet(path / "*.parquet", names=NAMES)


def as_csv_with_decimal_commas(rows: list[BookRow], path: Path) -> Book:
    """A CSV file as spreadsheets write it where amounts have a comma."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, delimiter=";")
        lines.writerow(COLUMNS)
        for row in rows:
            amounts = {name: (text(row, name) or "").replace(".", ",") for name in ("total", "paid", "refunded")}
            lines.writerow([amounts.get(name, text(row, name)) for name in COLUMNS])
    return Book.csv(path, names=NAMES, decimal_comma=True)


def as_async_rows(rows: list[BookRow], path: Path) -> Book:
    """An async generator, such as the cursor of an async driver."""

    async def read() -> AsyncIterator[BookRow]:
        for row in rows:
            await asyncio.sleep(0)
            yield row

    return Book.rows(read())


@pytest.mark.parametrize(
    "make", [as_csv, as_csv_with_decimal_commas, as_parquet, as_async_rows], ids=lambda make: make.__name__
)
async def test_a_book_is_the_same_from_wherever_it_comes(
    tmp_path: Path, make: Callable[[list[BookRow], Path], Book]
) -> None:
    """CSV and Parquet files, with a column of another name and a column more; rows that an event loop reads."""
    world = World(60, grain=2)

    report = await reconciled(world, tmp_path / "out", make(world.book, tmp_path / "book"))

    assert world.expected == found(report)


async def test_what_the_book_does_not_say_is_not_compared(tmp_path: Path) -> None:
    """A book of references alone asks whether the orders exist; the report says what was compared."""
    world = World(60, grain=10**9)
    world.sellers["shop-0"].shown[0].refunded = Decimal(1)
    columns = {name: [row[name] for row in world.book] for name in ("account", "reference")}
    parquet.write_table(pa.table(columns), tmp_path / "book.parquet")

    report = await reconciled(world, tmp_path, Book.parquet(tmp_path / "book.parquet"))

    assert {} == found(report)
    assert ("account", "reference") == report.columns


STATES = (
    "action_required, approved, canceled, cancelled, closed, created, expired, failed, opened, paid, "
    "partially_refunded, payment_required, pending, processed, processing, refunded, reverted"
)
WRONG = {
    "a float": (BookRow(reference="a", paid=1.5), r"book\[1\].paid: .*floats are not exact"),
    "an exponent": (BookRow(reference="a", paid="1e3"), r"book\[1\].paid: .* not '1e3'"),
    "a decimal comma": (BookRow(reference="a", total="1,50"), r"book\[1\].total: .* not '1,50'"),
    "nineteen places": (BookRow(reference="a", paid=Decimal("1e-19")), r"book\[1\].paid: .*18 places"),
    "too much": (BookRow(reference="a", paid=10**21), r"book\[1\].paid"),
    "not a number": (BookRow(reference="a", paid=Decimal("NaN")), r"book\[1\].paid"),
    "truth": (BookRow(reference="a", paid=True), r"book\[1\].paid"),
    "no zone": (BookRow(reference="a", created=datetime(2026, 1, 1)), r"book\[1\].created: .*time zone"),  # noqa: DTZ001
    "no zone in text": (BookRow(reference="a", created="2026-01-01T00:00:00"), r"book\[1\].created: .*time zone"),
    "no day": (BookRow(reference="a", created="2026-02-31T00:00:00Z"), r"book\[1\].created"),
    "no reference": (BookRow(paid=1), r"book\[1\].reference"),
    "half an emoji": (BookRow(reference="a\ud83d"), r"book\[1\].reference: is not UTF-8, or has half a character"),
    "an empty reference": (BookRow(reference=""), r"book\[1\].reference"),
    "a status": (BookRow(reference="a", status="done"), rf"book\[1\].status: must be one of {STATES}, not 'done'"),
    "no dict": (["a", 1], r"book\[1\]: must be a dict"),
    "another name": ({"reference": "a", "paied": 1}, r"book\[1\].paied: is no column of a book"),
    "a second seller": (BookRow(reference="a", account="shop-1"), r"book.account: is needed in every row"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_value_that_cannot_be_is_rejected(tmp_path: Path, case: str) -> None:
    """The error names the row, the column and the rule, and nothing is sent."""
    row, complaint = WRONG[case]

    with pytest.raises(RequestInvalid, match=complaint):
        await nothing_sent(Book.rows([BookRow(reference="fine", paid=Decimal("24.90")), row]), tmp_path)


async def test_a_row_is_counted_from_the_begin_of_the_book(tmp_path: Path) -> None:
    """Also far behind."""
    with pytest.raises(RequestInvalid, match=r"book\[10000\].paid"):
        await nothing_sent(Book.rows(BookRow(reference="a", paid=i == 10_000 or None) for i in range(10_001)), tmp_path)


@pytest.mark.parametrize("amount", ["1.024,90", "24.90"])
async def test_a_point_is_no_decimal_comma(tmp_path: Path, amount: str) -> None:
    """It may separate thousands: 1.024 would be read as one instead of a thousand."""
    (tmp_path / "book.csv").write_text(f"reference;paid\na;1,5\nb;{amount}\n", encoding="utf-8")

    with pytest.raises(RequestInvalid, match=rf"book\[1\].paid: must have a decimal comma .* not '{amount}'"):
        await nothing_sent(Book.csv(tmp_path / "book.csv", decimal_comma=True), tmp_path)


async def nothing_sent(book: Book, out: Path) -> Report:
    """Reconcile with a client that must not be used."""
    transport = MemoryTransport(lambda request: 1 / 0)
    async with PaymentsClient("token", base_url="https://x", transport=transport) as client:
        try:
            return await reconcile(book, client, created=CREATED, out=out)
        finally:
            assert [] == transport.requests
            assert not left_behind(out)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (b"a,1\n\nb,1,2\nc,3\n", "line 4: 3 fields, but the first line has 2"),
        (b"# a remark\nb,2\n", "line 2: 1 fields, but the first line has 2"),
        (b'"a\nb",1\n"b,2\n\nc,3\n', "line 4: unexpected end of data"),
        (b'a,1\n"b"x,2\nc,3\n', "line 3: ',' expected after '\"'"),
        (b"a,1\n" * 50_000 + b"b\n", "line 50002: 1 fields, but the first line has 2"),
    ],
    ids=["too-many", "remark", "open-quote", "behind-a-quote", "far-behind"],
)
async def test_what_is_wrong_with_a_csv_file_is_said_in_a_line(tmp_path: Path, lines: bytes, place: str) -> None:
    """With the file and its line."""
    path = tmp_path / "book[1].csv"
    path.write_bytes(b"reference,paid\n" + lines)

    with pytest.raises(RequestInvalid) as raised:
        await nothing_sent(Book.csv(path), tmp_path)

    message = str(raised.value)
    assert f"{path}" in message
    assert place in message
    assert len(message) < len(str(path)) + 200


async def test_a_file_that_cannot_be_a_book_is_rejected(tmp_path: Path) -> None:
    """Columns of the wrong type, columns that are not there, and no file at all."""
    path = tmp_path / "book.parquet"
    parquet.write_table(pa.table({"reference": ["a"], "paid": [1.5]}), path)
    with pytest.raises(RequestInvalid, match=r"book.paid: .*floats are not exact\), not DOUBLE"):
        await nothing_sent(Book.parquet(path), tmp_path)
    parquet.write_table(pa.table({"order": ["a"]}), path)
    with pytest.raises(RequestInvalid, match=r"book.reference: has no column reference; there are order"):
        await nothing_sent(Book.parquet(path), tmp_path)
    parquet.write_table(pa.table({"reference": ["a"], "Paid": ["1.50"]}), path)
    with pytest.raises(RequestInvalid, match=r"book.paid: has no column paid; there are reference, Paid"):
        await nothing_sent(Book.parquet(path), tmp_path)
    parquet.write_table(pa.table({"order": ["a"]}), path)
    with pytest.raises(RequestInvalid, match=r"book.paid: has no column amount"):
        await nothing_sent(Book.parquet(path, names={"reference": "order", "paid": "amount"}), tmp_path)
    with pytest.raises(RequestInvalid, match="book: cannot be read"):
        await nothing_sent(Book.csv(tmp_path / "none.csv"), tmp_path)
    for separator in (";", "\t"):
        (tmp_path / "other.csv").write_text(f"reference{separator}paid\nA-1{separator}10.50\n", encoding="utf-8")
        with pytest.raises(RequestInvalid, match="there are reference") as rejected:
            await nothing_sent(Book.csv(tmp_path / "other.csv"), tmp_path)
        advice = "save the file with commas, and amounts such as 10.50"
        advice += ", or read it with decimal_comma" if separator == ";" else ""
        assert rejected.value.reason.endswith(f" (separated by {separator!r}? {advice})")
    (tmp_path / "other.csv").write_text('"a"b', encoding="utf-8")
    with pytest.raises(RequestInvalid, match="line 1: "):
        await nothing_sent(Book.csv(tmp_path / "other.csv"), tmp_path)
    for read in (Book.csv, Book.parquet):
        with pytest.raises(RequestInvalid, match=r"^path: "):
            read("https://shop:secret@127.0.0.1/book")
    with pytest.raises(RequestInvalid, match="is no column of a book"):
        Book.csv(path, names={"ref": "a"})
