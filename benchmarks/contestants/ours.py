"""paymentsdk over both transports, and the fast transport of today and of version 0.2 without an engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks import payloads
from benchmarks.contestants import Calls, Contestant, Target, frozen_http11
from paymentsdk import AiohttpTransport, Http11Transport, PaymentsClient, Request
from paymentsdk.resources.orders import Order


@asynccontextmanager
async def client(transport: type[AiohttpTransport | Http11Transport], target: Target) -> AsyncIterator[Calls]:
    """Make calls as in the documentation, with default settings."""
    ids, request = payloads.order_ids(), payloads.order_request()
    opened = transport(ssl=target.context() or True)
    async with PaymentsClient(payloads.TOKEN, base_url=target.base_url, transport=opened) as payments:
        orders = payments.orders

        async def get() -> Order:
            return await orders.get(next(ids))

        async def post() -> Order:
            return await orders.create(request)

        yield Calls(get, post)


@asynccontextmanager
async def without_engine(transport: Any, target: Target) -> AsyncIterator[Calls]:
    """Send requests through a transport without checks, retries or deadlines."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"
    opened = transport(ssl=target.context() or True)

    async def get() -> Order:
        response = await opened.send(Request("GET", f"{orders}/{next(ids)}", reading))
        if response.status != 200:
            raise RuntimeError(response.status)
        return decode(response.body)

    async def post() -> Order:
        headers = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
        response = await opened.send(Request("POST", orders, headers, encode(body)))
        if response.status != 201:
            raise RuntimeError(response.status)
        return decode(response.body)

    try:
        yield Calls(get, post)
    finally:
        await opened.aclose()


CONTESTANTS = (
    Contestant("paymentsdk", partial(client, AiohttpTransport)),
    Contestant("paymentsdk, http11", partial(client, Http11Transport)),
    Contestant(
        "http11, no engine",
        partial(without_engine, Http11Transport),
        "http11, no engine: the transport with the same decoder; no check, retry or deadline",
    ),
    Contestant("http11 of 0.2, no engine", partial(without_engine, frozen_http11.Http11Transport)),
)
