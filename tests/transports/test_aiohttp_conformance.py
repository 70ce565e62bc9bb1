from __future__ import annotations
import ssl
import pytest
from paymentsdk.testing.transport_conformance import CASES, Case
from paymentsdk.transports.aiohttp import AiohttpTransport

def make_transport(*, ca: bytes | None = None, limit: int = 100) -> AiohttpTransport:
    context = ssl.create_default_context(cadata=ca.decode()) if ca else True
    return AiohttpTransport(ssl=context, limit=limit, drain=0.1)

@pytest.mark.parametrize("case", CASES, ids=str)
async def test_conformance(case: Case) -> None:
    await case.run(make_transport)
