"""`pager.export(path)`: a search as a file that DuckDB, pandas, a spreadsheet or a program reads without loss."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import duckdb
import pytest

from paymentsdk import APIError, PaymentsClient, Request, RequestInvalid, Response
from paymentsdk.testing import MemoryTransport

INVOICE = """{"id": %d, "status": "processed", "transaction_amount": 10.10, "external_reference": "A-%d",
  "date_created": "2026-01-31T06:30:00.000-03:00", "extra": [1.10],
  "payment": {"id": 7%d, "status": "approved", "risk": 0.30000000000000004}}"""


def client_of(rows: Iterable[str], *, failing_from: int | None = None, items: str = "results") -> PaymentsClient:
    """Return a client of a platform whose searches have *rows*, and whose pages have ten."""
    entries = list(rows)

    def respond(request: Request) -> Response:
        transport.requests.clear()
        query = dict(parse_qsl(urlsplit(request.url).query))
        offset = int(query.get("offset", 0))
        if failing_from is not None and offset >= failing_from:
            return Response(400, {}, b'{"status": 400, "error": "bad-request", "message": "no"}')
        page = ", ".join(entries[offset : offset + 10])
        counts = f'"paging": {{"offset": {offset}, "limit": 10, "total": {len(entries)}}}'
        if items == "elements":
            counts = f'"total": {len(entries)}, "next_offset": {offset + 10}'
        return Response(200, {"Content-Type": "application/json"}, f'{{{counts}, "{items}": [{page}]}}'.encode())

    transport = MemoryTransport(respond)
    return PaymentsClient("TEST-1", base_url="http://127.0.0.1:1", transport=transport)


def invoices(number: int) -> list[str]:
    """Return *number* invoices as the platform sends them."""
    return [INVOICE % (i, i, i) for i in range(1, number + 1)]


def lines_of(path: Path) -> list[list[str]]:
    """Return the lines of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, strict=True))


async def export(path: Path, rows: Iterable[str], **search: object) -> int:
    """Export the invoices *rows*."""
    async with client_of(rows) as client:
        return await client.invoices.search(**search).export(path)


async def test_a_parquet_file_has_exact_amounts_and_moments(tmp_path):
    """DuckDB reads the columns of the Struct: decimals, moments with a time zone, and members by their place."""
    path = tmp_path / "invoices.parquet"

    assert 25 == await export(path, invoices(25))

    table = duckdb.connect().read_parquet(str(path))
    types = dict(zip(table.columns, map(str, table.types), strict=True))
    assert "DECIMAL(36,18)" == types["transaction_amount"]
    assert "TIMESTAMP WITH TIME ZONE" == types["date_created"]
    assert "VARCHAR" == types["id"] == types["payment.id"] == types["status"]
    assert "BIGINT" == types["retry_attempt"]
    assert "extra" not in types
    columns = '"payment.id", status, transaction_amount, date_created, debit_date'
    expected = ("725", "processed", Decimal("10.1"), datetime(2026, 1, 31, 9, 30, tzinfo=UTC), None)
    assert [expected] == table.filter("id = '25'").project(columns).fetchall()


async def test_lists_stay_lists(tmp_path):
    """DuckDB can `unnest` the payments of an order; CSV has them as JSON, with amounts as they are."""
    payment = '{"id": 5, "transaction_amount": 0.10, "date_approved": "2026-01-31T09:30:00Z"}'
    shipment = '{"receiver_address": {"street_name": "S"}}'
    order = f'{{"id": 1, "total_amount": 1.5, "payments": [{payment}], "shipments": [{shipment}]}}'
    for suffix in ("parquet", "csv"):
        async with client_of([order], items="elements") as client:
            await client.merchant_orders.search().export(tmp_path / f"orders.{suffix}")

    table = duckdb.connect().read_parquet(str(tmp_path / "orders.parquet"))
    assert [(Decimal("0.1"),)] == table.project("unnest(payments).transaction_amount").fetchall()
    assert [("S",)] == table.project("shipments[1].receiver_address.street_name").fetchall()
    header, line = lines_of(tmp_path / "orders.csv")
    assert "0.10" == json.loads(line[header.index("payments")])[0]["transaction_amount"]


async def test_a_csv_file(tmp_path):
    """Amounts and moments are as they were sent, and what a spreadsheet takes for a formula is text."""
    path = tmp_path / "invoices.csv"

    await export(path, [INVOICE.replace("A-", "=A-") % (1, 1, 1), '{"id": 2, "transaction_amount": -3}'])

    header, *lines = lines_of(path)
    first, second = (dict(zip(header, line, strict=True)) for line in lines)
    assert ("1", "10.10", "'=A-1") == (first["id"], first["transaction_amount"], first["external_reference"])
    assert ("2026-01-31T06:30:00-03:00", "71") == (first["date_created"], first["payment.id"])
    assert ("2", "-3", "") == (second["id"], second["transaction_amount"], second["payment.id"])


@pytest.mark.parametrize("options", [{}, {"certify": True}, {"prefetch": 4, "page_size": 10}])
async def test_json_lines_have_the_declared_members_that_were_sent(tmp_path, options: dict[str, object]):
    """Each line is a row: amounts keep their digits, and members that were not sent are absent."""
    path = tmp_path / "invoices.jsonl"

    assert 10 == await export(path, invoices(10), **options)

    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"A-{i}" for i in range(1, 11)] == [json.loads(line)["external_reference"] for line in lines]
    assert '"transaction_amount":10.10' in lines[0]
    assert json.loads(lines[0]) == {
        "id": 1,
        "status": "processed",
        "transaction_amount": 10.1,
        "external_reference": "A-1",
        "date_created": "2026-01-31T06:30:00-03:00",
        "payment": {"id": 71, "status": "approved"},
    }


async def test_an_entry_that_is_no_row_moves_no_other(tmp_path):
    """Entries that cannot be read as rows are left out, and the page names them."""
    path, anomalies = tmp_path / "invoices.jsonl", []
    rows = ['"none"', INVOICE % (1, 1, 1), "null", '{"id": 2, "reason": "half \\ud83d", "retry_attempt": "x"}', "[]"]

    async with client_of(rows) as client:
        number = await client.invoices.search().export(path, progress=lambda page: anomalies.extend(page.anomalies))

    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (2, 1, {"id": 2, "reason": "half \ufffd"}) == (number, first["id"], second)
    assert {"$.results[0]", "$.results[2]", "$.results[4]"} <= {anomaly.path for anomaly in anomalies}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
async def test_a_walk_that_fails_leaves_the_file_as_it_was(tmp_path, suffix: str):
    """The file is written as a whole or not at all: half of the rows would look like all of them."""
    path = tmp_path / f"invoices.{suffix}"
    path.write_text("yesterday")

    async with client_of(invoices(25), failing_from=20) as client:
        with pytest.raises(APIError):
            await client.invoices.search().export(path)

    assert "yesterday" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


async def test_an_empty_search_has_its_columns(tmp_path):
    """Whoever reads the file every night reads the same columns, also where nothing was sold."""
    assert 0 == await export(tmp_path / "none.parquet", [])
    assert 0 == await export(tmp_path / "none.csv", [])
    assert 0 == await export(tmp_path / "none.jsonl", [])

    table = duckdb.connect().read_parquet(str(tmp_path / "none.parquet"))
    [header] = lines_of(tmp_path / "none.csv")
    assert ([], header) == (table.fetchall(), table.columns)
    assert "transaction_amount" in header
    assert "" == (tmp_path / "none.jsonl").read_text()


async def test_a_value_that_does_not_fit_is_named(tmp_path):
    """No amount is rounded to fit: the error names the row and the column, and another format takes it."""
    rows = [INVOICE % (1, 1, 1), '{"id": 2, "transaction_amount": 0.1234567890123456789}']

    with pytest.raises(
        ValueError, match=r"transaction_amount of the row with id 2 does not fit .*decimal128\(36, 18\)"
    ):
        await export(tmp_path / "a.parquet", rows)
    assert 2 == await export(tmp_path / "a.csv", rows)

    assert "0.1234567890123456789" in (tmp_path / "a.csv").read_text()
    assert [tmp_path / "a.csv"] == list(tmp_path.iterdir())


async def test_another_suffix_is_rejected(tmp_path):
    """Nothing is sent, and nothing is written."""
    async with client_of([]) as client:
        with pytest.raises(RequestInvalid, match=r"path: must end in \.parquet, \.csv or \.jsonl"):
            await client.invoices.search().export(tmp_path / "invoices.xlsx")

    assert [] == list(tmp_path.iterdir())


async def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    """Rows leave memory once they are written: what a batch needs is all that an export needs."""
    monkeypatch.setattr("paymentsdk._paging.export._BATCH", 50)
    sizes: list[int] = []
    tracemalloc.start()
    try:
        async with client_of(invoices(600)) as client:
            await client.invoices.search().export(
                tmp_path / "invoices.csv", progress=lambda page: sizes.append(tracemalloc.get_traced_memory()[0])
            )
    finally:
        tracemalloc.stop()

    assert sizes[-1] - sizes[10] < 200_000
