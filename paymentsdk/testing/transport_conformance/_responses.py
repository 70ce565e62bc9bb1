"""Responses that cannot be trusted: whatever arrives, the request has been sent."""

from __future__ import annotations

import gzip
import warnings

from paymentsdk._operation.operation import KIB, MIB
from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import FaultServer, Peer, Script, http, once
from paymentsdk.testing.transport_conformance._case import MakeTransport, case, failure, may_fail, opened, send
from paymentsdk.transports.base import Request, SendFailed, Transport

#: The head of a response in chunks.
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def endless(head: bytes, piece: bytes) -> Script:
    """Return a script that reads one request and writes *head* and then *piece*, until the client hangs up."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(head)
        while True:
            await peer.write(piece)

    return script


async def fails(make: MakeTransport, script: Script) -> SendFailed:
    """Check that *script* makes a request fail as one that was sent once, and leaves no connection."""
    async with FaultServer(script) as server, opened(make) as transport:
        failed = await failure(transport, Request("GET", server.url(), timeout=5.0), sent=True)
        expect(len(server.seen) == 1, f"the request was sent {len(server.seen)} times")
        await server.all_hung_up()
    return failed


@case
async def closed_before_the_response(make: MakeTransport) -> None:
    """A connection that ends in place of a response is a failure, sent once."""
    await fails(make, once())


@case
async def reset_before_the_response(make: MakeTransport) -> None:
    """A connection that breaks in place of a response is a failure, sent once."""
    await fails(make, once(then="reset"))


@case
async def reset_within_the_request(make: MakeTransport) -> None:
    """A request of which a part has arrived when its connection breaks counts as sent, and is sent once."""

    async def script(peer: Peer) -> None:
        await peer.part(KIB)
        peer.reset()

    body = bytes(16 * MIB)  # More than the buffers between the two ends hold: it is the writing that fails.
    async with FaultServer(script) as server, opened(make) as transport:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Some clients warn of so large a body.
            await failure(transport, Request("POST", server.url(), {}, body, timeout=5.0), sent=True)
        expect(server.opened == 1, f"it took {server.opened} connections")
        await server.all_hung_up()


@case
async def cut_off_within_the_head(make: MakeTransport) -> None:
    """A head that ends in the middle, or breaks, is no response."""
    head = b"HTTP/1.1 200 OK\r\nContent-Le"
    await fails(make, once(head))
    await fails(make, once(head, then="reset"))


@case
async def cut_off_within_the_body(make: MakeTransport) -> None:
    """A body that is shorter than it said, or breaks, is no response."""
    short = http(200, b'{"id": "ORD1"', length=100)
    await fails(make, once(short))
    await fails(make, once(short, then="reset"))


@case
async def broken_off_without_a_length(make: MakeTransport) -> None:
    """A body without length or chunks ends with its connection; if the connection breaks instead, it is no response."""
    for head in (b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request", b"HTTP/1.0 200 OK"):
        for body in (b"", b'{"id": "ORD1"'):
            await fails(make, once(head + b"\r\n\r\n" + body, then="reset"))


@case
async def cut_off_within_the_chunks(make: MakeTransport) -> None:
    """A body in chunks without its last one is no response, even if what came looks whole."""
    await fails(make, once(CHUNKED + b"2\r\n{}\r\n"))
    await fails(make, once(CHUNKED + b"ff\r\n{}"))
    await fails(make, once(CHUNKED + b"2\r\n{}\r\n", then="reset"))


@case
async def garbage_is_no_response(make: MakeTransport) -> None:
    """Bytes that are not HTTP are no response; above all they are not the platform saying 400."""
    for garbage in (
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\xfc\r\n\r\n",
        b'{"status": "created"}\r\n\r\n',
    ):
        await fails(make, once(garbage))


@case
async def broken_chunks_are_no_response(make: MakeTransport) -> None:
    """A chunk whose size is not a number is no response."""
    await fails(make, once(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"))


@case
async def chunks_that_break_on_the_way(make: MakeTransport) -> None:
    """A malformed chunk fails the request at once, although the head and the chunks before it were well-formed."""
    await fails(make, once(CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n", then="wait"))
    await fails(make, once(CHUNKED + b"2\r\n{}\r\n", b"zz\r\n", then="wait"))
    await fails(make, once(CHUNKED + b"2\r\n{}", b"XX0\r\n\r\n", then="wait"))


@case
async def two_lengths_are_no_response(make: MakeTransport) -> None:
    """A response with two different lengths has no end that can be trusted."""
    await fails(make, once(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}"))


@case
async def another_protocol_is_no_response(make: MakeTransport) -> None:
    """A 101 that nobody asked for is no response, and its connection is not kept."""
    await fails(make, once(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"))


@case
async def a_head_without_end_is_not_taken_in(make: MakeTransport) -> None:
    """A head without end is given up, and does not fill the memory."""
    await fails(make, endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"m" * 1000 + b"\r\n"))
    await fails(make, endless(b"HTTP/1.1 200 OK\r\nX-Long: ", b"m" * KIB))


async def limited(transport: Transport, server: FaultServer, most: int) -> SendFailed:
    """Send a request whose response may have *most* bytes, and see it fail for good."""
    request = Request("GET", server.url(), timeout=2.0, max_response=most)
    failed = await failure(transport, request, sent=True)
    expect(failed.permanent, "a second attempt would fail the same way, so it is permanent")
    return failed


@case
async def a_response_may_be_as_large_as_allowed(make: MakeTransport) -> None:
    """A response of exactly ``max_response`` bytes comes back whole."""
    body = b"x" * 300 * KIB
    async with FaultServer(once(http(200, body))) as server, opened(make) as transport:
        response = await send(transport, Request("GET", server.url(), max_response=len(body)))
        expect(response.body == body, f"{len(response.body)} bytes came back")


@case
async def chunks_above_the_limit_are_refused_at_once(make: MakeTransport) -> None:
    """A body in chunks that comes along with its head is held to ``max_response`` as any other."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxxx\r\n0\r\n\r\n"
    async with FaultServer(once(chunked)) as server, opened(make) as transport:
        await limited(transport, server, 2)
        response = await send(transport, Request("GET", server.url(), max_response=3))
        expect(response.body == b"xxx", f"{response.body!r} came back, and 3 bytes were allowed")


@case
async def a_length_above_the_limit_is_refused_at_once(make: MakeTransport) -> None:
    """A response that says it is too large is rejected without waiting for its body."""
    async with FaultServer(once(http(200, b"", length=KIB + 1), then="wait")) as server, opened(make) as transport:
        await limited(transport, server, KIB)
        await server.all_hung_up()


@case
async def a_body_without_end_is_not_taken_in(make: MakeTransport) -> None:
    """A response without a length is given up once it is larger than allowed."""
    piece = b"x" * 64 * KIB
    for head, data in (
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", piece),
        (CHUNKED, b"%x\r\n%b\r\n" % (len(piece), piece)),
    ):
        async with FaultServer(endless(head, data)) as server, opened(make) as transport:
            await limited(transport, server, MIB)
            await server.all_hung_up()


@case
async def nothing_is_unpacked(make: MakeTransport) -> None:
    """A compressed response that was not asked for is rejected, or comes back packed: it never fills the memory."""
    bomb = gzip.compress(bytes(16 * MIB))
    async with FaultServer(once(http(200, bomb, "Content-Encoding: gzip"))) as server, opened(make) as transport:
        request = Request("GET", server.url(), {"Accept-Encoding": "identity"}, timeout=5.0, max_response=MIB)
        await may_fail(transport, request, bomb)


@case
async def packed_and_cut_off_is_no_response(make: MakeTransport) -> None:
    """A compressed response that ends in the middle does not pass for a shorter one."""
    body = gzip.compress(b'{"results": [' + b"1," * 10_000 + b"1]}")[:-40]
    async with FaultServer(once(http(200, body, "Content-Encoding: gzip"))) as server, opened(make) as transport:
        await may_fail(transport, Request("GET", server.url(), {"Accept-Encoding": "identity"}), body)
