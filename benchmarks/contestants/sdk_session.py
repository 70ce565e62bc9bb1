"""paymentsdk on a session of aiohttp that a program has anyway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, TCPConnector

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import Order

NAME = "paymentsdk, session"
NOTES = (
    "paymentsdk goes to aiohttp's pool and parser directly; paymentsdk, session: over the same `ClientSession` that "
    "bare aiohttp uses, given as `session=`"
)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set the client up."""
    ids = payloads.order_ids()
    request = payloads.order_request()
    connector = TCPConnector(limit=0, ssl=target.context() or True)
    async with (
        ClientSession(connector=connector) as session,
        PaymentsClient(payloads.TOKEN, base_url=target.base_url, session=session) as client,
    ):
        orders = client.orders

        async def get() -> Order:
            return await orders.get(next(ids))

        async def post() -> Order:
            return await orders.create(request)

        yield Calls(get, post)
