"""What our transports do beyond what every transport does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import socket
import ssl
import time
import traceback

import pytest
import trustme

from paymentsdk import Request
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.sandbox import Sandbox
from paymentsdk.transports.aiohttp import AiohttpTransport
from paymentsdk.transports.http11 import Http11Transport
from tests.auth.test_locks import fork
from tests.conftest import PATIENCE
from tests.faults import FaultServer, Peer, always, http
from tests.transports.http11 import turns
from tests.transports.sending import failed

both = pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])


@both
def test_a_transport_belongs_to_its_loop(kind) -> None:
    """On a second loop it says so and sends nothing, until its own is closed; then it goes on there."""
    first = asyncio.new_event_loop()
    transport = kind()
    arrived: list[int] = []

    async def send() -> int:
        async with FaultServer(always(http())) as server:
            try:
                return (await transport.send(Request("GET", server.url()))).status
            finally:
                arrived.append(len(server.seen))

    assert 200 == first.run_until_complete(send())
    with pytest.raises(ClientClosed, match="another event loop"):
        asyncio.run(send())
    assert [1, 0] == arrived
    first.close()
    assert 200 == asyncio.run(send())
    asyncio.run(transport.aclose())


@both
def test_connections_end_with_their_loop(kind) -> None:
    """A runner may have a loop for each job: none leaves its connections to the garbage collector."""
    transport = kind()
    open_ = [transport.open_connections]

    async def send(url: str) -> None:
        await transport.send(Request("GET", f"{url}/nothing"))
        open_.append(transport.open_connections)

    with Sandbox().in_thread() as sandbox:
        for _ in range(2):
            asyncio.run(send(sandbox.base_url))
            open_.append(transport.open_connections)
        with contextlib.closing(asyncio.new_event_loop()) as stopped:
            stopped.run_until_complete(send(sandbox.base_url))
            asyncio.run(transport.aclose())
            open_.append(transport.open_connections)
            stopped.run_until_complete(asyncio.sleep(0))

    assert [0, *[1, 0] * 3] == open_


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "ftp://127.0.0.1/"),
        Request("GET", "http:///v1"),
        Request("GET", "http://127.0.0.1:99999/"),
        Request("GET", "http://[::1/"),
        Request("GET", "http://127.0.0.1/canary b"),
        Request("GET", "http://127.0.0.1/canary\tb"),
        Request("GET", "http://127.0.0.1/canary\ud800"),
        Request("GET /canary", "http://127.0.0.1/"),
        Request("GET", "http://127.0.0.1/", {"X One": "canary"}),
        Request("GET", "http://127.0.0.1/", {"X-One": "canary\x01"}),
        Request("GET", "http://127.0.0.1/", {"": "canary"}),
    ],
    ids=repr,
)
@both
async def test_what_cannot_be_sent_is_rejected(kind, request_: Request) -> None:
    """A string that cannot be written, or would be read as more than one line, fails for good and shows no value."""
    async with contextlib.aclosing(kind()) as transport:
        sent, permanent, reason = await failed(transport, request_)

    assert (False, True) == (sent, permanent)
    assert "canary" not in reason


@pytest.mark.parametrize("head", [b"101 Switch\r\nUpgrade: x", b"200 OK\r\nContent-Encoding: br\r\nContent-Length: 0"])
@both
async def test_what_was_not_asked_for_fails_for_good(kind, head: bytes) -> None:
    """A server that switches the protocol, or compresses, does so again."""
    async with FaultServer(always(b"HTTP/1.1 %b\r\n\r\n" % head)) as server, contextlib.aclosing(kind()) as transport:
        assert (True, True) == (await failed(transport, Request("GET", server.url())))[:2]


@both
async def test_a_header_may_be_long(kind) -> None:
    """A response may have more than the 8,190 bytes that aiohttp takes by itself: it may be that of a write."""
    async with FaultServer(always(http(201, b"{}", "X-Policy: " + "y" * 60_000))) as server:
        transport = kind()
        try:
            assert 201 == (await transport.send(Request("POST", server.url()))).status
        finally:
            await transport.aclose()


@both
@pytest.mark.parametrize("size", [100_000, 5_000_000])
async def test_no_request_waits_behind_a_blocked_request(kind, size: int) -> None:
    """A server may respond before it has read all: what is left of the request is not in the way of the next.

    The system takes a large request off our hands long before the server does, so nobody can tell. The connection is
    gone at once, and not only when the server has read the rest.
    """
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer._reader.readuntil(b"\r\n\r\n")
            await peer.write(http(413))
            await ended.wait()
            return
        async for _ in peer.requests():
            await peer.write(http(201))

    transport = kind(drain=0.1)
    async with FaultServer(script) as server:
        try:
            for length, status in ((size, 413), (2, 201)):
                request = Request("POST", server.url(), {}, b"x" * length)
                assert status == (await asyncio.wait_for(transport.send(request), 5)).status
            assert (2, 1) == (server.opened, transport.open_connections)
        finally:
            ended.set()
            await transport.aclose()


@pytest.fixture
def suspend(monkeypatch):
    """Return what suspends the machine for a day: the wall clock goes on, and the one of the event loop does not."""
    now, slept = time.time, []
    monkeypatch.setattr(time, "time", lambda: now() + 86_400 * len(slept))
    return lambda: slept.append(True)


@both
async def test_a_machine_that_was_suspended_while_it_connects_sends_nothing_late(kind, suspend, monkeypatch) -> None:
    """The connection that comes about once it is awake is closed; the next request has its own time."""
    transport, loop = kind(family=socket.AF_INET), asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def sleepy(*args: object, **kwargs: object):
        addresses = await look_up(*args, **kwargs)
        monkeypatch.setattr(loop, "getaddrinfo", look_up)
        suspend()
        return addresses

    monkeypatch.setattr(loop, "getaddrinfo", sleepy)
    async with FaultServer(always(http())) as server, contextlib.aclosing(transport):
        url = server.url().replace("127.0.0.1", "localhost")
        request = Request("POST", url, connect_timeout=60.0)
        sent, permanent, reason = await failed(transport, request)
        await turns(5)
        assert (0, False, False, 0) == (len(server.seen), sent, permanent, transport.open_connections)
        assert reason.startswith("no connection in time")
        assert 200 == (await transport.send(request)).status


async def test_a_machine_that_was_suspended_while_a_request_waits_sends_nothing_late(suspend) -> None:
    """Its place goes to the next request."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            await go_on.wait()
            await peer.write(http())

    async with FaultServer(script) as server, contextlib.aclosing(Http11Transport(limit=1)) as transport:
        request = Request("POST", server.url(), connect_timeout=60.0)
        first, late = (asyncio.create_task(transport.send(request)) for _ in range(2))
        await server.arrived.wait()
        suspend()
        go_on.set()
        await asyncio.wait([first, late])
        assert not late.exception().sent
        assert 200 == first.result().status == (await asyncio.wait_for(transport.send(request), PATIENCE)).status
        assert 2 == len(server.seen)


@both
async def test_a_cancelled_request_does_not_end_the_next_one(kind) -> None:
    """A request may be cancelled when its response is here and its connection has gone to another, which goes on."""
    shared = 0

    async def send_after(moment: int) -> bool | None:
        await turns(moment)
        return (await transport.send(Request("GET", server.url()))).reused

    async def cancel_after(moment: int, sending: asyncio.Task[object]) -> bool:
        await turns(moment)
        return sending.cancel()

    head, body = http()[:-2], http()[-2:]
    script = always(head, lambda _: turns(5), body)
    async with FaultServer(script) as server, contextlib.aclosing(kind(drain=0.1)) as transport:
        for moment in range(25, 120):
            await transport.send(Request("GET", server.url()))  # There is one idle connection, which the first takes.
            first = asyncio.ensure_future(transport.send(Request("GET", server.url())))
            second = asyncio.ensure_future(send_after(moment))
            was_cancelled = await cancel_after(moment, first)
            shared += bool(await second) and was_cancelled
            await asyncio.wait([first])
            for _ in range(2):
                transport.discard(await transport.send(Request("GET", server.url())))
                await turns(5)
            if shared:
                break

    assert shared, "no request was cancelled after its connection had gone to the next one"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@both
def test_unread_bytes_are_seen_under_tls(kind, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in the system when a request goes out is seen before it is decrypted, on both event loops."""
    monkeypatch.setattr(select, "select", None)  # It fails above descriptor 1023.
    ca, serving = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(serving)
    trusting = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())

    async def second() -> tuple[int, int]:
        async with FaultServer(always(http()), tls=serving) as server:
            transport = kind(ssl=trusting, drain=0.1)
            try:
                await transport.send(Request("GET", server.url()))
                with server.peers[0].socket() as end:
                    end.sendall(b"stray")
                response = await transport.send(Request("POST", server.url()))
            finally:
                await transport.aclose()
        return response.status, server.opened

    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        assert (200, 2) == runner.run(second())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@both
def test_a_transport_belongs_to_its_process(kind) -> None:
    """A child that was forked after a request sends nothing on its parent's connections, and does not close them.

    It does so neither by closing the transport nor by dropping it.
    """
    loop, transports = asyncio.new_event_loop(), [kind()]

    def send(url: str) -> int | str:
        sending = asyncio.wait_for(transports[0].send(Request("GET", f"{url}/nothing")), PATIENCE)
        try:
            return loop.run_until_complete(sending).status
        except ClientClosed as error:
            return str(error)

    def use_in_child(url: str) -> int:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        outcome = send(url)
        loop.run_until_complete(transports.pop().aclose())
        gc.collect()
        return 0 if "belong to another process" in str(outcome) else 1

    with Sandbox().in_thread() as sandbox:
        first = send(sandbox.base_url)
        if not (child := fork()):
            try:
                os._exit(use_in_child(sandbox.base_url))
            finally:
                os._exit(2)
        of_the_child = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert (404, 0, 404) == (first, of_the_child, send(sandbox.base_url))
        loop.run_until_complete(transports[0].aclose())
    loop.close()


@both
@pytest.mark.parametrize(("discards", "foreign"), [(True, 1), (False, 6)])
async def test_a_shifted_connection_is_left_after_its_first_response(kind, discards: bool, foreign: int) -> None:
    """After one stray response each request gets the response to the one before it, until the connection is discarded.

    The connection looks sound all the time: nothing arrives while it is idle, and nothing is left over.
    """

    async def script(peer: Peer) -> None:
        late = "/stray"
        async for request in peer.requests():
            shifted, late = late, request.target
            await peer.write(http(200, (request.target if peer.number else shifted).encode()))

    foreign_responses = []
    async with FaultServer(script) as server:
        transport = kind()
        for number in range(6):
            response = await transport.send(Request("GET", server.url(f"/{number}")))
            foreign_responses.append(response.body.decode() != f"/{number}")
            assert response.reused is (number > discards)
            if foreign_responses[-1] and discards:
                transport.discard(response)
        await transport.aclose()

    assert (foreign, 1 + discards) == (sum(foreign_responses), server.opened)


async def test_requests_go_through_a_proxy() -> None:
    """With *proxy*, the proxy is asked for the whole URL; one on another machine gets no plain request to this one."""
    async with FaultServer(always(http())) as proxy:
        transport = AiohttpTransport(proxy=proxy.url())
        await transport.send(Request("GET", "http://api.example.com/v1/orders?x=1"))
        await transport.aclose()

        away = AiohttpTransport(proxy="http://proxy.invalid")
        assert (False, True) == (await failed(away, Request("GET", proxy.url())))[:2]
        await away.aclose()
        assert "http://api.example.com/v1/orders?x=1" == proxy.seen[0].target
        assert "api.example.com" == proxy.seen[0].headers["host"]


@pytest.mark.control("paymentsdk._validate.is_http", lambda url: True, raises=(pytest.fail.Exception, Exception))
@pytest.mark.parametrize(
    "proxy",
    [
        *(5, "", b"http://user:canary-1@localhost:3128", "proxy.example.com", "user:canary-1@localhost:3128"),
        *("socks5://user:canary-1@localhost", "ftp://localhost", "http://user:canary-1@", "http://127.0.0.1:99999"),
    ],
)
def test_what_is_no_proxy_is_rejected_where_it_is_given(proxy: object) -> None:
    """Found at the first write, it would leave its outcome unknown, or send it past the proxy; no password is shown."""
    with pytest.raises(RequestInvalid, match="proxy: must be an http or https URL") as rejected:
        AiohttpTransport(proxy=proxy)

    of_ours = rejected.value.with_traceback(rejected.value.__traceback__.tb_next)
    text = "".join(traceback.TracebackException.from_exception(of_ours, capture_locals=True).format())
    assert "check_proxy" in text
    assert "canary" not in text


@pytest.mark.parametrize("fresh", [False, True])
async def test_the_environment_is_not_trusted(fresh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not used, for a fresh connection as for a kept one."""
    async with FaultServer(always(http())) as proxy, FaultServer(always(http())) as server:
        monkeypatch.setenv("http_proxy", proxy.url())
        monkeypatch.delenv("no_proxy", raising=False)
        transport = AiohttpTransport()
        await transport.send(Request("GET", server.url(), fresh=fresh))
        await transport.aclose()

        assert (0, 1) == (len(proxy.seen), len(server.seen))
