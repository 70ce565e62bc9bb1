"""`paymentsdk orders get ...` and the like: commands made of the operations, as people and programs run them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import signal
import sys
from collections.abc import Callable, Coroutine
from decimal import Decimal
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb
import msgspec
import pytest

from paymentsdk import OPERATIONS, PaymentsClient, Request, Response, RetryPolicy
from paymentsdk.sandbox import FaultRule, PlanRequest, RecurringRequest
from paymentsdk.testing import MemoryTransport

ORDER = msgspec.json.encode(OPERATIONS["orders.create"].example).decode()


def create(run: Callable[..., tuple[int, str, str]], key: str, body: str = ORDER) -> dict[str, object]:
    """Create an order with the command, and return it."""
    Path("order.json").write_text(body, encoding="utf-8")
    code, out, err = run("orders", "create", "--body", "order.json", "--idempotency-key", key, "--json")
    assert (0, "") == (code, err)
    return json.loads(out)


def connect_to(monkeypatch: pytest.MonkeyPatch, platform: Callable[[Request], Response]) -> None:
    """Make a client of *platform* that of the environment."""
    client = PaymentsClient("TEST-1", base_url="https://platform.test", transport=MemoryTransport(platform))
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", "https://platform.test")
    monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", "TEST-1")
    monkeypatch.setattr(PaymentsClient, "from_env", lambda **_: client)


def test_every_read_and_keyed_write_is_a_command(run):
    """Made of the operations: no other write is offered, since who repeats the command would do it twice."""
    offered = set()
    for noun in {name.partition(".")[0] for name in OPERATIONS}:
        _, text, _ = run(noun.replace("_", "-"), "--help")
        offered |= {f"{noun}.{method}" for method in re.findall(r"^    ([a-z]+) ", text, re.MULTILINE)}

    expected = {
        operation.name
        for operation in OPERATIONS.values()
        if operation.authenticated and (operation.keyed or not operation.writes)
    }
    assert expected | {"orders.wait"} == offered
    assert "preferences.create" not in expected
    assert "the platform's orders: create, get, cancel, refund" in run("--help")[1]
    text = " ".join(run("merchant-orders", "search", "--help")[1].split())
    about = "created at this moment or later; a timestamp such as 2026-01-31T09:30:00Z"
    assert f"--date-created-from VALUE {about}" in text


def test_a_write_is_done_once_for_its_key(run, sandbox):
    """The key is the caller's: the same command again tells of the same order."""
    first, second = create(run, "ticket-1"), create(run, "ticket-1")

    assert first == second
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("order_created")
    code, out, _ = run("orders", "cancel", first["id"], "--idempotency-key", "cancel-1")
    fields = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (0, "canceled", "50.00") == (code, fields["status:"], fields["transactions.payments[0].amount:"])


def test_a_write_without_a_key_is_not_begun(run, sandbox):
    """Nobody could repeat it safely."""
    code, out, err = run("orders", "create", "--body", "-")

    assert (2, "") == (code, out)
    assert "the following arguments are required: --idempotency-key" in err


def test_a_body_comes_from_stdin(run, sandbox, monkeypatch):
    """With or without the mark that Windows puts first. A program may have no stdin: a file needs none."""
    command = ("orders", "create", "--body", "-", "--idempotency-key")
    for key, body, ended in (("a", "\ufeff" + ORDER, (0, "")), ("b", "{", (2, "paymentsdk: stdin: $: "))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body.encode())))
        code, _, err = run(*command, key)
        assert ended == (code, err[:22])
    monkeypatch.setattr(sys, "stdin", None)
    assert (2, "", "paymentsdk: --body: there is no stdin\n") == run(*command, "c")
    assert create(run, "c")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (ORDER.replace('"50.00"', '"50.001"', 1), "order.json: $.total_amount: "),
        (ORDER.replace('"title"', '"titel"'), "order.json: $.items[0]"),
        (ORDER.removesuffix("}") + ',"tip":1}', "order.json: $: Object contains unknown field `tip`"),
        ("{", "order.json: $: "),
        (None, "--body: order.json: No such file or directory"),
    ],
)
def test_a_body_that_breaks_a_rule(run, sandbox, body: str | None, complaint: str):
    """One line with the place and the rule; nothing was sent."""
    if body is not None:
        Path("order.json").write_text(body, encoding="utf-8")
    code, out, err = run("orders", "create", "--body", "order.json", "--idempotency-key", "k")

    [line] = err.splitlines()
    assert (2, "", True) == (code, out, line.startswith(f"paymentsdk: {complaint}"))
    assert [] == list(sandbox.platform.feed.requests)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["merchant-orders", "search", "--status", ""], "--status: is empty"),
        (
            ["merchant-orders", "search", "--date-created-from", "x"],
            "--date-created-from: 'x' is not a timestamp such as ",
        ),
        (["merchant-orders", "search", "--page-size", "0"], "argument --page-size: '0' is not a number from 1 to "),
        *(
            (["merchant-orders", "search", "--start", start], f"--start: {start!r} is neither a row, such as 50, nor ")
            for start in ("-1", "x", "50/", "50/120/1")
        ),
        (
            ["merchant-orders", "search", "--columns", "id,colour"],
            "--columns: there is no column colour; the columns are ",
        ),
        (["orders", "get", "../secrets"], "ORDER_ID: an id has only letters"),
        (["orders", "cancel", "ORD1", "--idempotency-key", "é"], "--idempotency-key: "),
        (["plans", "search", "--page-size", "1000000000"], "--page-size: "),
        (["plans", "search", "--out", "a.xlsx"], "--out: must end in .parquet, .csv or .jsonl"),
        (["plans", "search", "--out", "a.csv", "--limit", "1"], "--out: takes all rows and columns: leave out --limit"),
        (["plans", "search", "--start", "1000000000000000000"], "--start: "),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_command_that_makes_no_sense(run, sandbox, arguments: list[str], complaint: str):
    """The complaint names the option, as the caller wrote it; nothing was sent."""
    code, out, err = run(*arguments)

    assert (2, "") == (code, out)
    assert complaint in err.splitlines()[-1]
    assert [] == list(sandbox.platform.feed.requests)
    assert not list(Path().iterdir())


def test_a_rejection_is_one_line(run, sandbox):
    """With status, code and the id of the request; the exit code is that of a failure."""
    code, out, err = run("orders", "get", "ORD01J67CQQH5904WDBVZEM4JMEP3")

    assert (1, "", 1) == (code, out, len(err.splitlines()))
    assert err.startswith("paymentsdk: 404 ")


def test_a_write_in_doubt_has_an_exit_code_of_its_own(run, sandbox):
    """Programs have to tell it from a rejection: the same command with the same key finds out."""
    Path("order.json").write_text(ORDER, encoding="utf-8")
    command = ("orders", "create", "--body", "order.json", "--idempotency-key", "k", "--json")
    lost = FaultRule(effect="lose_response_after_commit", operation="orders.create", nth=1)
    turned_away = FaultRule(effect="refuse", status=403, operation="orders.create", nth=2)
    with sandbox.faults.add(lost), sandbox.faults.add(turned_away):
        code, out, err = run(*command)

    assert (3, "") == (code, out)
    assert "idempotency_key='k'" in err
    with sandbox.faults.add(FaultRule(effect="refuse", status=403, operation="orders.create")):
        assert 1 == run(*command)[0]  # It is about that run alone: the order is there.
    assert 0 == run(*command)[0]
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("order_created")


@pytest.mark.parametrize(
    ("reference", "setting"),
    [
        ("ticket-0001", {"PAYMENTSDK_ACCESS_TOKEN": "TEST-wrong"}),
        ("ticket-0001", {"PAYMENTSDK_BASE_URL": "http://127.0.0.1:9"}),
        ("refuse-pos_not_found", {}),
    ],
    ids=["rejected token", "nobody there", "settled"],
)
def test_a_repeated_write_that_fails(run, sandbox, monkeypatch, reference: str, setting: dict[str, str]):
    """Where the command was in doubt before, that is no answer, unless the platform settles it; and it says so."""
    Path("order.json").write_text(ORDER.replace("ticket-0001", reference), encoding="utf-8")
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(PaymentsClient, "from_env", partial(PaymentsClient.from_env, retry=RetryPolicy(attempts=1)))

    code, _, err = run("orders", "create", "--body", "order.json", "--idempotency-key", "k")

    assert (1, 1) == (code, len(err.splitlines()))
    assert bool(setting) == err.endswith("; this says nothing of an earlier command with the same key\n")


@pytest.fixture
def sold(sandbox, run) -> list[str]:
    """Three orders that were paid; their references."""
    references = [f"ticket-{number}" for number in range(3)]
    for reference in references:
        order = create(run, reference, ORDER.replace("ticket-0001", reference))
        sandbox.buyer.pay(order["id"])
    return references


def test_a_search_as_csv(run, sold):
    """A header with every column, and a row for each; what it has of its own is on stdout alone."""
    code, out, err = run("merchant-orders", "search", "--status", "closed", "--csv", "--page-size", "2")

    rows = list(csv.DictReader(io.StringIO(out)))
    assert (0, sorted(sold), "") == (code, sorted(row["external_reference"] for row in rows), err)
    assert {"50.00"} == {row["paid_amount"] for row in rows}
    assert {"collector.id", "payer.id", "date_created"} <= rows[0].keys()
    assert (0, "", "0 rows\n") == run("merchant-orders", "search", "--status", "opened")
    code, out, err = run("merchant-orders", "search", "--limit", "2", "--page-size", "3", "--json")
    assert (0, 2, "") == (code, len(out.splitlines()), err)


@pytest.mark.parametrize("name", ["orders.parquet", "orders.csv", "orders.jsonl"])
def test_a_search_into_a_file(run, sold, name: str):
    """The rows are in the file alone; stderr says how many there are."""
    assert (0, "", f"3 rows: {name}\n") == run("merchant-orders", "search", "--out", name, "--page-size", "2")

    read = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json"}[Path(name).suffix]
    rows = duckdb.sql(f"SELECT external_reference, paid_amount::DECIMAL(9, 2) FROM {read}('{name}')").fetchall()
    assert [(reference, Decimal("50.00")) for reference in sold] == sorted(rows)


@pytest.mark.control("paymentsdk.cli._parsing.ResumePoint", lambda offset, total=None: offset)
def test_a_search_goes_on_though_rows_have_vanished(run, monkeypatch):
    """The error of a search that breaks off says where to go on, and rows that have moved up since are read."""
    rows, requests = [*range(1, 9)], itertools.count(1)

    def search(request: Request) -> Response:
        offset = int(parse_qs(urlsplit(request.url).query)["offset"][0])
        page = {"elements": [{"id": row} for row in rows[offset : offset + 2]], "total": len(rows)}
        return Response(403 if next(requests) == 3 else 200, {}, json.dumps(page).encode())

    command = ("merchant-orders", "search", "--json")
    connect_to(monkeypatch, search)
    code, out, err = run(*command)
    assert (1, 4) == (code, len(out.splitlines()))
    start = err.strip().rpartition("--start ")[2]
    del rows[:3]
    connect_to(monkeypatch, search)
    code, more, err = run(*command, "--start", start)

    assert ("4/8", 0, "") == (start, code, err)
    assert {*rows} <= {json.loads(line)["id"] for line in (out + more).splitlines()}


ROWS = '{"elements":["x",{"id":3},"x"],"total":3}'
ROWS_PLACE = r"\$.elements\[0\]: .*; 1 more"


@pytest.mark.parametrize(
    ("words", "body", "place"),
    [
        (["merchant-orders", "search", "--csv"], ROWS, ROWS_PLACE),
        (["merchant-orders", "search", "--out", "rows.csv"], ROWS, ROWS_PLACE),
        (["orders", "get", "ORD1"], '{"id":"ORD1","total_amount":"much"}', r"\$.total_amount: .*; dropped"),
    ],
    ids=["rows", "file", "amount"],
)
def test_left_out_parts_are_reported(run, monkeypatch, tmp_path: Path, *, words: list[str], body: str, place: str):
    """Without a word, a list with a row less, or an order without its amount, would look whole."""
    monkeypatch.chdir(tmp_path)
    connect_to(monkeypatch, lambda request: Response(200, {}, body.encode()))
    code, _, err = run(*words)

    assert 0 == code
    assert re.fullmatch(f"[^:]*: the response breaks the contract at {place}", err.splitlines()[-1])


# --- whom it speaks for ------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk.cli._output.visible", lambda text: text)
@pytest.mark.parametrize("form", ["--table", "--csv"])
def test_what_a_seller_wrote_does_not_steer_the_terminal(run, sandbox, monkeypatch, form: str):
    """In a terminal it is shown in escapes; a program gets it as it is."""
    recurring = RecurringRequest(frequency=1, frequency_type="months", transaction_amount=Decimal(9))
    sandbox.create_plan(PlanRequest(reason="A\x9b2J", auto_recurring=recurring))
    command = ("plans", "search", form, "--columns", "reason")
    piped = run(*command)[1]
    monkeypatch.setattr("paymentsdk.cli._output.in_terminal", lambda stream: True)

    assert ("\x9b" in piped) == (form != "--table")
    assert all(line.isprintable() for line in run(*command)[1].splitlines())


def test_a_part_of_a_payment_is_refunded_without_a_file(run, sandbox):
    """The amount and the payment are options; a refund of the whole order needs neither."""
    order = create(run, "ticket-1")
    sandbox.buyer.pay(order["id"])
    [payment] = order["transactions"]["payments"]
    command = ["orders", "refund", order["id"], "--json", "--idempotency-key"]

    code, out, err = run(*command, "r-1", "--amount", "10.50", "--payment-id", payment["id"])
    assert (0, "") == (code, err)
    assert ["10.50"] == [refund["amount"] for refund in json.loads(out)["transactions"]["refunds"]]

    for options, complaint in {
        ("--amount", "1"): "--payment-id: is missing",
        ("--payment-id", "1"): "--amount: is missing",
        ("--amount", "1,50", "--payment-id", "1"): "--amount: ",
        ("--amount", "1", "--payment-id", "1", "--body", "order.json"): "--body: cannot be combined with --amount",
    }.items():
        code, out, err = run(*command, "r-2", *options)
        assert (2, "", True) == (code, out, err.startswith(f"paymentsdk: {complaint}")), err


def test_a_command_waits_for_the_buyer(run, sandbox):
    """It prints the order once it is paid, or as it is after the time."""
    order = create(run, "ticket-1")
    assert "created" in run("orders", "wait", order["id"], "--within", "1", "--columns", "status")[1]
    sandbox.buyer.pay(order["id"])

    code, out, _ = run("orders", "wait", order["id"], "--json")

    assert (0, "processed") == (code, json.loads(out)["status"])


@pytest.mark.parametrize("missing", ["PAYMENTSDK_BASE_URL", "PAYMENTSDK_ACCESS_TOKEN"])
def test_no_credentials_at_all(run, sandbox, monkeypatch, missing: str):
    """Both variables are named."""
    monkeypatch.delenv(missing)
    monkeypatch.setenv("PAYMENTSDK_CLIENT_ID", "1")
    monkeypatch.setenv("PAYMENTSDK_CLIENT_SECRET", "secret")

    code, _, err = run("orders", "get", "ORD1")

    variables = "PAYMENTSDK_BASE_URL and PAYMENTSDK_ACCESS_TOKEN"
    assert (2, f"paymentsdk: {missing} is not set. Set {variables}, or name an --account.\n") == (code, err)


def test_columns_in_a_terminal(run, sold, monkeypatch):
    """The columns that tell most come first, and stderr names the others."""
    monkeypatch.setattr("paymentsdk.cli._output.in_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "80")

    code, out, err = run("merchant-orders", "search")

    header, *rows = out.splitlines()
    assert (0, 3) == (code, len(rows))
    assert ["id", "status", "external_reference"] == header.split()[:3]
    assert 80 >= max(map(len, [header, *rows]))
    assert "\x1b" not in out
    assert "more columns (--columns, --csv, --json): " in err


def test_an_interrupted_write_says_what_to_do(run, sandbox, monkeypatch):
    """Nobody knows whether it was done: the key finds out. After a read there is nothing to find out."""

    def interrupted(call: Coroutine[object, object, None]) -> None:
        call.close()
        raise KeyboardInterrupt

    monkeypatch.setattr("paymentsdk.cli._platform.asyncio.run", interrupted)

    assert (130, "", "") == run("orders", "get", "ORD1")
    message = "paymentsdk: the outcome is unknown: repeat the command with the same key\n"
    assert (130, "", message) == run("orders", "cancel", "ORD1", "--idempotency-key", "k")


@pytest.mark.parametrize(("form", "rows"), [("--csv", ""), ("--table", "1 row\n")])
def test_an_interrupted_walk_says_where_to_go_on(signaled, sandbox, sold, form: str, rows: str):
    """What came is printed; whoever goes on from there misses no row."""
    command = ("merchant-orders", "search", "--page-size", "1", form, "--columns", "external_reference")
    with sandbox.faults.add(FaultRule(effect="hang", operation="merchant_orders.search", nth=2)) as fault:
        code, out, err = signaled(lambda: fault.hits, *command, number=signal.SIGTERM)

    message = f"{rows}paymentsdk: interrupted; continue with --start 1/3\n"
    assert (130, 2, message) == (code, len(out.splitlines()), err)


def test_a_write_that_cannot_be_printed_was_done(run, sandbox, monkeypatch):
    """Exit code 1 would say that it was not: repeated with its key, it is printed."""
    Path("order.json").write_text(ORDER, encoding="utf-8")
    arguments = ["orders", "create", "--body", "order.json", "--idempotency-key", "one", "--json"]
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        code, _, err = run(*arguments)

    assert (3, True) == (code, "the write was done" in err)
    assert json.loads(run(*arguments)[1])["id"]
    assert 1 == len([entry for entry in sandbox.ledger() if entry.kind == "order_created"])
