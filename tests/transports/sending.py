"""A request with a token, how one fails, and the rules of all transports."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from paymentsdk import Request, SendFailed
from paymentsdk.testing.transport_conformance import Case, MakeTransport
from paymentsdk.transports.aiohttp import AiohttpTransport

TOKEN = {"Authorization": "Bearer APP_USR-1-2-canary"}


async def failed(transport: AiohttpTransport, request: Request) -> tuple[bool, bool, str]:
    """Send what has to fail; return ``sent``, ``permanent`` and the reason."""
    with pytest.raises(SendFailed) as caught:
        await transport.send(request)
    return caught.value.sent, caught.value.permanent, caught.value.reason


async def assert_conforms(case: Case, make: MakeTransport, deviations: Mapping[str, str] = {}) -> None:
    """Check a rule: `Case.run` raises an AssertionError where it is broken, or is kept against a deviation."""
    await case.run(make, deviations)
