"""Orders whose notifications are lost, repeated, delayed, reordered and forged, in a shop whose processes are killed.

The sandbox delivers them to two receivers, with faults, and somebody sends forged ones.

Two receivers and two workers kill themselves at each of their steps, and are stopped for longer than their lease. With
the fence, each state is handled once, and the last one always. The control, which leaves it out, does work twice.

`PAYMENTSDK_WEBHOOK_ORDERS=10000 pytest -o timeout=3600 tests/webhooks/test_exactly_once.py` is a long run.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import pytest
from standardwebhooks.webhooks import Webhook as PublicLibrary

from paymentsdk import AiohttpTransport, PaymentsClient
from paymentsdk.resources.orders import Order
from paymentsdk.sandbox import FaultRule, Rejected, Sandbox, WebhookRequest
from paymentsdk.webhooks import Inbox, state_of
from tests.journal.platform import order as order_request
from tests.postgres import free_port
from tests.webhooks.process import IS_LONG, LEASE, ORDERS, Plan
from tests.webhooks.shop import Shop

#: Orders that live at a time, and the seconds from the birth of one to its expiry.
AT_ONCE, EXPIRY = (24 if IS_LONG else 8), (3.0 if IS_LONG else 1.5)
#: How often a process dies at a step: in a long run less often, since each start takes about a second.
DEATH = 0.003 if IS_LONG else 0.05
SECRET, FORGED = ("whsec_" + b64encode(letter * 32).decode() for letter in (b"s", b"f"))
#: What happens to how many of the notifications.
FAULTS = {
    "lost": 0.5,
    "duplicated": 0.2,
    "delayed": 0.2,
    "reordered": 0.2,
    "wrong_signature": 0.1,
    "stale_timestamp": 0.1,
    "truncated": 0.1,
}
SELLER = "77"


class World:
    """The platform, the network, and the processes of the shop."""

    def __init__(self, shop: Shop, sandbox: Sandbox, has_fence: bool, http: aiohttp.ClientSession) -> None:
        self.shop = shop
        self.sandbox = sandbox
        self.random = Random(7)
        self.inbox = Inbox(shop.database)
        self.client = PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, transport=AiohttpTransport())
        self.answers: Counter[int | None] = Counter()
        self.orders: dict[str, int] = {}
        """Each order, with how many of the notifications of its last change were delivered."""
        self.forged = self.rejected = 0
        self.kills = 0
        self._http = http
        self._seeds = itertools.count()
        self._plan = Plan(shop.database, sandbox.base_url, sandbox.access_token, SECRET, SELLER, 0, 0, DEATH, has_fence)
        self._ports = [free_port(), free_port()]
        for port in self._ports:
            sandbox.webhooks.add(WebhookRequest(url=self.url(port), secret=SECRET))
        for seed, (effect, probability) in enumerate(FAULTS.items()):
            seconds = {"seconds": 1.0} if effect in {"delayed", "reordered"} else {}
            rule = FaultRule(effect=effect, operation="notifications.*", probability=probability, seed=seed, **seconds)
            sandbox.faults.add(rule)
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    # --- the processes of the shop

    async def keep_running(self, role: str, port: int = 0) -> None:
        """Run a process, and another one when it has died."""
        while True:
            plan = msgspec.structs.replace(self._plan, port=port, seed=next(self._seeds))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.webhooks.process", role),
                stdin=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[2],
            )
            self._processes[f"{role}-{port}-{len(self._processes) % 2}"] = process
            try:
                await process.communicate(msgspec.json.encode(plan))
            except asyncio.CancelledError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                raise
            assert process.returncode == -signal.SIGKILL, process.returncode
            self.kills += 1

    async def stop_some(self) -> None:
        """Stop a worker for longer than its lease, now and then, and kill others."""
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 1.5 if IS_LONG else 1.0))
            running = [process for process in self._processes.values() if process.returncode is None]
            if not running:
                continue
            process = self.random.choice(running)
            with suppress(ProcessLookupError):
                if self.random.random() < 0.5:
                    process.kill()
                else:
                    process.send_signal(signal.SIGSTOP)
                    try:
                        await asyncio.sleep(LEASE * 1.5)
                    finally:
                        process.send_signal(signal.SIGCONT)

    # --- the platform and its network

    async def live(self) -> None:
        """Let one order live: it is made, put for its expiry, paid, and refunded in parts."""
        order = await self.client.orders.create(order_request(f"table-{next(self._seeds)}", "24.00"))
        self.orders[order.id] = 0
        due = await self.put_later(order)
        await asyncio.to_thread(self.sandbox.buyer.pay, order)
        payment = (await self.client.orders.get(order.id)).payment
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(self.random.uniform(0.1, 0.5))
            await self.client.orders.refund(order.id, payment_id=payment.id, amount=Decimal(5))
        await self.forge()
        if datetime.now(UTC) > due:  # A slow machine: the last change came after the expiry.
            await self.put_later(order)

    async def put_later(self, order: Order) -> datetime:
        """Put the order for its expiry, and return when that is."""
        due = datetime.now(UTC) + timedelta(seconds=EXPIRY)
        await self.inbox.put(SELLER, "orders", order.id, due=due)
        return due

    async def forge(self) -> None:
        """Send a notification with the signature of somebody else."""
        self.forged += 1
        body = msgspec.json.encode({"type": "orders.paid", "data": {"id": f"ORDFORGED{self.forged}"}})
        now = datetime.now(UTC)
        headers = {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": PublicLibrary(FORGED).sign("msg_1", now, body.decode()),
        }
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._http.post(self.url(self._ports[0]), data=body, headers=headers) as response:
                assert response.status == 401
                self.rejected += 1

    async def insist(self) -> None:
        """On a slow machine, go on until a receiver has taken a notification, and turned down a forged one."""
        for _ in range(300):
            deliveries = self.sandbox.webhooks.deliveries(limit=100_000)
            if self.rejected and any(delivery.status == "delivered" for delivery in deliveries):
                return
            await self.forge()
            with suppress(Rejected):
                self.sandbox.webhooks.redeliver(self.random.choice(deliveries).id)
            await asyncio.sleep(0.1)

    def url(self, port: int) -> str:
        """The address of a receiver."""
        return f"http://127.0.0.1:{port}/webhook"

    # --- the run

    async def run(self) -> None:
        """Let all orders live while processes die, then let what is due be handled."""
        roles = [("receiver", port) for port in self._ports] + [("worker", 0), ("worker", 1)]
        processes = [asyncio.ensure_future(self.keep_running(*role)) for role in roles]
        stopping = asyncio.ensure_future(self.stop_some())
        try:
            await self.listening()
            turns = asyncio.Semaphore(AT_ONCE)

            async def live() -> None:
                async with turns:
                    await self.live()

            await asyncio.gather(*(live() for _ in range(ORDERS)))
            with self.sandbox.faults.add(FaultRule(effect="lost", operation="notifications.*")):
                await self.live()  # Only its expiry leads to it.
            await self.insist()
            stopping.cancel()
            await asyncio.wait((stopping,))
            await self.quiet()
        finally:
            stopping.cancel()
            for task in processes:
                task.cancel()
            await asyncio.wait([*processes, stopping])
            await self.client.aclose()
        for task in processes:
            assert task.cancelled(), task

    async def listening(self) -> None:
        """Wait until both receivers answer, and the first worker has begun."""
        for port in self._ports:
            for _ in range(1000):
                try:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    break

    async def quiet(self) -> None:
        """Wait until nothing is due any more."""
        end = time.monotonic() + 60 + ORDERS / 20
        while await self.inbox.rows():
            assert time.monotonic() < end, await self.inbox.rows()
            await asyncio.sleep(0.05)

    async def outcome(self) -> tuple[Counter[str], list[tuple[str, str, str]]]:
        """Return what came of the orders, and the sales."""
        deliveries = self.sandbox.webhooks.deliveries(limit=100_000)
        self.answers = Counter(delivery.response_status for delivery in deliveries)
        last = {delivery.resource: delivery.at for delivery in reversed(deliveries)}
        for delivery in deliveries:
            self.orders[delivery.resource] += delivery.at == last[delivery.resource] and delivery.status == "delivered"
        sales = await self.shop.run("SELECT id, state, updated FROM sale ORDER BY number")
        outcome = Counter(twice=len(sales) - len({sale[:2] for sale in sales}))
        async with PaymentsClient(self.sandbox.access_token, base_url=self.sandbox.base_url) as client:
            for order_id, answered in self.orders.items():
                order_sales = [sale for sale in sales if sale[0] == order_id]
                is_handled = state_of(await client.orders.get(order_id)) in [state for _, state, _ in order_sales]
                outcome["lost"] += not is_handled
                outcome["healed"] += bool(is_handled and not answered)
                outcome["stale"] += [updated for *_, updated in order_sales] != sorted(
                    updated for *_, updated in order_sales
                )
        outcome["forged"] = sum("FORGED" in sale[0] for sale in sales)
        return outcome, sales


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """The platform."""
    with Sandbox(policies={"notification_retries": "PT1S", "notification_timeout": "PT2S"}).in_thread() as sandbox:
        yield sandbox


@asynccontextmanager
async def world(shop: Shop, sandbox: Sandbox, *, has_fence: bool) -> AsyncIterator[World]:
    """A world that has run."""
    await shop.run("DROP TABLE sale")
    # A table has no order of its own: PostgreSQL writes rows where rolled back ones were.
    number = "bigserial" if shop.database.startswith("postgresql://") else "integer PRIMARY KEY"
    columns = f"number {number}, id text, state text, updated text"
    await shop.run(f"CREATE TABLE sale ({columns})")
    timeout = aiohttp.ClientTimeout(total=2)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as http:
        world = World(shop, sandbox, has_fence, http)
        await world.run()
        yield world


async def test_each_state_is_handled_once(shop: Shop, sandbox: Sandbox) -> None:
    """Nothing is lost, nothing is done twice or after what came later, and nothing forged is taken."""
    async with world(shop, sandbox, has_fence=True) as ran:
        outcome, sales = await ran.outcome()
        sys.stdout.write(f"{ORDERS} orders, {len(sales)} sales, {ran.kills} kills, {ran.answers}, {outcome}\n")

        assert {name: outcome[name] for name in ("lost", "twice", "stale", "forged")} == dict.fromkeys(
            ("lost", "twice", "stale", "forged"), 0
        )
        assert outcome["healed"] > 0
        assert ran.rejected > 0
        assert ran.answers[202] > 0
        assert ran.kills > 2
        assert not [row for number in range(ran.forged) for row in await ran.inbox.rows(id=f"ORDFORGED{number}")]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_without_the_fence_work_is_done_twice(shop: Shop, sandbox: Sandbox) -> None:
    """The control: a worker that dies, or is stopped, after its work and before the end of its look."""
    async with world(shop, sandbox, has_fence=False) as ran:
        outcome, _ = await ran.outcome()

        assert outcome["twice"] > 0
