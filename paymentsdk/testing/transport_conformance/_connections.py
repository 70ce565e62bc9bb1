"""How connections are made, kept, given up and closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

from paymentsdk.errors import ClientClosed
from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import (
    FaultServer,
    Peer,
    Script,
    always,
    echo,
    http,
    once,
    refused_port,
    turns,
    unanswered_port,
)
from paymentsdk.testing.transport_conformance._case import MakeTransport, case, failure, may_fail, opened, send, unsent
from paymentsdk.transports.base import Request, Response, SendFailed, Transport

#: Seconds that a test waits for what never comes.
SHORT = 0.2


@case
async def connections_are_kept(make: MakeTransport) -> None:
    """Requests one after the other share connections.

    A transport with threads of its own may not have a connection back before the next request goes out, so not all of
    them need to share one.
    """
    async with FaultServer(always(http())) as server, opened(make) as transport:
        requests = 5
        for _ in range(requests):
            await send(transport, Request("POST", server.url(), {}, b"{}"))
        expect(server.opened < requests, f"{requests} requests took {server.opened} connections")


@case
async def connections_are_given_up_when_asked_to(make: MakeTransport) -> None:
    """After a response with ``Connection: close`` the next request takes another connection, and arrives."""
    async with FaultServer(once(http(200, b"{}", "Connection: close"))) as server, opened(make) as transport:
        requests = 3
        for _ in range(requests):
            await send(transport, Request("GET", server.url()))
        expect(server.opened == requests, f"{requests} requests took {server.opened} connections")


@case
async def a_fresh_connection_is_new(make: MakeTransport) -> None:
    """A request that asks for a fresh connection shares it with no request before it."""
    async with FaultServer(always(http())) as server, opened(make) as transport:
        for fresh in (False, True, True, False):
            await send(transport, Request("POST", server.url(), {}, b"{}", fresh=fresh))
        [first, second, third, fourth] = [seen.connection for seen in server.seen]
        expect(second != first, "it went out on a connection that had been used")
        expect(third not in {first, second}, "the second went out on a connection that had been used")
        expect(fourth == first, "the kept connection was lost")


@case
async def many_at_once_get_their_own_responses(make: MakeTransport) -> None:
    """64 requests at once all go out, and each gets its own response, however often the same was asked before."""
    async with FaultServer(echo) as server, opened(make) as transport:
        targets = [f"/v1/orders/{i}" for i in range(64)]
        for _ in range(3):
            responses = await asyncio.gather(*(send(transport, Request("GET", server.url(t))) for t in targets))
            expect([a.body.decode() for a in responses] == targets, "responses were mixed up")
        expect(len(server.seen) == 3 * 64, f"{len(server.seen)} of {3 * 64} requests went out")


@case
async def nothing_is_sent_again(make: MakeTransport) -> None:
    """A kept connection that ends as a request arrives on it is a failure; the request is not sent a second time."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(http())
        await peer.request()

    for method in ("GET", "PUT", "DELETE", "POST"):
        async with FaultServer(script) as server, opened(make) as transport:
            await send(transport, Request("GET", server.url("/first")))
            await failure(transport, Request(method, server.url("/second")), sent=True)
            [_, *sent] = server.seen
            expect(len(sent) == 1, f"{method} was sent {len(sent)} times")


@case
async def a_stray_response_does_no_lasting_harm(make: MakeTransport) -> None:
    """An unrequested response is dropped, or taken for the one to the next request; the requests after are not harmed.

    No client can always tell, so the engine checks that a response belongs to its request. If the next request takes
    the stray response, its own response is left over: the request after it must not take that, or all later ones would
    be off by one.
    """

    async def early(peer: Peer) -> None:
        async for seen in peer.requests():
            stray = http(200, b"stray") if seen.target == "/first" else b""
            await peer.write(http(200, seen.target.encode()) + stray)

    async def late(peer: Peer) -> None:
        async for seen in peer.requests():
            await peer.write(http(200, seen.target.encode()))
            if seen.target == "/first":
                await asyncio.sleep(SHORT / 4)
                await peer.write(http(200, b"stray"))

    for script in (early, late):
        async with FaultServer(script) as server, opened(make) as transport:
            first = await send(transport, Request("GET", server.url("/first")))
            expect(first.body == b"/first", f"{first.body!r} came back")
            await asyncio.sleep(SHORT / 2)  # What comes to nobody has come by then.
            await may_fail(transport, Request("GET", server.url("/second")), b"/second", b"stray")
            await asyncio.sleep(SHORT / 2)
            third = await send(transport, Request("GET", server.url("/third")))
            expect(third.body == b"/third", f"{third.body!r} came back")
            fresh = await send(transport, Request("GET", server.url("/fourth"), fresh=True))
            expect(fresh.body == b"/fourth", f"{fresh.body!r} came back on a fresh connection")


@case
async def refused(make: MakeTransport) -> None:
    """A connection that is refused is a failure with nothing sent."""
    async with opened(make) as transport:
        with refused_port() as port:
            await failure(transport, Request("GET", f"http://127.0.0.1:{port}/"), sent=False)


@case
async def no_such_host(make: MakeTransport) -> None:
    """A host name that does not resolve is a failure with nothing sent."""
    async with opened(make) as transport:
        request = Request("GET", "http://paymentsdk.invalid/", timeout=20.0, connect_timeout=10.0)
        await failure(transport, request, sent=False)


@case
async def connecting_takes_too_long(make: MakeTransport) -> None:
    """A connection that is not made within ``connect_timeout`` is a failure with nothing sent."""
    async with opened(make) as transport:
        with unanswered_port() as port:
            request = Request("GET", f"http://127.0.0.1:{port}/", timeout=10.0, connect_timeout=SHORT)
            await failure(transport, request, sent=False)


def _withheld() -> tuple[Script, asyncio.Event, asyncio.Event]:
    """Return a server that sets the first event when a request is there, and responds none before the second is set."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            arrived.set()
            await go_on.wait()
            await peer.write(http())

    return script, arrived, go_on


@case
async def waiting_for_a_place_takes_too_long(make: MakeTransport) -> None:
    """A request that gets no place in the pool within ``connect_timeout`` is a failure with nothing sent."""
    script, arrived, go_on = _withheld()
    async with FaultServer(script) as server, opened(make, limit=1) as transport:
        first = asyncio.ensure_future(send(transport, Request("GET", server.url("/1"))))
        await arrived.wait()
        try:
            await failure(transport, Request("GET", server.url("/2"), timeout=10.0, connect_timeout=SHORT), sent=False)
        finally:
            go_on.set()
            await first
        await send(transport, Request("GET", server.url("/3")))
        expect([seen.target for seen in server.seen] == ["/1", "/3"], f"{server.seen} arrived")


@case
async def a_response_may_take_longer_than_a_connection(make: MakeTransport) -> None:
    """``connect_timeout`` bounds only the wait for a connection: a later response is still a response."""
    within = 0.5

    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(within + SHORT)
        await peer.write(http())

    async with FaultServer(script) as server, opened(make) as transport:
        await send(transport, Request("POST", server.url(), {}, b"{}", connect_timeout=within))
        expect(len(server.seen) == 1, f"it went out {len(server.seen)} times")


@case
async def a_failure_gives_its_place_back(make: MakeTransport) -> None:
    """In a pool of one connection, a request that fails in any way, sent or not, does not block the next one."""
    responses = [b"", b"garbage\r\n\r\n", http(200, b"{", length=9), http(200, b"", length=10**9)]

    async def ill(peer: Peer) -> None:
        await peer.request()
        await peer.write(responses.pop())

    async with FaultServer(ill) as server, FaultServer(always(http())) as well, opened(make, limit=1) as transport:
        with refused_port() as port:
            failing = [
                Request("GET", f"http://127.0.0.1:{port}/"),
                Request("GET", well.url(), {"X-One": "1\r\nX-Two: 2"}),
                *(Request("GET", server.url()) for _ in responses),
            ]
            for request in failing:
                with contextlib.suppress(SendFailed):
                    await send(transport, request)
                await send(transport, Request("GET", well.url()))
        expect(len(well.seen) == len(failing), f"{well.seen} arrived")


@case
async def who_no_longer_waits_is_not_sent(make: MakeTransport) -> None:
    """A request that is cancelled while it waits for a place does not go out, and its place is not lost."""
    script, arrived, go_on = _withheld()
    async with FaultServer(script) as server, opened(make, limit=1) as transport:
        first = asyncio.ensure_future(send(transport, Request("GET", server.url("/1"))))
        await arrived.wait()
        second = asyncio.ensure_future(send(transport, Request("POST", server.url("/2"), {}, b"{}")))
        await turns()
        second.cancel()
        await asyncio.wait([second], timeout=1)
        expect(second.cancelled(), f"the task ended with {second!r}")
        go_on.set()
        await first
        await send(transport, Request("GET", server.url("/3")))
        expect([seen.target for seen in server.seen] == ["/1", "/3"], f"{server.seen} arrived")


async def _ends_in_time(make: MakeTransport, *, before: bytes, drip: bytes = b"") -> None:
    """Let the caller's time run out after *before*, and see the connection given up and its place free again."""

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            if seen.target == "/well":
                await peer.write(http())
                continue
            await peer.write(before)
            while drip:
                await peer.write(drip)
                await turns()
            await peer.hung_up()
            return

    async with FaultServer(script) as server, opened(make, limit=1) as transport:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            response = await send(transport, Request("GET", server.url("/ill"), timeout=SHORT, connect_timeout=10.0))
        except TimeoutError:
            pass
        except SendFailed as error:  # A transport may keep the time as well.
            expect(error.sent, "it was sent")
        else:
            raise AssertionError(f"a response was expected not to come: {response!r}")
        expect(loop.time() - started < SHORT + 1, f"it took {loop.time() - started:.1f} s to be cancelled")
        await server.all_hung_up()
        well = await send(transport, Request("GET", server.url("/well")))
        expect(well.status == HTTPStatus.OK, "the next request failed")
        *ill, last = server.seen
        expect(all(one.connection != last.connection for one in ill), "the connection was used again")


@case
async def no_response_at_all(make: MakeTransport) -> None:
    """Cancelled while it waits for a response, a request ends at once and takes its connection with it."""
    await _ends_in_time(make, before=b"")


@case
async def a_response_that_stops(make: MakeTransport) -> None:
    """Cancelled in the middle of a head or a body, a request ends at once and takes its connection with it."""
    await _ends_in_time(make, before=b"HTTP/1.1 200 OK\r\nContent-")
    await _ends_in_time(make, before=http(200, b'{"id"', length=100))


@case
async def a_response_that_drips(make: MakeTransport) -> None:
    """A response that arrives byte by byte without end does not outlive the caller's time."""
    await _ends_in_time(make, before=http(200, b"", length=10**6), drip=b"x")
    await _ends_in_time(make, before=b"HTTP/1.1 200 OK\r\nX-Long: ", drip=b"x")


@contextlib.asynccontextmanager
async def _in_flight(make: MakeTransport) -> AsyncIterator[tuple[FaultServer, Transport, asyncio.Task[Response]]]:
    """Have a request on its way that is never answered, on a transport with one place."""
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await peer.hung_up()

    async with FaultServer(script) as server, opened(make, limit=1) as transport:
        task = asyncio.ensure_future(send(transport, Request("POST", server.url(), {}, b"{}")))
        await arrived.wait()
        try:
            yield server, transport, task
        finally:
            task.cancel()
            await asyncio.wait([task])


@case
async def cancellation_passes_through(make: MakeTransport) -> None:
    """A cancelled task sees its own cancellation, at once, and not an error."""
    async with _in_flight(make) as (_, _, task):
        task.cancel()
        await asyncio.wait([task], timeout=1)
        expect(task.cancelled(), f"the task ended with {task!r}")


@case
async def cancellation_takes_the_connection_along(make: MakeTransport) -> None:
    """The connection of a cancelled request is closed, long before the time of the request is over."""
    async with _in_flight(make) as (server, _, task):
        task.cancel()
        await server.all_hung_up()


@case
async def closing_twice_is_allowed(make: MakeTransport) -> None:
    """A transport can be closed before its first request, and more than once, and leaves no connection."""
    await make().aclose()
    async with FaultServer(always(http())) as server, opened(make) as transport:
        await send(transport, Request("GET", server.url()))
        await transport.aclose()
        await server.all_hung_up()
        await transport.aclose()


@case
async def a_closed_transport_says_so(make: MakeTransport) -> None:
    """After it was closed, a transport sends nothing more and says so."""
    async with FaultServer(always(http())) as server, opened(make) as transport:
        await send(transport, Request("GET", server.url("/before")))
        await transport.aclose()
        try:
            await send(transport, Request("GET", server.url("/after")))
        except (SendFailed, ClientClosed) as error:
            expect(unsent(error), "it was not sent")
        else:
            raise AssertionError("it was sent by a closed transport")
        expect(len(server.seen) == 1, "it was sent by a closed transport")


@case
async def closing_cancels_nobody(make: MakeTransport) -> None:
    """When the transport is closed, requests in flight and waiting ones end with a response or an error.

    A CancelledError would silently end a task that nobody has cancelled.
    """
    async with _in_flight(make) as (server, transport, flying):
        waiting = asyncio.ensure_future(send(transport, Request("GET", server.url("/waiting"))))
        await turns()
        await transport.aclose()
        await asyncio.wait([flying, waiting])
        expect(not flying.cancelled(), "a request in flight was cancelled")
        error = flying.exception()
        expect(isinstance(error, SendFailed) and error.sent, f"a request in flight ended with {error!r}")
        expect(not waiting.cancelled(), "a waiting request was cancelled")
        expect(unsent(waiting.exception()), f"a waiting request ended with {waiting.exception()!r}")
        expect(len(server.seen) == 1, "a waiting request was sent")


@case
async def closing_takes_the_connections_along(make: MakeTransport) -> None:
    """When the transport is closed, the connection of a request in flight is closed, long before its time is over."""
    async with _in_flight(make) as (server, transport, task):
        await transport.aclose()
        await server.all_hung_up()
        await asyncio.wait([task])
        expect(task.exception() is not None, "it was answered")
