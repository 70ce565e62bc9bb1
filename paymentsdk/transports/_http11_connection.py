"""One connection: writes a request, and reads its response with httptools.

httptools (llhttp) is the judge of the grammar. What it takes and a payments client should not is refused here, on the
bytes of the head and of the framing; which versions of llhttp are lenient where then makes no difference.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, cast

from paymentsdk.transports.base import Headers, Request, Response, SendFailed, too_long

if TYPE_CHECKING:
    from paymentsdk.transports._http11_pool import Pool, Server

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{_error.msg}: pip install 'paymentsdk[fast]'", name=_error.name) from None

#: The most bytes of a head, with the interim responses before it.
MAX_HEAD = 64 * 1024
#: Bodies above this are written piece by piece, as the socket takes them.
PIECE = 64 * 1024
#: The status line as far as anything depends on it. RFC 9112 ends it in a reason, which may be empty.
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])[ \r]")
_BLANK_BEFORE_COLON = re.compile(rb"\r\n[^:\r\n]*[ \t]:")
#: What a head may begin with: other bytes are refused without waiting for the end of a line that may never come.
_BEGINNING = b"HTTP/1."
#: The end of a line that is not the end of one.
_BARE_LF = re.compile(rb"(?<!\r)\n")
_CLOSE = re.compile(rb"\r\nconnection:[^\r\n]*close")
#: More digits are no length, and `int` would take its time with them.
_LONGEST_NUMBER = 18
#: A response in chunks may have so many bytes of framing for each byte of its body, beyond those of a head.
_FRAMING = 8
#: How a response in chunks ends, and how it ends with another line break after it, which httptools passes over.
_END = b"\r\n\r\n"
_END_AND_MORE = b"\r\n\r\n\r\n"
#: Statuses below are interim: another head follows.
_FINAL = 200
_SWITCHING = 101
_NO_CONTENT = 204
_NOT_MODIFIED = 304


class ResponseHeaders(Mapping[str, str]):
    """Header fields of a response, looked up in the bytes of its head, under any spelling of their names.

    Of a field that came more than once, the first counts. Bytes that are not UTF-8 are surrogates in the value.
    """

    __slots__ = ("_head",)

    def __init__(self, head: bytes) -> None:
        self._head = head

    def __getitem__(self, name: str) -> str:
        start = b"\r\n%b:" % name.lower().encode(errors="replace")
        at = self._head.lower().find(start)
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


class ConnectionResponse(Response, frozen=True):
    """A response that knows which connection it came over."""

    connection: Connection | None = None


class Connection(asyncio.Protocol):
    """One connection, which carries one request at a time. It holds a place in its pool until it is closed.

    Args:
        pool: Where it goes when its request is done.
        server: What it leads to.
    """

    __slots__ = (
        "_body",
        "_body_size",
        "_chunked",
        "_closed",
        "_done",
        "_drained",
        "_head",
        "_keep",
        "_messages",
        "_most",
        "_parser",
        "_partial",
        "_paused",
        "_pool",
        "_readable",
        "_received",
        "_reused",
        "_size",
        "_status",
        "_tail",
        "_waiting",
        "_without_body",
        "_writing",
        "generation",
        "server",
        "transport",
    )
    transport: asyncio.Transport

    def __init__(self, pool: Pool, server: Server) -> None:
        self.server = server
        #: The tick of the pool's sweeper at which it became idle.
        self.generation = 0
        self._pool = pool
        self._closed = False
        self._paused = False
        self._reused = False
        self._drained: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self._parser = HttpResponseParser(self)
        self._readable: Callable[[int], object] | None = None
        self._expect("GET", 0, keep=True)

    def _expect(self, method: str, most: int, *, keep: bool) -> None:
        """Get ready for the response to a *method* request, with a body of at most *most* bytes."""
        self._without_body = method == "HEAD"
        self._most = most
        self._keep = keep
        self._writing = False
        self._partial = b""
        self._head = b""
        self._status = 0
        #: The bytes that the response has, with its head; -1 if it does not say.
        self._size = -1
        self._chunked = False
        self._received = 0
        self._tail = b""
        self._body: list[bytes] = []
        self._body_size = 0
        self._messages = 0
        self._done = False

    # --- its life ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn how to write, and how to see what has arrived and not been read."""
        self.transport = cast(asyncio.Transport, transport)
        self._readable = _look(transport.get_extra_info("socket"))

    @property
    def closed(self) -> bool:
        """Whether no request may go out any more."""
        return self._closed or self._readable is None or self.transport.is_closing()

    @property
    def busy(self) -> bool:
        """Whether a request waits for its response."""
        return self._waiting is not None

    def is_usable(self) -> bool:
        """Whether a request may go out: nobody has closed the connection, and nothing unsolicited has arrived.

        What the event loop has not read yet the system knows of: it would pass for the response to the next request.
        """
        readable = self._readable
        return not (self._closed or readable is None or self.transport.is_closing() or readable(0))

    def discard(self) -> None:
        """Start no further request on it. One that has started fails: the next response would be taken for its own."""
        if self._waiting is None:
            self.close()
        else:
            self.fail(SendFailed("the connection delivered the response to another request"))

    def close(self) -> None:
        """Close it, and let what was written go out."""
        self._let_go()
        if self._readable is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close it now, whatever is under way. Its request is left to who waits for it."""
        self._waiting = None
        self._let_go()
        if self._readable is not None:
            self.transport.abort()

    def fail(self, error: SendFailed) -> None:
        """Close it now, with *error* as the outcome of its request."""
        waiting = self._waiting
        self.abort()
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def cancel(self, waiting: asyncio.Future[Response]) -> None:
        """Close it if the response that *waiting* stands for has not come."""
        if self._waiting is waiting:
            self.abort()
        elif waiting.done() and not waiting.cancelled():
            waiting.exception()  # Seen: or asyncio would log that nobody has.

    def _let_go(self) -> None:
        """Give its place back, once."""
        self._resume()
        if not self._closed:
            self._closed = True
            del self._parser  # It refers to this object.
            self._pool.forget(self)

    def eof_received(self) -> None:
        """Note that the server sends no more; this ends a body that has neither a length nor chunks."""
        if self._waiting is not None and self._head and self._size < 0 and not self._chunked:
            self._keep = False
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for its response, if any."""
        if exc is not None:
            number = exc.errno if isinstance(exc, OSError) else None
            reason = "the connection broke" + (f": {os.strerror(number)}" if number and number > 0 else "")
        elif self._head or self._partial:
            reason = "the server closed the connection within its response"
        else:
            reason = "the server closed the connection without a response"
        self.fail(SendFailed(reason))

    # --- the request ---------------------------------------------------------------------------------------------

    def send(self, request: Request, message: memoryview, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Response]:
        """Write *message*, the bytes of *request*; return what the response will be set on."""
        self._expect(request.method, request.max_response, keep=not request.fresh)
        self._waiting = waiting = loop.create_future()
        self.transport.write(message)
        return waiting

    async def send_large(self, request: Request) -> None:
        """Write the body of *request* as the socket takes it; stop when there is a response or the connection ends."""
        body = memoryview(request.body)
        self._writing = True
        for start in range(0, len(body), PIECE):
            self.transport.write(body[start : start + PIECE])
            if self._paused:
                self._drained = asyncio.get_running_loop().create_future()
                await self._drained
            if self._waiting is None:
                return
        self._writing = False

    def pause_writing(self) -> None:
        """Hold a large body back until the socket has taken what was written."""
        self._paused = True

    def resume_writing(self) -> None:
        """Let a large body go on."""
        self._paused = False
        self._resume()

    def _resume(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # --- the response --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read a part of the response."""
        if self._waiting is None:
            self.abort()  # Nobody has asked for it, and what comes after it would be shifted.
            return
        try:
            if self._head:
                self._received += len(data)
            else:
                data = self._read_head(data)
            if data:
                self._read(data)
        except SendFailed as error:
            self.fail(error.with_traceback(None))
        else:
            if self._done:
                self._finish()

    def _read_head(self, data: bytes) -> bytes:
        """Read heads up to the final one; return that with what follows, or nothing as long as it is not complete."""
        if self._partial:
            data = self._partial + data
        while (end := data.find(_END)) >= 0:
            end += len(_END)
            head = data[:end]
            self._check_head(head)
            # One bound for all heads: interim ones without end are none better.
            self._received += end
            if self._received > MAX_HEAD:
                _refuse("its head is too large")
            if self._status >= _FINAL:
                self._head, self._received, self._partial = head, len(data), b""
                self._read_framing(head.lower())
                return data
            if self._status == _SWITCHING:
                raise SendFailed("the server switched to another protocol", permanent=True)
            data = data[end:]
        if data[: len(_BEGINNING)] != _BEGINNING[: len(data)] or _BARE_LF.search(data):
            _refuse("its head is malformed")
        if self._received + len(data) > MAX_HEAD:
            _refuse("its head is too large")
        self._partial = data
        return b""

    def _check_head(self, head: bytes) -> None:
        """Take the status from *head*, which must be what no two parsers read differently."""
        line = _STATUS_LINE.match(head)
        lines = head.count(b"\r\n")
        if line is None or head.count(b"\n") != lines or head.count(b"\r") != lines:
            _refuse("its head is malformed")
        if b"\r\n " in head or b"\r\n\t" in head:
            _refuse("a header field is folded")
        if (b" :" in head or b"\t:" in head) and _BLANK_BEFORE_COLON.search(head):
            _refuse("the name of a header field has a blank")
        version, status = line.groups()
        self._status = int(status)
        if version == b"0":
            self._keep = False

    def _read_framing(self, lower: bytes) -> None:
        """Find out from the head, in lower case, where the response ends."""
        if b"close" in lower and _CLOSE.search(lower):
            self._keep = False
        length = _only(lower, b"\r\ncontent-length:")
        coding = _only(lower, b"\r\ntransfer-encoding:")
        if coding is not None and (coding != b"chunked" or length is not None):
            _refuse("its length is ambiguous")
        if length is not None and not (length.isdigit() and len(length) <= _LONGEST_NUMBER):
            _refuse("its length is not a number")
        if _only(lower, b"\r\ncontent-encoding:") not in {None, b"identity", b""}:
            raise SendFailed("the response is compressed, which was not asked for", permanent=True)
        if self._without_body or self._status in {_NO_CONTENT, _NOT_MODIFIED}:
            # HEAD and 304 have the length of what they are about; a 204 with one may be followed by anything.
            self._keep = self._keep and (self._status != _NO_CONTENT or (coding is None and length in {None, b"0"}))
            self._without_body = True
            self._size = len(lower)
        elif length is not None:
            if int(length) > self._most:
                raise too_long(self._most)
            self._size = len(lower) + int(length)
        self._chunked = coding is not None and not self._without_body

    def _read(self, data: bytes) -> None:
        """Have httptools read *data*."""
        parser, malformed = self._parser, False
        if self._without_body:
            # httptools does not know of HEAD: a parser of its own gets the head.
            parser, data, self._done = HttpResponseParser(object()), data[: self._size], True
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            # After the end of a response it is its surplus that is malformed.
            malformed = self._without_body or not self._done
        if malformed:
            # Outside the handler: the error of httptools has the response in its frames.
            _refuse("it is malformed")
        if self._body_size > self._most:
            raise too_long(self._most)
        if self._chunked:
            self._tail = (self._tail + data)[-6:]
            if self._received - self._body_size > 2 * MAX_HEAD + _FRAMING * self._body_size:
                _refuse("its chunks are too small, or its trailer is too large")

    def on_message_begin(self) -> None:
        """Count the responses in what was read: a second one is surplus."""
        self._messages += 1

    def on_body(self, data: bytes) -> None:
        """Take in a part of the body."""
        if not self._done:
            self._body.append(data)
            self._body_size += len(data)

    def on_message_complete(self) -> None:
        """Note the end of the response."""
        self._done = True

    def _finish(self) -> None:
        """Hand over the response, and then the connection to the pool, unless it has to be closed.

        In this order, so that whoever waits for the response can discard the connection before its next request.
        """
        waiting, self._waiting = self._waiting, None
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        if waiting is not None and not waiting.done():
            waiting.set_result(ConnectionResponse(self._status, ResponseHeaders(self._head), body, self._reused, self))
        self._reused = True
        if self._writing:
            self.abort()  # Closed, it would go on to write what is left.
        elif self._keep and not self._has_surplus():
            self._pool.release(self)
        else:
            self.close()

    def _has_surplus(self) -> bool:
        """Whether more has arrived than the response."""
        if self._size >= 0:
            return self._received > self._size
        return self._messages > 1 or not self._tail.endswith(_END) or self._tail == _END_AND_MORE


def _only(lower: bytes, start: bytes) -> bytes | None:
    """Return the value of the field whose line begins with *start*: there must not be two of it."""
    at = lower.find(start)
    if at < 0:
        return None
    at += len(start)
    if lower.find(start, at) >= 0:
        _refuse(f"it has two fields {start.strip().decode()}")
    return lower[at : lower.find(b"\r\n", at)].strip(b" \t")


def _refuse(why: str) -> NoReturn:
    raise SendFailed(f"the response is not valid HTTP: {why}")


if sys.platform == "win32":

    def _look(wire: socket.socket) -> Callable[[int], object]:
        """Return what says whether there is something to read on *wire*, be it its end."""
        return lambda _: select.select([wire.fileno()], [], [], 0)[0]

else:

    def _look(wire: socket.socket) -> Callable[[int], object]:
        """Return what says whether there is something to read on *wire*, be it its end."""
        poll = select.poll()  # Registered once: a new one per request costs more than the question.
        poll.register(wire.fileno(), select.POLLIN)
        return poll.poll
