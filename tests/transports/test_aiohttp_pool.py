"""The connections of the transport on aiohttp: who gets one, and whose response comes over it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import select
import socket

import aiohttp
import pytest
from aiohttp.abc import ResolveResult

from paymentsdk import Request, SendFailed
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.faults import FaultServer, Peer, always, http
from tests.transports.sending import failed
from tests.transports.skipping import SkippingLoop
from tests.transports.waiting import wait_and_forget, wait_beforehand, wait_for_a_turn


def waiting(transport: AiohttpTransport) -> int:
    """Return how many requests wait for a place."""
    return len(transport._pool._waiting)


async def turn() -> None:
    """Let the others go first."""
    await asyncio.sleep(0)


# --- places in the pool -----------------------------------------------------------------------------------------------


async def test_one_after_the_other_share_one_connection(transport: AiohttpTransport) -> None:
    """Exactly one, unlike what the suite asks of transports with threads of their own; over an empty response, too."""
    async with FaultServer(always(http(200, b""))) as server:
        for _ in range(5):
            await transport.send(Request("POST", server.url(), {}, b"{}"))
        assert 1 == server.opened


@pytest.mark.control("paymentsdk.transports._pool.Pool.wait", wait_and_forget, raises=SendFailed)
async def test_no_place_is_lost_with_a_waiter(limited: AiohttpTransport, until, patience: float) -> None:
    """A waiter that is cancelled as it gets its place leaves it to the next."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for request in peer.requests():
            if request.target == "/a":
                await go_on.wait()
            await peer.write(http())

    async with FaultServer(script) as server:

        async def send(target: str) -> int:
            return (await limited.send(Request("GET", server.url(target), connect_timeout=patience))).status

        async def first() -> int:
            status = await send("/a")
            second.cancel()
            return status

        leading, second, third = (asyncio.ensure_future(coroutine) for coroutine in (first(), send("/b"), send("/c")))
        await until(lambda: server.seen and waiting(limited) == 2)
        go_on.set()

        assert [200, 200] == [await leading, await third]
        assert second.cancelled()


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.control("paymentsdk.transports._pool.Pool.wait", wait_for_a_turn)
async def test_a_returning_caller_passes_no_waiter(proxied: bool, until) -> None:
    """Tasks that send one request after the other take turns: who gives a place back queues up behind who waits."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            await go_on.wait()
            await peer.write(http())

    async with FaultServer(script) as server:
        limited = AiohttpTransport(limit=2, drain=0.1, proxy=server.url() if proxied else None)

        async def work(name: str) -> None:
            for _ in range(5):
                await limited.send(Request("GET", server.url(f"/{name}")))

        working = [asyncio.ensure_future(work(name)) for name in "abcdef"]
        await until(lambda: len(server.seen) == 2)
        go_on.set()
        await asyncio.gather(*working)
        await limited.aclose()
        first = {request.target[-1] for request in server.seen[:8]}

    assert set("abcdef") == first


async def test_fresh_connections_stand_in_one_line(limited: AiohttpTransport, until) -> None:
    """Requests for fresh connections and for kept ones get their places in the order in which they asked."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            await go_on.wait()
            await peer.write(http())

    async with FaultServer(script) as server:
        sending = [
            asyncio.ensure_future(limited.send(Request("POST", server.url(f"/{number}"), fresh=number % 3 > 0)))
            for number in range(12)
        ]
        await until(lambda: server.seen and waiting(limited) == 11)
        go_on.set()
        await asyncio.gather(*sending)

    assert [f"/{number}" for number in range(12)] == [request.target for request in server.seen]


@pytest.mark.parametrize(
    "requests", [[(0, False), (1, False)], [(0, True), (1, False)], [(0, True), (0, True), (0, False)]]
)
async def test_no_more_at_a_time_than_allowed(requests: list[tuple[int, bool]], until) -> None:
    """A limit holds whether a connection is kept or fresh, and whichever host the others go to."""
    at_work, most, go_on = 0, 0, asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal at_work, most
        async for request in peer.requests():
            at_work += 1
            most = max(most, at_work)
            if request.target != "/first":
                await go_on.wait()
            at_work -= 1
            await peer.write(http())

    async with FaultServer(script) as here, FaultServer(script) as there:
        limited = AiohttpTransport(limit=1, drain=0.1)
        for server in (here, there):
            await limited.send(Request("GET", server.url("/first")))
        sending = [
            asyncio.ensure_future(limited.send(Request("POST", (here, there)[host].url(), fresh=fresh)))
            for host, fresh in requests
        ]
        await until(lambda: at_work)
        for _ in range(50):
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*sending)
        await limited.aclose()

    assert 1 == most


@pytest.fixture
async def limited():
    """A transport of one connection at a time."""
    transport = AiohttpTransport(limit=1, drain=0.1)
    yield transport
    await transport.aclose()


async def test_a_fresh_connection_is_not_kept(transport: AiohttpTransport) -> None:
    """Nobody will ask for it again: it is closed, even if the server would keep it."""
    async with FaultServer(always(http())) as server:
        for _ in range(5):
            await transport.send(Request("POST", server.url(), {}, b"{}", fresh=True))
        await asyncio.wait_for(server.all_hung_up(), 5)  # Idle ones are closed after 15 seconds in any case.
        assert 5 == server.opened


async def test_a_fresh_connection_is_new_while_others_wait(transport: AiohttpTransport) -> None:
    """A server may keep a connection that a request asked it to close: no fresh request goes out on that one."""
    async with FaultServer(always(http())) as server:
        for fresh in (False, True):
            request = Request("POST", server.url(), {"Connection": "close"}, b"{}", fresh=fresh)
            assert not (await transport.send(request)).reused
        assert 2 == server.opened


_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
responses_of_all_forms = pytest.mark.parametrize(
    "whole", [http(), http(200, b""), _CHUNKS, b"HTTP/1.1 204 Empty\r\n\r\n"], ids=["body", "empty", "chunks", "204"]
)


async def opened_for_two(whole: bytes, surplus: bytes = b"") -> set[int]:
    """Send two requests, one after the other, and return how many connections they took, however *whole* arrives."""
    opened = set()
    for cuts in ([], *([cut] for cut in range(1, len(whole))), range(1, len(whole))):
        *pieces, last = (whole[i:j] for i, j in zip([0, *cuts], [*cuts, None], strict=True))
        async with FaultServer(always(*pieces, last + surplus)) as server:
            async with contextlib.aclosing(AiohttpTransport(drain=0.1)) as transport:
                for _ in range(2):
                    await transport.send(Request("POST", server.url()))
            opened.add(server.opened)
    return opened


@responses_of_all_forms
async def test_a_whole_response_leaves_its_connection(whole: bytes) -> None:
    """However a response arrives in pieces, none of it is taken for surplus."""
    assert {1} == await opened_for_two(whole)


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


async def test_every_connection_error_was_before_the_request() -> None:
    """A part of the caller's that fails in its own way has kept every byte here, also behind a session."""

    def broken(address: object) -> socket.socket:
        raise LookupError("canary")

    async with contextlib.aclosing(AiohttpTransport(socket_factory=broken)) as transport:
        for fresh in (False, True):
            outcome = await failed(transport, Request("GET", "http://127.0.0.1:9/", fresh=fresh))
            assert (False, False) == outcome[:2]
            assert re.fullmatch(r"aiohttp raised LookupError \(test_aiohttp_pool\.py:[0-9]+ in broken\)", outcome[2])


async def test_the_wait_for_a_connection_is_not_rounded_up(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to end before the time of the attempt does: what is cut off after it may have been sent."""
    timeouts = []

    async def connect(*arguments: object) -> None:
        timeouts.append(arguments[-1])
        raise LookupError

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", connect)
    await failed(transport, Request("GET", "http://127.0.0.1:9/", timeout=7.4, connect_timeout=7.3))

    assert [(7.3, True)] == [(timeout.connect, timeout.ceil_threshold > 7.3) for timeout in timeouts]


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_pool_that_is_too_small_is_named(limited: AiohttpTransport, fresh: bool, until) -> None:
    """Whoever got no place can tell it from a server that takes no connection: one has to be repaired here."""

    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.hung_up()

    async with FaultServer(silent) as server:
        holding = asyncio.ensure_future(limited.send(Request("GET", server.url())))
        await until(lambda: server.seen)
        outcome = await failed(limited, Request("POST", server.url(), connect_timeout=0.01, fresh=fresh))
        holding.cancel()
        await asyncio.wait([holding])

    assert (False, False, "no connection in time: all connections that the pool may have are in use") == outcome


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_server_that_takes_no_connection_is_not_the_pool(fresh: bool) -> None:
    """The place of a request that was being connected is free when its time is over."""

    async def never(*_: object, **__: object) -> list[ResolveResult]:
        await asyncio.Event().wait()
        return []

    resolver = aiohttp.ThreadedResolver()
    resolver.resolve = never
    async with contextlib.aclosing(AiohttpTransport(limit=1, resolver=resolver)) as transport:
        outcome = await failed(transport, Request("POST", "http://a.test/", connect_timeout=0.01, fresh=fresh))

    assert (False, False, "no connection in time") == outcome


@pytest.mark.control("paymentsdk.transports._pool.Pool.wait", wait_beforehand)
def test_after_a_wait_for_a_place_connecting_gets_the_remaining_time() -> None:
    """One bound holds for both: were it two, the time of the attempt could end before that of the connection."""

    async def never(*_: object, **__: object) -> list[ResolveResult]:
        await asyncio.Event().wait()
        return []

    async def one_behind_the_other() -> tuple[float, list[tuple[bool, bool, str]]]:
        resolver, clock = aiohttp.ThreadedResolver(), asyncio.get_running_loop().time
        resolver.resolve = never
        async with contextlib.aclosing(AiohttpTransport(limit=1, resolver=resolver)) as transport:
            requests = [Request("POST", "http://a.test/", connect_timeout=bound) for bound in (40.0, 50.0)]
            since = clock()
            outcomes = await asyncio.gather(*(failed(transport, request) for request in requests))
            return clock() - since, outcomes

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        took, outcomes = runner.run(one_behind_the_other())

    assert [(False, False, "no connection in time")] * 2 == outcomes
    assert 50 <= took < 51


# --- stray responses --------------------------------------------------------------------------------------------


async def test_where_the_system_cannot_be_asked(transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no `poll`: connections are kept and used again all the same."""
    monkeypatch.delattr(select, "poll", raising=False)

    async with FaultServer(always(http())) as server:
        for _ in range(2):
            await transport.send(Request("GET", server.url()))
        assert 1 == server.opened


def small_socket(address: tuple) -> socket.socket:
    """Make a socket that takes little off one's hands, as one to a slow network does."""
    opened = socket.socket(*address[:3])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return opened


@pytest.mark.control(
    "asyncio.selector_events._SelectorTransport.get_write_buffer_size", lambda self: 0, raises=TimeoutError
)
async def test_no_request_waits_behind_unsent_bytes(patience: float) -> None:
    """On a slow network, some of a request that is not large waits with us as well."""
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer._reader.readuntil(b"\r\n\r\n")
            peer._writer.transport.pause_reading()
            await peer.write(http(413))
            await ended.wait()
            return
        async for _ in peer.requests():
            await peer.write(http(201))

    transport = AiohttpTransport(drain=0.1, socket_factory=small_socket)
    async with FaultServer(script) as server:
        server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            for length, status in ((60_000, 413), (2, 201)):
                request = Request("POST", server.url(), {}, b"x" * length)
                assert status == (await asyncio.wait_for(transport.send(request), patience)).status
            assert (2, 1) == (server.opened, transport.open_connections)
        finally:
            ended.set()
            await transport.aclose()


async def test_the_options_of_the_connector_hold_where_they_can() -> None:
    """How long a connection is kept says nothing about one that is not: it is no reason to reject a fresh request."""
    transport = AiohttpTransport(drain=0.1, keepalive_timeout=60.0)
    async with FaultServer(always(http())) as server:
        for fresh in (False, True, False):
            assert 200 == (await transport.send(Request("GET", server.url(), fresh=fresh))).status
        assert 2 == server.opened
        await transport.aclose()


@pytest.mark.control("paymentsdk.transports._aiohttp_messages.retrieve_exception", lambda closed: None)
async def test_an_idle_connection_may_break(transport: AiohttpTransport, until) -> None:
    """Nobody has asked for how it ends, so nothing is reported, also after a response that was waited for."""
    reported, go_on, broken = [], asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            await peer.write(http(200, b"{", length=2))
            await go_on.wait()
            await peer.write(b"}")
            if peer.number == 0:
                await broken.wait()
                peer.reset()

    async with FaultServer(script) as server:
        sending = asyncio.ensure_future(transport.send(Request("GET", server.url())))
        await until(lambda: server.seen)
        await turn()
        go_on.set()
        assert b"{}" == (await sending).body
        del sending  # A response holds its connection.
        broken.set()
        await until(lambda: not transport.open_connections)
        await transport.send(Request("GET", server.url()))  # With it, aiohttp forgets the connection.
        gc.collect()

    assert [] == reported


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


async def test_a_kept_connection_ends_without_noise(transport: AiohttpTransport) -> None:
    """A reset of a connection that nobody uses is reported to nobody, however its last responses came."""
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
            await peer.write(http(200, b"", length=2))
            for _ in range(20):
                await asyncio.sleep(0)
            await peer.write(b"{}")
        for _ in range(20):
            await asyncio.sleep(0)
        peer.reset()

    async with FaultServer(script) as server:
        for _ in range(2):
            assert b"{}" == (await transport.send(Request("GET", server.url()))).body
        await server.all_hung_up()
        for _ in range(20):
            await asyncio.sleep(0)
        assert 1 == server.opened
    await transport.aclose()
    gc.collect()

    assert not reported


# --- responses --------------------------------------------------------------------------------------------------------


async def test_a_limit_that_is_reached_is_not_the_end(transport: AiohttpTransport) -> None:
    """What has as many bytes as it may have so far can still go on: it is not cut off there and taken for whole."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n")
        for _ in range(20):
            await asyncio.sleep(0)
        await peer.write(b"1\r\n9\r\n0\r\n\r\n")

    async with FaultServer(script) as server:
        for most in (8, 9):
            request = Request("GET", server.url(), max_response=most)
            if most == 8:
                assert (True, True, "the response has more than 8 bytes") == await failed(transport, request)
            else:
                assert b"123456789" == (await transport.send(request)).body


async def test_a_response_may_say_that_it_is_as_it_is(transport: AiohttpTransport) -> None:
    """The name of a coding has no case."""
    async with FaultServer(always(http(200, b"{}", "Content-Encoding: Identity"))) as server:
        assert b"{}" == (await transport.send(Request("GET", server.url()))).body


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(200, b"x", "Content-Encoding: gzip"), "the response is compressed, which was not asked for"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
            "the server switched to another protocol",
        ),
    ],
)
async def test_what_would_come_again_the_same_way(
    transport: AiohttpTransport, answer: bytes, reason: str, fresh: bool
) -> None:
    """A response in a form that was not asked for is no reason to ask again."""
    async with FaultServer(always(answer)) as server:
        assert (True, True, reason) == await failed(transport, Request("GET", server.url(), fresh=fresh))


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_response_may_end_with_its_connection(transport: AiohttpTransport, fresh: bool) -> None:
    """One that has neither a length nor chunks is whole when its server hangs up, however late that is."""

    async def script(peer: Peer) -> None:
        await peer.request()
        for part in (b"HTTP/1.1 200 OK\r\n\r\n", b'{"id":', b'"ORD1"}'):
            await peer.write(part)
            for _ in range(20):
                await asyncio.sleep(0)

    async with FaultServer(script) as server:
        response = await transport.send(Request("GET", server.url(), fresh=fresh))

    assert (200, b'{"id":"ORD1"}') == (response.status, response.body)
