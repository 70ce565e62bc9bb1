"""Inside the sandbox: what no response shows, and defences that a test has to slow down or count."""

from __future__ import annotations

import asyncio

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.sandbox import Sandbox
from paymentsdk.sandbox._app import reset_connection
from paymentsdk.sandbox._records import SUBSCRIPTIONS


@pytest.fixture
async def sandbox():
    """A sandbox whose clock stands still."""
    async with Sandbox(seed=7, frozen=True) as sandbox:
        yield sandbox


@pytest.mark.control("paymentsdk.sandbox._app.DisconnectedError", ZeroDivisionError)
@pytest.mark.parametrize("path", ["/_sandbox/scan", "/subscriptions/{plan}"])
async def test_who_goes_away_amid_a_command_or_a_form_is_no_failure(sandbox, until, caplog, monkeypatch, path):
    """Nor is it logged as one: a page that is closed, or a script that is stopped, says nothing of the sandbox."""
    over = []
    monkeypatch.setattr(
        "paymentsdk.sandbox._app.reset_connection", lambda request: over.append(request) or reset_connection(request)
    )
    host = sandbox.base_url.removeprefix("http://")
    _, writer = await asyncio.open_connection(*host.split(":"))
    head = f"POST {path.format(plan=sandbox.plan_id)} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 500\r\n"
    writer.write(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nform".encode())
    writer.close()
    await writer.wait_closed()
    await until(lambda: over or caplog.records)

    assert [] == caplog.records
    assert [] == sandbox.platform.store.find(SUBSCRIPTIONS, None)


async def test_a_search_of_plans_reads_no_subscription(sandbox, monkeypatch):
    """They are counted: a page takes as long with ten thousand of them."""
    sandbox.buyer.subscribe()
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        await client.plans.search().first()  # The first invoice is collected now, for which it is read.
        monkeypatch.setattr(SUBSCRIPTIONS, "decode", lambda stored: pytest.fail("a subscription was read"))

        assert 1 == (await client.plans.search().first()).subscribed
