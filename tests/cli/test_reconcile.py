"""``paymentsdk reconcile``, as somebody types it, against a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import FaultRule, Sandbox

pytestmark = pytest.mark.skipif(os.name == "nt", reason="it has no terminals of this kind")
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


class Shop:
    """A sandbox with paid orders, and a book of them."""

    def __init__(self, sandbox: Sandbox, directory: Path) -> None:
        self.sandbox = sandbox
        self.directory = directory
        self.book = directory / "book.csv"
        self.environment = {
            **os.environ,
            "PAYMENTSDK_BASE_URL": sandbox.base_url,
            "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token,
        }

    async def sell(self, orders: int, every: timedelta = timedelta(minutes=1, milliseconds=333)) -> None:
        """Have some orders paid, and write them to the book."""
        lines = ["reference,order_id,paid"]
        async with PaymentsClient(self.sandbox.access_token, base_url=self.sandbox.base_url) as client:
            for i in range(orders):
                self.sandbox.clock.advance(every)
                amount = Decimal("24.90")
                payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
                request = OrderRequest(external_reference=f"order-{i}", total_amount=amount, transactions=payments)
                order = await client.orders.create(request)
                self.sandbox.buyer.pay(order)
                lines.append(f"order-{i},{order.id},{amount}")
        self.book.write_text("\n".join(lines), encoding="utf-8")
        self.sandbox.clock.advance(timedelta(hours=2))

    def arguments(self, *more: str) -> list[str]:
        """The command line."""
        when = ["--from", BEGIN.isoformat(), "--to", (BEGIN + timedelta(days=1)).isoformat()]
        has_book = more and (more[0] == "--book" or not more[0].startswith("-"))
        book = [] if has_book else [str(self.book)]
        return [sys.executable, "-m", "paymentsdk", "reconcile", *book, "--out", "run", *more, *when]

    async def run(self, *more: str, environment: dict[str, str] | None = None) -> Done:
        """Run the command."""
        process = await asyncio.create_subprocess_exec(
            *self.arguments(*more),
            cwd=self.directory,
            env={**self.environment, **(environment or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Done(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop with six orders."""
    async with Sandbox(frozen_at=BEGIN) as sandbox:
        shop = Shop(sandbox, tmp_path)
        await shop.sell(6)
        yield shop


async def test_a_write_in_doubt_explains_a_difference(shop: Shop) -> None:
    """The records that are open in the journal are named, and nobody is told to put right what recovery will finish."""
    keep = PaymentsClient(
        shop.sandbox.access_token,
        base_url=shop.sandbox.base_url,
        journal=SQLiteJournal(shop.directory / "payments.db"),
        retry=RetryPolicy(attempts=1),
    )
    lost = FaultRule(effect="lose_response_after_commit", operation="orders.refund")
    order_id = shop.book.read_text(encoding="utf-8").split(",")[-2]
    async with keep as client:
        with shop.sandbox.faults.add(lost), pytest.raises(OutcomeUnknown):
            await client.orders.refund(order_id, once="order-5/refund")
    lines = shop.book.read_text(encoding="utf-8").splitlines()
    shop.book.write_text("\n".join(f"{line},{'refunded' if i == 0 else 0}" for i, line in enumerate(lines)))

    result = await shop.run("--json", environment={"PAYMENTSDK_JOURNAL": "payments.db"})

    report = json.loads(result.out)
    assert ["order-5/refund"] == report["open_records"]
    assert {"match": 5, "unknown": 1} == report["counts"]


async def test_an_address_that_names_no_journal_is_not_repeated(tmp_path: Path) -> None:
    """It has the password of a database; and this command has no --file."""
    address = "postgresql+asyncpg://shop:secret@127.0.0.1/payments"
    async with Sandbox(frozen_at=BEGIN) as sandbox:
        shop = Shop(sandbox, tmp_path)
        await shop.sell(0)
        result = await shop.run(environment={"PAYMENTSDK_JOURNAL": address})

    assert 2 == result.code
    assert "an address begins with postgresql://" in result.err
    assert "secret" not in result.err
    assert "--file" not in result.err


async def test_a_book_that_agrees_and_one_that_does_not(shop: Shop) -> None:
    """0 and 1; plain lines where there is no terminal; the report as JSON and CSV."""
    result = await shop.run()

    assert 0 == result.code
    assert result.out == (
        "orders  outcome  book    platform  difference\n"
        "6       Agrees   149.40  149.40    0.00\n"
        "Differences: run/differences.parquet\n"
    )
    assert ["walk", "changes", "comparison"] == [*dict.fromkeys(line.split(":")[0] for line in result.err.splitlines())]

    shop.book.write_text(shop.book.read_text().replace("24.90", "24.91", 1), encoding="utf-8")
    result = await shop.run("--json", "--csv", "report.csv")

    assert 1 == result.code
    assert {"paid_amount": 1, "match": 5} == json.loads(result.out)["counts"]
    assert 2 == len((shop.directory / "report.csv").read_text(encoding="utf-8").splitlines())


async def test_a_book_in_a_database(shop: Shop, dsn: str) -> None:
    """It is read where it is; without a query, or with a file besides, the command is invalid."""
    header, *lines = (line.split(",") for line in shop.book.read_text(encoding="utf-8").splitlines())
    values = ", ".join(f"('{reference}', '{order_id}', {paid})" for reference, order_id, paid in lines)
    query = f"SELECT * FROM (VALUES {values}) AS orders ({', '.join(header)})"

    result = await shop.run("--book", dsn, "--query", query)
    wrong = await shop.run("--book", dsn, "--query", query.replace("24.90", "25"), "--out", "another")

    assert (0, 1) == (result.code, wrong.code)
    rule = "BOOK: name either a file, or a database with both --book and --query"
    for arguments in (["--book", dsn], ["--query", query], ["book.csv", "--book", dsn, "--query", query]):
        result = await shop.run(*arguments)
        assert (2, f"paymentsdk: {rule}\n") == (result.code, result.err)


async def test_exit_codes_say_what_went_wrong(shop: Shop) -> None:
    """2 for what makes no sense, 3 for the token, 4 for the platform; no traceback, no token."""
    wrong = await shop.run("none.csv")
    assert (2, "paymentsdk: book: cannot be read") == (wrong.code, wrong.err[:32])
    unnamed = await shop.run("--accounts", "nowhere.json")
    assert (2, "paymentsdk: --accounts: cannot be read") == (unnamed.code, unnamed.err[:38])
    (shop.directory / "latin-1.json").write_bytes(b'{"shop-1": "TEST-\xff"}')
    for wrong_too in (("--from", "yesterday"), ("--accounts", "latin-1.json")):
        result = await shop.run(*wrong_too)
        assert (2, False) == (result.code, "Traceback" in result.err)

    token = await shop.run("--out", "other", environment={"PAYMENTSDK_ACCESS_TOKEN": "TEST-1-2-secret-3"})
    assert 3 == token.code
    assert "secret" not in token.err

    nobody = await shop.run("--out", "nobody", environment={"PAYMENTSDK_BASE_URL": "http://127.0.0.1:9"})
    assert 4 == nobody.code
    assert "Traceback" not in wrong.err + token.err + nobody.err


async def test_a_report_does_not_replace_the_journal(shop: Shop) -> None:
    """That of the environment is read as well; without it, each of its writes could be made a second time."""
    async with aclosing(SQLiteJournal(shop.directory / "payments.db")) as journal:
        await journal.records(())
    before = (shop.directory / "payments.db").read_bytes()

    result = await shop.run("--csv", "payments.db", environment={"PAYMENTSDK_JOURNAL": "payments.db"})

    assert (2, "") == (result.code, result.out)
    assert result.err.endswith("payments.db is an input of this command; name another file\n")
    assert before == (shop.directory / "payments.db").read_bytes()


async def test_sellers_that_cannot_be_read_are_named(shop: Shop) -> None:
    """Of five sellers three fail for good: 5, the others are reconciled, and the same directory goes on."""
    faults, tokens = [], {"shop-0": shop.sandbox.access_token}
    for i in range(1, 5):
        tenant = shop.sandbox.create_tenant()
        tokens[f"shop-{i}"] = tenant.access_token
        if i < 3:
            search, status = "merchant_orders.search", {1: 403, 2: 500}[i]
            rule = FaultRule(effect="fail_before_commit", operation=search, status=status, tenant=tenant.user_id)
            faults.append(shop.sandbox.faults.add(rule))
    lines = shop.book.read_text(encoding="utf-8").splitlines()
    rows = [f"shop-0,{line}" for line in lines[1:]] + [f"shop-{i},A-1,,1.00" for i in range(1, 4)]
    shop.book.write_text("\n".join([f"account,{lines[0]}", *rows]), encoding="utf-8")
    path = shop.directory / "tokens.json"
    path.write_text(json.dumps({**tokens, "shop-3": "TEST-0-0-dead-0"}), encoding="utf-8")

    run = await shop.run("--accounts", "tokens.json", "--json")

    assert 5 == run.code, run.err
    result = json.loads(run.out)
    assert {"match": 6, "not_read": 3} == result["counts"]
    assert not result["same"]
    assert {f"shop-{i}": str(status) for i, status in ((1, 403), (2, 500), (3, 401))} == {
        name: error.split()[0] for name, error in result["failed"].items()
    }
    for fault in faults:
        fault.remove()
    path.write_text(json.dumps(tokens), encoding="utf-8")
    run = await shop.run("--accounts", "tokens.json", "--json")
    assert (1, {"match": 6, "not_paid_or_missing": 3}) == (run.code, json.loads(run.out)["counts"]), run.err


async def test_ctrl_c_keeps_what_is_done(shop: Shop, until) -> None:
    """130, without a traceback; the same command goes on."""
    hang = shop.sandbox.faults.add(FaultRule(effect="hang", operation="merchant_orders.search", nth=3))
    process = await asyncio.create_subprocess_exec(
        *shop.arguments(), cwd=shop.directory, env=shop.environment, stderr=asyncio.subprocess.PIPE
    )
    await until(lambda: hang.hits)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()

    assert 130 == process.returncode
    assert b"the same command resumes" in err
    assert b"Traceback" not in err
    hang.remove()
    assert 0 == (await shop.run()).code
