"""`paymentsdk sandbox pay`, `policies`, `faults` and `advance`, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.cli import main
from paymentsdk.resources.orders import Order, OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.resources.preferences import (
    Excluded,
    PaymentMethodsRequest,
    Preference,
    PreferenceItemRequest,
    PreferenceRequest,
)
from paymentsdk.sandbox import Sandbox, describe_policies
from paymentsdk.sandbox._commands import COMMANDS


@pytest.fixture
def sandbox(monkeypatch) -> Iterator[Sandbox]:
    """A sandbox in a thread, which the environment names, with a clock that stands still."""
    with Sandbox(frozen=True).in_thread() as sandbox:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
        yield sandbox


@pytest.fixture
def order(sandbox: Sandbox) -> Order:
    """An order of 10.00 that waits to be paid."""

    async def create() -> Order:
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
            amount = Decimal("10.00")
            payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
            return await client.orders.create(
                OrderRequest(external_reference="A-1", total_amount=amount, transactions=payments)
            )

    return asyncio.run(create())


@pytest.fixture
def preference(sandbox: Sandbox) -> Preference:
    """A preference of 25.00 that waits to be paid."""
    return make_preference(sandbox)


def item(**members: object) -> PreferenceItemRequest:
    """Two books, with further members."""
    return PreferenceItemRequest(title="A book", quantity=2, unit_price=Decimal("12.50"), **members)


def make_preference(sandbox: Sandbox, **members: object) -> Preference:
    """Make a preference of 25.00 with further members."""

    async def create() -> Preference:
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
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


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        port: int = once.getsockname()[1]
    return port


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


def test_an_order_is_named_as_the_browser_has_it(capsys, sandbox, order):
    """By the address of its page, also after an attempt to pay there."""
    address = f"{sandbox.base_url}/qr/{order.id}?attempt=rejected"

    assert f"{order.id}: processed, 10.00 ARS paid\n" == ask(capsys, "pay", address)


def test_a_rejected_payment_leaves_the_order(capsys, order):
    """With --reject, the order stays as it is, and can be paid later."""
    rejected = ask(capsys, "pay", order.id, "--reject")
    assert f"{order.id}: created, the payment was rejected\n" == rejected
    assert f"{order.id}: processed, 10.00 ARS paid\n" == ask(capsys, "pay", order.id)


@pytest.mark.parametrize("by", ["id", "init_point"])
def test_pay_a_preference(capsys, preference, by: str):
    """A preference is paid by its id or by the address of its checkout; what was paid is said as money is written."""
    output = ask(capsys, "pay", getattr(preference, by))

    assert re.fullmatch(rf"preference {preference.id}, merchant order \d+: closed, 25\.00 ARS paid\n", output)


@pytest.mark.control("paymentsdk.cli._output.visible", lambda text: text)
def test_what_a_seller_wrote_does_not_steer_the_terminal(capsys, sandbox):
    """A string of the shop, as the currency of an item, is a part of the line, whatever is in it."""
    preference = make_preference(sandbox, items=[item(currency_id="A\x1b[2J\nforged\x9b")])

    printed = ask(capsys, "pay", preference.id)

    assert printed.removesuffix("\n").isprintable()
    assert r"25.00 A\x1b[2J\nforged\x9b paid" in printed


def test_a_preference_is_paid_in_a_way_that_it_allows(capsys, sandbox):
    """What the checkout does not offer is rejected here as well, and another method pays it."""
    excluded = PaymentMethodsRequest(excluded_payment_types=[Excluded(id="account_money")])
    preference = make_preference(sandbox, payment_methods=excluded)

    assert "can be paid with" in complain(capsys, "pay", preference.id)
    assert ask(capsys, "pay", preference.id, "--method", "credit_card").endswith(": closed, 25.00 ARS paid\n")


def test_a_rejection_is_one_line(capsys, order):
    """What the sandbox rejects is said with its status, code and reason."""
    ask(capsys, "pay", order.id)

    assert "409 cannot_pay_order: the order is processed" == complain(capsys, "pay", order.id)


@pytest.mark.parametrize("address", ["ORD00000000000000000000000000", "../state", "%2e%2e", "a?b#c"])
def test_nothing_but_an_order_is_paid(capsys, sandbox, address: str):
    """Whatever is given as an order is looked up as one, and leads nowhere else."""
    assert complain(capsys, "pay", address).startswith("404 order_not_found: ")


def test_policies_of_a_sandbox(capsys, sandbox):
    """A policy can be set in a sandbox that runs: what was set is shown, and all of them when nothing was."""
    changed = ask(capsys, "policies", "cancel_from=any", "page_size=7").splitlines()
    listed = ask(capsys, "policies").splitlines()

    assert ["cancel_from=any  (or created)", "page_size=7"] == changed[::2]
    assert ("any", 7) == (sandbox.policies.cancel_from, sandbox.policies.page_size)
    assert set(changed) <= set(listed)
    assert 2 * len(describe_policies()) == len(listed)


def test_policies_of_a_sandbox_that_was_named_are_not_made_up(capsys, monkeypatch):
    """Where no sandbox is, nothing is listed."""
    assert complain(capsys, "policies", "--url", f"http://127.0.0.1:{free_port()}").startswith("no sandbox at ")


def test_the_default_port_is_asked(capsys, sandbox, monkeypatch):
    """A sandbox in the next terminal is found without a name, and its policies are those that it has."""
    monkeypatch.delenv("PAYMENTSDK_BASE_URL")
    monkeypatch.setattr("paymentsdk.cli._control.DEFAULT_PORT", int(sandbox.base_url.rpartition(":")[2]))
    sandbox.platform.change_policies({"cancel_from": "any"})

    assert "cancel_from=any  (or created)" in ask(capsys, "policies").splitlines()


def test_a_policy_that_makes_no_sense(capsys, sandbox):
    """A value that a policy may not have is rejected, and changes nothing."""
    output = complain(capsys, "policies", "cancel_from=never")
    assert output.startswith("400 bad_request: Invalid enum value 'never' - at `$.cancel_from`; ")
    assert "created" == sandbox.policies.cancel_from


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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["explode"], "argument EFFECT: invalid choice: 'explode' (choose from 'lose_response_after_commit', "),
        (["hang", "colour=red"], "Object contains unknown field `colour`"),
        (["hang", "effect=reset"], "effect is given twice"),
        (["hang", "times=0"], "Expected `int` >= 1 - at `$.times`"),
        (["hang", "times=two"], "Expected `int | null`, got `str` - at `$.times`"),
        (["hang", "probability=2"], "Expected `float` <= 1.0 - at `$.probability`"),
        (["reset", "status=500"], "reset does not take status; its details: none"),
        (["hang", "times=1", "times=2"], "times is given twice"),
        ([], "the following arguments are required: EFFECT"),
    ],
)
def test_a_fault_that_makes_no_sense(capsys, sandbox, arguments: list[str], complaint: str):
    """A wrong rule is rejected with what is wrong, and is not put in force."""
    assert misuse(capsys, "faults", "add", *arguments).startswith(complaint)
    assert () == sandbox.faults.list()


def test_a_fault_of_an_operation_that_there_is_not(capsys, sandbox):
    """The sandbox knows its operations, those of another program among them; it rejects a fault of any other."""
    output = complain(capsys, "faults", "add", "hang", "operation=foo")

    assert output.startswith("400 bad_request: no operation is called 'foo'; there are oauth.token, ")
    assert () == sandbox.faults.list()


def test_only_a_fault_can_be_cleared(capsys, sandbox):
    """Clearing what is no fault is rejected."""
    assert "404 not_found: no fault has this number" == complain(capsys, "faults", "clear", "99")


def test_advance(capsys, sandbox, order):
    """The clock moves, and what fell due is told: the order was not paid in time."""
    now = sandbox.clock.now()

    out = ask(capsys, "advance", "PT20M")

    assert f"order.expired  {order.id}\n" in out
    assert out.endswith(", and the clock stands still\n")
    assert 20 * 60 == (sandbox.clock.now() - now).total_seconds()


def test_advance_moves_the_clock_of_one_seller(capsys, sandbox, order):
    """The time of the others stands; a seller that there is not is named."""
    now, second_seller = sandbox.clock.now(), sandbox.create_tenant()

    quiet = ask(capsys, "advance", "PT20M", "--tenant", str(second_seller.user_id))
    out = ask(capsys, "advance", "PT15M", "--tenant", str(sandbox.tenant.user_id))

    assert (1, 2) == (quiet.count("\n"), out.count("\n"))
    assert f"order.expired  {order.id}\n" in out
    assert now == sandbox.clock.now()
    assert "404 not_found: there is no such seller" == complain(capsys, "advance", "PT1M", "--tenant", "1")


@pytest.mark.parametrize("text", ["20m", "soon", "P1M", "1.5 h"])
def test_an_invalid_duration_is_rejected(capsys, sandbox, text: str):
    """The complaint says how one is written."""
    complaint = f"400 bad_request: {text!r} is not an ISO 8601 duration of weeks to seconds, such as PT5M or P30D"
    assert complaint == complain(capsys, "advance", text)


def test_a_snapshot_is_saved_and_loaded(capsys, sandbox, order, tmp_path):
    """What happened since is gone; the file is for its owner alone, and a file that is no snapshot is left out."""
    file = tmp_path / "shop.snapshot"
    (tmp_path / "other").write_text("{}")

    assert f"saved to {file}\n" == ask(capsys, "snapshot", "save", str(file))
    sandbox.buyer.pay(order)
    assert f"loaded from {file}\n" == ask(capsys, "snapshot", "load", str(file))

    assert ["order_created"] == [entry.kind for entry in sandbox.ledger()]
    assert 0o600 == file.stat().st_mode & 0o777
    assert "400 bad_request: cannot load the snapshot" in complain(capsys, "snapshot", "load", str(tmp_path / "other"))


def test_json_is_the_response_as_data(capsys, order):
    """With --json, stdout is one line of JSON."""
    paid = json.loads(ask(capsys, "pay", order.id, "--json"))

    assert (order.id, "processed", "10.00") == (paid["id"], paid["status"], paid["total_amount"])
    assert "10.00" == paid["transactions"]["payments"][0]["paid_amount"]


def test_the_url_goes_before_the_environment(capsys, sandbox, monkeypatch):
    """--url names the sandbox, whatever the environment says, and for a command within another one, too."""
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", "http://127.0.0.1:1")

    assert "no faults\n" == ask(capsys, "faults", "--url", sandbox.base_url)
    assert "no faults\n" == ask(capsys, "faults", "--url", sandbox.base_url, "list")


def test_proxies_are_not_asked(capsys, sandbox, monkeypatch):
    """A proxy in the environment is not asked about this machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)

    assert "no faults\n" == ask(capsys, "faults")


def test_no_server_listens(capsys):
    """Where nothing listens, one line says how to start a sandbox, or to name one that runs on another port."""
    url = f"http://127.0.0.1:{free_port()}"

    line = complain(capsys, "faults", "--url", url)

    assert line.startswith(f"no sandbox at {url} (")
    assert line.endswith("paymentsdk sandbox, or give its address with --url or PAYMENTSDK_BASE_URL")


class Stranger(BaseHTTPRequestHandler):
    """Some other server."""

    def do_GET(self):
        """Respond with a page."""
        self.send_response(404 if "faults" in self.path else 200)
        self.end_headers()
        self.wfile.write(b"<html>Hello</html>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Forger(Stranger):
    """Some server that rejects in words for a terminal."""

    def do_GET(self):
        """Reject it."""
        self.send_response(404)
        self.end_headers()
        self.wfile.write(rb'{"code":"no\u001b[2J","message":"no\nsuch thing"}')


@pytest.mark.control("paymentsdk.cli._output.visible", lambda text: text)
def test_a_rejection_does_not_steer_the_terminal(capsys):
    """Whatever it says, it is one line."""
    with HTTPServer(("127.0.0.1", 0), Forger) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        main(["sandbox", "faults", "--url", f"http://127.0.0.1:{server.server_port}"])
        thread.join()

    assert "paymentsdk: 404 no\\x1b[2J: no\\nsuch thing\n" == capsys.readouterr().err


@pytest.mark.parametrize("command", ["faults", "policies"])
def test_somebody_else_there(capsys, command: str):
    """Where another program responses, the command says so instead of failing on its response."""
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        line = complain(capsys, command, "--url", f"http://127.0.0.1:{server.server_port}")
        thread.join()

    assert "sandbox" in line


@pytest.mark.parametrize(
    "url", ["file:///etc", "foo", "http://", "http://[", "http://localhost:99999", "http://x/?a=b"]
)
def test_only_addresses(capsys, monkeypatch, url: str):
    """What is none, or one of another scheme, is rejected before it is opened, whoever says it."""
    complaint = f"{url!r} is not an http or https address such as http://127.0.0.1:8787"
    assert f"argument --url: {complaint}" == misuse(capsys, "faults", "--url", url)

    monkeypatch.setenv("PAYMENTSDK_BASE_URL", url)
    assert f"PAYMENTSDK_BASE_URL: {complaint}" == misuse(capsys, "faults")


@pytest.mark.parametrize("argument", ["", "/", "//"])
def test_what_names_no_order(capsys, argument: str):
    """It is rejected before anybody is asked."""
    assert f"argument ORDER: {argument!r} does not name an order" == misuse(capsys, "pay", argument)


def test_a_policy_is_decided_once(capsys):
    """Which of two decisions holds, nobody could know: at the start and later."""
    twice = ["cancel_from=any", "cancel_from=created"]

    assert "cancel_from is given twice" == misuse(capsys, "policies", *twice)
    assert "cancel_from is given twice" == misuse(capsys, "--policy", twice[0], "--policy", twice[1])


def test_a_busy_sandbox_is_there(capsys, monkeypatch):
    """Who is let in waits for minutes; after that nobody says that there is no sandbox, or what became of it."""
    monkeypatch.setattr("paymentsdk.cli._control._TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        url = f"http://127.0.0.1:{busy.getsockname()[1]}"
        line = complain(capsys, "advance", "P3650D", "--url", url)

    assert f"the sandbox at {url} has not responded (timed out); it may have done the request" == line


def test_a_sandbox_that_ends_meanwhile(capsys):
    """What it was asked for may be done: that is what is said."""

    def hang_up() -> None:
        server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=hang_up)
        thread.start()
        line = complain(capsys, "advance", "PT1M", "--url", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()

    assert "has not responded (" in line
    assert line.endswith("); it may have done the request")


def test_what_speaks_no_http_is_no_sandbox(capsys):
    """Whatever listens there."""

    def greet() -> None:
        with server.accept()[0] as connection:
            connection.sendall(b"220 mail\r\n")
            connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet)
        thread.start()
        line = complain(capsys, "faults", "--url", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()

    assert "has not responded (" in line


# --- any request -------------------------------------------------------------------------------------------------


def test_every_request_is_on_the_command_line(run):
    """`control --help` lists each request of the control API with its members."""
    code, out, _ = run("sandbox", "control", "--help")

    assert 0 == code
    missing = [command.name for command in COMMANDS.values() if f"\n  {command.name.replace('_', '-')}" not in out]
    assert ["save_snapshot", "load_snapshot"] == missing  # They are `snapshot save` and `load`.
    assert "pay-order ID payment_method= installments= outcome= payer_id=" in out


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
        (["provision", "order=1"], "unknown field `order`"),
        (["create-tenant", "external_pos_ids=[A]"], "JSON is malformed"),
        (["no-such-request"], "invalid choice: 'no-such-request'"),
    ],
)
def test_a_request_that_makes_no_sense_is_2(run, words: list[str], complaint: str):
    """Nothing is sent; the error shows how the request is written."""
    code, out, err = run("sandbox", "control", *words)

    assert (2, "") == (code, out)
    assert complaint in err.splitlines()[-1]
