"""The fixtures of the package for the tests of its users, each tested in a new pytest."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points

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


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_the_client_works_with_pytest_asyncio(run, mode: str, mark: str) -> None:
    """The client works in both modes of pytest-asyncio, and leaves nothing open: a warning would fail the test."""
    tests = f"""{ASYNCHRONOUS}
{mark}
async def test_pays(paymentsdk_client, paymentsdk_tenant):
    await pays_and_refunds(paymentsdk_client, paymentsdk_tenant)

{mark}
async def test_pays_again(paymentsdk_client, paymentsdk_tenant):
    await pays_and_refunds(paymentsdk_client, paymentsdk_tenant)
"""
    run(tests, mode=mode).assert_outcomes(passed=2)


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


def test_a_buyer_is_a_customer_of_the_seller(run) -> None:
    """The default point of sale and plan belong to the seller of the test, not to the first seller."""
    tests = """
from msgspec.structs import replace
from paymentsdk.resources.orders import OrderConfigRequest, QRConfigRequest

async def test_buys(paymentsdk_client, paymentsdk_tenant):
    config = OrderConfigRequest(qr=QRConfigRequest(external_pos_id=paymentsdk_tenant.account.external_pos_id))
    made = await paymentsdk_client.orders.create(replace(an_order(), config=config))
    paid = paymentsdk_tenant.buyer.pay(paymentsdk_tenant.account.external_pos_id)
    subscription = paymentsdk_tenant.buyer.subscribe()
    assert paid.id == made.id
    assert subscription.plan_id == paymentsdk_tenant.account.plan_id
    assert {"order_created", "payment"} <= {entry.kind for entry in paymentsdk_tenant.ledger()}
"""
    run(tests).assert_outcomes(passed=1)


def test_a_test_makes_plans_of_its_seller(run) -> None:
    """A test can make a plan with any price, and go through the invoices of its subscriptions."""
    tests = """
from paymentsdk.sandbox import PlanRequest, RecurringRequest

async def test_subscribes(paymentsdk_client, paymentsdk_tenant):
    recurring = RecurringRequest(transaction_amount=Decimal("30.00"), frequency=2)
    plan = paymentsdk_tenant.create_plan(PlanRequest(reason="Gym", auto_recurring=recurring))
    assert plan == await paymentsdk_client.plans.get(plan.id)
    paymentsdk_tenant.buyer.subscribe(plan.id)
    [due, paid] = await paymentsdk_client.invoices.search().collect()
    assert (due.status, paid.status, paid.transaction_amount) == ("scheduled", "processed", Decimal("30.00"))
"""
    run(tests).assert_outcomes(passed=1)


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


def test_a_test_moves_the_time_of_its_seller_alone(run) -> None:
    """Moving the clock on the shared server makes nothing of another seller due."""
    tests = """
async def test_expires(paymentsdk_client, paymentsdk_tenant, paymentsdk_sandbox):
    other = paymentsdk_sandbox.create_tenant()
    order = await paymentsdk_client.orders.create(an_order())
    assert [event.id for event in paymentsdk_tenant.advance("PT15M")] == [order.id]
    assert (await paymentsdk_client.orders.get(order.id)).status == "expired"
    assert paymentsdk_sandbox.now(other) < paymentsdk_sandbox.now(paymentsdk_tenant.account)
"""
    run(tests).assert_outcomes(passed=1)


def test_a_test_can_go_on_after_its_token_has_expired(run) -> None:
    """A year of subscriptions outlasts a token: the tenant gets a new token, and the client keeps its first."""
    tests = """
from paymentsdk import AuthenticationFailed

async def test_a_year(paymentsdk_client, paymentsdk_tenant, paymentsdk_clock):
    subscription = paymentsdk_tenant.buyer.subscribe()
    paymentsdk_clock.advance("P365D")
    with pytest.raises(AuthenticationFailed):
        await paymentsdk_client.invoices.search().collect()
    client = paymentsdk_client.with_options(access_token=paymentsdk_tenant.access_token)
    invoices = await client.invoices.search(preapproval_id=subscription.id).collect()
    assert [invoice.status for invoice in invoices] == ["scheduled", *["processed"] * (len(invoices) - 1)]
"""
    run(tests).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "test",
    [
        "def test_both(paymentsdk_sandbox, paymentsdk_clock): pass",
        "def test_both(mine, paymentsdk_clock): pass",
        "def test_both(theirs, paymentsdk_clock): pass",
        "def test_both(request, paymentsdk_tenant): request.getfixturevalue('paymentsdk_clock')",
    ],
    ids=["itself", "through a fixture", "through one of the session", "a clock asked for too late"],
)
def test_the_shared_server_and_a_clock_do_not_go_together(run, test: str) -> None:
    """A test with both would move the time of one server and read the other: an error says how to avoid this."""
    fixtures = """
import pytest

@pytest.fixture
def mine(paymentsdk_sandbox):
    return paymentsdk_sandbox

@pytest.fixture(scope="session")
def theirs(paymentsdk_sandbox):
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


def test_the_fixtures_are_documented(run) -> None:
    """`pytest --fixtures` describes each fixture."""
    result = run("", "--fixtures")

    text = "\n".join(result.outlines)
    for line in (
        "paymentsdk_sandbox [session scope]",
        "    The sandbox that all tests of this session share",
        "    A new seller for this test",
        "    A ``PaymentsClient`` that acts for the seller",
        "    A receiver of the notifications",
        "    The clock of this test",
    ):
        assert f"\n{line}" in text


def modules_after(*imports: str) -> set[str]:
    """Return the imported modules after *imports* in a new process."""
    code = f"import json, sys\n{'; '.join(f'import {name}' for name in imports)}\nprint(json.dumps([*sys.modules]))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout))


def test_importing_the_plugin_imports_nothing_else() -> None:
    """Every pytest on a user's machine imports the plugin, so it imports only itself and the root of the package."""
    added = modules_after("pytest", "paymentsdk", "paymentsdk.pytest_plugin") - modules_after("pytest", "paymentsdk")

    assert {"paymentsdk.pytest_plugin"} == added


def test_the_sandbox_is_imported_when_a_test_asks_for_it(run) -> None:
    """A run imports the sandbox and its server only if it uses the fixtures."""
    tests = """
import sys

def test_before():
    assert {"aiohttp", "sqlite3", "paymentsdk.sandbox"}.isdisjoint(sys.modules)

def test_after(paymentsdk_sandbox):
    assert "paymentsdk.sandbox" in sys.modules
"""
    run(tests).assert_outcomes(passed=2)


def test_pytest_finds_the_plugin_by_itself() -> None:
    """The installed package declares the plugin, so users need no setup."""
    declared = [point.value for point in entry_points(group="pytest11") if point.name == "paymentsdk"]
    if not declared:
        pytest.skip("needs the package, installed since it declares its plugin: install it again")

    assert ["paymentsdk.pytest_plugin"] == declared


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

def test_the_receiver_may_fail(paymentsdk_tenant, paymentsdk_client, paymentsdk_webhooks):
    paymentsdk_webhooks.status = 410
    order = asyncio.run(paymentsdk_client.orders.create(an_order()))
    paymentsdk_webhooks.wait()
    assert [webhook.url for webhook in paymentsdk_tenant.sandbox.webhooks.list(paymentsdk_tenant.account)]

def test_nothing_is_left(paymentsdk_sandbox):
    assert paymentsdk_sandbox.webhooks.list() == ()
"""


def test_notifications_are_collected(run) -> None:
    """A receiver verifies only notifications of this seller, and ends with its test."""
    run(WEBHOOKS).assert_outcomes(passed=4)
