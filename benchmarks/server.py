"""Runs the server of the benches: one process on a separate core that responds from memory.

It listens only on 127.0.0.1, and understands just enough HTTP/1.1 for the measured clients: a body has a
``Content-Length``. The bench opens the sockets and hands them over, so that a client can connect immediately.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import cast

from msgspec import Struct

from benchmarks import payloads
from benchmarks.harness import cores, on_core

#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_OFFSET = re.compile(r"[?&]offset=(\d+)")
_LIMIT = re.compile(r"[?&]limit=(\d+)")
#: The responses by method and path. A path that ends in a slash matches any id after it.
_RESPONSES = {
    ("GET", "/v1/orders/"): (200, payloads.response("order")),
    ("POST", "/v1/orders"): (201, payloads.response("created_order")),
    ("GET", "/v1/payment_intents/"): (200, payloads.response("payment_intent")),
    ("POST", "/v1/payment_intents"): (200, payloads.response("payment_intent", "pi_3MtwBwLkdIwHu7ix28a3tqPa")),
    ("GET", "/v1/chat/completions/"): (200, payloads.response("chat_completion")),
    ("POST", "/v1/chat/completions"): (
        200,
        payloads.response("chat_completion", "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG"),
    ),
}
_SMALL_ROW = '{{"id":{},"status":"closed","order_status":"paid","total_amount":62.4}}'
#: Takes the method and the target; returns the bytes of the whole response.
Respond = Callable[[str, str], bytes]


class Server(Struct, frozen=True):
    """A running server.

    Attributes:
        plain: The base URL without TLS.
        tls: The base URL with TLS; empty without TLS.
        authority: The file of the certificate authority that clients must trust; empty without TLS.
        pid: The process id of the server.
    """

    plain: str
    tls: str
    authority: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server so far; 0 if the system does not report it."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, ValueError):
            return 0.0


@contextlib.contextmanager
def fixed() -> Iterator[Server]:
    """Run the server of the call benches: fixed responses, plain and TLS."""
    import trustme  # noqa: PLC0415 - only benches with TLS need it

    with tempfile.TemporaryDirectory() as folder:
        authority, certificate = str(Path(folder, "authority.pem")), str(Path(folder, "server.pem"))
        issuer = trustme.CA()
        issuer.cert_pem.write_to_path(authority)
        issuer.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        with _running("--certificate", certificate) as (pid, plain, tls):
            yield Server(f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{tls}", authority, pid)


@contextlib.contextmanager
def pages(*, latency: float, rows: str = "full", total: int) -> Iterator[Server]:
    """Run a server of merchant order pages that responds to each request after *latency* seconds.

    Args:
        latency: The seconds from the last byte of the request to the first byte of the response.
        rows: ``full`` for merchant orders as in real traffic, ``small`` for rows of four members.
        total: The number of rows of the search.
    """
    with _running("--latency", str(latency), "--rows", rows, "--total", str(total)) as (pid, port, _):
        yield Server(f"http://127.0.0.1:{port}", "", "", pid)


@contextlib.contextmanager
def _running(*options: str) -> Iterator[tuple[int, int, int]]:
    """Run the server with *options*; yield its process id, its port and its port with TLS."""
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=1024) for _ in range(2)]
    numbers = [listener.fileno() for listener in listeners]
    with on_core(cores()[1]):  # A child process stays on the core of its parent.
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "benchmarks.server", *map(str, numbers), *options],
            pass_fds=numbers,
            cwd=Path(__file__).parent.parent,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - there are no threads yet
        )
    plain, tls = (listener.getsockname()[1] for listener in listeners)
    # Only the server holds the sockets from now on: if it dies, clients get an error instead of waiting forever.
    for listener in listeners:
        listener.close()
    try:
        yield process.pid, plain, tls
    finally:
        died = process.poll()
        process.terminate()
        process.wait(10)
    if died is not None:
        raise RuntimeError(f"the server ended by itself with {died}")


def _die_with_parent() -> None:
    """Make the kernel end this process when its parent process ends in any way."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_PDEATHSIG, signal.SIGTERM):
        raise OSError(ctypes.get_errno(), "prctl")


# --- in the process of the server -------------------------------------------------------------------------------------


def _whole(status: int, body: bytes) -> bytes:
    """Return a response with a head."""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Length: {len(body)}\r\n"
    more = "Content-Type: application/json\r\nX-Request-Id: 4d2e1c6a9b7f40d8a3c5e7f1b2d4a6c8\r\n\r\n"
    return f"{head}{more}".encode() + body


def _from_memory(method: str, target: str) -> bytes:
    """Respond to a call of the benches."""
    if (method, target) in _WHOLE:
        return _WHOLE[method, target]
    folder, _, asked = target.rpartition("/")
    status, body = _RESPONSES.get((method, folder + "/"), (404, b"{}"))
    return _whole(status, body.replace(payloads.ASKED.encode(), asked.encode()))


_WHOLE = {call: _whole(*status_and_body) for call, status_and_body in _RESPONSES.items()}


def _paged(rows: str, total: int) -> Respond:
    """Respond to a search of *total* merchant orders, page by page. Each row has a different id."""

    def respond(_method: str, target: str) -> bytes:
        offset, limit = _number(_OFFSET, target, 0), min(_number(_LIMIT, target, 100), 100)
        end = min(offset + limit, total)
        if rows == "full":
            return _whole(200, payloads.merchant_orders(end - offset, offset, total))
        elements = ",".join([_SMALL_ROW.format(4_945_357_000 + i) for i in range(offset, end)])
        return _whole(200, f'{{"elements":[{elements}],"next_offset":{end},"total":{total}}}'.encode())

    return respond


def _number(pattern: re.Pattern[str], target: str, default: int) -> int:
    """Return the number that *pattern* finds in *target*."""
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
        """Write the response, unless the connection is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._respond(method, target))


async def _serve(sockets: list[socket.socket], respond: Respond, latency: float, certificate: str) -> None:
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


def _main() -> None:
    """Run the server."""
    line = argparse.ArgumentParser(description="Responses for the benches.")
    line.add_argument("sockets", type=int, nargs=2)
    line.add_argument("--certificate", default="")
    line.add_argument("--latency", type=float, default=0.0)
    line.add_argument("--rows", choices=["full", "small"])
    line.add_argument("--total", type=int, default=0)
    arguments = line.parse_args()
    respond = _paged(arguments.rows, arguments.total) if arguments.rows else _from_memory
    sockets = [socket.socket(fileno=number) for number in arguments.sockets]
    asyncio.run(_serve(sockets, respond, arguments.latency, arguments.certificate))


if __name__ == "__main__":
    _main()
