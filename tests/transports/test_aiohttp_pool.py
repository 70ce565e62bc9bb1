"""The connections of the transport on aiohttp: who gets one, and whose response comes over it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from paymentsdk import Request
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.faults import FaultServer, Peer, http
from tests.transports.sending import failed

# --- places in the pool -----------------------------------------------------------------------------------------------


_STRAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"


@pytest.mark.parametrize("cut", [1, 15, 26, _STRAY.index(b"stray") - 1])
async def test_the_rest_of_another_response_reaches_no_caller(transport: AiohttpTransport, cut: int) -> None:
    """Aiohttp keeps the beginning, which came with the response before; the rest fails the request that it meets."""

    async def script(peer: Peer) -> None:
        async for request in peer.requests():
            before, behind = (
                _STRAY[cut:] if request.target == "/second" else b"",
                _STRAY[:cut] if peer.number == 0 else b"",
            )
            await peer.write(before + http(200, request.target.encode()) + behind)

    async with FaultServer(script) as server:
        assert b"/first" == (await transport.send(Request("GET", server.url("/first")))).body
        sent, permanent, _ = await failed(transport, Request("POST", server.url("/second"), {}, b"{}"))
        assert (True, False) == (sent, permanent)
        assert b"/third" == (await transport.send(Request("GET", server.url("/third")))).body
        assert ["/first", "/second", "/third"] == [request.target for request in server.seen]


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_pool_that_is_too_small_is_named(fresh: bool, until) -> None:
    """Whoever got no place can tell it from a server that takes no connection: one has to be repaired here."""

    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.hung_up()

    async with FaultServer(silent) as server, contextlib.aclosing(AiohttpTransport(limit=1, drain=0.1)) as limited:
        holding = asyncio.ensure_future(limited.send(Request("GET", server.url())))
        await until(lambda: server.seen)
        outcome = await failed(limited, Request("POST", server.url(), connect_timeout=0.01, fresh=fresh))
        holding.cancel()
        await asyncio.wait([holding])

    assert (False, False, "no connection in time: all connections that the pool may have are in use") == outcome


# --- stray responses --------------------------------------------------------------------------------------------


async def test_a_cancelled_upload_ends(transport: AiohttpTransport) -> None:
    """What is left of a large body does not go out behind the back of a caller who has given up."""
    arrived, go_on, size = asyncio.Event(), asyncio.Event(), 0

    async def script(peer: Peer) -> None:
        nonlocal size
        await peer._reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await go_on.wait()
        with contextlib.suppress(ConnectionError):
            while chunk := await peer._reader.read(65_536):
                size += len(chunk)

    async with FaultServer(script) as server:
        sending = asyncio.ensure_future(transport.send(Request("POST", server.url(), {}, b"x" * 20_000_000)))
        await arrived.wait()
        sending.cancel()
        await asyncio.wait([sending])
        go_on.set()
        await server.all_hung_up()

    assert size < 20_000_000


# --- responses --------------------------------------------------------------------------------------------------------
