"""aiohttp as most services use it: the code of an afternoon."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk.resources.orders import Order

NAME = "naive aiohttp"
NOTES = (
    "naive aiohttp: one shared session, `json=`, the tenacity decorator, `asyncio.timeout`, `raise_for_status`, the "
    "same Struct"
)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids = payloads.order_ids()
    request = payloads.order_request()
    base = target.base_url
    resend = retry(
        retry=retry_if_exception_type((aiohttp.ClientError, TimeoutError)),
        stop=stop_after_attempt(4),
        wait=wait_random_exponential(multiplier=0.5, max=8),
        reraise=True,
    )
    headers = {"Authorization": f"Bearer {payloads.TOKEN}", "Accept": "application/json"}
    connector = aiohttp.TCPConnector(limit=0, ssl=target.context() or True)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        @resend
        async def get() -> Order:
            async with asyncio.timeout(30), session.get(f"{base}/v1/orders/{next(ids)}") as response:
                response.raise_for_status()
                return msgspec.convert(await response.json(), Order)

        @resend
        async def post() -> Order:
            key = {"X-Idempotency-Key": str(uuid.uuid4())}
            body = msgspec.to_builtins(request)
            async with asyncio.timeout(30), session.post(f"{base}/v1/orders", json=body, headers=key) as response:
                response.raise_for_status()
                return msgspec.convert(await response.json(), Order)

        yield Calls(get, post)
