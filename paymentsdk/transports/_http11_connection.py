"""One connection: it writes requests, and reads their responses.

Heads and chunks must match the grammar of RFC 9112 in full, without the exceptions that the RFC tolerates, so that no
two parsers can read them differently.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import lru_cache
from typing import NoReturn, TypeAlias, cast

from paymentsdk._headers import Headers
from paymentsdk.transports._pool import ConnectionResponse, unread_on, words_of_system
from paymentsdk.transports.base import CASELESS, Response, SendFailed, too_long

#: The most bytes of a head, including the interim responses before it.
MAX_HEAD = 64 * 1024
#: RFC 9112, 2 to 5: a status line, and fields with a name, a colon without a blank before it, and a value on one line.
#: The pattern does not backtrack (`*+`).
_REASON = rb"(?: [\t -~\x80-\xff]*+)?\r\n"
_FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~\x80-\xff]*+\r\n"
_HEAD = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])" + _REASON + rb"(?:" + _FIELD + rb")*\r\n")
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


#: Reads a response; see `read_parts`.
Parts: TypeAlias = Generator[None, bytes, tuple[int, bytes, bytes, bool]]


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


def read_parts(data: bytes, most: int, *, has_body: bool) -> Parts:
    """Read a response that comes in parts: *data* first, then what is sent; an empty part is the end of the connection.

    Return the status, the head, the body of at most *most* bytes, and whether another request may follow. Bytes after
    the end of the response are surplus: then no request may follow. With *has_body* false (HEAD), it has no body.

    Raises:
        SendFailed: The response is malformed or too large.
    """
    status, head, data = yield from _read_heads(data)
    keep, coding, length = _read_framing(head)
    if status in _BODILESS or not has_body:
        # HEAD and 304 have the length of the resource. A 204 with a length may be followed by anything.
        is_empty = status != _NO_CONTENT or (coding is None and length in {None, b"0"})
        return status, head, b"", keep and is_empty and not data
    if coding is not None:
        body, has_surplus = yield from _read_chunks(data, most)
        return status, head, body, keep and not has_surplus
    size = most if length is None else int(length)
    if size > most:
        raise too_long(most)
    parts, received = [data], len(data)
    while (received < size or length is None) and ((data := (yield)) or length is not None):
        parts.append(data)
        received += len(data)
        if length is None and received > most:
            raise too_long(most)
    return status, head, b"".join(parts)[:size], keep and length is not None and received == size


def _read_heads(data: bytes) -> Generator[None, bytes, tuple[int, bytes, bytes]]:
    """Read heads up to the final one; return its status, its bytes, and the bytes after it."""
    size = searched = 0  # No head ends before this position; so a slow head is searched only once.
    while True:
        end = data.find(_END, searched) + len(_END)
        if end < len(_END):
            if data[: len(_BEGINNING)] != _BEGINNING[: len(data)] or _BARE_LF.search(data, searched):
                _refuse("its head is malformed")
            _check_size(size + len(data))
            searched = max(0, len(data) - len(_END))
            data += yield
            continue
        head, data, searched = data[:end], data[end:], 0
        if (match := _HEAD.fullmatch(head)) is None:
            _refuse("its head is malformed")
        size += end
        _check_size(size)
        if (status := int(match[1])) >= _FINAL:
            return status, head, data
        if status == _SWITCHING:
            raise SendFailed("the server switched to another protocol", permanent=True)


def _check_size(size: int) -> None:
    # One limit for all heads, since interim heads can go on without end.
    if size > MAX_HEAD:
        _refuse("its head is too large")


def _read_framing(head: bytes) -> tuple[bool, bytes | None, bytes | None]:
    """Return whether the *head* allows a further request, the transfer coding, and the length of the body."""
    keep = not head.startswith(b"HTTP/1.0")
    fields: dict[bytes, bytes] = {}
    for name, value in _FRAMING.findall(head.lower()):
        if name == b"connection":
            keep = keep and b"close" not in value
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
    return keep, coding, length


def _read_chunks(data: bytes, most: int) -> Generator[None, bytes, tuple[bytes, bool]]:
    """Read a body in chunks; return it, and whether more bytes have arrived."""
    chunks: list[bytes] = []
    start = size = framing = 0  # `framing` counts the bytes that are not of the body.
    expected = _FIRST_SIZE
    while True:
        while (match := expected.match(data, start)) is None:
            data, start = data[start:], 0
            if len(data) > _LONGEST_LINE:
                _refuse("its trailer, or an extension of a chunk, is too large")
            if _BEGINNINGS[expected].fullmatch(data) is None:
                _refuse("its chunks are malformed")
            data += yield
        framing += match.end() - start
        start = match.end()
        if expected is _TRAILER:
            return b"".join(chunks), start < len(data)
        missing = int(match[1], 16)
        expected = _NEXT_SIZE if missing else _TRAILER
        size += missing
        if size > most:
            raise too_long(most)
        if framing > _MOST_FRAMING + size // _BYTES_PER_FRAMING:
            _refuse("its chunks are too small")
        while missing > len(data) - start:
            chunks.append(data[start:])
            missing -= len(data) - start
            data, start = (yield), 0
        chunks.append(data[start : start + missing])
        start += missing


def _refuse(reason: str) -> NoReturn:
    raise SendFailed(f"the response is not valid HTTP: {reason}")


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
        #: Reads a response that comes in parts.
        self._parts: Parts | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self._has_unread: Callable[[], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for writing, and the check for bytes that have arrived but are unread."""
        self.transport = cast(asyncio.Transport, transport)
        self._has_unread = unread_on(transport.get_extra_info("socket"))

    def is_usable(self, *, unread: bool = False) -> bool:
        """Return whether a request may be sent: the connection is open, and nothing unsolicited has arrived.

        The system knows of bytes that the event loop has not read yet. They would count as the response to the next
        request. Only the beginning of a TLS record is not noticed: asyncio has read it, it cannot be decrypted yet, and
        no public API shows it. With *unread*, unread bytes are allowed.
        """
        has_unread = self._has_unread
        return not (self._closed or has_unread is None or self.transport.is_closing() or (not unread and has_unread()))

    def discard(self) -> None:
        """Start no further request on it. A request that has started fails: the next response is not its own."""
        self.abort(SendFailed("the connection delivered the response to another request"))

    def abort(self, error: SendFailed | None = None) -> None:
        """Close it now, and fail its request with *error*. Without *error*, no caller waits for the request."""
        waiting, self._waiting = self._waiting, None
        if not self._closed:
            self._closed = True
            self._forget(self)
        if self._has_unread is not None:
            self.transport.abort()
        if error is not None and waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def cancel(self, waiting: asyncio.Future[Response]) -> None:
        """Close it if the response of the future *waiting* has not come."""
        if self._waiting is waiting:
            self.abort()
        elif waiting.done() and not waiting.cancelled():
            waiting.exception()  # Otherwise asyncio would log that it was never retrieved.

    def eof_received(self) -> None:
        """The server sends nothing more. This ends a body that has neither a length nor chunks."""
        if self._waiting is not None and self._parts is not None:
            self._read(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for its response, if there is one."""
        if exc is not None:
            reason = f"the connection broke{words_of_system(exc)}"
        elif self._parts is not None:
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
        self._has_body = not head
        self._most = most
        self._keep = keep
        self._waiting = waiting = loop.create_future()
        self.transport.write(message)
        return waiting

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
        if self._parts is None and self._has_body and (match := _USUAL_HEAD.match(data)) is not None:
            end = match.end()
            if int(match[2]) == nbytes - end <= self._most:
                self._deliver(int(match[1]), data[:end], data[end:])
                return
        self._read(data)

    def _read(self, data: bytes) -> None:
        """Read a part of a response that comes in parts."""
        try:
            if self._parts is None:
                self._parts = read_parts(data, self._most, has_body=self._has_body)
                next(self._parts)
            else:
                self._parts.send(data)
        except StopIteration as whole:
            status, head, body, keep = whole.value
            self._keep = self._keep and keep
            self._deliver(status, head, body)
        except SendFailed as error:
            self.abort(error.with_traceback(None))

    def _deliver(self, status: int, head: bytes, body: bytes) -> None:
        """Deliver the response, and then return the connection to the pool, unless it must be closed.

        In this order, the caller that waits for the response can discard the connection before its next request.
        """
        waiting, self._waiting, self._parts = self._waiting, None, None
        if waiting is not None and not waiting.done():
            waiting.set_result(ConnectionResponse(status, ResponseHeaders(head), body, self._reused, self.discard))
        self._reused = True
        # The server may not have read the whole request yet. The next request would wait behind it.
        if self._keep and not self.transport.get_write_buffer_size():
            self._release(self)
        else:
            self.abort()
