"""`paymentsdk sandbox deliveries` and `listen`, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.cli import main
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import Sandbox, WebhookRequest
from paymentsdk.webhooks import Webhook

AMOUNT = Decimal("10.00")
AMOUNTS = {
    "total_amount": AMOUNT, "transactions": TransactionsRequest(payments=[PaymentRequest(amount=AMOUNT)])
}  # fmt: skip


@pytest.fixture
def sandbox(monkeypatch) -> Iterator[Sandbox]:
    """A sandbox in a thread, which the environment names, with a clock that stands still."""
    with Sandbox(frozen=True).in_thread() as sandbox:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
        yield sandbox


def until(condition: Callable[[], object]) -> None:
    """Wait until something is true in another thread or process."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run `paymentsdk sandbox ...`, which must succeed, and return what it printed."""
    code = main(["sandbox", *arguments])
    printed = capsys.readouterr()
    assert (0, "") == (code, printed.err)
    return printed.out


def create_order(sandbox: Sandbox) -> str:
    """Create an order, and return its id."""

    async def create() -> str:
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
            return (await client.orders.create(OrderRequest(external_reference="A-1", **AMOUNTS))).id

    return asyncio.run(create())


def test_deliveries_are_listed_and_sent_once_more(capsys, sandbox, unused_tcp_port):
    """One line for each, with its status, and why it failed."""
    assert "no notifications\n" == ask(capsys, "deliveries")

    sandbox.webhooks.add(WebhookRequest(url=f"http://127.0.0.1:{unused_tcp_port}/"))
    order = create_order(sandbox)
    until(lambda: sandbox.webhooks.deliveries()[0].status == "failed")
    name, line = ask(capsys, "deliveries").split("  ", 1)

    assert f"orders.created  {order}  failed  Cannot connect" in line
    assert "waiting" in ask(capsys, "deliveries", "redeliver", name)
    until(lambda: sandbox.webhooks.deliveries()[0].attempts == 2)
    assert 2 == json.loads(ask(capsys, "deliveries", "--json"))[0]["attempts"]


def test_listen_prints_the_secret_and_each_delivery(sandbox):
    """Until Ctrl-C, which removes the webhook; what came is signed with the secret."""
    url = f"{sandbox.base_url}/nothing/here"
    command = [sys.executable, "-m", "paymentsdk", "sandbox", "listen", "--forward-to", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        secret = process.stdout.readline().strip().removeprefix("secret: ")
        order = create_order(sandbox)
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)

    assert Webhook.standard(secret)
    assert line.rstrip().endswith(f"orders.created  {order}  failed  404")
    assert ("the webhook is removed\n", "", 0) == (output, errors, process.returncode)
    assert () == sandbox.webhooks.list()
