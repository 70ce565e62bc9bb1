"""The connections of the fast transport: kept, shared out, discarded and closed."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import trustme

from paymentsdk import DiscardingTransport, Http11Transport, Request, Response, SendFailed
from tests.conftest import PATIENCE
from tests.faults import FaultServer, always, http
from tests.transports.http11 import opened, turns
from tests.transports.waiting import wait_and_forget, wait_for_a_turn

# --- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk.transports._http11_connection.Connection.discard", lambda self: None)
async def test_discarded_connections_carry_nothing_more() -> None:
    """After `discard` no request starts on the connection of that response; one that has started since fails."""
    async with FaultServer(always(http())) as server, opened(limit=1) as transport:
        assert isinstance(transport, DiscardingTransport)
        for count in (1, 2):
            response = await transport.send(Request("GET", server.url()))
            transport.discard(response)
            transport.discard(response)
            assert count == server.opened
        first = await transport.send(Request("GET", server.url()))
        second = asyncio.create_task(transport.send(Request("GET", server.url())))
        await turns(1)
        transport.discard(first)
        transport.discard(Response(200))
        with pytest.raises(SendFailed):
            await second
        await transport.send(Request("GET", server.url()))

        assert [0, 1, 2, 2, 3] == [request.connection for request in server.seen]


async def test_a_connection_that_was_idle_for_too_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 15 seconds, the next request opens a connection, and those that were idle are closed."""
    monotonic, later = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + later[0])
    async with FaultServer(always(http())) as server, opened() as transport:
        await asyncio.gather(*(transport.send(Request("GET", server.url())) for _ in range(3)))
        for later[0], count, idle in ((14.0, 3, 3), (28.5, 3, 1), (44.0, 4, 1)):
            await transport.send(Request("GET", server.url()))
            assert (count, idle) == (server.opened, transport.open_connections)


# --- places and the queue ---------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk.transports._pool.Pool.wait", wait_for_a_turn)
async def test_the_queue_is_fair() -> None:
    """Eight workers on two connections make the same number of calls, give or take one."""
    counts: Counter[int] = Counter()
    async with FaultServer(always(http())) as server, opened(limit=2) as transport:

        async def worker(number: int) -> None:
            while counts.total() < 200:
                await transport.send(Request("GET", server.url()))
                counts[number] += 1

        await asyncio.gather(*map(worker, range(8)))

        assert 2 == server.opened
    assert max(counts.values()) - min(counts[number] for number in range(8)) <= 1


@pytest.mark.parametrize("fresh", [False, True])
async def test_an_idle_connection_makes_room(fresh: bool) -> None:
    """In a full pool an idle connection to another host is closed for a new one, and so is one for a fresh one."""
    async with (
        FaultServer(always(http())) as first,
        FaultServer(always(http())) as second,
        opened(limit=1) as transport,
    ):
        await transport.send(Request("GET", first.url()))
        async with asyncio.timeout(PATIENCE):
            await transport.send(Request("GET", (first if fresh else second).url(), fresh=fresh))
        await first.all_hung_up()

        assert 2 == first.opened + second.opened
        assert transport.open_connections == (not fresh)


@contextlib.asynccontextmanager
async def stage(*, secure: bool) -> AsyncIterator[tuple[FaultServer, Callable[..., Http11Transport]]]:
    """Have a server, with TLS or without, and a way to make transports for it."""
    if not secure:
        async with FaultServer(always(http())) as server:
            yield server, Http11Transport
        return
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("api.example.com").configure_cert(context)
    async with FaultServer(always(http()), tls=context) as server:
        yield server, partial(Http11Transport, ssl=False)


@pytest.mark.control("paymentsdk.transports._pool.Pool.wait", wait_and_forget, raises=TimeoutError)
async def test_cancellation_leaves_nothing_behind(patience: float, caplog) -> None:
    """Cancelled after any number of turns of the event loop, a request leaves its place to the next one.

    That is while it waits for a place, as it gets one, while it connects, shakes hands, and waits for the response.
    """
    async with stage(secure=False) as plain, stage(secure=True) as encrypted:
        stages = [*((count, *plain) for count in range(0, 40, 2)), *((count, *encrypted) for count in range(1, 40, 3))]
        for count, server, making in stages:
            transport = making(limit=1, drain=0.1)
            for size, soon in ((0, False), (0, True), (300_000, False)):
                before = asyncio.create_task(transport.send(Request("POST", server.url(), {}, bytes(size))))
                cut_off = asyncio.create_task(transport.send(Request("POST", server.url(), {}, bytes(size))))
                await turns(count)
                # In the next turn, it may run between the arrival of the response and its reading.
                asyncio.get_running_loop().call_soon(cut_off.cancel) if soon else cut_off.cancel()
                await asyncio.wait([cut_off])
                async with asyncio.timeout(patience):
                    await before
                    assert 200 == (await transport.send(Request("GET", server.url()))).status
            await transport.aclose()
    assert [] == [record.getMessage() for record in caplog.records]
