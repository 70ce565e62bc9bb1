"""A nightly job of thirty sellers that was written from the documentation alone, over a CSV file and a SQL database."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import asyncpg
import pytest

from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import Sandbox

HERE = Path(__file__).parent
SELLERS, ORDERS = 30, 3
AMOUNT = Decimal("24.90")


class Shops:
    """Thirty sellers, one of which has a dead token, and their book, in which one amount is wrong."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.folder = folder
        self.rows: list[tuple[str, str, Decimal]] = []
        self._sandbox = sandbox
        self._environment = {
            **os.environ,
            "PAYMENTSDK_BASE_URL": sandbox.base_url,
            "SELLERS": str(folder / "sellers.json"),
        }

    async def sell(self) -> None:
        """Have each seller sell a few orders, yesterday."""
        tokens = {f"shop-{number}": self._sandbox.create_tenant().access_token for number in range(SELLERS)}
        (self.folder / "sellers.json").write_text(json.dumps(tokens))
        async with PaymentsClient(base_url=self._sandbox.base_url, accounts=tokens) as client:
            for name in tokens:
                for number in range(ORDERS):
                    payments = TransactionsRequest(payments=[PaymentRequest(amount=AMOUNT)])
                    reference = f"{name}-{number}"
                    request = OrderRequest(external_reference=reference, total_amount=AMOUNT, transactions=payments)
                    order = await client.account(name).orders.create(request)
                    await asyncio.to_thread(self._sandbox.buyer.pay, order)
                    self.rows.append((name, reference, AMOUNT))
        self.rows[0] = (*self.rows[0][:2], AMOUNT + 1)
        self._sandbox.revoke(tokens["shop-7"])
        self._sandbox.clock.advance(timedelta(days=1))

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[None]:
        """A Dask cluster of two workers with the environment of the program."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.reconcile.cluster", "2"),
            cwd=HERE.parents[1],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        self._environment["SCHEDULER"] = (await process.stdout.readline()).decode().strip()
        yield
        await process.communicate(b"")  # It ends with its standard input.

    async def run(self, book: str, out: str) -> tuple[int, dict[str, int], str]:
        """Run the program; return its exit code, the outcomes, and the sellers that could not be read."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(HERE / "nightly.py"), book, str(self.folder / out)),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        printed, errors = await process.communicate()
        assert printed, errors.decode()
        return process.returncode or 0, json.loads(printed), errors.decode().strip()


@pytest.fixture
async def shops(tmp_path: Path) -> AsyncIterator[Shops]:
    """Shops that have sold."""
    yesterday = datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0) - timedelta(days=1)
    async with Sandbox(frozen_at=yesterday) as sandbox:
        shops = Shops(sandbox, tmp_path)
        await shops.sell()
        async with shops.cluster():
            yield shops


async def test_the_book_is_held_against_the_platform(shops: Shops, dsn: str) -> None:
    """From both kinds of books: the same outcomes, the dead token is named, and finance gets a page."""
    with (shops.folder / "book.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("shop", "name", "amount"), *shops.rows])
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE sale (shop text, name text, amount numeric)")
    await connection.copy_records_to_table("sale", records=shops.rows)
    await connection.close()

    of_file = await shops.run(str(shops.folder / "book.csv"), "csv")
    of_database = await shops.run(dsn, "sql")

    expected = {"match": SELLERS * ORDERS - ORDERS - 1, "paid_amount": 1, "not_read": ORDERS}
    assert of_file == of_database == (1, expected, "shop-7")
    assert "The paid amount differs" in (shops.folder / "sql/report.html").read_text("utf-8")
