"""A request with a token, and how one fails."""

from __future__ import annotations

import pytest

from paymentsdk import Request, SendFailed
from paymentsdk.transports.aiohttp import AiohttpTransport

TOKEN = {"Authorization": "Bearer APP_USR-1-2-canary"}


async def failed(transport: AiohttpTransport, request: Request) -> tuple[bool, bool, str]:
    """Send what has to fail; return ``sent``, ``permanent`` and the reason."""
    with pytest.raises(SendFailed) as caught:
        await transport.send(request)
    return caught.value.sent, caught.value.permanent, caught.value.reason
