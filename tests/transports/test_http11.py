"""The fast transport: what it promises beyond the rules that every transport keeps."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Self

import pytest
import trustme

from paymentsdk import ClientClosed, DiscardingTransport, Http11Transport, Request, RequestInvalid, Response, SendFailed
from paymentsdk.testing._fault_server import FaultServer, Peer, Script, always, http
from paymentsdk.testing.transport_conformance import CASES, Case
from paymentsdk.transports._http11_pool import Pool
from tests.transports.test_both import FORKING

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


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
        runner.run(case.run(make))


@contextlib.asynccontextmanager
async def opened(**options: object) -> AsyncIterator[Http11Transport]:
    """Make a transport, and close it in the end."""
    transport = Http11Transport(**{"drain": 0.1, **options})
    try:
        yield transport
    finally:
        await transport.aclose()


async def outcome(transport: Http11Transport, request: Request) -> Response | SendFailed:
    """Send *request*; return its response, or how it failed."""
    try:
        async with asyncio.timeout(5):
            return await transport.send(request)
    except SendFailed as error:
        return error


def once(*pieces: bytes) -> Script:
    """Answer each request with *pieces*, written one by one, and keep the connection open."""

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            for piece in pieces:
                await peer.write(piece)
                await asyncio.sleep(0)

    return script


async def turns(count: int) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


# --- what is no response ----------------------------------------------------------------------------------------------

MALFORMED = {
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "one bare LF": b"HTTP/1.1 200 OK\r\nX: 1\nContent-Length: 2\r\n\r\n{}",
    "bare CR": b"HTTP/1.1 200 OK\r\nX: 1\rY: 2\r\nContent-Length: 2\r\n\r\n{}",
    "blank before colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
    "tab before colon": b"HTTP/1.1 200 OK\r\nX\t: 2\r\nContent-Length: 2\r\n\r\n{}",
    "folded field": b"HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\nContent-Length: 2\r\n\r\n{}",
    "field without colon": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nxyz\r\n\r\n{}",
    "NUL": b"HTTP/1.1 200 OK\r\nX: \x00\r\nContent-Length: 2\r\n\r\n{}",
    "status 600": b"HTTP/1.1 600 OK\r\nContent-Length: 2\r\n\r\n{}",
    "status 099": b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\n{}",
    "status 20": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    "one length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}",
    "signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
    "endless length": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    "length and chunks": CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n{}",
    "chunk of no number": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "chunk longer than it says": CHUNKED + b"2\r\n{}}\r\n0\r\n\r\n",
    "chunk with bare LF": CHUNKED + b"2\n{}\n0\n\n",
    "endless trailer": CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: " + b"y" * 200_000,
    "tiny chunks": CHUNKED + b"1;" + b"x" * 150_000 + b"\r\n{\r\n",
    "head without end": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    "interim heads without end": b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" * 3_000,
    "not HTTP": b'{"status": "created"}',
}


async def rejected(name: str) -> None:
    """See the request fail as sent, and its connection closed."""
    async with FaultServer(once(MALFORMED[name])) as server, opened() as transport:
        failure = await outcome(transport, Request("GET", server.url()))

        assert isinstance(failure, SendFailed)
        assert failure.sent
        await server.all_hung_up()


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_parsers_read_differently_is_no_response(name: str) -> None:
    """A malformed response is a failure at once, with the request sent, and its connection is closed."""
    await rejected(name)


@pytest.mark.control(
    "paymentsdk.transports._http11_connection._HEAD", around=lambda _: re.compile(rb"HTTP/(.).. ?([0-9]+)[^$]*")
)
@pytest.mark.parametrize("name", ["status 600", "HTTP/2", "NUL", "bare CR", "tab before colon", "folded field"])
async def test_heads_keep_the_grammar(name: str) -> None:
    """A head has to match the grammar of RFC 9112 in full, with nothing that the RFC only tolerates."""
    await rejected(name)


@pytest.mark.control("paymentsdk.transports._http11_connection._refuse", lambda why: None)
@pytest.mark.parametrize("name", ["two codings"])
async def test_framing_is_checked_before_httptools(name: str) -> None:
    """A list of transfer codings is rejected here: httptools takes it."""
    await rejected(name)


SURPLUS = {
    "second response": http(200, b"{}") + http(200, b"stray"),
    "line break": http(200, b"{}") + b"\r\n",
    "half a line break": http(200, b"{}") + b"\r",
    "text": http(200, b"{}") + b"x",
    "after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n" + http(200, b"stray"),
    "empty response after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n" + http(200, b""),
    "line break after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n\r\n",
    "line feed after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n\n",
    "after a trailer": CHUNKED + b"2\r\n{}\r\n0\r\nX: y\r\n\r\n\r\n",
    "body of a 204": b"HTTP/1.1 204 No Content\r\n\r\n{}",
    "length of a 204": b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    "chunks of a 204": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "body of a 304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n{}",
}


async def takes_two_connections(text: bytes) -> None:
    """See two requests answered with *text*, each on a connection of its own."""
    async with FaultServer(once(text)) as server, opened(limit=1) as transport:
        for _ in range(2):
            response = await outcome(transport, Request("GET", server.url()))
            assert isinstance(response, Response)
            assert response.body == (b"" if response.status in {204, 304} else b"{}")
        assert 2 == server.opened


@pytest.mark.parametrize("name", SURPLUS)
async def test_surplus_is_not_the_next_response(name: str) -> None:
    """A complete response with more bytes behind it comes back, and its connection is closed."""
    await takes_two_connections(SURPLUS[name])


@pytest.mark.control("paymentsdk.transports._http11_connection.Connection._has_surplus", lambda self: False)
@pytest.mark.parametrize("name", ["line break", "line break after chunks", "empty response after chunks"])
async def test_surplus_that_httptools_passes_over_is_seen(name: str) -> None:
    """Line breaks and whole responses behind a response are seen here: httptools reads on."""
    await takes_two_connections(SURPLUS[name])


WELL_FORMED = {
    "chunks": CHUNKED + b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
    "trailer": CHUNKED + b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n",
    "no reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}",
    "blank in a value": b"HTTP/1.1 200 OK\r\nX: a : b\r\nContent-Length:   2  \r\n\r\n{}",
    "interim": b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + http(),
    "close in a value": b"HTTP/1.1 200 OK\r\nX: close\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", WELL_FORMED)
async def test_what_is_well_formed_keeps_its_connection(name: str) -> None:
    """Chunks, trailers, interim responses: in one piece or byte by byte, the connection is used again."""
    text = WELL_FORMED[name]
    for pieces in ([text], [text[i : i + 1] for i in range(len(text))]):
        async with FaultServer(once(*pieces)) as server, opened() as transport:
            for _ in range(2):
                assert b"{}" == (await transport.send(Request("GET", server.url()))).body
            assert 1 == server.opened


async def test_a_response_to_head_has_no_body() -> None:
    """The response to a HEAD request has the length of a body, and none; its connection goes on."""
    async with FaultServer(once(http(200, b"", length=5))) as server, opened() as transport:
        for _ in range(2):
            response = await outcome(transport, Request("HEAD", server.url()))
            assert (200, b"") == (response.status, response.body)
        assert 1 == server.opened


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: CLOSE\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: y, close\r\n",
    ],
)
async def test_a_server_that_will_close_is_not_asked_again(head: bytes) -> None:
    """HTTP/1.0, and `Connection: close` in any case, end a connection, even if the server leaves it open."""
    async with FaultServer(once(head + b"Content-Length: 2\r\n\r\n{}")) as server, opened() as transport:
        for _ in range(2):
            await transport.send(Request("GET", server.url()))
        assert 2 == server.opened


async def test_header_fields_are_found_in_any_case() -> None:
    """The header fields are a mapping: the first of a name counts, under any spelling, and cookies are not printed."""
    fields = ("X-Request-Id: r-1", "x-request-id: r-2", "Set-Cookie: canary", "X-Odd: \xe9: b ")
    async with FaultServer(always(http(200, b"{}", *fields))) as server, opened() as transport:
        headers = (await transport.send(Request("GET", server.url()))).headers

    assert "r-1" == headers["X-REQUEST-ID"]
    assert "\xe9: b" == headers.get("x-odd")
    assert "x-odd: \xe9" not in headers
    assert ["x-request-id", "set-cookie", "x-odd", "content-length"] == [name.lower() for name in headers]
    assert len(headers) == len(dict(headers))
    assert "canary" not in repr(headers)


# --- mutated responses ------------------------------------------------------------------------------------------------

BODY = b'{"id": "ORD1", "status": "created"}'
SEEDS = (
    http(200, BODY, "Content-Type: application/json", "X-Request-Id: r-1"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n10\r\n"
    + BODY[:16]
    + b"\r\n13\r\n"
    + BODY[16:]
    + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http(200, BODY, "Connection: close"),
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY,
)
DOUBTFUL = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b":",
    b"\x00",
    b"Content-Length: 7\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"HTTP/1.1 ",
)


def mutated(chance: random.Random) -> bytes:
    """Return a response with up to three bytes or phrases changed, dropped, doubled or put in, in its framing only."""
    text = chance.choice(SEEDS)
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(text))
        until = at + chance.choice((0, 0, 1, 1, 4))
        put_in = chance.choice((b"", text[at:until] * 2, bytes([chance.randrange(256)]), chance.choice(DOUBTFUL)))
        text = text[:at] + put_in + text[until:]
    return text


def may_be(text: bytes) -> set[bytes]:
    """Return the bodies that can be read from *text* by the rules of RFC 9112, whatever a parser makes of it."""
    while True:
        head, _, rest = text.partition(b"\r\n\r\n")
        if not re.match(rb"HTTP/1.[01] 1(?!01)", head):
            break
        text = rest
    lengths = re.findall(rb"(?i)\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n|$)", head)
    chunked = re.search(rb"(?i)\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n|$)", head)
    if re.match(rb"HTTP/1.[01] (204|304)", head):
        return {b""}
    if chunked:
        body = b""
        while found := re.match(rb"([0-9a-fA-F]+)(?:[;][^\r\n]*)?\r\n", rest):
            size = int(found[1], 16)
            if not size:
                return set() if lengths else {body}
            rest = rest[found.end() :]
            body, rest = body + rest[:size], rest[size:].removeprefix(b"\r\n")
        return set()
    if lengths:
        return {rest[: int(lengths[0])]} if len(set(lengths)) == 1 and len(rest) >= int(lengths[0]) else set()
    return {rest}


@pytest.mark.parametrize("seed", range(16))
async def test_a_mutated_response_is_right_or_a_failure(seed: int) -> None:
    """1,600 mutated responses, split anywhere: each is read as RFC 9112 reads it, or fails as sent; none hangs."""
    chance = random.Random(seed)
    texts = [mutated(chance) for _ in range(100)]

    async def script(peer: Peer) -> None:
        seen = await peer.request()
        if seen is None:
            return
        text = texts[int(seen.target[1:])]
        cuts = sorted(chance.sample(range(len(text)), min(len(text), chance.randint(0, 4))))
        for start, end in itertools.pairwise([0, *cuts, len(text)]):
            await peer.write(text[start:end])
            await turns(chance.randint(0, 3))

    async with FaultServer(script) as server, opened(limit=1) as transport:
        kinds = Counter()
        for number, text in enumerate(texts):
            found = await outcome(transport, Request("GET", server.url(f"/{number}")))
            kinds[type(found)] += 1
            if isinstance(found, SendFailed):
                assert found.sent, text
            else:
                assert found.body in may_be(text), text
    assert min(kinds.values()) > 10  # Both happen: neither check is idle.
    assert 2 == len(kinds)


async def test_idle_connections_that_the_server_closes() -> None:
    """A server that closes each connection after its response loses no request that had not been written."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(http())
        await turns(peer.number % 7)

    async with FaultServer(script) as server, opened() as transport:
        lost = 0
        for number in range(500):
            found = await outcome(transport, Request("GET", server.url()))
            await turns(number % 5)
            lost += isinstance(found, SendFailed)
            assert isinstance(found, Response) or found.sent

        assert 500 - lost == len(server.seen)


# --- connections ------------------------------------------------------------------------------------------------------


class Wire:
    """A server whose end of the connection is a plain socket: what it sends has arrived before the loop reads it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self.accepted: list[socket.socket] = []

    async def request(self) -> socket.socket:
        """Accept a connection, and read a request."""
        loop = asyncio.get_running_loop()
        end, _ = await loop.sock_accept(self._listening)
        self.accepted.append(end)
        await loop.sock_recv(end, 65_536)
        return end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for end in (*self.accepted, self._listening):
            end.close()


async def answered(transport: Http11Transport, wire: Wire, body: bytes, patience: float = 30.0) -> Response:
    """Send a request, which is answered on a new connection."""

    async def answer() -> None:
        (await wire.request()).send(http(200, body))

    async with asyncio.timeout(patience), asyncio.TaskGroup() as tasks:
        tasks.create_task(answer())
        return await transport.send(Request("GET", wire.url))


@pytest.mark.control(
    "paymentsdk.transports._http11_connection.Connection.is_usable", lambda self: not self.closed, raises=Exception
)
@pytest.mark.parametrize("stray", [http(200, b"stray"), b"\r\n", None], ids=["response", "line break", "end"])
async def test_what_the_loop_has_not_read_is_seen(stray: bytes | None, patience: float) -> None:
    """Bytes on an idle connection, or its end, are noticed even if the event loop has not read them yet."""
    async with Wire() as wire, opened() as transport:
        await answered(transport, wire, b"first")
        if stray is None:
            wire.accepted[0].shutdown(socket.SHUT_RDWR)
        else:
            wire.accepted[0].send(stray)

        assert b"second" == (await answered(transport, wire, b"second", patience)).body


async def test_an_idle_connection_that_hears_something_is_closed() -> None:
    """What arrives on an idle connection closes it at once, and not at the next request."""
    async with Wire() as wire, opened() as transport:
        await answered(transport, wire, b"first")
        wire.accepted[0].send(b"x")

        assert b"" == await asyncio.get_running_loop().sock_recv(wire.accepted[0], 1)


async def test_the_last_used_connection_goes_first() -> None:
    """Of several idle connections the one that was used last is taken, so that those not needed grow old."""
    async with FaultServer(always(http())) as server, opened() as transport:
        await asyncio.gather(*(transport.send(Request("GET", server.url())) for _ in range(3)))
        for _ in range(3):
            await transport.send(Request("GET", server.url()))

        assert 1 == len({seen.connection for seen in server.seen[3:]})


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

        assert [0, 1, 2, 2, 3] == [seen.connection for seen in server.seen]


async def test_who_waits_does_not_get_a_discarded_connection() -> None:
    """A connection that its user discards goes to none of those who wait for one, though it was meant for the next."""
    async with FaultServer(always(http())) as server, opened(limit=1) as transport:

        async def distrust() -> None:
            transport.discard(await transport.send(Request("GET", server.url())))

        await asyncio.gather(*(distrust() for _ in range(5)))

        assert list(range(5)) == [seen.connection for seen in server.seen]


async def test_idle_connections_are_closed_in_time() -> None:
    """An idle connection is closed after `keepalive_timeout`; with 0, none is kept."""
    async with FaultServer(always(http())) as server:
        for seconds in (0, 0.05):
            async with opened(keepalive_timeout=seconds) as transport:
                await transport.send(Request("GET", server.url()))
                await server.all_hung_up()
                assert 0 == transport.open_connections


@pytest.mark.parametrize(("family", "outcome"), [(socket.AF_INET, 200), (socket.AF_INET6, False)])
async def test_a_family_of_addresses_is_kept_to(family: socket.AddressFamily, outcome: object) -> None:
    """With `family`, no address of another one is connected to; nothing was sent then."""
    async with FaultServer(always(http())) as server, opened(family=family) as transport:
        try:
            found: object = (await transport.send(Request("GET", server.url()))).status
        except SendFailed as failure:
            found = failure.sent

    assert outcome == found


# --- places and the queue ---------------------------------------------------------------------------------------------


def barging(self: Pool, connection: object) -> None:
    """Give a connection to whoever comes first."""
    connection.server.idle.append(connection)

    def hand_over() -> None:
        server = self._next(connection.server)
        if server is not None and server.idle:
            self._waiting -= 1
            server.waiters.popleft().granted.set_result(server.idle.pop())

    asyncio.get_running_loop().call_soon(hand_over)


@pytest.mark.control("paymentsdk.transports._http11_pool.Pool.release", barging)
@pytest.mark.parametrize("options", [{"limit": 2}, {"limit": 0, "limit_per_host": 2}])
async def test_the_queue_is_fair(options: dict[str, int]) -> None:
    """Eight workers on two connections make the same number of calls, give or take one."""
    made: Counter[int] = Counter()
    async with FaultServer(always(http())) as server, opened(**options) as transport:

        async def worker(number: int) -> None:
            while made.total() < 200:
                await transport.send(Request("GET", server.url()))
                made[number] += 1

        await asyncio.gather(*map(worker, range(8)))

        assert 2 == server.opened
    assert max(made.values()) - min(made[number] for number in range(8)) <= 1


async def test_a_host_that_is_full_does_not_hold_up_another() -> None:
    """`limit_per_host` bounds each host for itself, and its queue does not stand in the way of another host's."""
    go_on = asyncio.Event()

    async def slow(peer: Peer) -> None:
        async for _ in peer.requests():
            await go_on.wait()
            await peer.write(http())

    async with FaultServer(slow) as full, FaultServer(always(http())) as free, opened(limit_per_host=1) as transport:
        waiting = [asyncio.create_task(transport.send(Request("GET", full.url()))) for _ in range(3)]
        await turns(5)
        async with asyncio.timeout(5):
            for _ in range(3):
                await transport.send(Request("GET", free.url()))
        go_on.set()
        await asyncio.gather(*waiting)

        assert (1, 1) == (full.opened, free.opened)


@pytest.mark.parametrize("fresh", [False, True])
async def test_an_idle_connection_makes_room(fresh: bool) -> None:
    """In a full pool an idle connection to another host is closed for a new one, and so is one for a fresh one."""
    async with FaultServer(always(http())) as one, FaultServer(always(http())) as other, opened(limit=1) as transport:
        await transport.send(Request("GET", one.url()))
        async with asyncio.timeout(5):
            await transport.send(Request("GET", (one if fresh else other).url(), fresh=fresh))

        assert 2 == one.opened + other.opened


@contextlib.asynccontextmanager
async def stage(secure: bool) -> AsyncIterator[tuple[FaultServer, Callable[..., Http11Transport]]]:
    """Have a server, with TLS or without, and a way to make transports for it."""
    if not secure:
        async with FaultServer(always(http())) as server:
            yield server, Http11Transport
        return
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    async with FaultServer(always(http()), tls=context) as server:
        yield server, lambda **options: Http11Transport(ssl=trusting, **options)


def forgetful(self: Pool, server: object, granted: asyncio.Future[object]) -> None:
    """Do not give back what came too late."""


@pytest.mark.control("paymentsdk.transports._http11_pool.Pool._give_back", forgetful, raises=TimeoutError)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_cancellation_leaves_nothing_behind(secure: bool, patience: float) -> None:
    """Cancelled after any number of turns of the event loop, a request leaves its place to the next one.

    That is while it waits for a place, as it gets one, while it connects, shakes hands, and waits for the response.
    """
    async with stage(secure) as (server, making):
        for count in range(40):
            transport = making(limit=1, drain=0.1)
            for size in (0, 300_000):
                before = asyncio.create_task(transport.send(Request("POST", server.url(), {}, bytes(size))))
                cut_off = asyncio.create_task(transport.send(Request("POST", server.url(), {}, bytes(size))))
                await turns(count)
                cut_off.cancel()
                await asyncio.wait([cut_off])
                async with asyncio.timeout(patience):
                    await before
                    assert 200 == (await transport.send(Request("GET", server.url()))).status
            await transport.aclose()


# --- large bodies -----------------------------------------------------------------------------------------------------


async def test_a_large_body_waits_for_the_socket() -> None:
    """Of a body that the server does not read, no more is buffered than a few pieces."""
    body = bytes(32 * 2**20)

    async def script(peer: Peer) -> None:
        await asyncio.sleep(0.1)
        await peer.request()
        await peer.write(http())

    async with FaultServer(script) as server, opened() as transport:
        sending = asyncio.create_task(transport.send(Request("POST", server.url(), {}, body)))
        await asyncio.sleep(0.05)
        [connection] = transport._pool.connections
        assert connection.transport.get_write_buffer_size() <= 256 * 1024
        await sending
        assert len(body) == len(server.seen[0].body)


async def test_a_response_may_come_before_the_body_has_left() -> None:
    """A server that rejects a large body without reading it is heard, and its connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.part(1)
        await peer.write(http(413, b"too large"))
        await asyncio.sleep(0.1)
        peer.abort()

    async with FaultServer(script) as server, opened() as transport:
        response = await outcome(transport, Request("POST", server.url(), {}, bytes(32 * 2**20)))

        assert (413, b"too large") == (response.status, response.body)
        assert not transport._pool.connections


# --- its loop, and its end --------------------------------------------------------------------------------------------


def test_a_loop_that_is_closed_is_left_for_the_next() -> None:
    """A job runner with an event loop per job can keep one transport: it begins anew on each."""
    transport = Http11Transport()

    async def send() -> int:
        async with FaultServer(always(http())) as server:
            return (await transport.send(Request("GET", server.url()))).status

    assert [200, 200] == [asyncio.run(send()) for _ in range(2)]
    asyncio.run(transport.aclose())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("forked", [True, False], ids=["noticed", "unnoticed"])
def test_a_forked_child_leaves_the_connections_to_its_parent(forked: bool) -> None:
    """A child that was forked after a request sends nothing on its parent's connections, and does not close them.

    Unnoticed, it reads its response there, and closes it: its parent gets none any more.
    """
    unnoticed = "from paymentsdk.transports import _http11_pool\n_http11_pool._POOLS.clear()\nchild = os.fork()"
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
    await asyncio.sleep(0.02)
    await transport.aclose()

    found = await asyncio.gather(*tasks, return_exceptions=True)

    silent.close()
    assert [ClientClosed, ClientClosed] == [type(one) for one in found]


async def test_closing_lets_requests_end() -> None:
    """A request in flight gets `drain` seconds to end, and no more time than it needs."""
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await asyncio.sleep(0.05)
        await peer.write(http())

    async with FaultServer(script) as server:
        transport = Http11Transport(drain=30)
        flying = asyncio.create_task(transport.send(Request("GET", server.url())))
        await arrived.wait()
        async with asyncio.timeout(5):
            await asyncio.gather(transport.aclose(), transport.aclose())

        assert 200 == (await flying).status


# --- options and requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ssl", None),
        ("limit", -1),
        ("limit", True),
        ("limit_per_host", 2.5),
        ("keepalive_timeout", -1),
        ("keepalive_timeout", float("nan")),
        ("keepalive_timeout", None),
        ("drain", "5"),
    ],
)
def test_options_that_make_no_sense_are_rejected(option: str, value: object) -> None:
    """The option is named, where it is given and not at the first request."""
    with pytest.raises(RequestInvalid) as refusal:
        Http11Transport(**{option: value})

    assert option == refusal.value.path


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

        assert ["/", "/", "/a"] == [seen.target for seen in server.seen]
