"""The service of the how-to, as a process under load: stopped, killed, started again, and held against the ledger."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiohttp
import pytest

from paymentsdk.sandbox import Sandbox, WebhookRequest
from tests.docs.test_recipes import blocks
from tests.postgres import free_port

#: Requests at a time.
BUYERS = 8
#: Of a connection that is accepted as the service stops aiohttp reads nothing: it is closed when this time is over. Of
#: the half minute that the page gives to what was read, a test needs no more.
PATIENCE = ("shutdown_timeout=30", "shutdown_timeout=2")
SECRET = "whsec_" + b64encode(b"s" * 32).decode()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """The platform."""
    with Sandbox().in_thread() as sandbox:
        yield sandbox


class Shop:
    """The service in a process, and those who buy."""

    def __init__(self, folder: Path, sandbox: Sandbox, journal: str, http: aiohttp.ClientSession) -> None:
        self._program = folder / "service.py"
        code = blocks("a-complete-service")[0]
        assert PATIENCE[0] in code
        self._program.write_text(code.replace(*PATIENCE), encoding="utf-8")
        self._environment = {
            **os.environ,
            "PORT": str(free_port()),
            "JOURNAL": journal,
            "SHOP": str(folder / "shop.db"),
            "WEBHOOK_SECRETS": SECRET,
            "PAYMENTSDK_BASE_URL": sandbox.base_url,
            "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token,
        }
        self._http = http
        self.url = f"http://127.0.0.1:{self._environment['PORT']}"
        self.process: asyncio.subprocess.Process | None = None
        #: The order of each sale that was answered with one.
        self.sold: dict[str, str] = {}
        self.cut: list[str] = []

    async def start(self) -> None:
        """Start it, and wait until it says that it is well."""
        command = [sys.executable, str(self._program)]
        self.process = await asyncio.create_subprocess_exec(
            *command, env=self._environment, stdout=asyncio.subprocess.DEVNULL
        )
        while True:
            assert self.process.returncode is None
            try:
                await self.health()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.02)
            else:
                return

    async def end(self, number: int) -> int:
        """Send it a signal, and return how it ends."""
        self.process.send_signal(number)
        return await self.process.wait()

    async def health(self) -> dict[str, int]:
        """The records that are open, by state."""
        async with self._http.get(f"{self.url}/health") as response:
            assert 200 == response.status
            return {state: number for state, number in (await response.json())["open"].items() if number}

    async def metrics(self) -> str:
        """What a scraper reads."""
        async with self._http.get(f"{self.url}/metrics") as response:
            return await response.text()

    async def buy(self, name: str, amount: str = "24.90") -> tuple[int, dict[str, str]]:
        """Buy something."""
        async with self._http.post(f"{self.url}/sales", json={"name": name, "amount": amount}) as response:
            return response.status, await response.json()

    async def be_busy(self, names: Iterator[str]) -> None:
        """Buy one after the other, until nobody listens any more."""
        for name in names:
            try:
                status, sale = await self.buy(name)
            except aiohttp.ClientConnectorError:
                return
            except aiohttp.ClientError:
                self.cut.append(name)
                return
            assert 201 == status, sale
            self.sold[name] = sale["order"]

    async def under_load(self, number: int, until: Callable[..., object]) -> int:
        """Send a signal while everybody buys; return how the process ends."""
        names = (f"table-{n}/1" for n in range(100_000))
        async with asyncio.TaskGroup() as buyers:
            for _ in range(BUYERS):
                buyers.create_task(self.be_busy(names))
            await until(lambda: len(self.sold) >= 20)
            return await self.end(number)


@pytest.fixture
def shop(sandbox: Sandbox, tmp_path: Path) -> Callable[..., object]:
    """Open a shop on a journal."""

    @asynccontextmanager
    async def opened(journal: str) -> AsyncIterator[Shop]:
        # A connection for each request: one that is kept may be closed as a request sets out, which proves nothing.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
            shop = Shop(tmp_path, sandbox, journal, http)
            await shop.start()
            try:
                yield shop
            finally:
                if shop.process.returncode is None:
                    await shop.end(signal.SIGKILL)

    return opened


def made(sandbox: Sandbox) -> dict[str, list[str]]:
    """The orders that the platform has made, by reference."""
    orders: dict[str, list[str]] = {}
    for entry in sandbox.ledger():
        orders.setdefault(entry.external_reference, []).append(entry.id)
    return orders


async def test_a_sale_is_made_once_and_its_payment_is_written_once(shop, sandbox: Sandbox, tmp_path: Path, until):
    """The sandbox notifies the service, which reads the order and writes its states in its own table.

    A sale is made once, however often it is sent; what is no sale is rejected, and the metrics count the calls. A
    notification that somebody sends on to the address of another seller is looked at, and writes nothing.
    """

    def rows(table: str, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            has_table = database.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", [table]).fetchone()
            return database.execute(query).fetchall() if has_table else []

    def sales() -> list[tuple[object, ...]]:
        return rows("sale", "SELECT id, status FROM sale")

    async with shop(str(tmp_path / "payments.db")) as opened:
        seller = sandbox.default_tenant().user_id
        for address in (seller, 1):
            sandbox.webhooks.add(WebhookRequest(url=f"{opened.url}/notifications/{address}", secret=SECRET))
        first, again = await opened.buy("table-7/1"), await opened.buy("table-7/1")
        second, wrong = await opened.buy("table-7/1", "30.00"), await opened.buy("table-8/1", "a lot")
        order = first[1]["order"]
        await until(lambda: (order, "created") in sales())
        sandbox.buyer.pay(order)
        await until(lambda: (order, "processed") in sales())
        await until(lambda: {delivery.status for delivery in sandbox.webhooks.deliveries()} == {"delivered"})
        foreign = "SELECT ready FROM paymentsdk_inbox WHERE seller = '1'"
        await until(lambda: rows("paymentsdk_inbox", foreign) == [(None,)])
        assert {} == await opened.health()
        assert 'payments_calls_total{operation="orders.create",outcome="' in await opened.metrics()

    assert (201, 409, 400) == (first[0], second[0], wrong[0])
    assert first == again
    assert first[1]["code"].startswith(f"{sandbox.base_url}/qr/ORD")
    assert ["order_created", "payment"] == [entry.kind for entry in sandbox.ledger()]
    assert sales() == [(order, "created"), (order, "processed")]


async def test_killed_under_load_it_leaves_nothing_that_recovery_does_not_settle(
    shop, sandbox: Sandbox, tmp_path: Path, until
) -> None:
    """Started again, it carries out what was open; who sends a sale again gets its order, and none is made twice."""
    path = str(tmp_path / "payments.db")
    async with shop(path) as opened:
        assert -signal.SIGKILL == await opened.under_load(signal.SIGKILL, until)
        assert opened.cut
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("UPDATE record SET lease_until = 0")  # As if a minute had passed.

        await opened.start()
        async with asyncio.timeout(30):
            while await opened.health():  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(0.02)

        orders = made(sandbox)
        assert {1} == {len(ids) for ids in orders.values()}
        assert {(name.replace("/", "-"), order) for name, order in opened.sold.items()} <= {
            (reference, ids[0]) for reference, ids in orders.items()
        }
        for name in opened.cut:
            status, sale = await opened.buy(name)
            assert (201, [sale["order"]]) == (status, made(sandbox)[name.replace("/", "-")])
