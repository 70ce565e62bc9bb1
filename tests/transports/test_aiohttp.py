"""What the transport on aiohttp does beyond what every transport does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from msgspec import structs

import paymentsdk.transports.aiohttp as ours
from paymentsdk import Request, SendFailed
from paymentsdk.errors import ClientClosed
from paymentsdk.testing._fault_server import FaultServer, Peer, always, http, refused_port, unanswered_port
from paymentsdk.transports.aiohttp import AiohttpTransport

TOKEN = {"Authorization": "Bearer APP_USR-1-2-canary"}


@pytest.fixture
async def transport():
    """The default transport."""
    transport = AiohttpTransport(drain=0.1)
    yield transport
    await transport.aclose()


async def failed(transport: AiohttpTransport, request: Request) -> tuple[bool, bool, str]:
    """Send what has to fail; return ``sent``, ``permanent`` and the reason."""
    with pytest.raises(SendFailed) as caught:
        await transport.send(request)
    return caught.value.sent, caught.value.permanent, caught.value.reason


# --- the event loop ---------------------------------------------------------------------------------------------------


def test_a_transport_belongs_to_its_loop() -> None:
    """Used from a second loop it says so and sends nothing; from there it can be closed once its own loop is gone."""
    transport = AiohttpTransport()

    async def send() -> int:
        async with FaultServer(always(http())) as server:
            try:
                return (await transport.send(Request("GET", server.url()))).status
            finally:
                assert len(server.seen) <= 1

    assert 200 == asyncio.run(send())
    with pytest.raises(ClientClosed, match="another event loop"):
        asyncio.run(send())
    asyncio.run(transport.aclose())


async def test_closed_from_another_loop_that_runs_beside_it(transport: AiohttpTransport) -> None:
    """Closing connections under the hands of the loop that runs them is refused."""
    async with FaultServer(always(http())) as server:
        await transport.send(Request("GET", server.url()))

        with pytest.raises(ClientClosed, match="close the transport there"):
            await asyncio.to_thread(asyncio.run, transport.aclose())


async def test_an_injected_session_binds_at_once() -> None:
    """A transport that was made with a session belongs to the loop that it was made on, before its first request."""
    async with aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)

        with pytest.raises(ClientClosed, match="another event loop"):
            await asyncio.to_thread(asyncio.run, transport.send(Request("GET", "http://127.0.0.1:9/")))


def test_it_can_be_made_without_a_loop() -> None:
    """Making one opens nothing, so a program can make its client before it runs."""

    async def send(transport: AiohttpTransport) -> int:
        async with FaultServer(always(http())) as server:
            response = await transport.send(Request("GET", server.url()))
            await transport.aclose()
        return response.status

    async def made() -> AiohttpTransport:
        return AiohttpTransport()

    assert 200 == asyncio.run(send(AiohttpTransport()))
    assert 200 == asyncio.run(send(asyncio.run(made())))  # The loop that it was made on is not that of its connections.
    with asyncio.Runner() as runner:

        async def session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession()

        injected = runner.run(session())
        assert 200 == runner.run(send(AiohttpTransport(session=injected)))
        runner.run(injected.close())


async def test_one_after_the_other_share_one_connection(transport: AiohttpTransport) -> None:
    """Exactly one, unlike what the suite asks of transports with threads of their own; over an empty answer, too."""
    async with FaultServer(always(http(200, b""))) as server:
        for _ in range(5):
            await transport.send(Request("POST", server.url(), {}, b"{}"))
        assert 1 == server.opened


async def test_a_connection_that_is_gone_takes_no_request(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written into a connection that was closed while it was handed out, and the failure says so."""
    connect = ours._Pool.connect

    async def and_close(*given: object) -> Connection:
        connection = await connect(*given)
        connection.transport.close()
        return connection

    monkeypatch.setattr(ours._Pool, "connect", and_close)
    async with FaultServer(always(http())) as server:
        assert (False, False) == (await failed(transport, Request("POST", server.url(), {}, b"{}")))[:2]
        await server.all_hung_up()
        assert not server.seen


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_the_way_past_the_session_is_taken(monkeypatch: pytest.MonkeyPatch, method: str, tls: bool) -> None:
    """With this aiohttp the usual request takes it: when a new version is out, it has to be tried and written down."""
    monkeypatch.setattr(AiohttpTransport, "_over_session", None)
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())

    async with FaultServer(always(http()), tls=context if tls else None) as server:
        transport = AiohttpTransport(ssl=trusted)
        assert 200 == (await transport.send(Request(method, server.url()))).status
        await transport.aclose()


#: What is more than the way over the pool does, and what arrives of it.
ODD = {
    "a fragment": (lambda url: Request("GET", url + "#part"), {"target": "/orders"}),
    "no body in the answer": (lambda url: Request("HEAD", url), {"method": "HEAD"}),
    "a host of the caller's": (lambda url: Request("GET", url, {"host": "a.example"}), {"host": "a.example"}),
    "a new connection": (lambda url: Request("GET", url, fresh=True), {"connection": "close"}),
    "a user in the URL": (
        lambda url: Request("GET", url.replace("//", "//who:word@")),
        {"authorization": "Basic d2hvOndvcmQ="},
    ),
    "something to expect": (lambda url: Request("GET", url, {"Expect": "nothing"}), {"expect": "nothing"}),
    "a connection to be closed": (lambda url: Request("GET", url, {"Connection": "close"}), {"connection": "close"}),
    "a length of the caller's": (
        lambda url: Request("POST", url, {"content-Length": "2"}, b"{}"),
        {"content-length": "2"},
    ),
    "no path but a query": (lambda url: Request("GET", url.replace("/orders", "?x=/y")), {"target": "/?x=/y"}),
    "no path": (lambda url: Request("GET", url.removesuffix("/orders")), {"target": "/"}),
}


@pytest.mark.parametrize("name", ODD)
async def test_what_is_odd_goes_over_the_session(
    name: str, transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way over the pool does the usual and nothing else; the session knows the rest."""
    make, expected = ODD[name]
    monkeypatch.setattr(ours, "_message", None)

    async with FaultServer(always(http(200, b""))) as server:
        assert 200 == (await transport.send(make(server.url("/orders")))).status

    [seen] = server.seen
    arrived = {**seen.headers, "target": seen.target, "method": seen.method}
    assert expected.items() <= arrived.items()


USUAL = [
    Request("GET", "/v1/orders/a%2Fb?x=%20&y=1", TOKEN),
    Request("POST", "/v1/orders", {**TOKEN, "Content-Type": "application/json"}, b'{"a": 1}'),
    Request("PUT", "/v1/orders", {"Content-Type": "text/plain"}, b"x" * 100_000),
    Request("POST", "/v1/orders/a/cancel", {**TOKEN, "Content-Type": "application/json"}),
    Request("DELETE", "/v1/schedule", TOKEN),
    Request("GET", "/v1/orders", {"Content-Type": "application/json"}, b'{"a": 1}'),
]


@pytest.mark.parametrize(
    "request_",
    [
        lambda url: Request("GET", url, {"X-Name": "\ud800canary"}),
        lambda url: Request("GET", url + "\ud800canary"),
        lambda url: Request("GET", url, {"X-Name": "one\r\nX-Other: canary"}),
        lambda url: Request("GET", url, {"X-Name\n": "canary"}),
        lambda url: Request("GET", url, {"X-Name": "canary\0"}),
        lambda url: Request("GET", url, {"X-Name": "canary\x01"}),
        lambda url: Request("GET", url + "\x7fcanary"),
        lambda url: Request("GET", url + "\ncanary"),
    ],
)
async def test_what_is_no_http_is_not_sent(request_: Callable[[str], Request], transport: AiohttpTransport) -> None:
    """A text that cannot be written, or would be read as more than one line, fails for good and is not repeated."""
    async with FaultServer(always(http())) as server:
        with pytest.raises(SendFailed) as caught:
            await transport.send(request_(server.url("/orders")))
        assert not server.seen

    assert (False, True) == (caught.value.sent, caught.value.permanent)
    shown = traceback.TracebackException.from_exception(caught.value)
    assert "canary" not in "".join(shown.format())


@pytest.mark.parametrize("request_", USUAL, ids=lambda request: f"{request.method} {request.url}")
async def test_both_ways_write_the_same(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives does not depend on the way, but for what a session adds if nobody set it."""
    arrived = []
    async with FaultServer(always(http())) as server:
        for versions in (ours._KNOWN, ("0.",)):
            monkeypatch.setattr(ours, "_KNOWN", versions)
            transport = AiohttpTransport()
            await transport.send(structs.replace(request_, url=server.url(request_.url)))
            await transport.aclose()
            seen = server.seen[-1]
            added = {"accept", "accept-encoding", "user-agent"}
            fields = {name: value for name, value in seen.headers.items() if name not in added}
            arrived.append((seen.method, seen.target, fields, seen.body))

    assert arrived[0] == arrived[1]


# --- injected sessions ------------------------------------------------------------------------------------------------


async def test_an_injected_session_is_left_as_it_was() -> None:
    """It is neither closed nor changed, and serves its owner before, between and after."""
    async with FaultServer(always(http())) as server, aiohttp.ClientSession() as session:
        before = {name: repr(value) for name, value in vars(session).items() if name != "_connector"}
        transport = AiohttpTransport(session=session)
        await transport.send(Request("GET", server.url(), TOKEN))
        await transport.aclose()

        assert before == {name: repr(value) for name, value in vars(session).items() if name != "_connector"}
        assert not session.closed
        async with session.get(server.url()) as response:
            assert 200 == response.status
        assert 1 == server.opened
        assert "authorization" not in server.seen[1].headers


async def test_a_session_that_its_owner_closed() -> None:
    """It is reported as closed, since nothing was sent."""
    async with aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)
    with pytest.raises(ClientClosed, match="session is closed"):
        await transport.send(Request("GET", "http://127.0.0.1:9/"))


async def test_a_session_comes_without_options() -> None:
    """Options beside a session would have no effect, so they are refused."""
    async with aiohttp.ClientSession() as session:
        for options in ({"proxy": "http://127.0.0.1:9"}, {"trust_env": True}, {"limit": 5}):
            with pytest.raises(ValueError, match="either a session or options"):
                AiohttpTransport(session=session, **options)


async def test_a_session_with_credentials_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They cannot stand beside a token: a session with an auth is refused, and nothing is sent beside a `.netrc`."""
    with warnings.catch_warnings(action="ignore"):  # aiohttp is about to drop the argument.
        session = aiohttp.ClientSession(auth=aiohttp.BasicAuth("u", "p"))
    with pytest.raises(ValueError, match="auth of its own"):
        AiohttpTransport(session=session)
    await session.close()

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with FaultServer(always(http())) as server:
        async with aiohttp.ClientSession(trust_env=True) as session:
            outcome = await failed(AiohttpTransport(session=session), Request("GET", server.url(), TOKEN))
        assert (False, True, "the session has credentials of its own for this host") == outcome
        transport = AiohttpTransport(trust_env=True)
        assert 200 == (await transport.send(Request("GET", server.url(), TOKEN))).status
        await transport.aclose()
        assert [TOKEN["Authorization"]] == [seen.headers["authorization"] for seen in server.seen]


async def test_a_session_of_another_loop() -> None:
    """It is told before anything is sent, wherever the transport was made."""

    async def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    elsewhere = await asyncio.to_thread(asyncio.run, session())
    transport = await asyncio.to_thread(AiohttpTransport, session=elsewhere)
    with pytest.raises(ClientClosed, match="session belongs to another event loop"):
        await transport.send(Request("GET", "http://127.0.0.1:9/"))
    await elsewhere.connector.close()


async def test_closing_waits_for_what_is_in_flight_on_a_session() -> None:
    """An injected session is its owner's, who closes it next: what is in flight gets its time before that."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await go_on.wait()
        await peer.write(http())

    async with FaultServer(script) as server, aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)
        sending = asyncio.create_task(transport.send(Request("GET", server.url())))
        await asked.wait()
        closing = asyncio.create_task(transport.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing
        assert 200 == (await sending).status


async def test_closing_while_a_connection_is_opened() -> None:
    """Nothing was sent, and the request says so: to call it in doubt would have somebody look for money."""
    transport = AiohttpTransport(drain=0)
    with unanswered_port() as port:
        request = Request("POST", f"http://127.0.0.1:{port}/", connect_timeout=0.2)
        sending = asyncio.create_task(transport.send(request))
        await asyncio.sleep(0)
        await transport.aclose()

        async with asyncio.timeout(5):
            with pytest.raises(ClientClosed, match="closed while the request waited"):
                await sending


async def test_closing_breaks_off_what_a_peer_does_not_take() -> None:
    """A request that a peer has stopped reading ends with its transport, not when somebody cancels it."""
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer._reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await asyncio.Event().wait()

    async with FaultServer(script) as server:
        transport = AiohttpTransport(drain=0)
        sending = asyncio.create_task(transport.send(Request("POST", server.url(), {}, b"x" * 30_000_000)))
        await arrived.wait()

        async with asyncio.timeout(5):
            await transport.aclose()
            with pytest.raises(SendFailed) as failed:
                await sending
        assert failed.value.sent


# --- stray answers ----------------------------------------------------------------------------------------------------


async def stray(transport: AiohttpTransport) -> tuple[bytes, int]:
    """Let an answer to nobody arrive on an idle connection; return what the next request gets, and the connections."""
    go_on, written = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            await peer.write(http(200, seen.target.encode()))
            if seen.target == "/first":
                await go_on.wait()
                await peer.write(http(200, b"stray"))
                written.set()

    async with FaultServer(script) as server:
        await transport.send(Request("GET", server.url("/first")))
        go_on.set()
        await written.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        second = await transport.send(Request("POST", server.url("/second")))
        return second.body, server.opened


async def test_a_stray_answer_on_an_idle_connection_is_dropped(transport: AiohttpTransport) -> None:
    """An answer that arrived while the connection was idle does not become that of the next request."""
    assert (b"/second", 2) == await stray(transport)


async def test_aiohttp_takes_a_stray_answer(transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """With aiohttp's own pool the next request gets it: that is what ours is for."""
    monkeypatch.setattr(ours, "_KNOWN", ("0.",))

    assert (b"stray", 1) == await stray(transport)


@pytest.mark.control("paymentsdk.transports.aiohttp._readable", lambda transport: False)
async def test_what_the_loop_has_not_read_yet_is_seen(transport: AiohttpTransport) -> None:
    """An answer to nobody, or the end, that only the system knows of: the next request takes another connection."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        async def answer(body: bytes) -> socket.socket:
            connection, _ = await loop.sock_accept(server)
            await loop.sock_recv(connection, 65_536)
            await loop.sock_sendall(connection, http(200, body))
            return connection

        for late in (lambda idle: idle.send(http(200, b"stray")), lambda idle: idle.shutdown(socket.SHUT_WR)):
            answering = asyncio.ensure_future(answer(b"first"))
            await transport.send(Request("GET", f"{url}/first"))
            with await answering as idle:
                answering = asyncio.ensure_future(answer(b"second"))
                late(idle)  # The loop gets no turn between this and the next request.
                body = (await transport.send(Request("POST", f"{url}/second"))).body
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await answering).close()
            assert b"second" == body


async def test_where_the_system_cannot_be_asked(transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no `poll`: connections are kept and used again all the same."""
    monkeypatch.delattr(ours.select, "poll", raising=False)

    async with FaultServer(always(http())) as server:
        for _ in range(2):
            await transport.send(Request("GET", server.url()))
        assert 1 == server.opened


async def test_a_server_that_speaks_first_gets_no_request(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch, until
) -> None:
    """An answer that came before the request is none: nothing is sent to whoever gave it."""
    connect = ours._Pool.connect

    async def and_wait(*given: object) -> Connection:
        connection = await connect(*given)
        await until(lambda: connection.protocol.should_close)
        return connection

    async def script(peer: Peer) -> None:
        await peer.write(http(200, b"early"))
        await peer.request()

    monkeypatch.setattr(ours._Pool, "connect", and_wait)
    async with FaultServer(script) as server:
        assert (False, False) == (await failed(transport, Request("POST", server.url(), {}, b"{}")))[:2]
        await server.all_hung_up()
        assert not server.seen


@pytest.mark.parametrize("size", [100_000, 5_000_000])
async def test_nobody_waits_behind_a_request_that_was_not_taken(transport: AiohttpTransport, size: int) -> None:
    """A server may answer before it has read all: what is left of the request is not in the way of the next.

    The system takes a large request off our hands long before the server does.
    """
    done = asyncio.Event()

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer._reader.readuntil(b"\r\n\r\n")
            await peer.write(http(413))
            await done.wait()
        else:
            await peer.request()
            await peer.write(http(201))

    async with FaultServer(script) as server:
        for length, status in ((size, 413), (2, 201)):
            request = Request("POST", server.url(), {}, b"x" * length)
            assert status == (await asyncio.wait_for(transport.send(request), 5)).status
        assert 2 == server.opened
        done.set()


@pytest.mark.control("paymentsdk.transports.aiohttp._LARGE", 2**30)
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
            request = Request("GET", server.url(), max_answer=most)
            if most == 8:
                assert (True, True, "the answer has more than 8 bytes") == await failed(transport, request)
            else:
                assert b"123456789" == (await transport.send(request)).body


async def test_an_answer_may_say_that_it_is_as_it_is(transport: AiohttpTransport) -> None:
    """The name of a coding has no case."""
    async with FaultServer(always(http(200, b"{}", "Content-Encoding: Identity"))) as server:
        assert b"{}" == (await transport.send(Request("GET", server.url()))).body


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(200, b"x", "Content-Encoding: gzip"), "the answer is compressed, which was not asked for"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
            "the server switched to another protocol",
        ),
    ],
)
async def test_what_would_come_again_the_same_way(
    transport: AiohttpTransport, answer: bytes, reason: str, fresh: bool
) -> None:
    """An answer in a form that was not asked for is no reason to ask again."""
    async with FaultServer(always(answer)) as server:
        assert (True, True, reason) == await failed(transport, Request("GET", server.url(), fresh=fresh))


async def test_a_status_below_100_is_an_answer(transport: AiohttpTransport) -> None:
    """It is an odd one, but not one to wait behind."""
    async with FaultServer(always(b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\n{}")) as server:
        assert 99 == (await transport.send(Request("GET", server.url()))).status


# --- places in the pool -----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk.transports.aiohttp._Pool.connect", aiohttp.TCPConnector.connect, raises=SendFailed)
async def test_no_place_is_lost_with_a_waiter(limited: AiohttpTransport, until) -> None:
    """A waiter that is cancelled as it gets its place leaves it to the next."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            if seen.target == "/a":
                await go_on.wait()
            await peer.write(http())

    async with FaultServer(script) as server:

        async def send(target: str) -> int:
            return (await limited.send(Request("GET", server.url(target), connect_timeout=1.0))).status

        async def first() -> int:
            status = await send("/a")
            second.cancel()
            return status

        leading, second, third = (asyncio.ensure_future(one) for one in (first(), send("/b"), send("/c")))
        await until(lambda: server.seen and sum(map(len, limited._pool._waiters.values())) == 2)
        go_on.set()

        assert [200, 200] == [await leading, await third]
        assert second.cancelled()


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


@pytest.mark.control("paymentsdk.transports.aiohttp._unsent", lambda error, pool: ours._failure(error))
async def test_whatever_keeps_it_from_connecting_was_before_the_request() -> None:
    """A part of the caller's that fails in its own way has kept every byte here."""

    def broken(address: object) -> socket.socket:
        raise LookupError("canary")

    async with contextlib.aclosing(AiohttpTransport(socket_factory=broken)) as transport:
        outcome = await failed(transport, Request("GET", "http://127.0.0.1:9/"))

    assert (False, False, "aiohttp raised LookupError") == outcome


async def test_the_wait_for_a_connection_is_not_rounded_up(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to end before the time of the attempt does: what is cut off after it may have been sent."""
    asked = []

    async def connect(*given: object) -> None:
        asked.append(given[-1])
        raise LookupError

    monkeypatch.setattr(ours._Pool, "connect", connect)
    await failed(transport, Request("GET", "http://127.0.0.1:9/", timeout=7.4, connect_timeout=7.3))

    assert [(7.3, True)] == [(timeout.connect, timeout.ceil_threshold > 7.3) for timeout in asked]


async def test_closing_ends_even_when_it_is_cancelled(until) -> None:
    """The connections are closed, whether or not somebody waits for it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.hung_up()

    async with FaultServer(script) as server:
        transport = AiohttpTransport(drain=60.0)
        flying = asyncio.ensure_future(transport.send(Request("GET", server.url())))
        await until(lambda: server.seen)
        closing = asyncio.ensure_future(transport.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing, flying])

        assert closing.cancelled()
        assert isinstance(flying.exception(), SendFailed)
        await server.all_hung_up()


# --- methods ----------------------------------------------------------------------------------------------------------


async def test_a_get_stays_a_get(transport: AiohttpTransport) -> None:
    """Turning off that requests are sent again changes nothing else: a GET gets no length, a HEAD no body."""
    async with FaultServer(always(http(200, b"{}"))) as server:
        await transport.send(Request("GET", server.url()))
        assert "content-length" not in server.seen[0].headers
    async with FaultServer(always(http(200, b"", length=100))) as server:
        assert b"" == (await transport.send(Request("HEAD", server.url()))).body
        assert b"" == (await transport.send(Request("HEAD", server.url()))).body
        assert 1 == server.opened


async def test_lower_case_is_sent_once_too(transport: AiohttpTransport) -> None:
    """A method in small letters is not sent again either."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(http())
        await peer.request()

    async with FaultServer(script) as server:
        await transport.send(Request("GET", server.url()))
        assert await failed(transport, Request("get", server.url())) == (
            True,
            False,
            "the server closed the connection without an answer",
        )
        assert ["GET", "GET"] == [seen.method for seen in server.seen]


# --- proxies ----------------------------------------------------------------------------------------------------------


async def test_requests_go_through_a_proxy() -> None:
    """With *proxy*, the proxy is asked for the whole URL."""
    async with FaultServer(always(http())) as proxy:
        transport = AiohttpTransport(proxy=proxy.url())
        await transport.send(Request("GET", "http://api.example.com/v1/orders?x=1"))
        await transport.aclose()

        assert "http://api.example.com/v1/orders?x=1" == proxy.seen[0].target
        assert "api.example.com" == proxy.seen[0].headers["host"]


async def test_a_proxy_that_refuses() -> None:
    """Nothing has been sent when a proxy does not connect to the platform, or is not there."""
    async with FaultServer(always(http(407))) as proxy:
        transport = AiohttpTransport(proxy=proxy.url())
        outcome = await failed(transport, Request("POST", "https://api.example.com/", TOKEN))
        await transport.aclose()

        assert outcome == (False, False, "the proxy refused to connect (status 407)")
        assert ["CONNECT"] == [seen.method for seen in proxy.seen]
        assert "authorization" not in proxy.seen[0].headers
    with refused_port() as port:
        transport = AiohttpTransport(proxy=f"http://127.0.0.1:{port}")
        outcome = await failed(transport, Request("POST", "https://api.example.com/", TOKEN))
        await transport.aclose()
    assert outcome == (False, False, "no connection to the proxy: Connection refused")


@pytest.mark.parametrize("trust_env", [False, True])
async def test_the_environment_is_not_trusted(trust_env: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is used only by who asks for it."""
    async with FaultServer(always(http())) as proxy, FaultServer(always(http())) as server:
        monkeypatch.setenv("http_proxy", proxy.url())
        monkeypatch.delenv("no_proxy", raising=False)
        transport = AiohttpTransport(trust_env=trust_env)
        await transport.send(Request("GET", server.url()))
        await transport.aclose()

        assert (int(trust_env), int(not trust_env)) == (len(proxy.seen), len(server.seen))


# --- options, and what cannot be sent ---------------------------------------------------------------------------------


async def test_options_reach_aiohttp() -> None:
    """What aiohttp's connector takes can be given: here a maker of sockets, and one connection at a time."""
    made = []

    def make(address: tuple) -> socket.socket:
        made.append(address[4])
        return socket.socket(*address[:3])

    async with FaultServer(always(http())) as server:
        transport = AiohttpTransport(limit=1, socket_factory=make)
        await asyncio.gather(*(transport.send(Request("GET", server.url())) for _ in range(3)))
        await transport.aclose()

        assert 1 == server.opened == len(made)


async def test_a_fingerprint_is_checked() -> None:
    """A certificate with another fingerprint is refused for good, with nothing sent."""
    certificate = trustme.CA().issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    async with FaultServer(always(http()), tls=context) as server:
        transport = AiohttpTransport(ssl=aiohttp.Fingerprint(bytes(32)))
        outcome = await failed(transport, Request("GET", server.url()))
        await transport.aclose()

        assert outcome == (False, True, "the server's certificate has another fingerprint")
        assert not server.seen


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://127.0.0.1/", "the URL is not of http or https"),
        ("http://", "the URL has no host"),
        ("/v1/orders", "the URL has no host"),
        ("http://127.0.0.1:99999/", "the URL is malformed"),
    ],
)
async def test_what_is_no_url_is_not_sent(transport: AiohttpTransport, url: str, reason: str) -> None:
    """A URL that leads nowhere fails for good, with nothing sent."""
    assert (False, True, reason) == await failed(transport, Request("GET", url))


# --- closing ----------------------------------------------------------------------------------------------------------


async def test_closing_waits_for_the_answers() -> None:
    """A request in flight gets its answer while the transport is being closed, and new ones are refused meanwhile."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await go_on.wait()
        await peer.write(http(201))

    async with FaultServer(script) as server:
        transport = AiohttpTransport(drain=10.0)
        flying = asyncio.ensure_future(transport.send(Request("POST", server.url(), {}, b"{}")))
        await arrived.wait()
        closing = [asyncio.ensure_future(transport.aclose()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await transport.send(Request("POST", server.url(), {}, b"{}"))
        go_on.set()

        assert 201 == (await flying).status
        await asyncio.gather(*closing)
        await server.all_hung_up()


async def test_closing_waits_for_every_answer(until) -> None:
    """It is not over with the first answer that comes, let alone with one that came before, and is with the last."""
    go_on = {"/a": asyncio.Event(), "/b": asyncio.Event()}

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            if seen.target in go_on:
                await go_on[seen.target].wait()
            await peer.write(http(201))

    async with FaultServer(script) as server:
        transport = AiohttpTransport(drain=600.0)
        await transport.send(Request("POST", server.url(), {}, b"{}"))
        flying = [asyncio.ensure_future(transport.send(Request("POST", server.url(target)))) for target in go_on]
        await until(lambda: len(server.seen) == 3)
        closing = asyncio.ensure_future(transport.aclose())
        for sending, event in zip(flying, go_on.values(), strict=True):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not closing.done()
            event.set()
            assert 201 == (await sending).status

        await asyncio.wait_for(closing, 10)
        await server.all_hung_up()


async def test_an_interrupt_shows_no_token(transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the program passes through as it is: a traceback that shows variables shows no request."""

    class Interrupt(BaseException):
        pass

    async def read(protocol: object) -> None:
        raise Interrupt

    monkeypatch.setattr(ResponseHandler, "read", read)
    async with FaultServer(always(http())) as server:
        request = Request("POST", server.url(), TOKEN, b"canary")
        with pytest.raises(Interrupt) as interrupted:
            await transport.send(request)

    shown = "".join(traceback.TracebackException.from_exception(interrupted.value, capture_locals=True).format())
    assert "_over_pool" in shown
    assert "canary" not in shown


async def test_whose_cancellation_it_is(monkeypatch: pytest.MonkeyPatch, until) -> None:
    """A cancellation comes out as one, be the transport open or closed, unless the transport did it by closing."""
    transport, waiting = AiohttpTransport(drain=0.0), []

    async def wait(*given: object) -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]

    monkeypatch.setattr(transport, "_over_pool", wait)
    sending = [asyncio.ensure_future(transport.send(Request("GET", "http://127.0.0.1:9/"))) for _ in range(3)]
    await until(lambda: len(waiting) == 3)

    waiting[0].cancel()
    await asyncio.wait(sending[:1])
    await transport.aclose()
    sending[1].cancel()
    waiting[2].cancel()
    await asyncio.wait(sending)

    assert [True, True, False] == [task.cancelled() for task in sending]
    assert isinstance(sending[2].exception(), ClientClosed)


# --- failures ---------------------------------------------------------------------------------------------------------

NOT_SENT, SENT, FOR_GOOD = (False, False), (True, False), (False, True)

#: What each error of aiohttp means: whether the request may have been sent, and whether it would fail again.
ERRORS = {
    "ClientConnectionError": SENT,
    "ClientConnectionResetError": SENT,
    "ClientConnectorCertificateError": FOR_GOOD,
    "ClientConnectorDNSError": NOT_SENT,
    "ClientConnectorError": NOT_SENT,
    "ClientConnectorSSLError": NOT_SENT,
    "ClientError": SENT,
    "ClientHttpProxyError": NOT_SENT,
    "ClientOSError": SENT,
    "ClientPayloadError": SENT,
    "ClientProxyConnectionError": NOT_SENT,
    "ClientResponseError": SENT,
    "ClientSSLError": NOT_SENT,
    "ConnectionTimeoutError": NOT_SENT,
    "ContentTypeError": SENT,
    "InvalidURL": FOR_GOOD,
    "InvalidUrlClientError": FOR_GOOD,
    "InvalidUrlRedirectClientError": FOR_GOOD,
    "NonHttpUrlClientError": FOR_GOOD,
    "NonHttpUrlRedirectClientError": FOR_GOOD,
    "RedirectClientError": SENT,
    "ServerConnectionError": SENT,
    "ServerDisconnectedError": SENT,
    "ServerFingerprintMismatch": FOR_GOOD,
    "ServerTimeoutError": SENT,
    "SocketTimeoutError": SENT,
    "TooManyRedirects": SENT,
    "UnixClientConnectorError": NOT_SENT,
    "UploadAbortedError": SENT,
    "WSServerHandshakeError": SENT,
}


def below(base: type[Exception]) -> set[type[Exception]]:
    """Return *base* and every error that is one."""
    return {base}.union(*map(below, base.__subclasses__()))


#: Every error of aiohttp's client, by its name.
FOUND = {kind.__name__: kind for kind in below(aiohttp.ClientError) if kind.__module__.startswith("aiohttp.")}


def test_every_error_of_aiohttp_has_a_meaning() -> None:
    """None is forgotten; a new one fails this test until somebody has thought about it."""
    assert FOUND.keys() <= ERRORS.keys()


@pytest.mark.parametrize("name", sorted(FOUND))
async def test_what_an_error_means(name: str, transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what happens before the first byte is written counts as not sent."""

    async def broken(*given: object, **asked: object) -> None:
        raise Blank

    class Blank(FOUND[name]):
        status = certificate_error = os_error = errno = None

        def __init__(self) -> None:
            pass

    monkeypatch.setattr(transport, "_over_pool", broken)

    assert ERRORS[name] == (await failed(transport, Request("GET", "http://127.0.0.1:9/")))[:2]


@pytest.mark.parametrize("kind", [LookupError, ValueError, RuntimeError])
async def test_what_nobody_expects_is_ambiguous(
    kind: type[Exception], transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is not known is reported by its name alone, and as one that may have been sent."""

    async def broken(*given: object, **asked: object) -> None:
        raise kind("Bearer APP_USR-1-2-canary")

    monkeypatch.setattr(transport, "_over_pool", broken)

    outcome = await failed(transport, Request("GET", "http://127.0.0.1:9/"))

    assert outcome == (True, False, f"aiohttp raised {kind.__name__}")


async def test_reasons_say_what_the_system_says(transport: AiohttpTransport) -> None:
    """A reason names the trouble in words for people, without the query or a header."""
    with refused_port() as port:
        request = Request("GET", f"http://127.0.0.1:{port}/v1?payer=canary", TOKEN)
        assert (False, False, "no connection to the server: Connection refused") == await failed(transport, request)
    certificate = trustme.CA().issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    async with FaultServer(always(http()), tls=context) as server:
        reason = (await failed(transport, Request("GET", server.url("/v1?payer=canary"), TOKEN)))[2]
        assert reason == "the server's certificate does not verify: unable to get local issuer certificate"
    async with FaultServer(always(http(200, b"x"))) as server:
        with pytest.raises(SendFailed) as caught:
            await transport.send(Request("GET", server.url(), max_answer=0))
        assert "the answer has more than 0 bytes" == str(caught.value)
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
