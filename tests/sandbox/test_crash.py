"""SIGKILL at any moment, a restart, and nothing is half done or done twice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from paymentsdk import NotSent, OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.sandbox import Sandbox, WebhookRequest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no SIGKILL")
WORKER = Path(__file__).parent / "crash_worker.py"


def killed_at_every_moment(directory: Path, *options: str) -> dict:
    """Run the worker; return what it found."""
    command = [sys.executable, str(WORKER), str(directory), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == process.returncode, process.stderr
    return json.loads(process.stdout)


def test_a_kill_at_any_statement_leaves_nothing_half_done(tmp_path):
    """Claim of the key, effect, ledger and saved response are one: all of it or none, at each of the statements."""
    result = killed_at_every_moment(tmp_path)

    assert result["kills"] > 40
    assert {} == result["wrong"]


def test_without_transactions_a_kill_is_seen(tmp_path):
    """The negative control: statements that commit by themselves leave halves, and the check finds them."""
    result = killed_at_every_moment(tmp_path, "--without-transactions", "--every-third")

    assert len(result["wrong"]) > 3


def killed_under_load(path: Path, kills: int, *options: str) -> dict:
    """Run the load; return what it found."""
    command = [sys.executable, str(WORKER.with_name("crash_load.py")), str(path), str(kills), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == process.returncode, process.stderr
    return json.loads(process.stdout)


def test_kills_under_load_lose_nothing_that_was_acknowledged(tmp_path):
    """20 kills amid 16 requests in flight, which share commits: responses were true, and keys took effect once."""
    result = killed_under_load(tmp_path / "sandbox.db", 20)

    assert result["acknowledged"] > 200
    assert ([], 0) == (result["lost"], result["doubled"])


def test_responses_before_their_commit_are_seen(tmp_path):
    """The negative control: a sandbox that responds first and commits later loses what it has acknowledged."""
    result = killed_under_load(tmp_path / "sandbox.db", 3, "--answer-first")

    assert len(result["lost"]) > 3


SERVE = """
import asyncio, sys
from paymentsdk.sandbox import Sandbox, WebhookRequest

async def serve():
    async with Sandbox(db=sys.argv[1]) as sandbox:
        print(sandbox.base_url, flush=True)
        await asyncio.Event().wait()

asyncio.run(serve())
"""


async def serve(path: Path) -> tuple[asyncio.subprocess.Process, str]:
    """Start a sandbox in a process of its own; return it, and where it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, str(path), stdout=asyncio.subprocess.PIPE
    )
    return process, (await process.stdout.readline()).decode().strip()


@pytest.fixture
async def notified():
    """A receiver: its address, and the ids of the orders that it was notified of."""
    orders: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        orders.append((await request.json())["id"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/", orders
    await runner.cleanup()


async def test_a_kill_loop_delivers_what_was_committed(tmp_path, order, until, notified):
    """Killed amid writes and deliveries: all that was acknowledged is delivered, and nothing that was rolled back."""
    url, orders = notified
    path, acknowledged = tmp_path / "sandbox.db", set()
    async with Sandbox(db=str(path)) as sandbox:
        sandbox.webhooks.add(WebhookRequest(url=url, template="hint"))
        token = sandbox.access_token
    for enough in (10, 25):
        process, base_url = await serve(path)
        client = PaymentsClient(access_token=token, base_url=base_url, retry=RetryPolicy(attempts=1))

        async def write(client: PaymentsClient = client) -> None:
            with suppress(NotSent, OutcomeUnknown):
                acknowledged.add((await client.orders.create(order())).id)

        tasks = [asyncio.create_task(write()) for _ in range(40)]
        await until(lambda enough=enough: len(acknowledged) >= enough)
        process.kill()
        await asyncio.gather(*tasks)
        await client.aclose()
        await process.wait()
        process._transport.close()
    async with Sandbox(db=str(path)) as sandbox:
        await until(lambda: all(row.status == "delivered" for row in sandbox.webhooks.deliveries(limit=-1)))
        committed = {entry.id for entry in sandbox.ledger()}

    assert acknowledged <= set(orders)
    assert committed == set(orders)
