"""`paymentsdk sandbox deliveries` and `listen`, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.sandbox import WebhookRequest
from paymentsdk.webhooks import Webhook
from tests.cli.test_control import ask, settings  # noqa: F401 - a fixture
from tests.journal.platform import order


def until(condition: Callable[[], object]) -> None:
    """Wait until something is true in another thread or process."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_listen_prints_the_secret_and_each_delivery(signaled, sandbox, form: tuple[str, ...]):
    """Until Ctrl-C, which removes the webhook; what came is signed with the secret."""
    ids = []

    def is_told() -> bool:
        if not ids and sandbox.webhooks.list():
            ids.append(create_order())
        return bool(ids) and ids[0] in printed.getvalue()

    with redirect_stdout(io.StringIO()) as printed:
        ended = signaled(is_told, "sandbox", "listen", "--forward-to", f"{sandbox.base_url}/nothing/here", *form)

    assert (0, "", "") == ended
    secret, line, _ = printed.getvalue().splitlines()
    if form:
        secret = json.loads(secret)["secret"]
        line = "{resource}  {status}  {response_status}".format(**json.loads(line))
    assert Webhook.standard(secret.removeprefix("secret: "))
    assert line.endswith(f"{ids[0]}  failed  404")
    assert () == sandbox.webhooks.list()
