"""httpx tuned by hand: the lower bound of every client on httpx."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from benchmarks import payloads
from benchmarks.contestants import Calls, Contestant, Target
from paymentsdk.resources.orders import Order


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, verify=target.context() or True, trust_env=False) as client:

        async def get() -> Order:
            response = await client.request("GET", f"{orders}/{next(ids)}", headers=reading)
            if response.status_code != 200:
                raise RuntimeError(response.status_code)
            return decode(response.content)

        async def post() -> Order:
            headers = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
            response = await client.request("POST", orders, content=encode(body), headers=headers)
            if response.status_code != 201:
                raise RuntimeError(response.status_code)
            return decode(response.content)

        yield Calls(get, post)


CONTESTANTS = (Contestant("bare httpx", connect, "bare httpx: bytes body, prebuilt decoder, no bound on connections"),)
