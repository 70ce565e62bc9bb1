"""A process of a shop, which may die at any step: `python -m tests.webhooks.process ROLE`, with a `Plan` on stdin.

A receiver takes notifications on a port. A worker reads the orders and writes a sale for each state. As a control, it
leaves out the fence.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from random import Random
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from paymentsdk import Http11Transport, PaymentsClient, RequestInvalid
from paymentsdk.resources.orders import Order
from paymentsdk.webhooks import Inbox, InvalidSignature, Look, Webhook, state_of
from tests.webhooks.shop import Shop

if TYPE_CHECKING:
    from aiohttp import web

ORDERS = int(os.environ.get("PAYMENTSDK_WEBHOOK_ORDERS", "8"))
IS_LONG = ORDERS >= 100
#: Seconds. In a long run, the platform and the shop share the processors for so long that a look may take a second.
LEASE = 5.0 if IS_LONG else 1.0


class Plan(Struct):
    """What a process does."""

    database: str
    base_url: str
    access_token: str
    secret: str
    seller: str
    seed: int
    port: int = 0
    dies: float = 0.0
    """How probable it is that the process kills itself, at each step."""
    has_fence: bool = True
    """As a control, work without it."""


class Process:
    """What receivers and workers share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.client = PaymentsClient(plan.access_token, base_url=plan.base_url, transport=Http11Transport())
        self.inbox = Inbox(plan.database, lease=LEASE)

    def step(self) -> None:
        """Die, perhaps."""
        if self.random.random() < self.plan.dies:
            os.kill(os.getpid(), signal.SIGKILL)

    async def write(self, *statements: str) -> None:
        """Run statements in one transaction of the shop's own driver."""
        await Shop(self.plan.database).run(*statements)

    async def handle(self, look: Look) -> None:
        """Read the order, and write a sale for its state."""
        order = await self.client.orders.get(look.id)
        self.step()
        if not self.plan.has_fence:
            await self.write(sale(order))
        elif await look.is_new(state_of(order), order.last_updated_date):
            self.step()
            await self.write(look.fence(state_of(order), order.last_updated_date), sale(order))
        await asyncio.sleep(0.005)
        self.step()

    async def work(self) -> None:
        """Handle what is due, until the process is stopped."""
        async with self.inbox.handling(self.handle, every=0.05):
            await asyncio.Event().wait()

    async def receive(self, request: web.Request) -> web.Response:
        """Take a notification."""
        from aiohttp import web

        try:
            webhook = Webhook.standard(self.plan.secret)
            notification = webhook.verify(request.headers, await request.read(), request.rel_url.raw_query_string)
            self.step()
            await self.inbox.put(self.plan.seller, notification.topic or "", notification.id or "")
            self.step()
        except InvalidSignature:
            return web.Response(status=401)
        except RequestInvalid:
            return web.Response(status=400)
        except ConnectionError:
            return web.Response(status=503)
        return web.Response(status=202)

    async def serve(self) -> None:
        """Receive until the process is stopped."""
        from aiohttp import web  # A worker starts sooner without it.

        app = web.Application(client_max_size=64 * 1024)
        app.add_routes([web.post("/webhook", self.receive)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.plan.port).start()
        await asyncio.Event().wait()


def sale(order: Order) -> str:
    """Return the statement that writes the sale of a state."""
    values = order.id, state_of(order), order.last_updated_date.isoformat()
    return f"INSERT INTO sale (id, state, updated) VALUES {values}"


def main() -> None:
    """Do what the command line says."""
    process = Process(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan))
    asyncio.run(process.work() if sys.argv[1] == "worker" else process.serve())


if __name__ == "__main__":
    main()
