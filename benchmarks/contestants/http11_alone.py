"""The fast transport without the engine: its share of a call."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk import Http11Transport, Request, Transport
from paymentsdk.resources.orders import Order

NAME = "http11, no engine"
NOTES = ""


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, Http11Transport(ssl=target.context() or True))


@asynccontextmanager
async def calls(target: Target, transport: Transport) -> AsyncIterator[Calls]:
    """Send requests through *transport*."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"

    async def get() -> Order:
        response = await transport.send(Request("GET", f"{orders}/{next(ids)}", reading))
        if response.status != 200:
            raise RuntimeError(response.status)
        return decode(response.body)

    async def post() -> Order:
        headers = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
        response = await transport.send(Request("POST", orders, headers, encode(body)))
        if response.status != 201:
            raise RuntimeError(response.status)
        return decode(response.body)

    try:
        yield Calls(get, post)
    finally:
        await transport.aclose()
