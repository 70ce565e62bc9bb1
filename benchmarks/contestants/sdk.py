"""paymentsdk as in its documentation, with default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk import AiohttpTransport, PaymentsClient
from paymentsdk.resources.orders import Order

NAME = "paymentsdk"
NOTES = ""


def calls(client: PaymentsClient) -> Calls:
    """Return both calls of a usual program."""
    ids = payloads.order_ids()
    request = payloads.order_request()
    orders = client.orders

    async def get() -> Order:
        return await orders.get(next(ids))

    async def post() -> Order:
        return await orders.create(request)

    return Calls(get, post)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    context = target.context()
    transport = AiohttpTransport(ssl=context) if context else None
    async with PaymentsClient(payloads.TOKEN, base_url=target.base_url, transport=transport) as client:
        yield calls(client)
