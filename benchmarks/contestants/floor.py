"""The lower bound: an asyncio.Protocol for only this server.

No usable client can cost less. It sends prebuilt bytes and trusts the framing, without timeouts, limits or error
handling.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk.resources.orders import Order

NAME = "floor"
NOTES = "floor: a bare `asyncio.Protocol` with prebuilt heads and the same decoder; not a usable client"

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d+)")


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport
    response: asyncio.Future[bytes]

    def __init__(self) -> None:
        self._received = b""
        self._size = 0
        self._start = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        if not self._size:
            end = received.find(b"\r\n\r\n")
            length = _LENGTH.search(received, 0, end)
            if length is None:
                return
            self._start = end + 4
            self._size = self._start + int(length[1])
        if len(received) >= self._size:
            self._received, self._size = b"", 0
            self.response.set_result(received[self._start :])

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        self.response = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.response


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    address = urlsplit(target.base_url)
    host, port = address.hostname or "", address.port or 0
    loop = asyncio.get_running_loop()
    context = target.context()
    idle: list[_Connection] = []
    fields = f"Host: {address.netloc}\r\nAuthorization: Bearer {payloads.TOKEN}\r\nAccept: application/json\r\n"
    write_head = f"POST /v1/orders HTTP/1.1\r\n{fields}Content-Type: application/json\r\n"

    async def exchange(request: bytes) -> Order:
        if idle:
            connection = idle.pop()
        else:
            _, connection = await loop.create_connection(_Connection, host, port, ssl=context)
        response = await connection.ask(request)
        idle.append(connection)
        return decode(response)

    async def get() -> Order:
        return await exchange(f"GET /v1/orders/{next(ids)} HTTP/1.1\r\n{fields}\r\n".encode())

    async def post() -> Order:
        encoded = encode(body)
        head = f"{write_head}X-Idempotency-Key: {os.urandom(16).hex()}\r\nContent-Length: {len(encoded)}\r\n\r\n"
        return await exchange(head.encode() + encoded)

    try:
        yield Calls(get, post)
    finally:
        for connection in idle:
            connection.transport.abort()
