"""A body of some mebibytes is sent like any other, whatever warnings are."""

from __future__ import annotations

from contextlib import aclosing

import aiohttp
import pytest

from paymentsdk import Request, SendFailed
from paymentsdk.transports.aiohttp import AiohttpTransport
from paymentsdk.transports.http11 import Http11Transport
from tests.faults import FaultServer, always, http

BODY = bytes(2 * 2**20)


async def arrives(transport: AiohttpTransport | Http11Transport) -> bool:
    """Whether the body arrives whole, and gets a response."""
    async with FaultServer(always(http())) as server, aclosing(transport):
        response = await transport.send(Request("POST", server.url(), {}, BODY))
        return (200, len(BODY)) == (response.status, len(server.seen[0].body))


@pytest.mark.control("paymentsdk.transports.aiohttp.LARGE", 10**9, raises=SendFailed)
@pytest.mark.parametrize("injected", [False, True])
async def test_a_large_body_warns_of_nothing(injected: bool) -> None:
    """Under `-W error`, as here, a ResourceWarning of aiohttp would end the attempt, and a write be in doubt."""
    async with aiohttp.ClientSession() as session:
        assert await arrives(AiohttpTransport(session=session) if injected else AiohttpTransport())


async def test_a_large_body_of_our_own_protocol_warns_of_nothing() -> None:
    """The same without aiohttp."""
    assert await arrives(Http11Transport())
