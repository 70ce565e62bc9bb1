"""stripe-python over aiohttp."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import stripe

NAME = "stripe, aiohttp"


@asynccontextmanager
async def connect(base_url: str, authority: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority))
    http_client = stripe.AIOHTTPClient(connector=connector)
    client = stripe.StripeClient("sk_test_1", base_addresses={"api": base_url}, http_client=http_client)
    try:
        yield lambda: client.v1.payment_intents.retrieve_async("pi_3MtwBwLkdIwHu7ix28a3tqPa")
    finally:
        await http_client.close_async()  # type: ignore[no-untyped-call]
