"""`paymentsdk sandbox deliveries` and `listen`, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.cli import main
from paymentsdk.sandbox import WebhookRequest
from paymentsdk.webhooks import Webhook
from tests.journal.platform import order


@pytest.fixture
def settings() -> dict[str, object]:
    """A clock that stands still."""
    return {"frozen": True}


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


def create_order() -> str:
    """Create an order, and return its id."""

    async def create() -> str:
        async with PaymentsClient.from_env() as client:
            return (await client.orders.create(order())).id

    return asyncio.run(create())


def test_deliveries_are_listed_and_sent_once_more(capsys, sandbox, unused_tcp_port):
    """One line for each, with its status, and why it failed."""
    assert "no notifications\n" == ask(capsys, "deliveries")

    sandbox.webhooks.add(WebhookRequest(url=f"http://127.0.0.1:{unused_tcp_port}/"))
    order_id = create_order()
    until(lambda: sandbox.webhooks.deliveries()[0].status == "failed")
    name, line = ask(capsys, "deliveries").split("  ", 1)

    assert f"orders.created  {order_id}  failed  Cannot connect" in line
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
        order_id = create_order()
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)

    assert Webhook.standard(secret)
    assert line.rstrip().endswith(f"orders.created  {order_id}  failed  404")
    assert ("the webhook is removed\n", "", 0) == (output, errors, process.returncode)
    assert () == sandbox.webhooks.list()
