"""paymentsdk as its documents show it, with its default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk import AiohttpTransport, PaymentsClient
from paymentsdk.resources.orders import Order

NAME = "paymentsdk"
NOTES = ""


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set the client up."""
    ids = payloads.order_ids()
    request = payloads.order_request()
    context = target.context()
    transport = AiohttpTransport(ssl=context) if context else None
    async with PaymentsClient(payloads.TOKEN, base_url=target.base_url, transport=transport) as client:
        orders = client.orders

        async def get() -> Order:
            return await orders.get(next(ids))

        async def post() -> Order:
            return await orders.create(request)

        yield Calls(get, post)
