"""aiohttp's connector and parser without its session: like the fast transport, but without its checks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from yarl import URL

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk.resources.orders import Order

NAME = "aiohttp by hand"
NOTES = (
    "aiohttp by hand: its connector and its parser with heads written by hand and the same decoder; no check, no "
    "timeout, no error mapping"
)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    url = URL(target.base_url)
    connector = TCPConnector(limit=0, ssl=target.context() or True)
    place = ClientRequest("GET", url, loop=asyncio.get_running_loop())
    timeout = ClientTimeout()
    fields = f"Host: {url.authority}\r\nAuthorization: Bearer {payloads.TOKEN}\r\nAccept: application/json\r\n"
    write_head = f"POST /v1/orders HTTP/1.1\r\n{fields}Content-Type: application/json\r\n"

    async def exchange(request: bytes) -> Order:
        connection = await connector.connect(place, [], timeout)
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise RuntimeError("no connection")
        protocol.set_response_params(auto_decompress=False)
        protocol.transport.write(request)
        _, content = await protocol.read()
        received = await content.read()
        connection.release()
        return decode(received)

    async def get() -> Order:
        return await exchange(f"GET /v1/orders/{next(ids)} HTTP/1.1\r\n{fields}\r\n".encode())

    async def post() -> Order:
        encoded = encode(body)
        head = f"{write_head}X-Idempotency-Key: {os.urandom(16).hex()}\r\nContent-Length: {len(encoded)}\r\n\r\n"
        return await exchange(head.encode() + encoded)

    try:
        yield Calls(get, post)
    finally:
        await connector.close()
