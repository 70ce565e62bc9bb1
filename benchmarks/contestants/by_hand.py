"""aiohttp without an SDK: tuned, as the baseline, and with tenacity, as most services use it."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential
from yarl import URL

from benchmarks import payloads
from benchmarks.contestants import BASELINE, Calls, Contestant, Target
from paymentsdk.resources.orders import Order


@asynccontextmanager
async def bare(target: Target) -> AsyncIterator[Calls]:
    """Make calls on a session, tuned by hand."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"
    orders_url = URL(orders, encoded=True)
    connector = aiohttp.TCPConnector(limit=0, ssl=target.context() or True)
    async with aiohttp.ClientSession(connector=connector) as session:

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


@asynccontextmanager
async def naive(target: Target) -> AsyncIterator[Calls]:
    """Make calls on a session with tenacity's decorator."""
    ids, request, orders = payloads.order_ids(), payloads.order_request(), f"{target.base_url}/v1/orders"
    resend = retry(
        retry=retry_if_exception_type((aiohttp.ClientError, TimeoutError)),
        stop=stop_after_attempt(4),
        wait=wait_random_exponential(multiplier=0.5, max=8),
        reraise=True,
    )
    connector = aiohttp.TCPConnector(limit=0, ssl=target.context() or True)
    async with aiohttp.ClientSession(connector=connector, headers=payloads.READING) as session:

        @resend
        async def get() -> Order:
            async with asyncio.timeout(30), session.get(f"{orders}/{next(ids)}") as response:
                response.raise_for_status()
                return msgspec.convert(await response.json(), Order)

        @resend
        async def post() -> Order:
            key = {"X-Idempotency-Key": str(uuid.uuid4())}
            body = msgspec.to_builtins(request)
            async with asyncio.timeout(30), session.post(orders, json=body, headers=key) as response:
                response.raise_for_status()
                return msgspec.convert(await response.json(), Order)

        yield Calls(get, post)


CONTESTANTS = (
    Contestant(
        BASELINE,
        bare,
        "bare aiohttp: bytes body, `await session.request()`, prebuilt decoder, `URL(encoded=True)`, aiohttp's default "
        "timeout; no check of the request or of the response's identity, no retry, no error mapping",
    ),
    Contestant(
        "naive aiohttp",
        naive,
        "naive aiohttp: one shared session, `json=`, the tenacity decorator, `asyncio.timeout`, `raise_for_status`, "
        "the same Struct",
    ),
)
