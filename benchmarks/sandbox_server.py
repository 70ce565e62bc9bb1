"""Runs a sandbox or a plain aiohttp handler in a separate process, and sends requests over raw sockets.

The client writes and reads bytes, so it costs far less than the server. The cost is the CPU time of the server's
process. The plain handler returns the same bytes as a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

from aiohttp import web

from benchmarks.harness import cores, on_core
from paymentsdk import OPERATIONS
from paymentsdk.sandbox import Sandbox

_BODY = json.dumps(OPERATIONS["orders.create"].example).encode()
_HEADERS = "Host: 127.0.0.1\r\nAccept: application/json\r\nUser-Agent: load\r\nAuthorization: Bearer {}\r\n"
_numbers = count()


class Answers(NamedTuple):
    """The responses to a GET and to a create."""

    get: str
    create: str


class Load:
    """Requests to one server.

    Args:
        process: The process of the server.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._pid = process.pid
        self.process = process
        if process.stdout is None:
            raise RuntimeError("the server says nothing")
        self._port, token = json.loads(process.stdout.readline())
        self._headers = _HEADERS.format(token)
        self._order = "ORD0"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def answers(self) -> Answers:
        """Create the order for all GETs; return the responses to the create and to a GET."""
        with self._connect() as connection:
            created = _exchange(connection, self._request("create"))
            self._order = json.loads(created)["id"]
            return Answers(_exchange(connection, self._request("GET")).decode(), created.decode())

    def per_request(self, kind: str, number: int, in_flight: int) -> Mapping[str, float]:
        """Return the mean milliseconds per request of the clock and of the server's CPU, over *number* requests."""
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            for _ in range(in_flight):
                connection = stack.enter_context(self._connect())
                _exchange(connection, self._request("GET"))
                selector.register(connection, selectors.EVENT_READ)
            requests = iter([self._request(kind) for _ in range(number)])
            started, used = time.perf_counter(), self._cpu()
            for key in selector.get_map().values():
                _send(key.fileobj, requests)
            for _ in range(number):
                [(key, _), *_others] = selector.select(30)
                _receive(key.fileobj)
                _send(key.fileobj, requests)
            wall, cpu = time.perf_counter() - started, self._cpu() - used
        return {"wall_ms": wall / number * 1e3, "cpu_ms": cpu / number * 1e3}

    def _connect(self) -> socket.socket:
        """Open a connection to the server."""
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _request(self, kind: str) -> bytes:
        """Return the bytes of a request."""
        if kind == "GET":
            return f"GET /v1/orders/{self._order} HTTP/1.1\r\n{self._headers}\r\n".encode()
        key = f"X-Idempotency-Key: load-{next(_numbers)}\r\nContent-Type: application/json\r\n"
        return f"POST /v1/orders HTTP/1.1\r\n{self._headers}{key}Content-Length: {len(_BODY)}\r\n\r\n".encode() + _BODY

    def _cpu(self) -> float:
        """Return the CPU seconds of the server so far."""
        threads = Path(f"/proc/{self._pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _send(connection: object, requests: Iterator[bytes]) -> None:
    """Send the next request, if there is one."""
    if isinstance(connection, socket.socket) and (request := next(requests, None)):
        connection.sendall(request)


def _receive(connection: object) -> bytes:
    """Return the body of the next response."""
    if not isinstance(connection, socket.socket):
        raise TypeError(connection)
    received = b""
    while part := connection.recv(65_536):
        received += part
        head, separator, body = received.partition(b"\r\n\r\n")
        if separator and len(body) == int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
                raise RuntimeError(received.decode())
            return body
    raise RuntimeError("the server has closed the connection")


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send *request*, and return the body of its response."""
    connection.sendall(request)
    return _receive(connection)


def running(answers: Answers | None = None) -> Load:
    """Start a sandbox, or a plain aiohttp handler that returns *answers*."""
    with on_core(cores()[1]):
        command = [sys.executable, "-m", "benchmarks.sandbox_server", *(answers or ())]
        root = Path(__file__).parent.parent
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root)  # noqa: S603 - ours
    return Load(process)


async def _sandbox() -> None:
    """Serve a sandbox, and print its port and token."""
    async with Sandbox() as sandbox:
        print(json.dumps([int(sandbox.base_url.rpartition(":")[2]), sandbox.access_token]), flush=True)
        await asyncio.Event().wait()


async def _plain(*answers: str) -> None:
    """Serve a handler that returns *answers*, and print its port and a token."""
    get, create = (answer.encode() for answer in answers)

    async def on_get(_: web.Request) -> web.Response:
        return web.Response(body=get, content_type="application/json")

    async def on_create(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=201, body=create, content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/orders/{order_id}", on_get)
    app.router.add_post("/v1/orders", on_create)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps([runner.addresses[0][1], "token"]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_plain(*sys.argv[1:]) if sys.argv[1:] else _sandbox())
