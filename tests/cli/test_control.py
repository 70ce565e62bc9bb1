"""`paymentsdk sandbox pay`, `policies`, `faults` and `advance`, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from urllib.request import urlopen

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.cli import main
from paymentsdk.resources.orders import Order
from paymentsdk.resources.preferences import Preference, PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Sandbox, describe_policies
from tests.journal.platform import order as make_order


@pytest.fixture
def settings() -> dict[str, object]:
    """A clock that stands still."""
    return {"frozen": True}


@pytest.fixture
def order(sandbox: Sandbox) -> Order:
    """An order of 10.00 that waits to be paid."""

    async def create() -> Order:
        async with PaymentsClient.from_env() as client:
            return await client.orders.create(make_order("A-1", "10.00"))

    return asyncio.run(create())


@pytest.fixture
def preference(sandbox: Sandbox) -> Preference:
    """A preference of 25.00 that waits to be paid."""
    return make_preference()


def item(**members: object) -> PreferenceItemRequest:
    """Two books, with further members."""
    return PreferenceItemRequest(title="A book", quantity=2, unit_price=Decimal("12.50"), **members)


def make_preference(**members: object) -> Preference:
    """Make a preference of 25.00 with further members."""

    async def create() -> Preference:
        async with PaymentsClient.from_env() as client:
            return await client.preferences.create(PreferenceRequest(**{"items": [item()], **members}))

    return asyncio.run(create())


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run `paymentsdk sandbox ...`, which must succeed, and return what it printed."""
    code = main(["sandbox", *arguments])
    printed = capsys.readouterr()
    assert (0, "") == (code, printed.err)
    return printed.out


def complain(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run `paymentsdk sandbox ...`, which must fail with one line on stderr, and return that line."""
    code = main(["sandbox", *arguments])
    printed = capsys.readouterr()
    assert (1, "") == (code, printed.out)
    [line] = printed.err.splitlines()
    return line.removeprefix("paymentsdk: ")


def misuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run `paymentsdk sandbox ...`, which must make no sense, and return the complaint."""
    with pytest.raises(SystemExit) as ended:
        main(["sandbox", *arguments])
    printed = capsys.readouterr()
    assert (2, "") == (ended.value.code, printed.out)
    return printed.err.splitlines()[-1].partition(": error: ")[2]


def test_pay_an_order(capsys, sandbox, order):
    """The buyer pays with what they are told to pay with."""
    assert f"{order.id}: processed, 10.00 ARS paid\n" == ask(capsys, "pay", order.id, "--method", "debit_card")
    [payment] = sandbox.buyer.scan(order.id).transactions.payments
    assert "debit_card" == payment.payment_method.type


def test_pay_a_preference(capsys, preference):
    """A preference is paid by the address of its checkout; what was paid is said as money is written."""
    output = ask(capsys, "pay", preference.init_point)

    assert re.fullmatch(rf"preference {preference.id}, merchant order \d+: closed, 25\.00 ARS paid\n", output)


@pytest.mark.control("paymentsdk.cli._output.visible", lambda text: text)
def test_what_a_seller_wrote_does_not_steer_the_terminal(capsys, sandbox):
    """A string of the shop, as the currency of an item, is a part of the line, whatever is in it."""
    preference = make_preference(items=[item(currency_id="A\x1b[2J\nforged\x9b")])

    printed = ask(capsys, "pay", preference.id)

    assert printed.removesuffix("\n").isprintable()
    assert r"25.00 A\x1b[2J\nforged\x9b paid" in printed


def test_a_rejection_is_one_line(capsys, order):
    """What the sandbox rejects is said with its status, code and reason."""
    ask(capsys, "pay", order.id)

    assert "409 cannot_pay_order: the order is processed" == complain(capsys, "pay", order.id)


def test_policies_of_a_sandbox(capsys, sandbox):
    """A policy can be set in a sandbox that runs: what was set is shown, and all of them when nothing was."""
    changed = ask(capsys, "policies", "cancel_from=any", "page_size=7").splitlines()
    listed = ask(capsys, "policies").splitlines()

    assert ["cancel_from=any  (or created)", "page_size=7"] == changed[::2]
    assert ("any", 7) == (sandbox.policies.cancel_from, sandbox.policies.page_size)
    assert set(changed) <= set(listed)
    assert 2 * len(describe_policies()) == len(listed)


def test_the_default_port_is_asked(capsys, sandbox, monkeypatch):
    """A sandbox in the next terminal is found without a name, and its policies are those that it has."""
    monkeypatch.delenv("PAYMENTSDK_BASE_URL")
    monkeypatch.setattr("paymentsdk.cli._control.DEFAULT_PORT", int(sandbox.base_url.rpartition(":")[2]))
    sandbox.platform.change_policies({"cancel_from": "any"})

    assert "cancel_from=any  (or created)" in ask(capsys, "policies").splitlines()


def test_faults(capsys, sandbox):
    """Faults are added with their details, listed, and cleared one by one or all."""
    assert "no faults\n" == ask(capsys, "faults")
    hang = ask(capsys, "faults", "add", "hang", "operation=orders.*", "times=2")
    ask(capsys, "faults", "add", "rate_limit", "probability=0.5")

    assert "1: hang operation=orders.* times=2  (hit 0 of 0 requests)\n" == hang
    assert ["hang", "rate_limit"] == [fault.rule.effect for fault in sandbox.faults.list()]
    assert 2 == sandbox.faults.list()[0].rule.times
    assert f"removed: {hang}" == ask(capsys, "faults", "clear", "1")
    assert "2: rate_limit operation=* probability=0.5  (hit 0 of 0 requests)\n" == ask(capsys, "faults", "list")
    assert "no faults\n" == ask(capsys, "faults", "clear")
    assert () == sandbox.faults.list()


def test_help_explains_faults(run, monkeypatch):
    """Each effect with its details and their defaults."""
    monkeypatch.setenv("COLUMNS", "200")
    effects, details = run("sandbox", "faults", "--help")[1].split("\n\n")[-2:]

    assert "effects, with their own details and defaults:" == effects.splitlines()[0]
    assert "  rate_limit                  Too many requests (code, retry_after=1)" in effects.splitlines()
    assert "  hang                        No response comes, and nothing is done" in effects.splitlines()
    assert ["operation", "tenant", "nth", "probability", "times", "seed"] == [
        line.split()[0] for line in details.splitlines()[1:]
    ]
    assert "  nth                         Hit only the matching request with this number, counted from 1" in details


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["explode"], "argument EFFECT: invalid choice: 'explode' (choose from 'lose_response_after_commit', "),
        (["hang", "effect=reset"], "effect is given twice"),
        (["hang", "times=0"], "Expected `int` >= 1 - at `$.times`"),
        (["reset", "status=500"], "reset does not take status; its details: none"),
        ([], "the following arguments are required: EFFECT"),
    ],
)
def test_a_fault_that_makes_no_sense(capsys, sandbox, arguments: list[str], complaint: str):
    """A wrong rule is rejected with what is wrong, and is not put in force."""
    assert misuse(capsys, "faults", "add", *arguments).startswith(complaint)
    assert () == sandbox.faults.list()


def test_advance(capsys, sandbox, order):
    """The clock moves, and what fell due is told: the order was not paid in time."""
    now = sandbox.clock.now()

    out = ask(capsys, "advance", "PT20M")

    assert f"order.expired  {order.id}\n" in out
    assert out.endswith(", and the clock stands still\n")
    assert 20 * 60 == (sandbox.clock.now() - now).total_seconds()


def test_a_snapshot_is_saved_and_loaded(capsys, sandbox, order, tmp_path):
    """What happened since is gone; the file is for its owner alone, and a file that is no snapshot is left out."""
    file = tmp_path / "shop.snapshot"
    (tmp_path / "other").write_text("{}")

    assert f"saved to {file}\n" == ask(capsys, "snapshot", "save", str(file))
    saved = json.loads(ask(capsys, "snapshot", "save", str(file), "--json"))
    assert {"file": str(file), "bytes": file.stat().st_size} == saved
    sandbox.buyer.pay(order)
    assert f"loaded from {file}\n" == ask(capsys, "snapshot", "load", str(file))

    assert ["order_created"] == [entry.kind for entry in sandbox.ledger()]
    assert 0o600 == file.stat().st_mode & 0o777
    assert "400 bad_request: cannot load the snapshot" in complain(capsys, "snapshot", "load", str(tmp_path / "other"))


def test_proxies_are_not_asked(capsys, sandbox, monkeypatch):
    """A proxy in the environment is not asked about this machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)

    assert "no faults\n" == ask(capsys, "faults")


def test_no_server_listens(capsys, unused_tcp_port: int):
    """Where nothing listens, one line says how to start a sandbox, or to name one that runs on another port."""
    url = f"http://127.0.0.1:{unused_tcp_port}"

    line = complain(capsys, "faults", "--url", url)

    assert line.startswith(f"no sandbox at {url} (")
    assert line.endswith("paymentsdk sandbox, or give its address with --url or PAYMENTSDK_BASE_URL")


@contextmanager
def answering(response: bytes) -> Iterator[str]:
    """Yield the address of a server that gives one response to whatever comes."""

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(response)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.control("paymentsdk.cli._output.visible", lambda text: text)
def test_a_rejection_does_not_steer_the_terminal(capsys):
    """Whatever it says, it is one line."""
    body = rb'{"code":"no\u001b[2J","message":"no\nsuch thing"}'
    with answering(b"HTTP/1.0 404 Not Found\r\n\r\n" + body) as url:
        main(["sandbox", "faults", "--url", url])

    assert "paymentsdk: 404 no\\x1b[2J: no\\nsuch thing\n" == capsys.readouterr().err


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found"])
def test_somebody_else_there(capsys, status: bytes):
    """Where another program responds, the command says so instead of failing on its response."""
    with answering(b"HTTP/1.0 " + status + b"\r\n\r\n<html>Hello</html>") as url:
        assert "sandbox" in complain(capsys, "faults", "--url", url)


@pytest.mark.parametrize("url", ["file:///etc", "foo", "http://["])
def test_only_addresses(capsys, monkeypatch, url: str):
    """What is none, or one of another scheme, is rejected before it is opened, whoever says it."""
    complaint = f"{url!r} is not an http or https address such as http://127.0.0.1:8787"
    assert f"argument --url: {complaint}" == misuse(capsys, "faults", "--url", url)

    monkeypatch.setenv("PAYMENTSDK_BASE_URL", url)
    assert f"PAYMENTSDK_BASE_URL: {complaint}" == misuse(capsys, "faults")


def test_a_sandbox_that_ends_meanwhile(capsys):
    """What it was asked for may be done: that is what is said."""
    with answering(b"") as url:
        line = complain(capsys, "advance", "PT1M", "--url", url)

    assert "has not responded (" in line
    assert line.endswith("); it may have done the request")


# --- any request -------------------------------------------------------------------------------------------------


def test_every_request_is_on_the_command_line(run, sandbox: Sandbox):
    """`control --help` lists each request of the control API with its members."""
    code, out, _ = run("sandbox", "control", "--help")
    with urlopen(f"{sandbox.base_url}/_sandbox/openapi.json") as response:
        paths = json.load(response)["paths"].values()

    assert 0 == code
    names = {operation["operationId"].replace("_", "-") for methods in paths for operation in methods.values()}
    missing = {name for name in names if f"\n  {name}" not in out}
    assert {"save-snapshot", "load-snapshot", "events"} == missing  # They are `snapshot save` and `load`.
    assert "pay-order ID payment_method= installments= outcome= payer_id=" in out
    assert "(default: PAYMENTSDK_BASE_URL, or http://127.0.0.1:8787)" in " ".join(out.split())


def test_any_request_is_sent(run, sandbox: Sandbox, order: Order):
    """Ids stand first; numbers, lists and objects are read from text; the response is JSON."""
    code, out, _ = run(
        "sandbox", "control", "create-tenant", 'external_pos_ids=["A", "B"]', "compliant=false", "--json"
    )
    seller = json.loads(out)
    assert (0, ["A", "B"], False) == (code, seller["external_pos_ids"], seller["compliant"])

    _, out, _ = run("sandbox", "control", "pay-order", order.id, "payment_method=credit_card", "installments=3")
    payment = json.loads(out)["transactions"]["payments"][0]
    assert ("processed", 3) == (payment["status"], payment["payment_method"]["installments"])

    _, out, _ = run("sandbox", "control", "ledger", f"tenant={sandbox.tenant.user_id}")
    assert ["order_created", "payment"] == [entry["kind"] for entry in json.loads(out)][:2]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["pay-order"], "an id is missing; the request is: pay-order ID payment_method="),
        (["clock", "a=b"], "it takes no a; the request is: clock"),
        (["provision", "orders=x"], "`$.orders`; the request is: provision orders= days= tenant="),
        (["create-tenant", "external_pos_ids=[A]"], "JSON is malformed"),
    ],
)
def test_a_request_that_makes_no_sense_is_2(run, words: list[str], complaint: str):
    """Nothing is sent; the error shows how the request is written."""
    code, out, err = run("sandbox", "control", *words)

    assert (2, "") == (code, out)
    assert complaint in err.splitlines()[-1]
