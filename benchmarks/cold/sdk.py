"""paymentsdk."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from paymentsdk import AiohttpTransport, PaymentsClient

NAME = "paymentsdk"


@asynccontextmanager
async def connect(base_url: str, authority: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    transport = AiohttpTransport(ssl=ssl.create_default_context(cafile=authority))
    async with PaymentsClient("TEST-1-010100-x-1", base_url=base_url, transport=transport) as client:
        yield lambda: client.orders.get("ORD01HRYFWNYRE1MR1E60MW3X0T2P")
