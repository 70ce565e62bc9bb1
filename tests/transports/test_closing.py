"""The end of a transport: what is in flight gets its time, and nothing outlives it."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import aiohttp
import pytest

from paymentsdk import Http11Transport, Request, SendFailed
from paymentsdk.errors import ClientClosed
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.conftest import PATIENCE
from tests.faults import FaultServer, Peer, http, unanswered_port

Kind: TypeAlias = type[AiohttpTransport | Http11Transport]

both = pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])


@both
async def test_closing_waits_for_the_queue(kind: Kind, until) -> None:
    """Requests that wait for a place have the time of those in flight; who gets none in it, or is new, was not sent."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for request in peer.requests():
            await (peer.hung_up() if request.target == "/hang" else go_on.wait())
            await peer.write(http(201))

    async with FaultServer(script) as server:
        transport = kind(limit=1, drain=0.5)
        targets = ("/first", "/second", "/hang", "/late")
        flying = [asyncio.ensure_future(transport.send(Request("POST", server.url(target)))) for target in targets]
        await until(lambda: server.seen)
        closing = asyncio.ensure_future(transport.aclose())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await transport.send(Request("POST", server.url("/new")))
        go_on.set()
        *sent, hanging, late = await asyncio.gather(*flying, return_exceptions=True)
        await closing

    assert [201, 201] == [response.status for response in sent]
    assert isinstance(hanging, SendFailed)
    assert hanging.sent
    assert isinstance(late, ClientClosed)
    assert ["/first", "/second", "/hang"] == [request.target for request in server.seen]


async def never(peer: Peer) -> None:
    """Respond to nothing."""
    await peer.request()
    await peer.hung_up()


async def test_closing_waits_for_what_is_in_flight_on_a_session() -> None:
    """An injected session is its owner's, who closes it next: what is in flight gets its time before that."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await go_on.wait()
        await peer.write(http())

    async with FaultServer(script) as server, aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)
        sending = asyncio.create_task(transport.send(Request("GET", server.url())))
        await arrived.wait()
        closing = asyncio.create_task(transport.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing
        assert 200 == (await sending).status


@both
async def test_closing_while_a_connection_is_opened(kind: Kind) -> None:
    """Nothing was sent, and the request says so: to call it in doubt would have somebody look for money."""
    transport = kind(drain=0)
    with unanswered_port() as port:
        request = Request("POST", f"http://127.0.0.1:{port}/", connect_timeout=2 * PATIENCE)
        sending = asyncio.create_task(transport.send(request))
        await asyncio.sleep(0)
        await transport.aclose()

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ClientClosed, match="closed while the request waited"):
                await sending


@both
async def test_a_request_that_closing_breaks_off_says_so(kind: Kind) -> None:
    """It is in doubt, and not because of the server, where somebody would look for the cause."""
    async with FaultServer(never) as server:
        transport = kind(drain=0.0)
        flying = asyncio.ensure_future(transport.send(Request("POST", server.url())))
        await server.arrived.wait()

        await transport.aclose()
        with pytest.raises(SendFailed, match="the transport was closed") as failed:
            await flying

    assert failed.value.sent


@both
async def test_closing_ends_even_when_it_is_cancelled(kind: Kind, until) -> None:
    """The connections are closed, whether or not somebody waits for it."""
    async with FaultServer(never) as server:
        transport = kind(drain=60.0)
        flying = asyncio.ensure_future(transport.send(Request("GET", server.url())))
        await until(lambda: server.seen)
        closing = asyncio.ensure_future(transport.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing, flying])

        assert closing.cancelled()
        assert isinstance(flying.exception(), SendFailed)
        await server.all_hung_up()
