"""pyreqwest, a client in Rust."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pyreqwest.client import ClientBuilder

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk.resources.orders import Order

NAME = "bare pyreqwest"
NOTES = "bare pyreqwest: bytes body, prebuilt decoder; the CPU time of its threads is counted with it"


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"
    builder = ClientBuilder().http1_only()
    if target.authority:
        builder = builder.add_root_certificate_pem(Path(target.authority).read_bytes())  # noqa: ASYNC240
    async with builder.build() as client:

        async def get() -> Order:
            response = await client.get(f"{orders}/{next(ids)}").headers(reading).build().send()
            if response.status != 200:
                raise RuntimeError(response.status)
            return decode(bytes(await response.bytes()))

        async def post() -> Order:
            headers = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
            response = await client.post(orders).headers(headers).body_bytes(encode(body)).build().send()
            if response.status != 201:
                raise RuntimeError(response.status)
            return decode(bytes(await response.bytes()))

        yield Calls(get, post)
