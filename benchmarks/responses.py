"""A small asyncio server for the benches: fixed responses on machines without nginx, and pages with latency.

:mod:`benchmarks.server` starts it with listening sockets. It understands just enough HTTP/1.1 for the measured clients:
a body has a ``Content-Length``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from benchmarks import payloads
from benchmarks.server import FixedResponse, fixed_responses

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_OFFSET = re.compile(r"[?&]offset=(\d+)")
_LIMIT = re.compile(r"[?&]limit=(\d+)")
_FIRST_ID = 4_945_357_000

#: Takes the method and the target; returns the bytes of the whole response.
Respond = Callable[[str, str], bytes]


def whole(status: int, body: bytes) -> bytes:
    """Return a response with a head."""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Length: {len(body)}\r\n"
    return (
        f"{head}Content-Type: application/json\r\nX-Request-Id: 4d2e1c6a9b7f40d8a3c5e7f1b2d4a6c8\r\n\r\n".encode()
        + body
    )


def fixed() -> Respond:
    """Respond to every call of the benches from memory."""
    exact: dict[tuple[str, str], bytes] = {}
    with_id: dict[tuple[str, str], FixedResponse] = {}
    for response in fixed_responses():
        if response.path.endswith("/"):
            with_id[response.method, response.path] = response
        else:
            exact[response.method, response.path] = whole(response.status, response.body)

    def respond(method: str, target: str) -> bytes:
        if (method, target) in exact:
            return exact[method, target]
        folder, _, order_id = target.rpartition("/")
        answer = with_id.get((method, folder + "/"))
        if answer is None:
            return whole(404, b"{}")
        return whole(answer.status, answer.body.replace(payloads.ASKED.encode(), order_id.encode()))

    return respond


def paged(rows: str, total: int) -> Respond:
    """Respond to a search of *total* merchant orders, page by page. Each row has a different id."""
    sample = payloads.merchant_orders(1).decode() if rows == "full" else ""
    row = json.dumps(json.loads(sample)["elements"][0], separators=(",", ":")) if sample else _SMALL_ROW
    before, after = row.split(str(_FIRST_ID), 1)

    def respond(_method: str, target: str) -> bytes:
        offset, limit = _number(_OFFSET, target, 0), min(_number(_LIMIT, target, 100), 100)
        end = min(offset + limit, total)
        elements = ",".join([f"{before}{_FIRST_ID + i}{after}" for i in range(offset, end)])
        return whole(200, f'{{"elements":[{elements}],"next_offset":{end},"total":{total}}}'.encode())

    return respond


_SMALL_ROW = f'{{"id":{_FIRST_ID},"status":"closed","order_status":"paid","total_amount":62.4}}'


def _number(pattern: re.Pattern[str], target: str, default: int) -> int:
    match = pattern.search(target)
    return int(match[1]) if match else default


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, respond: Respond, latency: float) -> None:
        self._respond = respond
        self._latency = latency
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Respond to every complete request."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            length = _LENGTH.search(head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < size:
                return
            self._received = self._received[size:]
            method, target, _ = head.partition(b"\r\n")[0].decode().split(" ")
            if self._latency:
                asyncio.get_running_loop().call_later(self._latency, self._write_response, method, target)
            else:
                self._write_response(method, target)

    def _write_response(self, method: str, target: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._respond(method, target))


async def serve(sockets: list[socket.socket], respond: Respond, latency: float, certificate: str) -> None:
    """Respond on *sockets* until the process ends; with a *certificate*, the last socket uses TLS."""
    context = None
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    for listener in sockets:
        secure = context if listener is sockets[-1] else None
        await loop.create_server(lambda: Connection(respond, latency), sock=listener, ssl=secure)
    await loop.create_future()


def main() -> None:
    """Run the server."""
    line = argparse.ArgumentParser(description="Responses for the benches.")
    line.add_argument("--sockets", type=int, nargs="+", required=True)
    line.add_argument("--certificate", default="")
    line.add_argument("--latency", type=float, default=0.0)
    line.add_argument("--rows", choices=["full", "small"], default=None)
    line.add_argument("--total", type=int, default=0)
    arguments = line.parse_args()
    respond = paged(arguments.rows, arguments.total) if arguments.rows else fixed()
    sockets = [socket.socket(fileno=number) for number in arguments.sockets]
    asyncio.run(serve(sockets, respond, arguments.latency, arguments.certificate))


if __name__ == "__main__":
    main()
