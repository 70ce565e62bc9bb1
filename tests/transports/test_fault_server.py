"""The server that the faults come from: it has to be right where transports are wrong."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults import FaultServer, Peer, http


async def test_it_reads_bodies_in_chunks_and_raises_what_a_script_raises() -> None:
    """Transports of others may send chunks; a script that is wrong is heard of in the end."""

    async def script(peer: Peer) -> None:
        assert (await peer.request()).body == b"abcde"
        await peer.write(http())
        raise LookupError("wrong")

    async def talk() -> bytes:
        async with FaultServer(script) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url("").rpartition(":")[2]))
            writer.write(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            await reader.read()
            writer.close()

    with pytest.raises(LookupError, match="wrong"):
        await talk()
