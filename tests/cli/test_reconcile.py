"""``paymentsdk reconcile``, as somebody types it, against a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.journal import SQLiteJournal
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.journal.platform import order
from tests.postgres import Server

pytestmark = pytest.mark.skipif(os.name == "nt", reason="it has no signals of this kind")
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
BOOK = Path("book.csv")


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


class Shop:
    """A sandbox with paid orders, and a book of them."""

    def __init__(self, sandbox: Sandbox, command: Callable[..., tuple[int, str, str]]) -> None:
        self.sandbox = sandbox
        self._command = command

    async def sell(self, orders: int) -> str:
        """Have some orders paid, and return the book of them."""
        lines = ["reference,order_id,paid"]
        async with PaymentsClient.from_env() as client:
            for i in range(orders):
                self.sandbox.clock.advance(timedelta(minutes=1, milliseconds=333))
                created = await client.orders.create(order(f"order-{i}", "24.90"))
                self.sandbox.buyer.pay(created)
                lines.append(f"order-{i},{created.id},24.90")
        self.sandbox.clock.advance(timedelta(hours=2))
        return "\n".join(lines)

    def run(self, *more: str) -> Done:
        """Run the command."""
        when = ["--from", BEGIN.isoformat(), "--to", (BEGIN + timedelta(days=1)).isoformat()]
        has_book = more and (more[0] == "--book" or not more[0].startswith("-"))
        book = [] if has_book else [str(BOOK)]
        return Done(*self._command("reconcile", *book, "--out", "run", *more, *when))


@pytest.fixture
def settings() -> dict[str, object]:
    """A sandbox of some days ago."""
    return {"frozen_at": BEGIN}


@pytest.fixture
def shop(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str, str]]) -> Shop:
    """A shop with six orders, and commands that try once."""
    monkeypatch.setattr(PaymentsClient, "from_env", partial(PaymentsClient.from_env, retry=RetryPolicy(attempts=1)))
    shop = Shop(sandbox, run)
    BOOK.write_text(asyncio.run(shop.sell(6)), encoding="utf-8")
    return shop


def test_a_write_in_doubt_explains_a_difference(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that are open in the journal are named, and nobody is told to put right what recovery will finish."""

    async def refund(order_id: str) -> None:
        journal = SQLiteJournal("payments.db")
        async with PaymentsClient.from_env(journal=journal) as client:
            with pytest.raises(OutcomeUnknown):
                await client.orders.refund(order_id, once="order-5/refund")

    lines = BOOK.read_text(encoding="utf-8").splitlines()
    with shop.sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.refund")):
        asyncio.run(refund(lines[-1].split(",")[1]))
    BOOK.write_text("\n".join(f"{line},{'refunded' if i == 0 else 0}" for i, line in enumerate(lines)))
    monkeypatch.setenv("PAYMENTSDK_JOURNAL", "payments.db")

    report = json.loads(shop.run("--json").out)
    advice = ["A change is not finished: Run `paymentsdk journal recover`, then run again."]
    advice += ["1 record open in the journal: run `paymentsdk journal recover`"]

    assert advice == shop.run().out.splitlines()[-3:-1]
    assert ["order-5/refund"] == report["open_records"]
    assert {"match": 5, "unknown": 1} == report["counts"]


def test_an_address_that_names_no_journal_is_not_repeated(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the password of a database; and this command has no --file."""
    monkeypatch.setenv("PAYMENTSDK_JOURNAL", "postgresql+asyncpg://shop:secret@127.0.0.1/payments")

    result = shop.run()

    assert 2 == result.code
    assert "an address begins with postgresql://" in result.err
    assert "secret" not in result.err
    assert "--file" not in result.err


def test_a_book_that_agrees_and_one_that_does_not(shop: Shop) -> None:
    """0 and 1; plain lines where there is no terminal; the report as JSON and CSV."""
    result = shop.run()

    assert 0 == result.code
    assert result.out == (
        "orders  outcome  book    platform  difference\n"
        "6       Agrees   149.40  149.40    0.00\n"
        "Differences: run/differences.parquet\n"
    )
    assert [
        "changes: 100%, 6 orders, 14 calls",
        "comparison: 0%, 6 orders, 14 calls",
        "comparison: 100%, 6 orders, 14 calls",
    ] == result.err.splitlines()[-3:]

    text = BOOK.read_text(encoding="utf-8").replace(",", ";").replace(".", ",").replace("paid", "amount")
    Path("comma.csv").write_text(text, encoding="utf-8")
    assert 0 == shop.run("comma.csv", "--decimal-comma", "--column", "paid=amount").code

    BOOK.write_text(BOOK.read_text().replace("24.90", "24.91", 1), encoding="utf-8")
    header, *_, advice, _ = shop.run().out.splitlines()
    assert "orders outcome currency book platform difference refunded" == " ".join(header.split())
    assert "The paid amount differs: Find out which side is wrong, and correct it." == advice
    result = shop.run("--json", "--csv", "report.csv")

    assert 1 == result.code
    report = json.loads(result.out)
    assert {"paid_amount": 1, "match": 5} == report["counts"]
    names = "same counts sums orders calls columns as_of not_whole failed open_records differences exit_code"
    assert names.split() == [*report]
    assert 2 == len(Path("report.csv").read_text(encoding="utf-8").splitlines())


def test_the_period_is_yesterday_unless_it_is_named(shop: Shop) -> None:
    """A day is a day of UTC, and a period without an end is a day."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0)
    for out, (arguments, begin, end) in enumerate([
        ((), f"{midnight - timedelta(days=1):%Y-%m-%d %X}", f"{midnight:%Y-%m-%d %X}"),
        (("--from", "2026-11-22"), "2026-11-22 00:00:00", "2026-11-23 00:00:00"),
        (("--from", "2026-11-22", "--to", "2026-11-24T12:00+03:00"), "2026-11-22 00:00:00", "2026-11-24 09:00:00"),
    ]):  # fmt: skip
        shop._command("reconcile", str(BOOK), "--out", f"{out}", "--html", "page.html", *arguments)
        assert f"created from {begin} UTC to before {end} UTC" in Path("page.html").read_text(encoding="utf-8")
    for moment, complaint in {
        "yesterday": "'yesterday' is not a day such as 2026-11-22",
        "1969-12-31": "'1969-12-31' is not a day such as 2026-11-22",
        "2026-11-22T10:00": "'2026-11-22T10:00' has no time zone; write 2026-11-22T10:00Z for UTC",
    }.items():
        code, _, err = shop._command("reconcile", str(BOOK), "--out", "run", "--to", moment)
        assert (2, True) == (code, err.endswith(f"argument --to: {complaint}\n"))


def test_a_book_in_a_database(shop: Shop, postgres: Server) -> None:
    """It is read where it is; without a query, or with a file besides, the command is invalid."""
    header, *lines = (line.split(",") for line in BOOK.read_text(encoding="utf-8").splitlines())
    values = ", ".join(f"('{reference}', '{order_id}', {paid})" for reference, order_id, paid in lines)
    query = f"SELECT * FROM (VALUES {values}) AS orders ({', '.join(header)})"

    dsn = asyncio.run(postgres.new())
    result = shop.run("--book", dsn, "--query", query)
    wrong = shop.run("--book", dsn, "--query", query.replace("24.90", "25"), "--out", "another")

    assert (0, 1) == (result.code, wrong.code)
    rule = "BOOK: name either a file, or a database with both --book and --query"
    for arguments in (["--book", dsn], ["--query", query], ["book.csv", "--book", dsn, "--query", query]):
        result = shop.run(*arguments)
        assert (2, f"paymentsdk: {rule}\n") == (result.code, result.err)


def test_exit_codes_say_what_went_wrong(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 for what makes no sense, 3 for the token, 4 for the platform; no token."""
    Path("latin-1.json").write_bytes(b'{"shop-1": "TEST-\xff"}')
    for arguments, complaint in {
        ("none.csv",): "book: cannot be read",
        ("none.parquet",): "book: cannot be read",
        ("none.parquet", "--decimal-comma"): "BOOK: must end in .csv, or in .parquet without --decimal-comma",
        ("--accounts", "nowhere.json"): "--accounts: cannot be read",
        ("--accounts", "latin-1.json"): "--accounts: ",
    }.items():
        result = shop.run(*arguments)
        assert (2, True) == (result.code, result.err.startswith(f"paymentsdk: {complaint}")), result.err

    monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", "TEST-1-2-secret-3")
    Path("accounts.json").write_text('{"shop-1": "TEST-1-2-secret-3"}', encoding="utf-8")
    Path("book-1.csv").write_text("account,reference\nshop-1,A-1", encoding="utf-8")
    for arguments, whose in {(): "", ("book-1.csv", "--accounts", "accounts.json"): "shop-1: "}.items():
        token = shop.run(*arguments, "--out", f"other{whose[:1]}")
        assert (3, False) == (token.code, "secret" in token.err)
        assert token.err.startswith(f"paymentsdk: {whose}401 ")

    monkeypatch.setenv("PAYMENTSDK_BASE_URL", "http://127.0.0.1:9")
    assert 4 == shop.run("--out", "nobody").code


def test_a_report_does_not_replace_the_journal(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the environment is read as well; without it, each of its writes could be made a second time."""

    async def make() -> None:
        async with aclosing(SQLiteJournal("payments.db")) as journal:
            await journal.records(())

    asyncio.run(make())
    before = Path("payments.db").read_bytes()
    monkeypatch.setenv("PAYMENTSDK_JOURNAL", "payments.db")

    result = shop.run("--csv", "payments.db")

    assert (2, "") == (result.code, result.out)
    assert result.err.endswith("payments.db is an input of this command; name another file\n")
    assert before == Path("payments.db").read_bytes()


def test_sellers_that_cannot_be_read_are_named(shop: Shop) -> None:
    """Of five sellers three fail for good: 5, the others are reconciled, and the same directory goes on."""
    faults, tokens = [], {"shop-0": shop.sandbox.access_token}
    for i in range(1, 5):
        tenant = shop.sandbox.create_tenant()
        tokens[f"shop-{i}"] = tenant.access_token
        if i < 3:
            search, status = "merchant_orders.search", {1: 403, 2: 500}[i]
            rule = FaultRule(effect="fail_before_commit", operation=search, status=status, tenant=tenant.user_id)
            faults.append(shop.sandbox.faults.add(rule))
    lines = BOOK.read_text(encoding="utf-8").splitlines()
    rows = [f"shop-0,{line}" for line in lines[1:]] + [f"shop-{i},A-1,,1.00" for i in range(1, 4)]
    BOOK.write_text("\n".join([f"account,{lines[0]}", *rows]), encoding="utf-8")
    path = Path("tokens.json")
    path.write_text(json.dumps({**tokens, "shop-3": "TEST-0-0-dead-0"}), encoding="utf-8")

    run = shop.run("--accounts", "tokens.json", "--json")

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
    run = shop.run("--accounts", "tokens.json", "--json")
    assert (1, {"match": 6, "not_paid_or_missing": 3}) == (run.code, json.loads(run.out)["counts"]), run.err


def test_an_interruption_keeps_what_is_done(shop: Shop, signaled: Callable[..., tuple[int, str, str]]) -> None:
    """SIGTERM is as Ctrl-C: 130, without a traceback; the same command goes on."""
    with shop.sandbox.faults.add(FaultRule(effect="hang", operation="merchant_orders.search", nth=3)) as hang:
        result = Shop(shop.sandbox, partial(signaled, lambda: hang.hits, number=signal.SIGTERM)).run()

    assert 130 == result.code
    assert "the same command resumes" in result.err
    assert "Traceback" not in result.err
    assert 0 == shop.run().code
