"""How connections are made, kept and closed, also with many requests at the same time, and with cancelled requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from paymentsdk.errors import ClientClosed
from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import (
    Peer,
    Script,
    Step,
    always,
    echo,
    forever,
    http,
    once,
    refused_port,
    replies,
    turns,
    unanswered_port,
)
from paymentsdk.testing.transport_conformance._case import Link, MakeTransport, case, linked, served
from paymentsdk.transports.base import Request, Response, SendFailed

#: Seconds that a test waits for something that must not happen.
_SHORT = 0.2
#: Turns of the event loop; no request over loopback takes more.
_LONG = 40


@served(echo)
async def connections_are_kept(link: Link) -> None:
    """Consecutive requests share connections.

    Not all requests need to share one connection: a transport with its own threads may get a connection back only
    after the next request has gone out.
    """
    for _ in range(5):
        await link.send("/", "POST", body=b"{}")
    expect(link.server.opened < len(link.server.seen), f"5 requests took {link.server.opened} connections")


@served(always(http(200, b"{}", "Connection: close"), Peer.close))
async def connections_are_given_up_when_asked_to(link: Link) -> None:
    """After a response with ``Connection: close`` the next request takes another connection, and arrives."""
    for _ in range(3):
        await link.send()
    expect(link.server.opened == len(link.server.seen), f"3 requests took {link.server.opened} connections")


@served(echo)
async def a_fresh_connection_is_new(link: Link) -> None:
    """A request that asks for a fresh connection does not use a connection of an earlier request."""
    for fresh in (False, True, True, False):
        await link.send("/", "POST", body=b"{}", fresh=fresh)
    [first, second, third, fourth] = [request.connection for request in link.server.seen]
    expect(second != first, "it went out on a connection that had been used")
    expect(third not in {first, second}, "the second went out on a connection that had been used")
    expect(fourth == first, "the kept connection was lost")


@served(echo, limit=8)
async def many_at_once_get_their_own_responses(link: Link) -> None:
    """64 concurrent requests on 8 connections are all sent. Each gets its own response, also when repeated."""
    targets = [f"/v1/orders/{i}" for i in range(64)]
    for _ in range(3):
        await asyncio.gather(*(link.receive(target, target.encode()) for target in targets))
    expect(len(link.server.seen) == 3 * 64, f"{len(link.server.seen)} of {3 * 64} requests went out")
    expect(link.server.opened <= 8, f"they took {link.server.opened} connections")  # noqa: PLR2004 - as it says


@case
async def nothing_is_sent_again(make: MakeTransport) -> None:
    """If a kept connection ends as a request arrives on it, the request fails and is not sent again."""
    for method in ("GET", "PUT", "DELETE", "POST"):
        async with linked(make, once(http(), Peer.request)) as link:
            await link.send("/first")
            await link.fail(link.request("/second", method), sent=True)
            [_, *sent] = link.server.seen
            expect(len(sent) == 1, f"{method} was sent {len(sent)} times")


_FIRST, _STRAY = http(200, b"/first"), http(200, b"stray")


@served(replies({"/first": [_FIRST + _STRAY]}), replies({"/first": [_FIRST, _SHORT / 4, _STRAY]}))
async def a_stray_response_does_no_lasting_harm(link: Link) -> None:
    """An unrequested response is dropped, or taken for the response to the next request; later requests are correct.

    No client can always tell, so the engine checks that a response belongs to its request. If the next request takes
    the stray response, its own response is left over. The request after it must not take that response: all later
    responses would be off by one.
    """
    await link.receive("/first", b"/first")
    await asyncio.sleep(_SHORT / 2)  # By then, the stray bytes have arrived.
    await link.may_fail(link.request("/second"), b"/second", b"stray")
    await asyncio.sleep(_SHORT / 2)
    await link.receive("/third", b"/third")
    await link.receive("/fourth", b"/fourth", fresh=True)


# --- the wait for a connection ----------------------------------------------------------------------------------------


@served(echo)
async def refused(link: Link) -> None:
    """A refused connection is a failure with nothing sent."""
    with refused_port() as port:
        await link.fail(Request("GET", f"http://127.0.0.1:{port}/"), sent=False)


@served(echo)
async def no_such_host(link: Link) -> None:
    """A host name that does not resolve is a failure with nothing sent."""
    request = Request("GET", "http://paymentsdk.invalid/", timeout=20.0, connect_timeout=10.0)
    await link.fail(request, sent=False)


@served(echo)
async def connecting_takes_too_long(link: Link) -> None:
    """A connection that is not made within ``connect_timeout``, which may be 0, is a failure with nothing sent."""
    with unanswered_port() as port:
        for within in (_SHORT, 0.0):
            request = Request("GET", f"http://127.0.0.1:{port}/", timeout=10.0, connect_timeout=within)
            await link.fail(request, sent=False)


@contextlib.asynccontextmanager
async def _in_flight(make: MakeTransport, *steps: Step) -> AsyncIterator[tuple[Link, asyncio.Task[Response]]]:
    """Keep a request in flight on a transport with one place; the server does *steps* for it."""
    async with linked(make, always(*steps), limit=1) as link:
        task = asyncio.ensure_future(link.send("/1", "POST", body=b"{}"))
        await link.server.arrived.wait()
        try:
            yield link, task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def _respond_to_first(link: Link, first: asyncio.Task[Response], go_on: asyncio.Event) -> None:
    """Let the server respond to the request in flight, and check that the next request to arrive is a new one."""
    go_on.set()
    await first
    await link.send("/3")
    arrived = [request.target for request in link.server.seen]
    expect(arrived == ["/1", "/3"], f"{arrived} arrived")


@case
async def waiting_for_a_place_takes_too_long(make: MakeTransport) -> None:
    """A request that gets no place in the pool within ``connect_timeout`` is a failure with nothing sent."""
    go_on = asyncio.Event()
    async with _in_flight(make, lambda _: go_on.wait(), http()) as (link, first):
        request = link.request("/2", timeout=10.0, connect_timeout=_SHORT)
        await link.fail(request, sent=False)
        await _respond_to_first(link, first, go_on)


@case
async def who_no_longer_waits_is_not_sent(make: MakeTransport) -> None:
    """A request that is cancelled while it waits for a place is not sent, and its place is not lost."""
    go_on = asyncio.Event()
    async with _in_flight(make, lambda _: go_on.wait(), http()) as (link, first):
        second = asyncio.ensure_future(link.send("/2", "POST", body=b"{}"))
        await turns()
        second.cancel()
        await asyncio.wait([second], timeout=1)
        expect(second.cancelled(), f"the task ended with {second!r}")
        await _respond_to_first(link, first, go_on)


@served(once(0.5 + _SHORT, http()))
async def a_response_may_take_longer_than_a_connection(link: Link) -> None:
    """``connect_timeout`` limits only the wait for a connection: a later response is still accepted."""
    await link.send("/", "POST", body=b"{}", connect_timeout=0.5)
    expect(len(link.server.seen) == 1, f"it went out {len(link.server.seen)} times")


_FAILING: dict[str, list[Step]] = {
    "/1": [Peer.close],
    "/2": [b"garbage\r\n\r\n", Peer.close],
    "/3": [http(200, b"{", length=9), Peer.close],
    "/4": [http(200, b"", length=10**9), Peer.close],
}


@served(replies(_FAILING, [http()]), limit=1)
async def a_failure_gives_its_place_back(link: Link) -> None:
    """In a pool of one connection, a request that fails in any way, sent or not, does not block the next request."""
    with refused_port() as port:
        failing = [
            Request("GET", f"http://127.0.0.1:{port}/"),
            link.request("/0", headers={"X-One": "1\r\nX-Two: 2"}),
            *map(link.request, _FAILING),
        ]
        for request in failing:
            with contextlib.suppress(SendFailed):
                await link.exchange(request)
            await link.receive("/well", b"{}")
    expect(len(link.server.seen) == len(failing) + len(_FAILING), f"{link.server.seen} arrived")


# --- cancelled requests -----------------------------------------------------------------------------------------------


def _hang(*steps: Step) -> Script:
    """Return a script that does *steps* for the request for `/ill`, and never ends its response."""
    return replies({"/ill": [*steps, Peer.hung_up]})


@served(
    _hang(),
    _hang(b"HTTP/1.1 200 OK\r\nContent-"),
    _hang(http(200, b'{"id"', length=100)),
    _hang(http(200, b"", length=10**6), forever(b"x")),
    _hang(b"HTTP/1.1 200 OK\r\nX: ", forever(b"x")),
    limit=1,
)
async def no_response_in_time(link: Link) -> None:
    """A request whose response is missing, stops or drips ends immediately when it is cancelled, with its connection.

    Its place is then free for the next request.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    with contextlib.suppress(TimeoutError):  # A transport may enforce the timeout itself.
        await link.may_fail(link.request("/ill", timeout=_SHORT, connect_timeout=10.0))
    expect(loop.time() - started < _SHORT + 1, f"it took {loop.time() - started:.1f} s to be cancelled")
    await link.server.all_hung_up()
    await link.receive("/well", b"/well")
    *ill, last = link.server.seen
    expect(all(request.connection != last.connection for request in ill), "the connection was used again")


@case
async def cancelled_at_any_moment(make: MakeTransport) -> None:
    """A request can be cancelled at any moment: the cancellation is raised, and its place and response are released.

    Otherwise its response would be taken for the response to the next request.
    """
    for fresh in (False, True):
        async with linked(make, replies({"/ill": [b"", http(200, b"/ill")]}), limit=1) as link:
            for moment in range(_LONG):
                ill = asyncio.ensure_future(link.send("/ill", fresh=fresh))
                for _ in range(moment):
                    await asyncio.sleep(0)
                ill.cancel()
                await asyncio.wait([ill], timeout=5)
                expect(ill.done() and (ill.cancelled() or ill.exception() is None), f"it ended with {ill!r}")
                await link.receive(f"/{moment}", b"/%d" % moment, timeout=5.0)


# --- closing ----------------------------------------------------------------------------------------------------------


def _unsent(error: BaseException | None) -> bool:
    """Return whether *error* is how a closed transport says that a request was not sent."""
    return isinstance(error, ClientClosed) or (isinstance(error, SendFailed) and not error.sent)


@case
async def closing_twice_is_allowed(make: MakeTransport) -> None:
    """A transport can be closed before its first request, and more than once, and leaves no connection."""
    await make().aclose()
    async with linked(make, echo) as link:
        await link.send()
        await link.transport.aclose()
        await link.server.all_hung_up()
        await link.transport.aclose()


@served(echo)
async def a_closed_transport_says_so(link: Link) -> None:
    """A closed transport sends nothing more, and raises an error that says so."""
    await link.send("/before")
    await link.transport.aclose()
    try:
        await link.send("/after")
    except (SendFailed, ClientClosed) as error:
        expect(_unsent(error), "it was not sent")
    else:
        raise AssertionError("it was sent by a closed transport")
    expect(len(link.server.seen) == 1, "it was sent by a closed transport")


@case
async def closing_cancels_nobody(make: MakeTransport) -> None:
    """When the transport is closed, requests in flight and waiting requests end with an error; connections close.

    A CancelledError would silently end a task that was never cancelled.
    """
    async with _in_flight(make, Peer.hung_up) as (link, flying):
        waiting = asyncio.ensure_future(link.send("/waiting"))
        await turns()
        await link.transport.aclose()
        await link.server.all_hung_up()
        await asyncio.wait([flying, waiting])
        expect(not flying.cancelled(), "a request in flight was cancelled")
        error = flying.exception()
        expect(isinstance(error, SendFailed) and error.sent, f"a request in flight ended with {error!r}")
        expect(not waiting.cancelled(), "a waiting request was cancelled")
        expect(_unsent(waiting.exception()), f"a waiting request ended with {waiting.exception()!r}")
        expect(len(link.server.seen) == 1, "a waiting request was sent")


@served(echo)
async def closing_ends_the_wait_for_a_connection(link: Link) -> None:
    """A request that is connecting when the transport is closed ends soon, with nothing sent."""
    with unanswered_port() as port:
        request = Request("POST", f"http://127.0.0.1:{port}/", timeout=20.0, connect_timeout=15.0)
        connecting = asyncio.ensure_future(link.exchange(request))
        try:
            await turns()
            await link.transport.aclose()
            await asyncio.wait([connecting], timeout=3)
            expect(connecting.done(), "it still waits for a connection")
        finally:  # Also if the rule runs out of time: nothing else ends that wait.
            connecting.cancel()
            await asyncio.wait([connecting])
    expect(not connecting.cancelled(), "it ended as cancelled, but was never cancelled")
    expect(_unsent(connecting.exception()), f"it ended with {connecting.exception()!r}")
