"""A connection that delivers the responses of others: what has started on it takes none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from paymentsdk import AiohttpTransport, DiscardingTransport, Http11Transport, Request, SendFailed
from tests.faults import FaultServer, Peer, http

Until = Callable[[Callable[[], object]], Awaitable[None]]


def let_it_end(self: object) -> None:
    """Take no further request, and let the one that has started have the next response."""
    self._keep = False


async def assert_it_fails_with_its_connection(transport: AiohttpTransport | Http11Transport, until: Until) -> None:
    """A request that starts on a connection before that is discarded fails as one that was sent."""
    release = asyncio.Event()

    async def shifted(peer: Peer) -> None:
        async for request in peer.requests():
            if request.target == "/second":
                await release.wait()
            await peer.write(http(200, b'"the response to another request"'))

    async with FaultServer(shifted) as server:
        try:
            assert isinstance(transport, DiscardingTransport)
            first = await transport.send(Request("GET", server.url("/first")))
            second = asyncio.create_task(transport.send(Request("GET", server.url("/second"))))
            await until(lambda: len(server.seen) == 2)
            assert 1 == server.opened  # It is on the same connection.
            transport.discard(first)
            release.set()
            with pytest.raises(SendFailed) as raised:
                await second
            assert raised.value.sent
            assert not raised.value.permanent
            await transport.send(Request("GET", server.url("/third")))
            assert 2 == server.opened
        finally:
            await transport.aclose()


@pytest.mark.control("paymentsdk.transports._http11_connection.Connection.discard", let_it_end)
async def test_discarding_fails_what_has_started(until: Until) -> None:
    """On the fast transport: `discard` fails a request that has started on the connection since."""
    await assert_it_fails_with_its_connection(Http11Transport(), until)
