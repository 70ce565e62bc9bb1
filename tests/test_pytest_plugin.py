"""The fixtures of the package for the tests of its users, which run in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

HEAD = """
import asyncio, json, pathlib, time
import pytest
from datetime import timedelta
from decimal import Decimal
from urllib.request import Request, urlopen
from paymentsdk import PaymentsClient, PaymentsError
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import FaultRule

def an_order():
    five = Decimal("5.00")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=five)])
    return OrderRequest(external_reference="t1", total_amount=five, transactions=payments)

async def pays_and_refunds(client, tenant):
    order = await client.orders.create(an_order())
    tenant.buyer.pay(order)
    await client.orders.refund(order.id)
    assert [entry.kind for entry in tenant.ledger()] == ["order_created", "payment", "refund"]
"""
INI = """
[pytest]
filterwarnings = error
"""
ASYNCIO = """
asyncio_default_fixture_loop_scope = function
asyncio_mode = auto
"""
#: Not the entry point of the plugin, so that the package need not be installed. No plugin may shuffle the tests: some
#: look at the leftovers of the test before. The last two only take time.
PLUGINS = "no:paymentsdk paymentsdk.pytest_plugin no:randomly no:random_order no:hypothesispytest no:cacheprovider"


def run(folder: Path, tests: Mapping[str, str], *options: str, ini: str = INI + ASYNCIO) -> str:
    """Run files of tests in a new pytest, with warnings as errors, and return what it prints."""
    folder.joinpath("pytest.ini").write_text(ini)
    for name, text in tests.items():
        folder.joinpath(f"test_{name}.py").write_text(HEAD + text)
    command = [sys.executable, "-m", "pytest", "-vv", *(f"-p{name}" for name in PLUGINS.split()), *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False).stdout


#: What users write, by the name of its file.
TESTS = {
    "synchronous": """
def test_pays(paymentsdk_tenant):
    body = {"type": "qr", "external_reference": "t1", "total_amount": "5.00",
            "transactions": {"payments": [{"amount": "5.00"}]}}
    headers = {"Authorization": "Bearer " + paymentsdk_tenant.access_token,
               "Content-Type": "application/json", "X-Idempotency-Key": "k1"}
    request = Request(paymentsdk_tenant.base_url + "/v1/orders", json.dumps(body).encode(), headers)
    with urlopen(request) as answer:
        order = json.load(answer)
    assert paymentsdk_tenant.buyer.pay(order["id"]).status == "processed"
    assert [entry.kind for entry in paymentsdk_tenant.ledger()] == ["order_created", "payment"]

def test_runs_the_client_itself(paymentsdk_tenant, paymentsdk_client):
    order = asyncio.run(paymentsdk_client.orders.create(an_order()))
    assert paymentsdk_tenant.buyer.pay(order).status == "processed"
""",
    "asynchronous": """
async def test_pays(paymentsdk_client, paymentsdk_tenant):
    await pays_and_refunds(paymentsdk_client, paymentsdk_tenant)
""",
    "sellers": """
seen = []

async def test_breaks(paymentsdk_client, paymentsdk_tenant):
    seen.append(paymentsdk_tenant)
    paymentsdk_tenant.add_fault(FaultRule(effect="refuse", status=400, code="bad_request"))
    with pytest.raises(PaymentsError):
        await paymentsdk_client.orders.create(an_order())

async def test_works(paymentsdk_client, paymentsdk_tenant):
    seen.append(paymentsdk_tenant)
    await paymentsdk_client.orders.create(an_order())
    one, other = seen
    assert one.base_url == other.base_url
    assert one.account.user_id != other.account.user_id
    assert one.ledger() == []
    assert not paymentsdk_tenant.sandbox.faults.list()
""",
    "faults": """
async def test_hits_one(paymentsdk_client, paymentsdk_tenant, paymentsdk_sandbox):
    with paymentsdk_tenant.add_fault(FaultRule(effect="refuse", status=400, code="bad_request")) as fault:
        async with PaymentsClient(paymentsdk_sandbox.access_token, base_url=paymentsdk_sandbox.base_url) as other:
            await other.orders.create(an_order())
    assert fault.hits == 0
""",
    "time": """
async def test_expires(paymentsdk_client, paymentsdk_tenant, paymentsdk_clock):
    order = await paymentsdk_client.orders.create(an_order())
    began = paymentsdk_clock.now()
    assert paymentsdk_clock.frozen and paymentsdk_tenant.sandbox.clock is paymentsdk_clock
    happened = paymentsdk_clock.advance("PT15M")
    assert [one.id for one in happened] == [order.id]
    assert (await paymentsdk_client.orders.get(order.id)).status == "expired"
    assert paymentsdk_clock.now() - began == timedelta(minutes=15)
    test_stays.other = paymentsdk_tenant.base_url

async def test_stays(paymentsdk_client, paymentsdk_tenant):
    assert paymentsdk_tenant.base_url != test_stays.other
    assert not paymentsdk_tenant.sandbox.clock.frozen
    assert (await paymentsdk_client.orders.create(an_order())).status == "created"
""",
    "both": """
@pytest.fixture
def mine(paymentsdk_sandbox):
    return paymentsdk_sandbox

def test_itself(paymentsdk_sandbox, paymentsdk_clock): pass
def test_through_a_fixture(mine, paymentsdk_clock): pass
def test_too_late(request, paymentsdk_tenant): request.getfixturevalue("paymentsdk_clock")
""",
    "credentials": """
async def test_fails(paymentsdk_client, paymentsdk_tenant):
    account = paymentsdk_tenant.account
    credentials = [account.access_token, account.refresh_token, account.client_secret, account.authorization_code]
    pathlib.Path("credentials.json").write_text(json.dumps(credentials))
    del credentials
    assert (paymentsdk_client, paymentsdk_tenant, paymentsdk_tenant.account) is None
""",
    "webhooks": """
async def test_is_notified(paymentsdk_tenant, paymentsdk_client, paymentsdk_webhooks):
    order = await paymentsdk_client.orders.create(an_order())
    paymentsdk_tenant.buyer.pay(order)
    created, paid = paymentsdk_webhooks.wait(2)
    assert (created.topic, created.id) == (paid.topic, paid.id) == ("orders", order.id)
    assert created.seller == str(paymentsdk_tenant.account.user_id)
    assert b"orders.paid" in paid.body

def test_faults_hit_them(paymentsdk_tenant, paymentsdk_client, paymentsdk_webhooks):
    paymentsdk_tenant.add_fault(FaultRule(effect="wrong_signature", operation="notifications.*", nth=1))
    paymentsdk_tenant.add_fault(FaultRule(effect="duplicated", operation="notifications.*", nth=2))
    order = asyncio.run(paymentsdk_client.orders.create(an_order()))
    paymentsdk_tenant.buyer.pay(order)
    once, again = paymentsdk_webhooks.wait(2)
    assert once.event == again.event
    assert [error.reason for error in paymentsdk_webhooks.rejected] == ["mismatch"]
    with pytest.raises(TimeoutError, match="2 of 3 notifications came within 0.01 s"):
        paymentsdk_webhooks.wait(3, within=0.01)

def test_nothing_is_left(paymentsdk_sandbox):
    assert paymentsdk_sandbox.webhooks.list() == ()
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of these tests."""
    return tmp_path_factory.mktemp("tests_of_users")


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    """What pytest prints of them."""
    return run(folder, TESTS, "--showlocals")


@pytest.fixture
def outcomes(printed: str) -> Callable[[str], list[str]]:
    """Return the outcomes of the tests in a file."""
    return lambda name: re.findall(rf"^test_{name}\.py::\w+ ([A-Z]+) ", printed, re.MULTILINE)


def test_a_synchronous_test_needs_no_event_loop(outcomes) -> None:
    """A test needs only the tenant's address and token, the buyer and the ledger."""
    assert ["PASSED"] * 2 == outcomes("synchronous")


def test_the_client_works_with_pytest_asyncio(outcomes) -> None:
    """The client works with pytest-asyncio, and leaves nothing open: a warning would fail the test."""
    assert ["PASSED"] == outcomes("asynchronous")


def test_the_client_works_with_anyio(tmp_path: Path) -> None:
    """The client works on the asyncio backend of anyio, which closes the loop before it tears down fixtures."""
    tests = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_pays(paymentsdk_client, paymentsdk_tenant):
    await pays_and_refunds(paymentsdk_client, paymentsdk_tenant)
"""
    assert " 1 passed " in run(tmp_path, {"anyio": tests}, "-pno:asyncio", ini=INI)


def test_every_worker_of_xdist_has_a_server(tmp_path: Path) -> None:
    """Each worker has a server, which all tests of the worker share."""
    tests = """
@pytest.mark.parametrize("number", range(8))
def test_notes(paymentsdk_sandbox, worker_id, number):
    with open("servers.txt", "a") as file:
        file.write(f"{worker_id} {paymentsdk_sandbox.base_url}\\n")
    # Until the other worker has been here as well: who is quick must not run all of them.
    deadline = time.monotonic() + 20
    while len({line.split()[0] for line in pathlib.Path("servers.txt").read_text().splitlines()}) < 2:
        assert time.monotonic() < deadline
"""
    assert " 8 passed " in run(tmp_path, {"servers": tests}, "-n2")
    noted = {tuple(line.split()) for line in tmp_path.joinpath("servers.txt").read_text().splitlines()}
    assert 2 == len(noted) == len({base_url for _, base_url in noted})


def test_every_test_has_a_seller_of_its_own(outcomes) -> None:
    """On a shared server, each test has its own ledger, and its faults end with the test."""
    assert ["PASSED"] * 2 == outcomes("sellers")


def test_a_fault_of_one_seller_does_not_hit_another(outcomes) -> None:
    """A rule of a test applies to the seller of the test, even if the rule names another seller."""
    assert ["PASSED"] == outcomes("faults")


def test_a_test_that_moves_time_has_a_server_of_its_own(outcomes) -> None:
    """The clock of the test stands still until it is moved. Its tenant and client use it; other sellers do not."""
    assert ["PASSED"] * 2 == outcomes("time")


def test_the_shared_server_and_a_clock_do_not_go_together(outcomes, printed: str) -> None:
    """A test with both would move the time of one server and read the other: an error says how to avoid this."""
    assert ["ERROR", "ERROR", "FAILED"] == outcomes("both")
    assert printed.count("use `paymentsdk_tenant.sandbox` instead of `paymentsdk_sandbox`") >= 3


def test_no_credential_is_printed(outcomes, printed: str, folder: Path) -> None:
    """A failing test shows its fixtures without credentials."""
    assert ["FAILED"] == outcomes("credentials")
    credentials = json.loads(folder.joinpath("credentials.json").read_text())
    assert [] == [credential for credential in credentials if credential in printed]


def test_notifications_are_collected(outcomes) -> None:
    """A receiver verifies only notifications of this seller, and ends with its test."""
    assert ["PASSED"] * 3 == outcomes("webhooks")


def test_importing_the_plugin_imports_nothing_else() -> None:
    """Every pytest on a user's machine imports the plugin, so it imports only itself and the root of the package."""
    code = "import pytest, paymentsdk, sys; old = {*sys.modules}; import paymentsdk.pytest_plugin; "
    command = [sys.executable, "-c", code + "print(*{*sys.modules} - old)"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "paymentsdk.pytest_plugin" == process.stdout.strip()
