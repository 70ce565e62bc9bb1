"""A raw TCP server on 127.0.0.1 that misbehaves as a script says.

A script plays one connection: it reads requests, writes any bytes, and hangs up when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from ssl import SSLContext
from typing import Self, TypeAlias

from msgspec import Struct

#: The longest head that a script reads, far more than any client sends.
_LONGEST_HEAD = 2**20
#: A cancelled task needs one turn of the loop to end, and one for each task that it awaits.
_TURNS = 20


class Seen(Struct, frozen=True):
    """A request as it arrived."""

    method: str
    target: str
    """The path and the query, byte for byte."""
    headers: Mapping[str, str]
    """The header fields, under lower-case names."""
    body: bytes
    connection: int
    """The number of the connection, counted from 0."""


class Peer:
    """The server's end of one connection."""

    def __init__(self, server: FaultServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = len(server.peers)
        """The number of the connection, counted from 0."""
        self._server = server
        self._reader = reader
        self._writer = writer

    async def request(self) -> Seen | None:
        """Read the next request; return ``None`` if the client has hung up."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
            method, target, _ = first.split(" ")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            chunked = fields.get("transfer-encoding") == "chunked"
            body = await (self._chunks() if chunked else self.part(int(fields.get("content-length", "0"))))
        except asyncio.IncompleteReadError:
            return None
        request = Seen(method, target, fields, body, self.number)
        self._server.seen.append(request)
        self._server.arrived.set()
        return request

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return body

    async def part(self, size: int) -> bytes:
        """Read the next *size* bytes."""
        return await self._reader.readexactly(size)

    async def requests(self) -> AsyncIterator[Seen]:
        """Read one request after the other until the client hangs up."""
        while (request := await self.request()) is not None:
            yield request

    async def write(self, data: bytes) -> None:
        """Send *data*; it is in the system's buffers when this returns."""
        if self._writer.is_closing():
            raise ConnectionResetError  # uvloop would raise a RuntimeError.
        self._writer.write(data)
        await self._writer.drain()

    def socket(self) -> socket.socket:
        """Return a copy of the socket, which bypasses the event loop; the caller closes it."""
        return socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno()))

    def reset(self) -> None:
        """Break the connection: the client gets a reset, not an end."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()

    async def hung_up(self) -> None:
        """Return once the client has closed its end in any way."""
        while await self._reader.read(_LONGEST_HEAD):
            pass

    async def close(self) -> None:
        """Close the connection once all data is written."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Close the connection now."""
        with contextlib.suppress(AttributeError):  # Python 3.11.2 raises it over TLS after the second `close`.
            self._writer.transport.abort()


#: Plays one connection.
Script: TypeAlias = Callable[[Peer], Awaitable[None]]


class FaultServer:
    """Listens on a free port of 127.0.0.1 inside its context. The end of the context raises the errors of scripts.

    Args:
        script: Played for each connection.
        tls: Speak TLS.
    """

    def __init__(self, script: Script, *, tls: SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        """All requests that arrived completely, in order."""
        self.arrived = asyncio.Event()
        """Set once a request has arrived completely."""
        self.peers: list[Peer] = []
        """The server's ends of all connections, in order."""
        self._script = script
        self._tls = tls
        self._playing: set[asyncio.Task[None]] = set()
        self._broken: Exception | None = None

    @property
    def opened(self) -> int:
        """The number of connections so far."""
        return len(self.peers)

    def url(self, target: str = "/", *, host: str = "127.0.0.1") -> str:
        """Return the URL of *target* on this server."""
        port = self._server.sockets[0].getsockname()[1]
        return f"{'https' if self._tls else 'http'}://{host}:{port}{target}"

    async def all_hung_up(self) -> None:
        """Return once every connection has ended."""
        while self._playing:
            await asyncio.wait(self._playing)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected,
            "127.0.0.1",
            0,
            limit=_LONGEST_HEAD,
            backlog=256,
            ssl=self._tls,
            # A client that does not end TLS properly must not delay the end of a test.
            ssl_shutdown_timeout=None if self._tls is None else 0.1,
        )
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        self._server.close()
        for task in self._playing:
            task.cancel()
        await self.all_hung_up()
        await self._server.wait_closed()
        if self._broken is not None and error is None:
            raise self._broken

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(peer := Peer(self, reader, writer))
        task = asyncio.get_running_loop().create_task(self._play(peer))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)

    async def _play(self, peer: Peer) -> None:
        try:
            with contextlib.suppress(OSError):  # The client has broken the connection, which many scripts wait for.
                await self._script(peer)
            await peer.close()
        except Exception as error:  # noqa: BLE001 - the end of the context raises it
            self._broken = error
        finally:
            peer.abort()


def http(status: int = 200, body: bytes = b"{}", *fields: str, length: int | None = None) -> bytes:
    """Return a response with a ``Content-Length``: the length of *body*, or a false *length*."""
    lines = [f"HTTP/1.1 {status} Some Reason", *fields, f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


#: A step of a script: bytes to write, seconds to sleep, or a function of its end of the connection.
Step: TypeAlias = bytes | float | Callable[[Peer], Awaitable[object] | None]


def play(*steps: Step) -> Script:
    """Return a script that does *steps*; between two steps, the client gets the written bytes."""

    async def script(peer: Peer) -> None:
        for number, step in enumerate(steps):
            if number:
                await turns()
            if isinstance(step, bytes):
                await peer.write(step)
            elif isinstance(step, int | float):
                await asyncio.sleep(step)
            elif (doing := step(peer)) is not None:
                await doing

    return script


def once(*steps: Step) -> Script:
    """Return a script that reads one request, does *steps*, and closes the connection."""
    return play(Peer.request, *steps)


def forever(piece: bytes) -> Step:
    """Return a step that writes *piece* until the client hangs up."""

    async def step(peer: Peer) -> None:
        while True:
            await peer.write(piece)
            await turns()

    return step


def replies(responses: Mapping[str, Sequence[Step]], otherwise: Sequence[Step] = ()) -> Script:
    """Return a script that does the steps of each request's target, or *otherwise*, or responds with the target."""

    async def script(peer: Peer) -> None:
        async for request in peer.requests():
            await play(*responses.get(request.target, otherwise) or [http(200, request.target.encode())])(peer)

    return script


#: Responds to every request with its target.
echo = replies({})


def always(*steps: Step) -> Script:
    """Return a script that does *steps* for every request."""
    return replies({}, steps)


async def turns() -> None:
    """Let all tasks run that are ready."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@contextlib.contextmanager
def refused_port() -> Iterator[int]:
    """Reserve a port on which every connection is refused."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield silent.getsockname()[1]


@contextlib.contextmanager
def unanswered_port() -> Iterator[int]:
    """Reserve a port on which no connection is ever made: its queue of connections to accept is full."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.0)
            waiting.connect_ex(full.getsockname())
        yield full.getsockname()[1]
