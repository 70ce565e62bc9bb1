"""`Http11Transport` of version 0.2, before the call became one path: the comparison for the cost of a safe call.

The copy is frozen, so that a faster transport does not make safety look more expensive. It has only what the benches
run: a GET or a POST does the same work as in version 0.2. Chunks, large bodies, waiting for a place, the closing of
idle connections and the mapping of errors are left out, and raise `NotImplementedError` or end the bench.
"""

from __future__ import annotations

import asyncio
import re
import select
import ssl as tls
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache, partial
from math import inf
from typing import NoReturn, cast

from msgspec import Struct, field

from paymentsdk.transports.base import Request, Response, SendFailed, too_long

POOL_SIZE = 500
HOST_BEGINS = len("https://")
READ = 64 * 1024
MAX_HEAD = 64 * 1024
PIECE = 64 * 1024
_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [\t -~\x80-\xff]*+)?\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~\x80-\xff]*+\r\n)*\r\n"
)
_FRAMING = re.compile(rb"\n(connection|content-encoding|content-length|transfer-encoding):([^\r]*)")
_LONGEST_NUMBER = 18
_END = b"\r\n\r\n"
_FINAL = 200
_BODILESS_STATUSES = frozenset({204, 304})
_CONTROLS = bytes({*range(32), 127} - {ord("\t")})
_OWN_FIELDS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BODILESS = frozenset({"GET", "HEAD"})
_ORIGIN = re.compile(r"(https?)://([A-Za-z0-9._~-]+):([0-9]{1,5})")


@lru_cache(maxsize=64)
def _field_start(name: str) -> bytes:
    """Return the bytes before the value of the field *name*."""
    return b"\r\n%b:" % name.lower().encode(errors="replace")


class ResponseHeaders(Mapping[str, str]):
    """Header fields of a response, looked up in the bytes of its head."""

    __slots__ = ("_head", "_lower")

    def __init__(self, head: bytes, lower: bytes) -> None:
        self._head = head
        self._lower = lower

    def __getitem__(self, name: str) -> str:
        start = _field_start(name)
        at = self._lower.find(start)
        if at < 0 or ":" in name:
            raise KeyError(name)
        at += len(start)
        return self._head[at : self._head.find(b"\r\n", at)].strip(b" \t").decode(errors="surrogateescape")

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class ConnectionResponse(Response, frozen=True):
    """A response with its connection."""

    connection: Connection | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection, which carries one request at a time."""

    transport: asyncio.Transport

    def __init__(
        self, buffer: memoryview, release: Callable[[Connection], None], forget: Callable[[Connection], None]
    ) -> None:
        self.generation = 0
        self._buffer = buffer
        self._release = release
        self._forget = forget
        self._closed = False
        self._reused = False
        self._head = self._partial = b""
        self._waiting: asyncio.Future[Response] | None = None
        self._readable: Callable[[int], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the poll of the socket."""
        self.transport = cast(asyncio.Transport, transport)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._readable = poll.poll

    def is_usable(self, *, unread: bool = False) -> bool:
        """Return whether a request may be sent: the connection is open, and nothing has arrived."""
        readable = self._readable
        return not (self._closed or readable is None or self.transport.is_closing() or (not unread and readable(0)))

    def close(self) -> None:
        """Close the connection after what was written."""
        self._let_go()
        if self._readable is not None:
            self.transport.close()

    def abort(self, error: SendFailed | None = None) -> None:
        """Close the connection now, and fail its request with *error*."""
        waiting, self._waiting = self._waiting, None
        self._let_go()
        if self._readable is not None:
            self.transport.abort()
        if error is not None and waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def _let_go(self) -> None:
        """Leave the pool, once."""
        if not self._closed:
            self._closed = True
            self._forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for its response, if any."""
        self.abort(SendFailed(f"the connection was closed: {exc}"))

    def send(self, request: Request, message: memoryview, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Response]:
        """Write *message*, the bytes of *request*; return the future of its response."""
        self._without_body = request.method == "HEAD"
        self._most = request.max_response
        self._keep = not request.fresh
        self._large = len(request.body) > PIECE
        self._head = self._partial = b""
        self._size: int = -1
        self._received = 0
        self._body: list[bytes] = []
        self._chunks: None = None
        self._waiting = waiting = loop.create_future()
        self.transport.write(message)
        return waiting

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer of the pool."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read a part of the response."""
        if self._waiting is None:
            self.abort()
            return
        data = bytes(self._buffer[:nbytes])
        try:
            part = data if self._head else self._read_head(data)
            is_whole = part is not None and (self._read_body(part) if self._chunks is None else False)
        except SendFailed as error:
            self.abort(error.with_traceback(None))
        else:
            if is_whole:
                self._finish()

    def _read_head(self, data: bytes) -> bytes | None:
        """Read heads up to the final one; return the bytes after it, or `None` if it is not complete."""
        unread = 0
        if self._partial:
            unread = max(0, len(self._partial) - len(_END))
            data = self._partial + data
        while (end := data.find(_END, unread)) >= 0:
            end += len(_END)
            unread = 0
            head = data[:end]
            match = _HEAD.fullmatch(head)
            if match is None:
                _refuse("its head is malformed")
            self._received += end
            if self._received > MAX_HEAD:
                _refuse("its head is too large")
            version, status = match.groups()
            self._status = int(status)
            data = data[end:]
            if self._status >= _FINAL:
                if version == b"0":
                    self._keep = False
                self._received, self._partial = 0, b""
                self._read_framing(head)
                return data
        self._partial = data
        return None

    def _read_framing(self, head: bytes) -> None:
        """Read from *head* where the response ends."""
        self._head, self._lower = head, head.lower()
        fields: dict[bytes, bytes] = {}
        for name, value in _FRAMING.findall(self._lower):
            if name == b"connection":
                self._keep = self._keep and b"close" not in value
            elif name in fields:
                _refuse(f"it has two fields {name.decode()}")
            else:
                fields[name] = value.strip(b" \t")
        length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
        if coding is not None and (coding != b"chunked" or length is not None):
            _refuse("its length is ambiguous")
        if length is not None and not (length.isdigit() and len(length) <= _LONGEST_NUMBER):
            _refuse("its length is not a number")
        if fields.get(b"content-encoding", b"") not in {b"identity", b""}:
            raise SendFailed("the response is compressed, which was not asked for", permanent=True)
        if self._without_body or self._status in _BODILESS_STATUSES or coding is not None:
            raise NotImplementedError
        if length is not None:
            self._size = int(length)
            if self._size > self._most:
                raise too_long(self._most)

    def _read_body(self, data: bytes) -> bool:
        """Take in a part of a body; return whether it is complete."""
        self._body.append(data)
        self._received += len(data)
        if self._size < 0 and self._received > self._most:
            raise too_long(self._most)
        return self._received >= self._size >= 0

    def _finish(self) -> None:
        """Pass on the response, and then return the connection to the pool, unless it must be closed."""
        waiting, self._waiting = self._waiting, None
        keep = self._keep and not self._has_surplus()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._received > self._size >= 0:
            body = body[: self._size]
        self._body.clear()
        if waiting is not None and not waiting.done():
            headers = ResponseHeaders(self._head, self._lower)
            waiting.set_result(ConnectionResponse(self._status, headers, body, self._reused, self))
        self._reused = True
        if self._large or self.transport.get_write_buffer_size():
            self.abort()
        elif keep:
            self._release(self)
        else:
            self.close()

    def _has_surplus(self) -> bool:
        """Return whether more bytes have arrived than the response has."""
        if self._chunks is None:
            return self._received > self._size
        raise NotImplementedError


def _refuse(why: str) -> NoReturn:
    """Reject the response."""
    raise SendFailed(f"the response is not valid HTTP: {why}")


class Server(Struct, eq=False):
    """A server with its connections."""

    host: str
    port: int
    host_field: str
    secure: bool
    open: int = 0
    idle: deque[Connection] = field(default_factory=deque)


class ConnectionPool:
    """The connections of a transport, and a place for each request."""

    def __init__(self, limit: int, limit_per_host: int, *, ssl: tls.SSLContext | None) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.usable_on: asyncio.AbstractEventLoop | None = self.loop
        self.closed: bool = False
        self.connections: set[Connection] = set()
        self.limit: float = limit or inf
        self.limit_per_host: float = limit_per_host or inf
        self.counts_hosts: bool = limit_per_host > 0
        self._taken = 0
        self._taken_of: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, object] = {}
        self._keepalive_timeout = 15.0
        self._ssl = ssl
        self._buffer = memoryview(bytearray(READ))
        self.servers: dict[str, Server] = {}
        self._tick = 0
        self._sweeper: asyncio.TimerHandle | None = None

    def enter(self, host: Hashable) -> bool:
        """Take a place for a request to *host*, if there is one."""
        if self._taken >= self.limit:
            return False
        if self.counts_hosts:
            if self._taken_of[host] >= self.limit_per_host:
                return False
            self._taken_of[host] += 1
        self._taken += 1
        return True

    def leave(self, host: Hashable) -> None:
        """Return a place."""
        self._taken -= 1
        if self.counts_hosts:
            self._taken_of[host] -= 1
        while self._waiting:
            raise NotImplementedError
        if self.usable_on is None and not self._taken:
            raise NotImplementedError

    def take(self, server: Server) -> Connection | None:
        """Return the idle connection that was used last, if nothing has arrived on it since."""
        while server.idle:
            connection = server.idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    async def connect(self, server: Server, within: float | None) -> Connection:
        """Open a connection in at most *within* seconds."""
        connection = Connection(self._buffer, partial(self._release, server), partial(self._forget, server))
        self.connections.add(connection)
        server.open += 1
        async with asyncio.timeout(within):
            await self.loop.create_connection(
                lambda: connection, server.host, server.port, ssl=self._ssl if server.secure else None
            )
        return connection

    def _release(self, server: Server, connection: Connection) -> None:
        """Keep the *connection* to a *server*, whose request is done."""
        if not self._keepalive_timeout or self.closed:
            connection.close()
            return
        connection.generation = self._tick
        server.idle.append(connection)
        if self._sweeper is None:
            self.sweep()

    def sweep(self) -> None:
        """Close nothing. As in version 0.2, the event loop always has a timer while connections are idle."""
        self._tick += 1
        self._sweeper = self.loop.call_later(self._keepalive_timeout / 2, self.sweep)

    def abort(self) -> None:
        """Close all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.abort()

    def _forget(self, server: Server, connection: Connection) -> None:
        """Remove the closed *connection* to a *server*."""
        self.connections.discard(connection)
        server.open -= 1


class Http11Transport:
    """Sends requests over its own connections."""

    def __init__(self, *, ssl: tls.SSLContext | None = None) -> None:
        self._ssl = ssl
        self._pool: ConnectionPool | None = None
        self._checked_names: tuple[str, ...] = ()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.abort()

    async def send(self, request: Request) -> Response:
        """See `paymentsdk.Transport`."""
        loop, pool = asyncio.get_running_loop(), self._pool
        if pool is None or pool.usable_on is not loop:
            pool = self._pool = ConnectionPool(POOL_SIZE, 0, ssl=self._ssl)
        url = request.url
        end = url.find("/", HOST_BEGINS)
        if end < 0 or "#" in url:
            raise NotImplementedError
        server = pool.servers.get(url[:end])
        if server is None:
            server = pool.servers[url[:end]] = _parse(url[:end])
        message = self._serialize(request, url[end:], server.host_field)
        if message is None:
            raise SendFailed("the request cannot be written", sent=False, permanent=True)
        within = request.connect_timeout
        if not pool.enter(server):
            raise NotImplementedError
        try:
            connection = None if request.fresh else pool.take(server)
            if connection is None:
                connection = await pool.connect(server, within)
            response = connection.send(request, message, loop)
            try:
                if len(request.body) > PIECE:
                    raise NotImplementedError
                return await response
            except asyncio.CancelledError:
                connection.abort()
                raise
        finally:
            pool.leave(server)

    def _serialize(self, request: Request, target: str, host: str) -> memoryview | None:
        """Return the bytes of *request*; `None` if they would not be HTTP."""
        names = tuple(request.headers)
        if names != self._checked_names:
            if not all(map(_NAME.fullmatch, names)) or not _OWN_FIELDS.isdisjoint(map(str.lower, names)):
                return None
            self._checked_names = names
        body = request.body
        line = f"{request.method} {target}"
        lines = [f"{line} HTTP/1.1", f"Host: {host}", *map(": ".join, request.headers.items())]
        if request.fresh:
            lines.append("Connection: close")
        if body or request.method not in _BODILESS:
            lines.append(f"Content-Length: {len(body)}")
        lines += ("", "")
        try:
            head = "\r\n".join(lines).encode()
        except UnicodeEncodeError:
            return None
        breaks = 2 * (len(lines) - 1)
        if len(head) - len(head.translate(None, _CONTROLS)) != breaks or line.count(" ") > 1 or "\t" in line:
            return None
        return memoryview(head if len(body) > PIECE else head + body)


def _parse(origin: str) -> Server:
    """Return the server of *origin*."""
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        raise NotImplementedError
    scheme, host, port = match.groups()
    return Server(host, int(port), f"{host}:{port}", secure=scheme == "https")
