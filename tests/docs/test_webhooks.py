"""The programs of the page on webhooks, as processes: what comes is verified, kept, read and handled once."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import msgspec
import pytest
from standardwebhooks.webhooks import Webhook as PublicLibrary

from paymentsdk import OPERATIONS, PaymentsClient
from paymentsdk.sandbox import Sandbox
from paymentsdk.webhooks import Inbox
from tests.docs.test_recipes import blocks
from tests.postgres import free_port

OLD, NEW, FORGED = ("whsec_" + b64encode(letter * 32).decode() for letter in (b"o", b"n", b"f"))
SELLER = "77"
pytestmark = pytest.mark.usefixtures("closed")
Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """The platform."""
    with Sandbox().in_thread() as sandbox:
        yield sandbox


class Shop:
    """The processes of a shop, and what the platform sends to it."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.database = str(folder / "shop.db")
        self.url = f"http://127.0.0.1:{free_port()}/webhook"
        self._folder = folder
        self._environment = {
            **os.environ,
            "PORT": self.url.rpartition(":")[2].partition("/")[0],
            "DATABASE": self.database,
            "SELLER": SELLER,
            "WEBHOOK_SECRETS": f"{NEW} {OLD}",
            "PAYMENTSDK_BASE_URL": sandbox.base_url,
            "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token,
        }

    @asynccontextmanager
    async def running(self, code: str, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A program of the page, until it is told to stop."""
        program = self._folder / f"{command[0]}.py"
        program.write_text(code, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *(command[1:] or (str(program),))),
            env=self._environment,
            cwd=self._folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            self.log = (await process.stderr.read()).decode()
            await process.wait()

    async def send(self, body: bytes, secret: str = NEW, at: timedelta = timedelta(0), **fields: str) -> int:
        """Send a notification as the platform does, and return the status of the answer."""
        moment = datetime.now(UTC) + at
        headers = {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": PublicLibrary(secret).sign("msg_1", moment, body.decode()),
            **fields,
        }
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
            for _ in range(500):
                try:
                    async with http.post(self.url, data=body, headers=headers) as response:
                        return response.status
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.02)
        pytest.fail("nobody listens")

    def sales(self) -> list[tuple[str, str]]:
        """What the worker has done."""
        with closing(sqlite3.connect(self.database, timeout=10)) as file:
            if not file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sale'").fetchone():
                return []
            return file.execute("SELECT id, status FROM sale").fetchall()


def message(order_id: str) -> bytes:
    """Return the body of a notification."""
    return msgspec.json.encode({"type": "orders.processed", "data": {"id": order_id}})


async def paid_order(client: PaymentsClient, sandbox: Sandbox) -> str:
    """Make an order, pay it, and return its id."""
    create = OPERATIONS["orders.create"]
    order = (await client.call(create, msgspec.convert(create.example, create.body))).value
    sandbox.buyer.pay(order)
    return order.id


RECEIVERS = {"aiohttp": ("receiver",), "FastAPI": ("receiver", "-m", "uvicorn", "receiver:app", "--port")}


@pytest.mark.parametrize("framework", RECEIVERS)
async def test_a_paid_order_is_handled_once(framework: str, sandbox: Sandbox, tmp_path: Path, until: Until) -> None:
    """Receiver and worker are processes; repeated notifications, with the old or the new secret, lead to one sale.

    Each kind of bad input has its answer, and leaves nothing in the inbox and no secret in the log.
    """
    shop, codes = Shop(tmp_path, sandbox), blocks("webhooks")
    command = RECEIVERS[framework]
    if len(command) > 1:
        command = (*command, shop.url.rpartition(":")[2].partition("/")[0])
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        order_id = await paid_order(client, sandbox)
    async with shop.running(codes[list(RECEIVERS).index(framework)], *command):
        await send_what_is_not_proven(shop)
        inbox = Inbox(shop.database)
        assert await inbox.rows() == []
        assert [await shop.send(message(order_id), secret) for secret in (OLD, NEW, NEW)] == [202] * 3
        async with shop.running(codes[2], "worker"):
            await until(shop.sales)
            for name in (order_id, "ORD00000000000000000000000000", "123"):  # The last may be the id of a payment.
                assert await shop.send(message(name)) == 202
            for _ in range(1000):
                if not await inbox.rows():
                    break
                await asyncio.sleep(0.02)
            assert await inbox.rows() == []

    assert shop.sales() == [(order_id, "processed")]
    assert "360 s old" in shop.log or "361 s old" in shop.log
    for secret in (OLD, NEW, FORGED):
        assert secret.removeprefix("whsec_") not in shop.log


async def send_what_is_not_proven(shop: Shop) -> None:
    """Send notifications that a receiver rejects, and check its answers."""
    body = message("ORD1")
    assert 401 == await shop.send(body, FORGED)
    for minutes in (-6, 6):
        assert 401 == await shop.send(body, at=timedelta(minutes=minutes))
    for fields in ({"webhook-signature": ""}, {"webhook-timestamp": "noon"}):
        assert 401 == await shop.send(body, **fields)
    assert 413 == await shop.send(b" " * 100_000 + body)
    for wrong in (message("ORD'1"), message("ORD1\nforged"), b"orders"):
        assert 400 == await shop.send(wrong)
