"""Many requests at once, and requests that are given up at any moment."""

from __future__ import annotations

import asyncio
import contextlib

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import FaultServer, Peer, echo, http, turns, unanswered_port
from paymentsdk.testing.transport_conformance._case import MakeTransport, case, opened, send, unsent
from paymentsdk.transports.base import Request

#: Requests in flight, and connections for them.
_MANY, _CONNECTIONS = 10_000, 100
#: Workers that share a pool of two connections, and the requests of each.
_WORKERS, _EACH = 8, 20
#: Turns of the event loop; no request over loopback takes more.
_LONG = 40


@case
async def waiting_requests_are_served_in_turn(make: MakeTransport) -> None:
    """Eight workers that share two connections, each one request after the other, get on equally well."""
    served = [0] * _WORKERS
    behind: list[int] = []
    both = asyncio.Barrier(2)

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            with contextlib.suppress(asyncio.BrokenBarrierError):
                await both.wait()  # In step, so that no connection is slower than the other.
            await peer.write(http())

    async with FaultServer(script) as server, opened(make, limit=2) as transport:

        async def work(number: int) -> None:
            for _ in range(_EACH):
                await send(transport, Request("GET", server.url()))
                served[number] += 1
            behind.append(min(served))
            await both.abort()  # The last requests have no other beside them.

        await asyncio.gather(*map(work, range(_WORKERS)))
    expect(behind[0] >= _EACH - 2, f"one had {behind[0]} responses when another had {_EACH}")


@case
async def ten_thousand_at_once(make: MakeTransport) -> None:
    """10,000 requests on 100 connections all get their own response, and there are never more connections."""
    async with FaultServer(echo) as server, opened(make, limit=_CONNECTIONS) as transport:
        responses = await asyncio.gather(*(send(transport, Request("GET", server.url(f"/{i}"))) for i in range(_MANY)))
        mixed_up = sum(response.body != b"/%d" % i for i, response in enumerate(responses))
        expect(not mixed_up, f"{mixed_up} got the response of another")
        expect(server.opened <= _CONNECTIONS, f"they took {server.opened} connections")


@case
async def cancelled_at_any_moment(make: MakeTransport) -> None:
    """Wherever a request is cancelled, the cancellation comes out, and neither its place nor its response is left.

    Its response would be the next one's.
    """

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            await turns()
            await peer.write(http(200, seen.target.encode()))

    for fresh in (False, True):
        async with FaultServer(script) as server, opened(make, limit=1) as transport:
            for moment in range(_LONG):
                ill = asyncio.ensure_future(send(transport, Request("GET", server.url("/ill"), fresh=fresh)))
                for _ in range(moment):
                    await asyncio.sleep(0)
                ill.cancel()
                await asyncio.wait([ill], timeout=5)
                expect(ill.done() and (ill.cancelled() or ill.exception() is None), f"it ended with {ill!r}")
                target = f"/{moment}"
                well = await send(transport, Request("GET", server.url(target), timeout=5.0))
                expect(well.body == target.encode(), f"{well.body!r} came back to {target}")


@case
async def closing_ends_the_wait_for_a_connection(make: MakeTransport) -> None:
    """A request that is being connected when the transport is closed ends soon, with nothing sent."""
    async with opened(make) as transport:
        with unanswered_port() as port:
            request = Request("POST", f"http://127.0.0.1:{port}/", timeout=20.0, connect_timeout=15.0)
            connecting = asyncio.ensure_future(send(transport, request))
            try:
                await turns()
                await transport.aclose()
                await asyncio.wait([connecting], timeout=3)
                expect(connecting.done(), "it still waits for a connection")
            finally:  # Also where the rule is cut off: nothing else ends that wait.
                connecting.cancel()
                await asyncio.wait([connecting])
    expect(not connecting.cancelled(), "it was cancelled, though nobody has done that")
    expect(unsent(connecting.exception()), f"it ended with {connecting.exception()!r}")
