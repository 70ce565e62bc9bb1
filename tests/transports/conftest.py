"""The transport on aiohttp, as it comes."""

from __future__ import annotations

import pytest

from paymentsdk.transports.aiohttp import AiohttpTransport


@pytest.fixture
async def transport():
    """The default transport."""
    transport = AiohttpTransport(drain=0.1)
    yield transport
    await transport.aclose()
