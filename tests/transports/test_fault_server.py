"""The server that the faults come from: it has to be right where transports are wrong."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults import FaultServer, Peer, always, http


async def talk(server: FaultServer, *data: bytes) -> bytes:
    """Send *data* and return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url().split(":")[2].rstrip("/")))
    try:
        for piece in data:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_it_reads_bodies_of_both_kinds() -> None:
    """A body with a length and one in chunks are both read whole, one request after the other."""
    async with FaultServer(always(http(200, b"ok"))) as server:
        counted = b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        chunked = b"POST /2 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        answers = await talk(server, counted, chunked, b"GET /3 HTTP/1.1\r\n\r\n")

    assert 3 == answers.count(b"HTTP/1.1 200") == answers.count(b"ok")
    assert [("/1", b"abc"), ("/2", b"abcde"), ("/3", b"")] == [
        (request.target, request.body) for request in server.seen
    ]
    assert "x" == server.seen[0].headers["host"]


async def test_a_script_that_is_wrong_is_heard_of() -> None:
    """What a script raises comes out when the server ends."""

    async def script(peer: Peer) -> None:
        raise LookupError("wrong")

    with pytest.raises(LookupError, match="wrong"):
        async with FaultServer(script) as server:
            await talk(server)
