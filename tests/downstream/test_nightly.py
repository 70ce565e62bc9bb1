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
from paymentsdk.sandbox import Sandbox
from tests.journal.platform import order

HERE = Path(__file__).parent
SELLERS = 30
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
            await asyncio.gather(*(self._sell_one(client.account(name), name) for name in tokens))
        self.rows.sort()
        self.rows[0] = (*self.rows[0][:2], AMOUNT + 1)
        self._sandbox.revoke(tokens["shop-7"])
        self._sandbox.clock.advance(timedelta(days=1))

    async def _sell_one(self, client: PaymentsClient, name: str) -> None:
        created = await client.orders.create(order(f"{name}-1", str(AMOUNT)))
        await asyncio.to_thread(self._sandbox.buyer.pay, created)
        self.rows.append((name, f"{name}-1", AMOUNT))

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[None]:
        """A Dask cluster with the environment of the program."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.reconcile.cluster", "1"),
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

    of_file, of_database = await asyncio.gather(shops.run(str(shops.folder / "book.csv"), "csv"), shops.run(dsn, "sql"))

    expected = {"match": SELLERS - 2, "paid_amount": 1, "not_read": 1}
    assert of_file == of_database == (1, expected, "shop-7")
    assert "The paid amount differs" in (shops.folder / "sql/report.html").read_text("utf-8")
