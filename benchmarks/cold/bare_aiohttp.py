"""aiohttp with untyped JSON."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import ClientSession, TCPConnector

NAME = "bare aiohttp"


@asynccontextmanager
async def connect(base_url: str, authority: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    connector = TCPConnector(ssl=ssl.create_default_context(cafile=authority))
    async with ClientSession(connector=connector) as session:

        async def get() -> object:
            response = await session.request("GET", f"{base_url}/v1/orders/ORD01HRYFWNYRE1MR1E60MW3X0T2P")
            return json.loads(await response.read())

        yield get
