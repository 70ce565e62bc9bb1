"""What the tests of the fast transport share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from paymentsdk import Http11Transport, Request, Response, SendFailed
from tests.conftest import PATIENCE
from tests.faults import Peer, Script

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def opened(**options: object) -> AsyncIterator[Http11Transport]:
    """Make a transport, and close it in the end."""
    transport = Http11Transport(**{"drain": 0.1, **options})
    try:
        yield transport
    finally:
        await transport.aclose()


async def outcome(transport: Http11Transport, request: Request) -> Response | SendFailed:
    """Send *request*; return its response, or how it failed."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await transport.send(request)
    except SendFailed as error:
        return error


def once(*pieces: bytes) -> Script:
    """Respond to each request with *pieces*, written one by one, and keep the connection open."""

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            for piece in pieces:
                await peer.write(piece)
                await asyncio.sleep(0)

    return script


async def turns(count: int) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)
