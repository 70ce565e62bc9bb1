"""One connection: it writes requests, and reads their responses.

Heads and chunks must match the grammar of RFC 9112 in full, without the exceptions that the RFC tolerates, so that no
two parsers can read them differently.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NoReturn, cast

from paymentsdk._headers import Headers
from paymentsdk.transports._pool import unread_on, words_of_system
from paymentsdk.transports.base import CASELESS, Response, SendFailed, too_long

#: The most bytes of a head, including the interim responses before it.
MAX_HEAD = 64 * 1024
#: RFC 9112, 2 to 5: a status line, and fields with a name, a colon without a blank before it, and a value on one line.
#: The pattern does not backtrack (`*+`).
_REASON = rb"(?: [\t -~\x80-\xff]*+)?\r\n"
_FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~\x80-\xff]*+\r\n"
_HEAD = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])" + _REASON + rb"(?:" + _FIELD + rb")*\r\n")
#: A usual head: a final response with one length, and no other field that decides where the response ends.
_OTHERS = rb"(?:(?!(?i:connection|content-encoding|content-length|transfer-encoding):)" + _FIELD + rb")*+"
_USUAL_HEAD = re.compile(
    rb"HTTP/1\.1 (?!204|304)([2-5][0-9][0-9])"
    + _REASON
    + _OTHERS
    + rb"(?i:content-length):[ \t]*([0-9]{1,18})[ \t]*\r\n"
    + _OTHERS
    + rb"\r\n"
)
#: The fields that decide where a response ends and whether another may follow, in a head in lower case.
_FRAMING = re.compile(rb"\n(connection|content-encoding|content-length|transfer-encoding):([^\r]*)")
#: The beginning of every head: other bytes are rejected immediately, since the end of the line may never come.
_BEGINNING = b"HTTP/1."
_BARE_LF = re.compile(rb"(?<!\r)\n")
#: A longer number is not a length, and would slow `int` down.
_LONGEST_NUMBER = 18
_END = b"\r\n\r\n"
#: RFC 9112, 7.1: the size of a chunk in bare hex digits, with optional extensions. `_NEXT_SIZE` follows a chunk.
_SIZE_LINE = rb"([0-9A-Fa-f]{1,16})(?:[\t ]*;[\t -~\x80-\xff]*+)?\r\n"
_FIRST_SIZE, _NEXT_SIZE = re.compile(_SIZE_LINE), re.compile(rb"\r\n" + _SIZE_LINE)
#: The trailer, which ends with an empty line.
_TRAILER = re.compile(rb"(?:" + _FIELD + rb")*+\r\n")
#: The beginnings of incomplete lines: a complete line that does not match is rejected immediately.
_BEGINNINGS = {
    _FIRST_SIZE: re.compile(rb"[^\n]*+"),
    _NEXT_SIZE: re.compile(rb"\r?|\r\n[^\n]*+"),
    _TRAILER: re.compile(rb"(?:" + _FIELD + rb")*+[^\n]*+"),
}
#: The most bytes of a size with its extensions, and of a trailer.
_LONGEST_LINE = 8 * 1024
#: A response in chunks may have so many bytes of framing, plus one for every two bytes of its body: chunks of one byte
#: each would take a second for a few megabytes.
_MOST_FRAMING, _BYTES_PER_FRAMING = 512 * 1024, 2
#: Responses with lower statuses are interim: another head follows.
_FINAL = 200
_SWITCHING = 101
_NO_CONTENT = 204
#: Responses with these statuses have no body.
_BODILESS = frozenset({_NO_CONTENT, 304})


@lru_cache(maxsize=64)
def _field_start(name: str) -> bytes:
    return b"\r\n%b:" % name.lower().encode(errors="replace")


class ResponseHeaders(Mapping[str, str]):
    """Header fields of a response, looked up in the bytes of its head, under any spelling of their names.

    If a field came more than once, the first counts. Bytes that are not UTF-8 are surrogates in the value.
    """

    __slots__ = ("_head", "_lower")

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._lower = b""

    def __getitem__(self, name: str) -> str:
        start = _field_start(name)
        if not self._lower:  # For most responses, no field is ever read.
            self._lower = self._head.lower()
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


CASELESS.add(ResponseHeaders)


class Chunks:
    """Reads a body in chunks, of at most *most* bytes, into the list *body*."""

    __slots__ = ("_body", "_expected", "_framing", "_left", "_most", "_size", "_unread", "has_surplus")

    def __init__(self, body: list[bytes], most: int) -> None:
        self._body = body
        self._most = most
        #: The bytes of the body so far, the bytes of its framing so far, and the missing bytes of the current chunk.
        self._size = self._framing = self._left = 0
        self._expected = _FIRST_SIZE
        self._unread = b""
        self.has_surplus = False

    def read(self, data: bytes) -> bool:
        """Read a part of the response; return whether the response is complete. Bytes after its end are surplus.

        Raises:
            SendFailed: The chunks are malformed, too small, or have too many bytes.
        """
        data, self._unread = self._unread + data, b""
        start = 0
        while True:
            if self._left:
                chunk = data[start : start + self._left]
                self._body.append(chunk)
                start += len(chunk)
                self._left -= len(chunk)
                if self._left:
                    return False
            match = self._expected.match(data, start)
            if match is None:
                return self._wait(data[start:])
            self._framing += match.end() - start
            start = match.end()
            if self._expected is _TRAILER:
                self.has_surplus = start < len(data)
                return True
            self._begin_chunk(int(match[1], 16))

    def _begin_chunk(self, size: int) -> None:
        """Expect a chunk of *size* bytes, or the trailer."""
        self._left, self._expected = size, _NEXT_SIZE if size else _TRAILER
        self._size += size
        if self._size > self._most:
            raise too_long(self._most)
        if self._framing > _MOST_FRAMING + self._size // _BYTES_PER_FRAMING:
            _refuse("its chunks are too small")

    def _wait(self, unread: bytes) -> bool:
        """Keep the bytes of an incomplete line."""
        if len(unread) > _LONGEST_LINE:
            _refuse("its trailer, or an extension of a chunk, is too large")
        if _BEGINNINGS[self._expected].fullmatch(unread) is None:
            _refuse("its chunks are malformed")
        self._unread = unread
        return False


class ConnectionResponse(Response, frozen=True):
    """A response that knows its connection."""

    connection: Connection | None = None


class Connection(asyncio.BufferedProtocol):
    """One connection, which carries one request at a time.

    It reads into *buffer*, calls *release* when a request is done and another may follow, and *forget* when it closes.
    """

    transport: asyncio.Transport

    def __init__(
        self, buffer: memoryview, release: Callable[[Connection], None], forget: Callable[[Connection], None]
    ) -> None:
        #: The end of its idle time, on the monotonic clock.
        self.idle_until: float = 0.0
        self._buffer = buffer
        self._release = release
        self._forget = forget
        self._closed = False
        self._reused = False
        self._begin()
        self._waiting: asyncio.Future[Response] | None = None
        self._readable: Callable[[int], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for writing, and the check for bytes that have arrived but are unread."""
        self.transport = cast(asyncio.Transport, transport)
        self._readable = unread_on(transport.get_extra_info("socket"))

    def is_usable(self, *, unread: bool = False) -> bool:
        """Return whether a request may be sent: the connection is open, and nothing unsolicited has arrived.

        The system knows of bytes that the event loop has not read yet. They would count as the response to the next
        request. Only the beginning of a TLS record is not noticed: asyncio has read it, it cannot be decrypted yet, and
        no public API shows it. With *unread*, unread bytes are allowed.
        """
        readable = self._readable
        return not (self._closed or readable is None or self.transport.is_closing() or (not unread and readable(0)))

    def discard(self) -> None:
        """Start no further request on it. A request that has started fails: the next response is not its own."""
        if self._waiting is None:
            self.close()
        else:
            self.abort(SendFailed("the connection delivered the response to another request"))

    def close(self) -> None:
        """Close it after writing the rest of the request."""
        self._let_go()
        if self._readable is not None:
            self.transport.close()

    def abort(self, error: SendFailed | None = None) -> None:
        """Close it now, with *error* as the outcome of its request; without *error*, the request was abandoned."""
        waiting, self._waiting = self._waiting, None
        self._let_go()
        if self._readable is not None:
            self.transport.abort()
        if error is not None and waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def cancel(self, waiting: asyncio.Future[Response]) -> None:
        """Close it if the response of the future *waiting* has not come."""
        if self._waiting is waiting:
            self.abort()
        elif waiting.done() and not waiting.cancelled():
            waiting.exception()  # Otherwise asyncio would log that it was never retrieved.

    def _let_go(self) -> None:
        """Give its place back, once."""
        if not self._closed:
            self._closed = True
            self._forget(self)

    def eof_received(self) -> None:
        """The server sends nothing more. This ends a body that has neither a length nor chunks."""
        if self._waiting is not None and self._head and self._size < 0 and self._chunks is None:
            self._keep = False
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for its response, if there is one."""
        if exc is not None:
            reason = f"the connection broke{words_of_system(exc)}"
        elif self._head or self._partial:
            reason = "the server closed the connection within its response"
        else:
            reason = "the server closed the connection without a response"
        self.abort(SendFailed(reason))

    def send(
        self, message: memoryview, loop: asyncio.AbstractEventLoop, most: int, *, head: bool, keep: bool
    ) -> asyncio.Future[Response]:
        """Write *message*, the bytes of a request, on the running *loop*; return the future of the response.

        The response has at most *most* bytes of body. With *head* (a HEAD request), it has no body. With *keep*,
        another request may follow.
        """
        self._without_body = head
        self._most = most
        self._keep = keep
        if self._begun:
            self._begin()
        self._waiting = waiting = loop.create_future()
        self.transport.write(message)
        return waiting

    def _begin(self) -> None:
        """Reset the state of a response that came in parts."""
        self._begun = False
        self._head = self._partial = b""
        #: The length of the body; -1 if the head does not have it.
        self._size: int = -1
        #: The bytes of the heads, and later of the body.
        self._received = 0
        self._body: list[bytes] = []
        self._chunks: Chunks | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer: its bytes are copied before another connection reads."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read a part of the response; usually it is a whole response with a length, and needs only this frame."""
        if self._waiting is None:
            self.abort()  # It is unsolicited, and later responses would be shifted.
            return
        data = bytes(self._buffer[:nbytes])
        if not self._begun and not self._without_body and (match := _USUAL_HEAD.match(data)) is not None:
            end = match.end()
            if int(match[2]) == nbytes - end <= self._most:
                self._deliver(int(match[1]), data[:end], data[end:])
                return
        self._begun = True
        try:
            part = data if self._head else self._read_head(data)
            is_whole = part is not None and (self._read_body(part) if self._chunks is None else self._chunks.read(part))
        except SendFailed as error:
            self.abort(error.with_traceback(None))
        else:
            if is_whole:
                self._finish()

    def _read_head(self, data: bytes) -> bytes | None:
        """Read heads up to the final one; return the bytes after it, or `None` while it is incomplete."""
        unread = 0  # No head ends before this position; so a slow head is searched only once.
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
            # One limit for all heads, since interim heads can go on without end.
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
        """Read from the *head* where the response ends."""
        self._head = head
        fields: dict[bytes, bytes] = {}
        for name, value in _FRAMING.findall(head.lower()):
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
            # HEAD and 304 have the length of the resource. A 204 with a length may be followed by anything.
            self._keep = self._keep and (self._status != _NO_CONTENT or (coding is None and length in {None, b"0"}))
            self._size = 0
        elif coding is not None:
            self._chunks = Chunks(self._body, self._most)
        elif length is not None:
            self._size = int(length)
            if self._size > self._most:
                raise too_long(self._most)

    def _read_body(self, data: bytes) -> bool:
        """Read a part of a body with a length, or that ends with its connection; return whether it is whole."""
        self._body.append(data)
        self._received += len(data)
        if self._size < 0 and self._received > self._most:
            raise too_long(self._most)
        return self._received >= self._size >= 0

    def _finish(self) -> None:
        """Deliver a response that came in parts."""
        self._keep = self._keep and not self._has_surplus()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._received > self._size >= 0:
            body = body[: self._size]
        self._body.clear()  # The chunk reader shares the list, and may live as long as the connection.
        self._deliver(self._status, self._head, body)

    def _deliver(self, status: int, head: bytes, body: bytes) -> None:
        """Deliver the response, and then return the connection to the pool, unless it must be closed.

        In this order, the caller that waits for the response can discard the connection before its next request.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(ConnectionResponse(status, ResponseHeaders(head), body, self._reused, self))
        self._reused = True
        if self.transport.get_write_buffer_size():
            # The server may not have read the whole request yet. The next request would wait behind it, and closing the
            # connection would wait for the server.
            self.abort()
        elif self._keep:
            self._release(self)
        else:
            self.close()

    def _has_surplus(self) -> bool:
        """Return whether more bytes have arrived than the response has."""
        return self._received > self._size if self._chunks is None else self._chunks.has_surplus


def _refuse(reason: str) -> NoReturn:
    raise SendFailed(f"the response is not valid HTTP: {reason}")
