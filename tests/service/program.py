"""A service that sells under names, on aiohttp.web or uvicorn: `python program.py web|uvicorn PORT JOURNAL`.

`POST /sell/NAME` makes an order once. The client lives as long as the application.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

from paymentsdk import PaymentsClient, PaymentsError, Timeout
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest

KIND, PORT, JOURNAL = sys.argv[1], int(sys.argv[2]), sys.argv[3]


@asynccontextmanager
async def payments() -> AsyncIterator[PaymentsClient]:
    """Recover what is left from before, and now and then."""
    async with (
        PaymentsClient.from_env(journal=SQLiteJournal(JOURNAL), timeout=Timeout(total=3.0)) as client,
        client.recovery(every=1),
    ):
        yield client


async def sell(client: PaymentsClient, name: str) -> tuple[int, dict[str, str]]:
    """Make the order of *name*; return a status code and what the caller is told."""
    price = Decimal("10.50")
    payment = TransactionsRequest(payments=[PaymentRequest(amount=price)])
    try:
        order = await client.orders.create(
            OrderRequest(external_reference=name, total_amount=price, transactions=payment), once=name
        )
    except PaymentsError as error:
        return 503, {"error": type(error).__name__}
    return 200, {"id": order.id}


def ready(*_: object) -> None:
    """Tell the test that requests are taken."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def run_web() -> None:
    """Serve with aiohttp.web."""
    from aiohttp import web

    key = web.AppKey("payments", PaymentsClient)

    async def lifespan(app: web.Application) -> AsyncIterator[None]:
        async with payments() as app[key]:
            yield

    async def handle(request: web.Request) -> web.Response:
        status, answer = await sell(request.app[key], request.match_info["name"])
        return web.json_response(answer, status=status)

    app = web.Application()
    app.cleanup_ctx.append(lifespan)
    app.router.add_post("/sell/{name}", handle)
    web.run_app(app, host="127.0.0.1", port=PORT, print=ready, access_log=None, shutdown_timeout=5.0)


def run_uvicorn() -> None:
    """Serve an ASGI application with uvicorn."""
    import uvicorn

    state: dict[str, PaymentsClient] = {}

    async def app(
        scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            await receive()
            async with payments() as state["client"]:
                await send({"type": "lifespan.startup.complete"})
                ready()
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        status, answer = await sell(state["client"], scope["path"].rpartition("/")[2])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    config = uvicorn.Config(app, host="127.0.0.1", port=PORT, lifespan="on", log_level="error", loop="asyncio")
    uvicorn.Server(config).run()


if __name__ == "__main__":
    {"web": run_web, "uvicorn": run_uvicorn}[KIND]()
