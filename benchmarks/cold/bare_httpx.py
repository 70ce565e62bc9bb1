"""httpx with untyped JSON."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx

NAME = "bare httpx"


@asynccontextmanager
async def connect(base_url: str, authority: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=authority)) as client:

        async def get() -> object:
            response = await client.get(f"{base_url}/v1/orders/ORD01HRYFWNYRE1MR1E60MW3X0T2P")
            return response.json()

        yield get
