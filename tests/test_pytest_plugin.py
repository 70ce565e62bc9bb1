"""The fixtures of the package for the tests of its users, each tested in a new pytest."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ORDER = """
import asyncio
import pytest
from decimal import Decimal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest

def an_order():
    five = Decimal("5.00")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=five)])
    return OrderRequest(external_reference="t1", total_amount=five, transactions=payments)
"""
ASYNCIO = """
asyncio_default_fixture_loop_scope = function
asyncio_mode = {mode}
"""
INI = """
[pytest]
filterwarnings = error
"""


@pytest.fixture
def run(pytester):
    """Return a function that runs tests in a new pytest, with the plugin, and with warnings as errors."""

    def run(tests: str, *options: str, mode: str | None = "auto") -> pytest.RunResult:
        pytester.makeini(INI + (ASYNCIO.format(mode=mode) if mode else ""))
        pytester.makepyfile(ORDER + tests)
        # By its module, not its entry point, so that the package need not be installed.
        plugin = ("-p", "no:paymentsdk", "-p", "paymentsdk.pytest_plugin")
        # Some of these tests look at the leftovers of the test before, so no plugin may shuffle them.
        plugin += ("-p", "no:randomly", "-p", "no:random_order")
        # Importing it takes longer than most of these tests.
        plugin += ("-p", "no:hypothesispytest")
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *options)

    return run


SYNCHRONOUS = """
def test_pays(paymentsdk_tenant):
    from urllib.request import Request, urlopen
    import json
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
"""


def test_a_synchronous_test_needs_no_event_loop(run) -> None:
    """A test needs only the tenant's address and token, the buyer and the ledger."""
    run(SYNCHRONOUS).assert_outcomes(passed=2)


ASYNCHRONOUS = """
async def pays_and_refunds(client, tenant):
    order = await client.orders.create(an_order())
    tenant.buyer.pay(order)
    await client.orders.refund(order.id)
    assert [entry.kind for entry in tenant.ledger()] == ["order_created", "payment", "refund"]
"""


def test_the_client_works_with_pytest_asyncio(run) -> None:
    """The client works with pytest-asyncio, and leaves nothing open: a warning would fail the test."""
    tests = f"""{ASYNCHRONOUS}
async def test_pays(paymentsdk_client, paymentsdk_tenant):
    await pays_and_refunds(paymentsdk_client, paymentsdk_tenant)
"""
    run(tests).assert_outcomes(passed=1)


def test_the_client_works_with_anyio(run) -> None:
    """The client works on the asyncio backend of anyio, which closes the loop before it tears down fixtures."""
    tests = f"""{ASYNCHRONOUS}
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_pays(paymentsdk_client, paymentsdk_tenant):
    await pays_and_refunds(paymentsdk_client, paymentsdk_tenant)
"""
    run(tests, "-p", "no:asyncio", mode=None).assert_outcomes(passed=1)


def test_every_worker_of_xdist_has_a_server(run, pytester) -> None:
    """Each worker has a server, which all tests of the worker share."""
    tests = """
import pathlib, time

@pytest.mark.parametrize("number", range(8))
def test_notes(paymentsdk_sandbox, worker_id, number):
    with open("servers.txt", "a") as file:
        file.write(f"{worker_id} {paymentsdk_sandbox.base_url}\\n")
    # Until the other worker has been here as well: who is quick must not run all of them.
    deadline = time.monotonic() + 20
    while len({line.split()[0] for line in pathlib.Path("servers.txt").read_text().splitlines()}) < 2:
        assert time.monotonic() < deadline
"""
    result = run(tests, "-n", "2")

    result.assert_outcomes(passed=8)
    noted = {tuple(line.split()) for line in (pytester.path / "servers.txt").read_text().splitlines()}
    assert 2 == len(noted)
    assert 2 == len({base_url for _, base_url in noted})


def test_every_test_has_a_seller_of_its_own(run) -> None:
    """On a shared server, each test has its own ledger, and its faults end with the test."""
    tests = """
from paymentsdk import PaymentsError
from paymentsdk.sandbox import FaultRule

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
"""
    run(tests).assert_outcomes(passed=2)


def test_a_fault_of_one_seller_does_not_hit_another(run) -> None:
    """A rule of a test applies to the seller of the test, even if the rule names another seller."""
    tests = """
from paymentsdk import PaymentsClient
from paymentsdk.sandbox import FaultRule

async def test_hits_one(paymentsdk_client, paymentsdk_tenant, paymentsdk_sandbox):
    with paymentsdk_tenant.add_fault(FaultRule(effect="refuse", status=400, code="bad_request")) as fault:
        async with PaymentsClient(paymentsdk_sandbox.access_token, base_url=paymentsdk_sandbox.base_url) as other:
            await other.orders.create(an_order())
    assert fault.hits == 0
"""
    run(tests).assert_outcomes(passed=1)


def test_a_test_that_moves_time_has_a_server_of_its_own(run) -> None:
    """The clock of the test stands still until it is moved. Its tenant and client use it; other sellers do not."""
    tests = """
from datetime import timedelta

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
"""
    run(tests).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "test",
    [
        "def test_both(paymentsdk_sandbox, paymentsdk_clock): pass",
        "def test_both(mine, paymentsdk_clock): pass",
        "def test_both(request, paymentsdk_tenant): request.getfixturevalue('paymentsdk_clock')",
    ],
    ids=["itself", "through a fixture", "a clock asked for too late"],
)
def test_the_shared_server_and_a_clock_do_not_go_together(run, test: str) -> None:
    """A test with both would move the time of one server and read the other: an error says how to avoid this."""
    fixtures = """
import pytest

@pytest.fixture
def mine(paymentsdk_sandbox):
    return paymentsdk_sandbox

"""
    result = run(fixtures + test)

    result.assert_outcomes(**({"failed": 1} if "getfixturevalue" in test else {"errors": 1}))
    result.stdout.fnmatch_lines(["*use `paymentsdk_tenant.sandbox` instead of `paymentsdk_sandbox`*"])


def test_no_credential_is_printed(run, pytester) -> None:
    """A failing test shows its fixtures without credentials."""
    tests = """
import json, pathlib

async def test_fails(paymentsdk_client, paymentsdk_tenant):
    account = paymentsdk_tenant.account
    credentials = [account.access_token, account.refresh_token, account.client_secret, account.authorization_code]
    pathlib.Path("credentials.json").write_text(json.dumps(credentials))
    del credentials
    assert (paymentsdk_client, paymentsdk_tenant, paymentsdk_tenant.account) is None
"""
    result = run(tests, "--showlocals", "-vv")

    result.assert_outcomes(failed=1)
    credentials = json.loads((pytester.path / "credentials.json").read_text())
    assert [] == [credential for credential in credentials if credential in result.stdout.str()]


def modules_after(*imports: str) -> set[str]:
    """Return the imported modules after *imports* in a new process."""
    code = f"import json, sys\n{'; '.join(f'import {name}' for name in imports)}\nprint(json.dumps([*sys.modules]))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout))


def test_importing_the_plugin_imports_nothing_else() -> None:
    """Every pytest on a user's machine imports the plugin, so it imports only itself and the root of the package."""
    added = modules_after("pytest", "paymentsdk", "paymentsdk.pytest_plugin") - modules_after("pytest", "paymentsdk")

    assert {"paymentsdk.pytest_plugin"} == added


WEBHOOKS = """
from paymentsdk.sandbox import FaultRule

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
"""


def test_notifications_are_collected(run) -> None:
    """A receiver verifies only notifications of this seller, and ends with its test."""
    run(WEBHOOKS).assert_outcomes(passed=3)
