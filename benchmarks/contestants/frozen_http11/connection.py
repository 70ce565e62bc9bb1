"""One connection: writes a request, and reads its response.

The head has to match the grammar of RFC 9112 in full, without what the RFC only tolerates, so that no two parsers can
read it differently. Chunks are read by httptools (llhttp).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NoReturn, cast

from benchmarks.contestants.frozen_http11.pool import unread_on, words_of_system
from paymentsdk._headers import Headers
from paymentsdk.errors import install_extra
from paymentsdk.transports.base import Request, Response, SendFailed, too_long

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{_error.msg}: {install_extra('fast')}", name=_error.name) from None

#: The most bytes of a head, with the interim responses before it.
MAX_HEAD = 64 * 1024
#: Bodies above this are written piece by piece, as the socket takes them.
PIECE = 64 * 1024
#: RFC 9112, 2 to 5: a status line, and fields with a name, a colon right behind it, and a value on one line. Nothing
#: that was matched is looked at again (`*+`).
_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [\t -~\x80-\xff]*+)?\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~\x80-\xff]*+\r\n)*\r\n"
)
#: The fields that say where a response ends, and whether another may follow, in a head in lower case.
_FRAMING = re.compile(rb"\n(connection|content-encoding|content-length|transfer-encoding):([^\r]*)")
#: What a head may begin with: other bytes are rejected without waiting for the end of a line that may never come.
_BEGINNING = b"HTTP/1."
#: The end of a line that is not the end of one.
_BARE_LF = re.compile(rb"(?<!\r)\n")
#: More digits are no length, and `int` would take its time with them.
_LONGEST_NUMBER = 18
#: How a head ends, and a body in chunks.
_END = b"\r\n\r\n"
#: How such a body ends with another line break after it, which httptools passes over.
_END_AND_MORE = b"\r\n\r\n\r\n"
#: A response in chunks may have so many bytes of framing besides, for sizes of chunks and a trailer,
_MOST_FRAMING = 128 * 1024
#: and so many more for each byte of its body.
_FRAMING_PER_BYTE = 8
#: Statuses below are interim: another head follows.
_FINAL = 200
_SWITCHING = 101
_NO_CONTENT = 204
#: Responses with these statuses have no body: that, and 304.
_BODILESS = frozenset({_NO_CONTENT, 304})


@lru_cache(maxsize=64)
def _field_start(name: str) -> bytes:
    return b"\r\n%b:" % name.lower().encode(errors="replace")


class ResponseHeaders(Mapping[str, str]):
    """Header fields of a response, looked up in the bytes of its head, under any spelling of their names.

    Of a field that came more than once, the first counts. Bytes that are not UTF-8 are surrogates in the value.
    """

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
        names = [line.partition(b":")[0].decode("latin-1") for line in self._head.split(b"\r\n")[1:-2]]
        return iter({name.lower(): name for name in names}.values())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(Headers(self))


class Chunks:
    """What httptools finds in a response in chunks."""

    __slots__ = ("body", "is_whole", "messages", "size")

    def __init__(self, body: list[bytes]) -> None:
        self.body = body
        self.size = 0
        self.is_whole = False
        self.messages = 0

    def on_message_begin(self) -> None:
        """Count the responses in what was read: a second one is surplus."""
        self.messages += 1

    def on_body(self, data: bytes) -> None:
        """Take in a part of the body."""
        if not self.is_whole:
            self.body.append(data)
            self.size += len(data)

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        self.is_whole = True


class ConnectionResponse(Response, frozen=True):
    """A response that knows which connection it came over."""

    connection: Connection | None = None


class Connection(asyncio.BufferedProtocol):
    """One connection, which carries one request at a time.

    Args:
        buffer: What is read goes here first.
        release: Called when a request is done and another may follow.
        forget: Called when it is closed.
    """

    transport: asyncio.Transport

    def __init__(
        self, buffer: memoryview, release: Callable[[Connection], None], forget: Callable[[Connection], None]
    ) -> None:
        #: The tick of the pool's sweeper at which it became idle.
        self.generation = 0
        self._buffer = buffer
        self._release = release
        self._forget = forget
        self._closed = False
        self._reused = False
        self._head = self._partial = b""
        #: Set while the socket takes no more of a large body.
        self._drained: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self._readable: Callable[[int], object] | None = None

    # --- its life ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn how to write, and how to see what has arrived and not been read."""
        self.transport = cast(asyncio.Transport, transport)
        self._readable = unread_on(transport.get_extra_info("socket"))

    def is_usable(self, *, unread: bool = False) -> bool:
        """Whether a request may go out: nobody has closed the connection, and nothing unsolicited has arrived.

        What the event loop has not read yet the system knows of: it would pass for the response to the next request.
        Only the beginning of a TLS record, which asyncio has read and nobody can decrypt, nothing public shows.
        With *unread*, there may be something.
        """
        readable = self._readable
        return not (self._closed or readable is None or self.transport.is_closing() or (not unread and readable(0)))

    def discard(self) -> None:
        """Start no further request on it. One that has started fails: the next response would be taken for its own."""
        if self._waiting is None:
            self.close()
        else:
            self.abort(SendFailed("the connection delivered the response to another request"))

    def close(self) -> None:
        """Close it, and let what was written go out."""
        self._let_go()
        if self._readable is not None:
            self.transport.close()

    def abort(self, error: SendFailed | None = None) -> None:
        """Close it now, with *error* as the outcome of its request. Without one, nobody waits for that any more."""
        waiting, self._waiting = self._waiting, None
        self._let_go()
        if self._readable is not None:
            self.transport.abort()
        if error is not None and waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def cancel(self, waiting: asyncio.Future[Response]) -> None:
        """Close it if the response that *waiting* stands for has not come."""
        if self._waiting is waiting:
            self.abort()
        elif waiting.done() and not waiting.cancelled():
            waiting.exception()  # Seen: or asyncio would log that nobody has.

    def _let_go(self) -> None:
        """Give its place back, once."""
        self.resume_writing()
        if not self._closed:
            self._closed = True
            self._forget(self)

    def eof_received(self) -> None:
        """Note that the server sends no more; this ends a body that has neither a length nor chunks."""
        if self._waiting is not None and self._head and self._size < 0 and self._chunks is None:
            self._keep = False
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for its response, if any."""
        if exc is not None:
            reason = f"the connection broke{words_of_system(exc)}"
        elif self._head or self._partial:
            reason = "the server closed the connection within its response"
        else:
            reason = "the server closed the connection without a response"
        self.abort(SendFailed(reason))

    # --- the request ---------------------------------------------------------------------------------------------

    def send(self, request: Request, message: memoryview, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Response]:
        """Write *message*, the bytes of *request*; return what the response will be set on."""
        self._without_body = request.method == "HEAD"
        self._most = request.max_response
        self._keep = not request.fresh
        self._large = len(request.body) > PIECE
        self._head = self._partial = b""
        #: The bytes that the body has; -1 if the head does not say.
        self._size: int = -1
        #: The bytes of the heads, and then of the body.
        self._received = 0
        self._body: list[bytes] = []
        self._chunks: Chunks | None = None
        self._waiting = waiting = loop.create_future()
        self.transport.write(message)
        return waiting

    async def send_large(self, request: Request) -> None:
        """Write the body of *request* as the socket takes it; stop when there is a response or the connection ends."""
        body = memoryview(request.body)
        for start in range(0, len(body), PIECE):
            self.transport.write(body[start : start + PIECE])
            # That the connection has broken is told in the next turn of the event loop.
            await (self._drained or asyncio.sleep(0))
            if self._waiting is None:
                return

    def pause_writing(self) -> None:
        """Hold a large body back until the socket has taken what was written."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let a large body go on."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    # --- the response --------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the buffer of the pool, of any size: what was read is taken out before another connection reads."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read a part of the response."""
        if self._waiting is None:
            self.abort()  # Nobody has asked for it, and what comes after it would be shifted.
            return
        data = bytes(self._buffer[:nbytes])
        try:
            part = data if self._head else self._read_head(data)
            is_whole = part is not None and (
                self._read_body(part) if self._chunks is None else self._read_chunks(self._chunks, part)
            )
        except SendFailed as error:
            self.abort(error.with_traceback(None))
        else:
            if is_whole:
                self._finish()

    def _read_head(self, data: bytes) -> bytes | None:
        """Read heads up to the final one; return what follows that, or `None` as long as it is not complete."""
        unread = 0  # Up to there no head ends: one that comes byte by byte is searched once.
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
            # One bound for all heads: interim ones without end are none better.
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
            if self._status == _SWITCHING:
                raise SendFailed("the server switched to another protocol", permanent=True)
        if data[: len(_BEGINNING)] != _BEGINNING[: len(data)] or _BARE_LF.search(data, unread):
            _refuse("its head is malformed")
        if self._received + len(data) > MAX_HEAD:
            _refuse("its head is too large")
        self._partial = data
        return None

    def _read_framing(self, head: bytes) -> None:
        """Find out from the *head* where the response ends."""
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
        if self._without_body or self._status in _BODILESS:
            # HEAD and 304 have the length of what they are about; a 204 with one may be followed by anything.
            self._keep = self._keep and (self._status != _NO_CONTENT or (coding is None and length in {None, b"0"}))
            self._size = 0
        elif coding is not None:
            self._chunks = Chunks(self._body)
            self._parse = HttpResponseParser(self._chunks).feed_data
            self._tail = b""
            self._received = -len(head)
            self._read_chunks(self._chunks, head)
        elif length is not None:
            self._size = int(length)
            if self._size > self._most:
                raise too_long(self._most)

    def _read_body(self, data: bytes) -> bool:
        """Take in a part of a body that has a length, or ends with its connection; return whether it is whole."""
        self._body.append(data)
        self._received += len(data)
        if self._size < 0 and self._received > self._most:
            raise too_long(self._most)
        return self._received >= self._size >= 0

    def _read_chunks(self, chunks: Chunks, data: bytes) -> bool:
        """Take in a part of a response in chunks; return whether it is whole."""
        self._received += len(data)
        self._tail = (self._tail + data)[-len(_END_AND_MORE) :]
        is_malformed = False
        try:
            self._parse(data)
        except (HttpParserError, HttpParserUpgrade):
            is_malformed = not chunks.is_whole  # After its end it is the surplus that is malformed.
        if is_malformed:
            # Outside the handler: the error of httptools has the response in its frames.
            _refuse("its chunks are malformed")
        if chunks.size > self._most:
            raise too_long(self._most)
        if self._received - chunks.size > _MOST_FRAMING + _FRAMING_PER_BYTE * chunks.size:
            _refuse("its chunks are too small, or its trailer is too large")
        return chunks.is_whole

    def _finish(self) -> None:
        """Hand over the response, and then the connection to the pool, unless it has to be closed.

        In this order, so that whoever waits for the response can discard the connection before its next request.
        """
        waiting, self._waiting = self._waiting, None
        keep = self._keep and not self._has_surplus()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._received > self._size >= 0:
            body = body[: self._size]
        self._body.clear()  # `Chunks` has it as well, and may be kept for as long as the connection.
        if waiting is not None and not waiting.done():
            headers = ResponseHeaders(self._head, self._lower)
            waiting.set_result(ConnectionResponse(self._status, headers, body, self._reused, self))
        self._reused = True
        if self._large or self.transport.get_write_buffer_size():
            # The server may not have taken the request yet: the next would wait behind it, and the end of the
            # connection for as long as the server likes.
            self.abort()
        elif keep:
            self._release(self)
        else:
            self.close()

    def _has_surplus(self) -> bool:
        """Whether more has arrived than the response."""
        if self._chunks is None:
            return self._received > self._size
        return self._chunks.messages > 1 or not self._tail.endswith(_END) or self._tail == _END_AND_MORE


def _refuse(why: str) -> NoReturn:
    raise SendFailed(f"the response is not valid HTTP: {why}")
