"""aiohttp tuned by hand: the baseline."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import ClientSession, TCPConnector
from yarl import URL

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk.resources.orders import Order

NAME = "bare aiohttp"
NOTES = (
    "bare aiohttp: bytes body, `await session.request()`, prebuilt decoder, `URL(encoded=True)`, aiohttp's default "
    "timeout; no check of the request or of the response's identity, no retry, no error mapping"
)


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, ClientSession)


@asynccontextmanager
async def calls(target: Target, open_session: Callable[..., ClientSession]) -> AsyncIterator[Calls]:
    """Make calls on a session of *open_session*."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"
    orders_url = URL(orders, encoded=True)
    connector = TCPConnector(limit=0, ssl=target.context() or True)
    async with open_session(connector=connector) as session:

        async def get() -> Order:
            response = await session.request("GET", URL(f"{orders}/{next(ids)}", encoded=True), headers=reading)
            if response.status != 200:
                raise RuntimeError(response.status)
            return decode(await response.read())

        async def post() -> Order:
            headers = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
            response = await session.request("POST", orders_url, data=encode(body), headers=headers)
            if response.status != 201:
                raise RuntimeError(response.status)
            return decode(await response.read())

        yield Calls(get, post)
