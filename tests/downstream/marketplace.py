"""A marketplace with FastAPI: it sells for many sellers, recovers, counts, and handles what buyers do."""

import asyncio
import json
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Request, Response
from msgspec import Struct
from pydantic import BaseModel, Field

from paymentsdk import APIError, PaymentsClient, PaymentsError, RequestInvalid, Timeout
from paymentsdk.events import CallEnded, Event
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.orders import (
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    TransactionsRequest,
)
from paymentsdk.webhooks import Inbox, InvalidSignature, Look, Webhook, state_of

#: A minute after an order has expired.
EXPIRY = timedelta(minutes=16)


class Shop(Struct):
    """What the service keeps while it runs."""

    client: PaymentsClient
    inbox: Inbox
    webhooks: dict[str, Webhook]
    database: str
    calls: Counter[tuple[str, str]]


class Sale(BaseModel):
    """What a till sends."""

    name: str = Field(pattern=r"^[A-Za-z0-9-]{1,64}$")
    amount: Decimal = Field(gt=0, decimal_places=2)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Shop]]:
    """Open everything before the first request, and close it after the last one.

    SELLERS is a file with the token and the secret of each seller: `{"shop-1": {"token": "", "secret": ""}}`.
    """
    database = os.environ["SHOP"]
    sellers = json.loads(await asyncio.to_thread(Path(os.environ["SELLERS"]).read_bytes))
    with closing(sqlite3.connect(database)) as file, file:
        file.execute("CREATE TABLE IF NOT EXISTS sale (seller TEXT, id TEXT, status TEXT)")
    calls = Counter[tuple[str, str]]()

    def count(event: Event) -> None:
        if isinstance(event, CallEnded):
            calls[event.operation, event.outcome.value] += 1

    client = PaymentsClient.from_env(
        accounts={name: seller["token"] for name, seller in sellers.items()},
        journal=SQLiteJournal(f"{database}.journal"),
        observers=[count],
        timeout=Timeout(total=20.0),
    )
    webhooks = {name: Webhook.standard(seller["secret"]) for name, seller in sellers.items()}
    shop = Shop(client, Inbox(database), webhooks, database, calls)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        await stack.enter_async_context(client.recovery(every=5))
        await stack.enter_async_context(shop.inbox.handling(partial(look_again, shop), every=0.1))
        yield {"shop": shop}


def opened(request: Request) -> Shop:
    """What the service keeps, for each handler that asks for it."""
    shop: Shop = request.state.shop
    return shop


app = FastAPI(lifespan=lifespan)
Opened = Annotated[Shop, Depends(opened)]


@app.post("/{seller}/sales", status_code=201)
async def sell(seller: str, sale: Sale, shop: Opened) -> dict[str, str | None]:
    """Make the order of a sale, once for its name."""
    request = OrderRequest(
        external_reference=sale.name,
        total_amount=sale.amount,
        config=OrderConfigRequest(qr=QRConfigRequest(external_pos_id="POS001", mode="dynamic")),
        transactions=TransactionsRequest(payments=[PaymentRequest(amount=sale.amount)]),
    )
    order = await shop.client.account(seller).orders.create(request, once=sale.name)
    await shop.inbox.put(seller, "orders", order.id, due=datetime.now(UTC) + EXPIRY)
    return {"order": order.id, "code": order.qr_data}


@app.post("/{seller}/notifications", status_code=202)
async def notify(seller: str, request: Request, shop: Opened) -> None:
    """Keep which order a notification is about."""
    if seller not in shop.webhooks:
        raise InvalidSignature("missing", f"{seller} is no seller")
    notification = shop.webhooks[seller].verify(request.headers, await request.body())
    await shop.inbox.put(seller, notification.topic or "", notification.id or "")


@app.get("/metrics")
async def metrics(shop: Opened) -> Response:
    """The calls by operation and outcome, for Prometheus."""
    lines = [f'calls_total{{operation="{key[0]}",outcome="{key[1]}"}} {n}\n' for key, n in sorted(shop.calls.items())]
    return Response("".join(lines), media_type="text/plain")


@app.exception_handler(PaymentsError)
@app.exception_handler(ConnectionError)
async def respond(_: Request, error: Exception) -> Response:
    """Turn an error into a status code: 503 asks for the same request once more, which is safe by its name."""
    match error:
        case InvalidSignature():
            status = 401
        case RequestInvalid():
            status = 400
        case APIError() if error.settled:
            status = 422
        case _:
            status = 503
    logging.getLogger(__name__).warning("%d: %s", status, error)
    return Response(json.dumps({"error": str(error)}), status, media_type="application/json")


async def look_again(shop: Shop, look: Look) -> None:
    """Read an order that may have changed, and write each of its states once."""
    order = await shop.client.account(look.seller).orders.get(look.id)
    state, updated = state_of(order), order.last_updated_date
    if await look.is_new(state, updated):
        with closing(sqlite3.connect(shop.database)) as file, file:
            file.execute(look.fence(state, updated))
            file.execute("INSERT INTO sale VALUES (?, ?, ?)", (look.seller, order.id, order.status))
