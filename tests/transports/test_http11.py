"""The fast transport: what it promises beyond the rules that every transport keeps."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import subprocess
import sys
import tracemalloc

import pytest
import trustme

from paymentsdk import ClientClosed, Http11Transport, Request, RequestInvalid, SendFailed
from paymentsdk.testing.transport_conformance import CASES, Case
from tests.conftest import PATIENCE
from tests.faults import FaultServer, Peer, always, http
from tests.transports.http11 import CHUNKED, opened, outcome, turns
from tests.transports.sending import assert_conforms
from tests.transports.test_both import FORKING


def make(*, ca: bytes | None = None, limit: int = 100) -> Http11Transport:
    """Make the transport as the suite wants it."""
    trusted = True if ca is None else ssl.create_default_context(cadata=ca.decode())
    return Http11Transport(ssl=trusted, limit=limit, drain=0.1)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_conforms(case: Case, loop: str) -> None:
    """It keeps every rule, on both event loops."""
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(assert_conforms(case, make))


# --- large bodies -----------------------------------------------------------------------------------------------------


async def test_a_response_may_come_before_the_body_has_left() -> None:
    """A server that rejects a large body without reading it is heard, and its connection is not used again."""
    heard = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.part(1)
        await peer.write(http(413, b"too large"))
        await heard.wait()
        peer.abort()

    async with FaultServer(script) as server, opened() as transport:
        response = await outcome(transport, Request("POST", server.url(), {}, bytes(32 * 2**20)))
        heard.set()

        assert (413, b"too large") == (response.status, response.body)
        assert not transport._pool.connections


def reset_at_the_first_byte(listening: socket.socket, tls: ssl.SSLContext | None, times: int) -> None:
    """Break a connection as soon as something has arrived on it, whatever the event loop does meanwhile."""
    for _ in range(times):
        end, _ = listening.accept()
        end = end if tls is None else tls.wrap_socket(end, server_side=True)
        end.recv(1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_large_body_is_not_written_to_a_broken_connection(
    secure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Once its connection has broken, nothing more is written: asyncio would log nearly each write."""
    ca, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(tls)
    trusting = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = reset_at_the_first_byte, listening, tls if secure else None, 5
        breaking = asyncio.get_running_loop().run_in_executor(None, *arguments)
        url = f"{'https' if secure else 'http'}://127.0.0.1:{listening.getsockname()[1]}/"
        request = Request("POST", url, {}, bytes(32 * 2**20))
        async with opened(ssl=trusting) as transport:
            for _ in range(5):
                assert isinstance(await outcome(transport, request), SendFailed)
        await breaking

    assert [] == caplog.messages


# --- its loop, and its end --------------------------------------------------------------------------------------------


def test_a_loop_that_is_closed_is_left_for_the_next() -> None:
    """A job runner with an event loop per job can keep one transport: it begins anew on each."""
    transport = Http11Transport()

    async def send() -> int:
        async with FaultServer(always(http())) as server:
            return (await transport.send(Request("GET", server.url()))).status

    assert [200, 200] == [asyncio.run(send()) for _ in range(2)]
    asyncio.run(transport.aclose())


async def test_no_request_waits_behind_unsent_bytes() -> None:
    """On a slow network, some of a request that is not large waits with us when its response comes."""
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for received in peer.requests():
            await peer.write(http(200))
            if received.target == "/first":
                await peer._reader.readuntil(b"\r\n\r\n")
                peer._writer.transport.pause_reading()
                await peer.write(http(413))
                await ended.wait()
                return

    async with FaultServer(script) as server, opened() as transport:
        server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await transport.send(Request("GET", server.url("/first")))
        [connection] = transport._pool.connections
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for length, status in ((60_000, 413), (2, 200)):
            request = Request("POST", server.url("/second"), {}, b"x" * length)
            assert status == (await asyncio.wait_for(transport.send(request), 5)).status
        assert (2, 1) == (server.opened, transport.open_connections)
        ended.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("forked", [True, False], ids=["noticed", "unnoticed"])
def test_a_forked_child_leaves_the_connections_to_its_parent(forked: bool) -> None:
    """A child that was forked after a request sends nothing on its parent's connections, and does not close them.

    Unnoticed, it reads its response there, and closes it: its parent gets none any more.
    """
    unnoticed = "from paymentsdk.transports._pool import Pool\nPool.known.clear()\nchild = os.fork()"
    program = FORKING
    if not forked:
        program = program.replace("child = os.fork()", unnoticed.replace("\n", "\n    "))
    # The response that does not come is not waited for long.
    within = "10" if forked else "0.3"
    command = [sys.executable, "-c", program, "paymentsdk.transports.http11", "Http11Transport", within]

    parent = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)

    first, of_the_child, *after = parent.stdout.splitlines()
    assert "200" == first, parent.stderr
    assert forked == ("belong to another process" in of_the_child), parent.stderr
    assert (["0 200"] if forked else []) == after, parent.stderr


async def test_closing_ends_who_waits_and_who_connects() -> None:
    """Closed meanwhile, a request that waits for a place or a connection was not sent, and says so."""
    silent = socket.create_server(("127.0.0.1", 0))  # It accepts, and never shakes hands.
    url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
    transport = Http11Transport(limit=1)
    tasks = [asyncio.create_task(transport.send(Request("GET", url))) for _ in range(2)]
    await turns(50)
    await transport.aclose()

    outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    silent.close()
    assert [ClientClosed, ClientClosed] == [type(failure) for failure in outcomes]


async def test_closing_lets_requests_end() -> None:
    """A request in flight gets `drain` seconds to end, and no more time than it needs."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await go_on.wait()
        await peer.write(http())

    async with FaultServer(script) as server:
        transport = Http11Transport(drain=2 * PATIENCE)
        flying = asyncio.create_task(transport.send(Request("GET", server.url())))
        await arrived.wait()
        async with asyncio.timeout(PATIENCE):
            closing = asyncio.gather(transport.aclose(), transport.aclose())
            await turns(50)
            assert not closing.done()
            go_on.set()
            await closing

        assert 200 == (await flying).status


# --- options and requests ---------------------------------------------------------------------------------------------


def test_options_that_make_no_sense_are_rejected() -> None:
    """Without a context, no certificate would be checked."""
    with pytest.raises(RequestInvalid, match="ssl: must be an"):
        Http11Transport(ssl=None)


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "ftp://127.0.0.1/"),
        Request("GET", "http:///v1"),
        Request("GET", "http://127.0.0.1:99999/"),
        Request("GET", "http://[::1/"),
        Request("GET", "http://user:canary@127.0.0.1/"),
        Request("GET", "http://b\xfccher.example/"),
        Request("GET", "http://127.0.0.1?x=/1"),
        Request("GET", "http://127.0.0.1/a b"),
        Request("GET", "http://127.0.0.1/a\tb"),
        Request("GET", "http://127.0.0.1/\ud800"),
        Request("GET /x", "http://127.0.0.1/"),
        Request("GET", "http://127.0.0.1/", {"X One": "1"}),
        Request("GET", "http://127.0.0.1/", {"": "1"}),
        *(Request("GET", "http://127.0.0.1/", {name: "1"}) for name in ("Host", "content-length", "Transfer-Encoding")),
    ],
    ids=repr,
)
async def test_what_cannot_be_sent_is_rejected(request_: Request) -> None:
    """A URL or a header that would be another request on the wire fails for good, with nothing sent and no secret."""
    async with opened() as transport:
        failure = await outcome(transport, request_)

    assert isinstance(failure, SendFailed)
    assert (False, True) == (failure.sent, failure.permanent)
    assert "canary" not in str(failure)


async def test_a_url_may_have_no_path() -> None:
    """Without a path the root is asked for, and a fragment is not sent."""
    async with FaultServer(always(http())) as server, opened() as transport:
        for tail in ("", "#top", "/a#b"):
            await transport.send(Request("GET", server.url("/").removesuffix("/") + tail))

        assert ["/", "/", "/a"] == [request.target for request in server.seen]


@pytest.mark.parametrize("pieces", [1, 2])
async def test_an_idle_connection_holds_no_body(pieces: int) -> None:
    """What came in chunks is the caller's alone: hundreds of connections may be kept, with megabytes each."""
    size = 4 * 2**20
    chunk = b"%x\r\n%b\r\n" % (size // pieces, bytes(size // pieces))

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            await peer.write(CHUNKED + chunk * pieces + b"0\r\n\r\n")

    async with FaultServer(script) as server, opened() as transport:
        tracemalloc.start()
        try:
            assert size == len((await transport.send(Request("GET", server.url()))).body)
            await turns(5)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert 1 == server.opened
    assert held < size // 2
