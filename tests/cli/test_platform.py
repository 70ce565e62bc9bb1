"""`paymentsdk orders get ...` and the like: commands made of the operations, as people and programs run them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import duckdb
import msgspec
import pytest

from paymentsdk import OPERATIONS, PaymentsClient, Request, Response
from paymentsdk.cli import main
from paymentsdk.sandbox import FaultRule, PlanRequest, RecurringRequest, Sandbox
from paymentsdk.testing import MemoryTransport
from tests.cli.terminal import read

ORDER = msgspec.json.encode(OPERATIONS["orders.create"].example).decode()
PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main({arguments!r}))"


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sandbox]:
    """A sandbox in a thread, which the environment names with the token of its seller."""
    monkeypatch.chdir(tmp_path)
    with Sandbox(seed=7).in_thread() as sandbox:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", sandbox.access_token)
        yield sandbox


def create(run: Callable[..., tuple[int, str, str]], key: str, body: str = ORDER) -> dict[str, object]:
    """Create an order with the command, and return it."""
    Path("order.json").write_text(body, encoding="utf-8")
    code, out, err = run("orders", "create", "--body", "order.json", "--idempotency-key", key, "--json")
    assert (0, "") == (code, err)
    return json.loads(out)


def connect_to(monkeypatch: pytest.MonkeyPatch, client: PaymentsClient) -> None:
    """Make *client* the client of the environment."""
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


def test_a_write_is_done_once_for_its_key(run, sandbox):
    """The key is the caller's: the same command again tells of the same order."""
    first, second = create(run, "ticket-1"), create(run, "ticket-1")

    assert first == second
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("order_created")
    code, out, _ = run("orders", "cancel", first["id"], "--idempotency-key", "cancel-1")
    assert (0, "canceled") == (code, dict(line.split(maxsplit=1) for line in out.splitlines())["status:"])


def test_a_write_without_a_key_is_not_begun(run, sandbox):
    """Nobody could repeat it safely."""
    code, out, err = run("orders", "create", "--body", "-")

    assert (2, "") == (code, out)
    assert "the following arguments are required: --idempotency-key" in err


def test_a_body_from_stdin(run, sandbox, monkeypatch):
    """`-` stands for it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ORDER.encode())))

    assert 0 == run("orders", "create", "--body", "-", "--idempotency-key", "k")[0]


def test_ctrl_c_ends_the_wait_for_stdin(sandbox, monkeypatch, capsys):
    """The first one; and nothing was sent that anybody had to find out about."""

    class Waiting(io.BytesIO):
        def read(self, *_: object) -> bytes:
            signal.raise_signal(signal.SIGINT)
            return ORDER.encode()

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Waiting()))

    assert 130 == main(["orders", "create", "--body", "-", "--idempotency-key", "k"])
    assert ("", "") == capsys.readouterr()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (ORDER.replace('"50.00"', '"50.001"', 1), "order.json: $.total_amount: "),
        (ORDER.replace('"title"', '"titel"'), "order.json: $.items[0]"),
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


def test_an_unknown_member_is_not_left_out(run, sandbox):
    """Where the platform itself would not look at it: a misspelt member of a body is rejected, with its place."""
    Path("pay.json").write_text(
        '{"wallet_payment": {"transaction_amount": 5, "descripton": "x"}, "payer": {"token": "t", "type_token": "w"}}'
    )
    code, _, err = run("wallet-payments", "create", "--body", "pay.json", "--idempotency-key", "k")

    assert 2 == code
    assert err.startswith("paymentsdk: pay.json: $.wallet_payment.descripton: is not a field of the contract")


def test_help_says_what_the_filters_mean(run):
    """In the words that an editor shows."""
    text = " ".join(run("merchant-orders", "search", "--help")[1].split())

    assert "--status VALUE whether payments cover the order, such as `closed` --" in text
    assert "created at this moment or later; a timestamp such as 2026-01-31T09:30:00Z --" in text
    assert "a filter" not in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["merchant-orders", "search", "--status", ""], "--status: is empty"),
        (
            ["merchant-orders", "search", "--date-created-from", "yesterday"],
            "--date-created-from: 'yesterday' is not a timestamp such as 2026-01-31T09:30:00Z",
        ),
        (["merchant-orders", "search", "--page-size", "0"], "argument --page-size: '0' is not a number of at least 1"),
        *(
            (["merchant-orders", "search", "--start", start], f"--start: {start!r} is neither a row, such as 50, nor ")
            for start in ("-1", "x", "", "50/", "/120", "50/120/1", "50/-1", "50/None")
        ),
        (["merchant-orders", "search", "--start", f"{2**53 + 1}/1"], "--start: must be a whole number, 0 to "),
        (
            ["merchant-orders", "search", "--columns", "id,colour"],
            "--columns: there is no column colour; the columns are id, ",
        ),
        (["orders", "get", "../secrets"], "ORDER_ID: an id has only letters"),
        (
            ["orders", "create", "--idempotency-key", "k", "--body", ""],
            "argument --body: the name of the file is empty",
        ),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_command_that_makes_no_sense(run, sandbox, arguments: list[str], complaint: str):
    """The complaint names the option, as the caller wrote it; nothing was sent."""
    code, out, err = run(*arguments)

    assert (2, "") == (code, out)
    assert complaint in err.splitlines()[-1]
    assert [] == list(sandbox.platform.feed.requests)


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


@pytest.mark.parametrize("form", ["--table", "--csv", "--json"])
def test_a_program_without_stdout(run, sold, monkeypatch, form: str):
    """What is printed goes nowhere, and the command does what it does."""
    Path("order.json").write_text(ORDER, encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", None)

    assert 0 == main(["merchant-orders", "search", form])
    assert 0 == main(["orders", "create", "--body", "order.json", "--idempotency-key", "k", form])


def test_a_column_that_is_asked_for_twice(run, sold):
    """Each value stands below the name of its column."""
    columns = ["external_reference", "status", "external_reference", "paid_amount"]

    out = run("merchant-orders", "search", "--csv", "--columns", ",".join(columns))[1]

    assert [columns, *([reference, "closed", reference, "50.00"] for reference in reversed(sold))] == [
        *csv.reader(out.splitlines())
    ]


def test_a_search_as_json(run, sold):
    """One line for each row, with the amounts as the platform has them."""
    _, out, _ = run("merchant-orders", "search", "--json", "--limit", "2")

    rows = [json.loads(line, parse_float=Decimal) for line in out.splitlines()]
    assert [Decimal("50.00")] * 2 == [row["total_amount"] for row in rows]


@pytest.mark.parametrize("name", ["orders.parquet", "orders.csv", "orders.jsonl"])
def test_a_search_into_a_file(run, sold, name: str):
    """The rows are in the file alone; stderr says how many there are."""
    assert (0, "", f"3 rows: {name}\n") == run("merchant-orders", "search", "--out", name, "--page-size", "2")

    read = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json"}[Path(name).suffix]
    rows = duckdb.sql(f"SELECT external_reference, paid_amount::DECIMAL(9, 2) FROM {read}('{name}')").fetchall()
    assert [(reference, Decimal("50.00")) for reference in sold] == sorted(rows)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "orders.xlsx"], "--out: must end in .parquet, .csv or .jsonl"),
        (["--out", "a.csv", "--limit", "1"], "--out: takes all rows and columns: leave out --limit and --columns"),
        (["--out", "a.csv", "--columns", "id"], "--out: takes all rows and columns: leave out --limit and --columns"),
    ],
)
def test_a_file_that_cannot_be_made(run, sandbox, arguments: list[str], complaint: str):
    """The command is invalid, and nothing was sent."""
    assert (2, "", f"paymentsdk: {complaint}\n") == run("merchant-orders", "search", *arguments)
    assert not list(Path().iterdir())


def test_a_file_is_whole_or_not_there(run, sold, sandbox):
    """A walk that fails writes no file, and no row is no failure."""
    rule = FaultRule(effect="refuse", status=403, code="forbidden", operation="merchant_orders.search", nth=2)
    with sandbox.faults.add(rule):
        code, _, err = run("merchant-orders", "search", "--out", "orders.csv", "--page-size", "2")

    assert (1, False) == (code, Path("orders.csv").exists())
    assert "--start" not in err
    assert (0, "", "0 rows: none.csv\n") == run("merchant-orders", "search", "--status", "expired", "--out", "none.csv")


def test_a_table_that_is_piped(run, sold):
    """Plain text with all columns of the CSV, in their order, whole: no width of a terminal, nothing left out."""
    code, out, err = run("merchant-orders", "search")

    header, *rows = out.splitlines()
    names = run("merchant-orders", "search", "--csv")[1].splitlines()[0].split(",")
    assert (0, 3, "3 rows\n") == (code, len(rows), err)
    assert names == header.split()
    assert all('"status_detail":"accredited"' in row for row in rows)
    assert "\x1b" not in out
    assert "…" not in out


def test_columns_that_are_asked_for(run, sold):
    """In this order, also such as are within others."""
    _, out, _ = run("merchant-orders", "search", "--columns", "external_reference,payer.id", "--limit", "1")

    assert ["external_reference", "payer.id"] == out.splitlines()[0].split()


def test_a_search_that_finds_nothing(run, sandbox):
    """No row is no failure."""
    assert (0, "", "0 rows\n") == run("merchant-orders", "search", "--status", "expired")


def test_a_search_that_breaks_off_says_where_to_go_on(run, sold, sandbox):
    """What came before is printed; the error names the option that goes on from there."""
    rule = FaultRule(effect="refuse", status=403, code="forbidden", operation="merchant_orders.search", nth=2)
    with sandbox.faults.add(rule):
        code, out, err = run("merchant-orders", "search", "--csv", "--page-size", "2")

    assert (1, 3) == (code, len(out.splitlines()))
    assert err.endswith("continue with --start 2/3\n")
    for start in ("2/3", "2"):
        assert 2 == len(run("merchant-orders", "search", "--csv", "--start", start)[1].splitlines())


@contextmanager
def served(rows: list[int], *, rejected: int = 0, totals: Iterable[int | None] = ()) -> Iterator[str]:
    """Serve a search over *rows*, two on a page; request number *rejected* gets a 403, and *totals* are told first."""
    requests, reported_totals = itertools.count(1), iter(totals)

    class Search(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, offset = 200, int(parse_qs(urlsplit(self.path).query)["offset"][0])
            elements = [{"id": row} for row in rows[offset : offset + 2]]
            body = {"elements": elements, "total": next(reported_totals, len(rows))}
            if next(requests) == rejected:
                status, body = 403, {"error": "forbidden"}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Search) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.control("paymentsdk.cli._parsing.ResumePoint", lambda offset, total=None: offset)
def test_a_search_goes_on_though_rows_have_vanished(run, sandbox, monkeypatch):
    """What a command prints to go on with says how many rows there were: those that have moved up since are read."""
    rows = [*range(1, 9)]
    with served(rows, rejected=3) as base_url:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", base_url)
        code, out, err = run("merchant-orders", "search", "--json")
        assert (1, 4) == (code, len(out.splitlines()))
        start = err.strip().rpartition("--start ")[2]
        del rows[:3]
        code, more, err = run("merchant-orders", "search", "--json", "--start", start)

    assert ("4/8", 0, "") == (start, code, err)
    assert {*rows} <= {json.loads(line)["id"] for line in (out + more).splitlines()}


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"rejected": 2, "totals": [None]}, "2"),
        ({"totals": [3, 5]}, "2/5"),
        ({"rejected": 3, "totals": [9, None]}, "4/9"),
    ],
    ids=["none", "of an empty page", "of an earlier page"],
)
def test_the_total_to_go_on_with(run, sandbox, monkeypatch, options: dict[str, object], start: str):
    """It is the last one that was told, be it by the page that has no rows; without one, a row has to do."""
    with served([1, 2] if options.get("rejected") is None else [*range(9)], **options) as base_url:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", base_url)
        code, _, err = run("merchant-orders", "search", "--json")

    assert 1 == code
    assert err.endswith(f"continue with --start {start}\n")


class Interrupted(io.RawIOBase):
    """A pipe that is full: whoever writes a certain row to it waits, and is interrupted."""

    def __init__(self, row: bytes) -> None:
        self.row = row
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        content = bytes(content)
        if self.row in content:
            self.row = b"once only"
            raise KeyboardInterrupt
        self.written += content
        return len(content)


@pytest.mark.parametrize(("form", "pages"), [("--table", 60), ("--csv", 260), ("--json", 620)])
def test_a_row_to_go_on_from_is_behind_what_was_written(sandbox, monkeypatch, capsys, form: str, pages: int):
    """An interruption may lose what Python has kept to write it later: as much as fits two buffers."""
    rows, pipe = [*range(100_000, 102_000)], Interrupted(b"100100")
    with served(rows, rejected=pages) as base_url, io.TextIOWrapper(io.BufferedWriter(pipe)) as stdout:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", base_url)
        monkeypatch.setattr(sys, "stdout", stdout)
        code = main(["merchant-orders", "search", form])

    start = re.search(r"--start ([0-9]+)", capsys.readouterr().err)
    behind = rows[: int(start[1])] if start else []
    assert 130 == code
    assert {*behind} <= {int(number) for number in re.findall(rb"[0-9]{6}", pipe.written)}
    assert (form == "--table") == (start is None)


@pytest.mark.parametrize("form", ["--table", "--csv", "--json"])
def test_a_search_that_fails_at_once_says_nothing_of_rows(run, sold, sandbox, form: str):
    """Nobody knows how many there are, and there is no row to go on from."""
    with sandbox.faults.add(
        FaultRule(effect="refuse", status=403, code="forbidden", operation="merchant_orders.search")
    ):
        code, _, err = run("merchant-orders", "search", form)

    assert (1, 1) == (code, len(err.splitlines()))
    assert "403 forbidden" in err
    assert "--start" not in err
    assert "rows" not in err


@pytest.mark.parametrize("form", ["--table", "--csv", "--json"])
@pytest.mark.parametrize(
    ("words", "body", "place"),
    [
        (["merchant-orders", "search"], '{"elements":["x",{"id":3},"x"],"total":3}', r"\$.elements\[0\]: .*; 1 more"),
        (["orders", "get", "ORD1"], '{"id":"ORD1","total_amount":"much"}', r"\$.total_amount: .*; dropped"),
    ],
    ids=["rows", "amount"],
)
def test_left_out_parts_are_reported(capsys, monkeypatch, *, form: str, words: list[str], body: str, place: str):
    """Without a word, a list with a row less, or an order without its amount, would look whole."""
    settings = {"base_url": "https://platform.test", "transport": MemoryTransport([Response(200, {}, body.encode())])}

    connect_to(monkeypatch, PaymentsClient("TEST-1", **settings))
    code = main([*words, form])

    line = capsys.readouterr().err.splitlines()[-1]
    assert 0 == code
    assert re.fullmatch(f"[^:]*: the response breaks the contract at {place}", line)


def test_left_out_rows_are_not_kept(caplog, monkeypatch):
    """A walk of a million rows that break the contract needs the memory of a few pages."""
    caplog.set_level("ERROR")  # What pytest keeps of each warning is memory, too.
    size, pages, used = 100, itertools.count(1), {}

    def page(_: Request) -> Response:
        number = next(pages)
        if number in (20, 120):
            used[number] = tracemalloc.get_traced_memory()[0]
        rows = [{"id": number}, *["x"] * (size - 1)]
        return Response(200, {}, json.dumps({"elements": rows, "total": 120 * size}).encode())

    client = PaymentsClient("TEST-1", base_url="https://platform.test", transport=MemoryTransport(page))
    connect_to(monkeypatch, client)
    tracemalloc.start()
    try:
        code = main(["merchant-orders", "search", "--csv"])
    finally:
        tracemalloc.stop()

    assert 0 == code
    assert 500_000 > used[120] - used[20]


# --- in a terminal -----------------------------------------------------------------------------------------------


def in_terminal(*arguments: str, columns: int = 80) -> tuple[int, str]:
    """Run a command in a terminal of so many columns, and return its exit code and all that stood there."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    program = [sys.executable, "-c", PROGRAM.format(arguments=list(arguments))]
    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        output = read(ours)
    os.close(ours)
    return process.returncode, output.decode()


def test_a_table_in_a_terminal(run, sold):
    """It fits in 80 columns, and the other columns are named."""
    code, output = in_terminal("merchant-orders", "search")

    lines = [line for line in output.replace("\r", "").splitlines() if line.startswith(tuple("0123456789"))]
    assert (0, 4) == (code, len(lines))
    assert 80 >= max(len(line.rstrip()) for line in lines)
    assert "more columns (--columns, --csv, --json): " in output


# --- whom it speaks for ------------------------------------------------------------------------------------------


def test_files_of_windows_are_read(run, sandbox):
    """A byte order mark before a body is skipped."""
    Path("order.json").write_text(ORDER, encoding="utf-8-sig")

    command = ("orders", "create", "--body", "order.json", "--idempotency-key", "k")
    assert (0, "") == run(*command)[::2]


@pytest.mark.control("paymentsdk.cli._output.visible", lambda text: text)
@pytest.mark.parametrize("form", ["--table", "--csv", "--json"])
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
        ("--amount", ""): "--amount: is missing",
        ("--amount", "", "--payment-id", ""): "--amount: is missing",
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


def test_no_option_takes_a_credential(run):
    """Arguments are seen by everybody on the machine."""
    words = {word for noun in ("orders", "merchant-orders") for word in run(noun, "search", "--help")[1].split()}

    secret = {word for word in words if word.startswith("--") and any(part in word for part in ("token", "secret"))}
    assert {"--tokens"} == secret  # It names a store.


# --- completion --------------------------------------------------------------------------------------------------


def completed(line: str, tmp_path: Path) -> set[str]:
    """Return what the words of *line* can be completed to, as a shell asks for it."""
    program = [sys.executable, "-c", PROGRAM.format(arguments=[])]
    answer = tmp_path / "answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run(program, env=environment, timeout=30, check=False, capture_output=True)
    return set(answer.read_text().split("\n"))


def test_words_are_completed(tmp_path):
    """Nouns, commands and options; a word that is complete gets its space from the shell."""
    assert {"orders "} == completed("paymentsdk ord", tmp_path)
    assert {"create", "get", "cancel", "refund"} <= completed("paymentsdk orders ", tmp_path)
    assert {"--status", "--site-id"} <= completed("paymentsdk merchant-orders search --s", tmp_path)
    assert {"pay", "policies", "faults", "advance"} <= completed("paymentsdk sandbox ", tmp_path)
    assert {"debit_card "} == completed("paymentsdk sandbox pay --method deb", tmp_path)
    assert {"rate_limit "} == completed("paymentsdk sandbox faults add rate", tmp_path)


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


def test_a_write_with_unknown_columns_is_not_begun(run, sandbox):
    """Nothing is sent where exit code 2 says so."""
    Path("order.json").write_text(ORDER, encoding="utf-8")
    body = ("--body", "order.json", "--idempotency-key", "one")

    code, _, err = run("orders", "create", *body, "--columns", "nope")

    assert (2, True) == (code, "there is no column nope" in err)
    assert [] == [entry for entry in sandbox.ledger() if entry.kind == "order_created"]


def test_a_write_that_cannot_be_printed_was_done(sandbox):
    """Exit code 1 would say that it was not: repeated with its key, it is printed."""
    Path("order.json").write_text(ORDER, encoding="utf-8")
    arguments = ["orders", "create", "--body", "order.json", "--idempotency-key", "one", "--json"]
    command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]

    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=50, check=False)

    assert 3 == process.returncode
    assert "the write was done" in process.stderr
    assert "Traceback" not in process.stderr
    assert json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=False).stdout)["id"]
    assert 1 == len([entry for entry in sandbox.ledger() if entry.kind == "order_created"])


@pytest.mark.parametrize(
    ("options", "full", "faults", "code"),
    [
        (["--json"], ("stdout", "stderr"), (), 3),
        (["--columns", "id"], ("stderr",), (), 0),
        (["--json"], ("stderr",), ("reset",), 3),
        (["--csv"], ("stdout",), ("reset",), 3),
        (["--csv"], ("stdout",), ("refuse",), 1),
    ],
)
def test_an_exit_code_is_true_on_a_full_disk(sandbox, options: list[str], full: tuple[str, ...], faults, code):
    """It is all that a program learns then: exit code 1 would say that the write has not taken effect."""
    Path("order.json").write_text(ORDER, encoding="utf-8")
    arguments = ["orders", "create", "--body", "order.json", "--idempotency-key", "one", *options]
    for effect in faults:
        sandbox.faults.add(FaultRule(effect=effect, operation="orders.create"))

    with Path("/dev/full").open("wb") as disk:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | dict.fromkeys(full, disk)
        command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
        environment = {**os.environ, "PYTHONUNBUFFERED": ""}
        process = subprocess.run(command, **streams, env=environment, timeout=50, check=False)

    assert code == process.returncode
