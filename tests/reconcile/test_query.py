"""`Book.query`: the book where it is, in PostgreSQL, with exact amounts and without its password in an error."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import asyncpg
import pytest

from paymentsdk import RequestInvalid
from paymentsdk.reconcile import Book, BookRow, Outcome
from tests.postgres import free_port
from tests.reconcile.planted import World
from tests.reconcile.test_book import nothing_sent
from tests.reconcile.test_reconcile import found, reconciled

SECRET = "secret-password"
TABLE = """CREATE TABLE orders (
    n int, account text, order_no text, order_id text, currency char(3), total numeric, paid numeric(20, 2),
    refunded numeric, status text, created timestamptz, remark text)"""
NAMES = {"reference": "order_no"}
ID = "01234567-89ab-4cde-8f01-23456789abcd"


async def fill(dsn: str, rows: list[BookRow]) -> None:
    """Make the table, with *rows*."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLE)
    columns = ("account", "reference", "order_id", "currency", "total", "paid", "refunded", "status", "created")
    records = [(n, *(row.get(name) for name in columns), "more") for n, row in enumerate(rows)]
    await connection.copy_records_to_table("orders", records=records)
    await connection.close()


async def test_a_book_in_a_database(tmp_path: Path, dsn: str) -> None:
    """Rows come through a cursor of the server; a column more is ignored, and columns have names of their own.

    A setting of the server does not change how moments are read.
    """
    world = World(60, grain=2)
    await fill(dsn, world.book)

    book = Book.query(f"{dsn}&datestyle=German", "SELECT * FROM orders ORDER BY n", names=NAMES)
    report = await reconciled(world, tmp_path, book)

    assert world.expected == found(report)


async def test_amounts_of_a_database_are_exact(tmp_path: Path, dsn: str) -> None:
    """Eighteen digits before the point and as many after it are compared to the last one."""
    world = World(1, grain=10**9)
    world.freeze()
    amount = "123456789012345678.123456789012345678"
    query = f"SELECT account, order_no AS reference, numeric '{amount}' AS paid, uuid '{ID}' AS order_id FROM orders"
    await fill(dsn, world.book)

    report = await reconciled(world, tmp_path, Book.query(dsn, query))

    [difference] = report.differences(Outcome.PAID_AMOUNT)
    assert (amount, ID) == (str(difference.book_paid), difference.order_id)


WRONG = {
    "a float": ("24.9::float8 AS paid", r"book\[1\].paid: .*floats are not exact"),
    "not a number": ("'NaN'::numeric AS paid", r"book\[1\].paid: .* not 'NaN'"),
    "no zone": ("timestamp '2026-01-01 10:00' AS created", r"book\[1\].created: .*time zone"),
    "a day": ("date '2026-01-01' AS created", r"book\[1\].created: .*time zone"),
    "a time without an end": ("'infinity'::timestamptz AS created", r"book\[1\].created: .* not 'infinity'"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_value_of_a_database_that_cannot_be(tmp_path: Path, dsn: str, case: str) -> None:
    """The error names the row and the column, and nothing is sent."""
    value, complaint = WRONG[case]
    name = value.rpartition(" ")[2]
    query = f"SELECT 'a' AS reference, NULL AS {name} UNION ALL SELECT 'b', {value}"

    with pytest.raises(RequestInvalid, match=complaint):
        await nothing_sent(Book.query(dsn, query), tmp_path)


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("SELEC 1", r"book: cannot be read: syntax error"),
        ("SELECT 1 AS n", r"book.reference: has no column reference; there are n"),
        ("SELECT 'a' AS reference, 'b' AS reference", r"book.reference: comes more than once"),
        ("DELETE FROM pg_class", r"book: cannot be read: syntax error"),
    ],
)
async def test_a_query_that_is_no_book(tmp_path: Path, dsn: str, query: str, complaint: str) -> None:
    """It is rejected before anything is sent; only what selects can be a book."""
    with pytest.raises(RequestInvalid, match=complaint) as rejected:
        await nothing_sent(Book.query(dsn, query), tmp_path)

    assert SECRET not in "".join(traceback.format_exception(rejected.value))


@pytest.mark.parametrize("place", ["port", "database", "address"])
async def test_an_error_shows_no_login(tmp_path: Path, dsn: str, place: str) -> None:
    """Neither its text nor a local variable on its way has the password; its text does not name the user."""
    addresses = {
        "port": f"postgresql://somebody:{SECRET}@127.0.0.1:{free_port()}/postgres",
        "database": dsn.replace("/postgres?", "/none?").replace("test:", "somebody:"),
        "address": f"postgresql://somebody:{SECRET}/@127.0.0.1:x/postgres",
    }
    book = Book.query(addresses[place], "SELECT 1")

    with pytest.raises(RequestInvalid, match="book: cannot be read") as rejected:
        await nothing_sent(book, tmp_path)

    frames = [frame for frame, _ in traceback.walk_tb(rejected.tb) if frame.f_code.co_filename != __file__]
    assert SECRET not in "".join(repr(value) for frame in frames for value in frame.f_locals.values())
    assert "somebody" not in str(rejected.value)
    assert SECRET not in f"{rejected.value}{vars(book)}"
    assert rejected.value.__context__ is None


async def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which extra brings it."""
    monkeypatch.setitem(sys.modules, "paymentsdk._psycopg", None)

    with pytest.raises(ImportError, match=r"needs psycopg.*\[postgres\]"):
        await nothing_sent(Book.query("postgresql://localhost/x", "SELECT 1"), tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow.*\[reconcile\]"):
        await nothing_sent(Book.rows([]), tmp_path)
