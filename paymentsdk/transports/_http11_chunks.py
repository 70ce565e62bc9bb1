"""The body of a response in chunks, read with httptools (llhttp)."""

from __future__ import annotations

from paymentsdk.errors import install_extra
from paymentsdk.transports.base import SendFailed, too_long

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{_error.msg}: {install_extra('fast')}", name=_error.name) from None

#: A response may have so many bytes of framing besides, for sizes of chunks and a trailer,
_MOST_FRAMING = 128 * 1024
#: and so many more for each byte of its body.
_FRAMING = 8
#: How the response ends, and how it ends with another line break after it, which httptools passes over.
_END = b"\r\n\r\n"
_END_AND_MORE = b"\r\n\r\n\r\n"


class Chunks:
    """A body that comes in chunks.

    Args:
        head: That of its response.
        most: The most bytes that it may have.
    """

    __slots__ = ("_messages", "_most", "_parser", "_received", "_tail", "body", "is_whole", "size")

    def __init__(self, head: bytes, most: int) -> None:
        self.body: list[bytes] = []
        self.size = 0
        self.is_whole = False
        self._most = most
        self._received = 0
        self._tail = b""
        self._messages = 0
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._feed(head)

    def read(self, data: bytes) -> bool:
        """Take in a part of the response behind its head; return whether the body is whole.

        Raises:
            SendFailed: It is malformed or too large.
        """
        self._received += len(data)
        self._tail = (self._tail + data)[-6:]
        self._feed(data)
        if self.size > self._most:
            raise too_long(self._most)
        if self._received - self.size > _MOST_FRAMING + _FRAMING * self.size:
            raise SendFailed("the response is not valid HTTP: its chunks are too small, or its trailer is too large")
        return self.is_whole

    def has_surplus(self) -> bool:
        """Whether more has arrived than the body."""
        return self._messages > 1 or not self._tail.endswith(_END) or self._tail == _END_AND_MORE

    def close(self) -> None:
        """Let go of the parser, which refers to this object."""
        self._parser = None

    def _feed(self, data: bytes) -> None:
        malformed = False
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            malformed = not self.is_whole  # After its end it is the surplus that is malformed.
        if malformed:
            # Outside the handler: the error of httptools has the response in its frames.
            raise SendFailed("the response is not valid HTTP: its chunks are malformed")

    def on_message_begin(self) -> None:
        """Count the responses in what was read: a second one is surplus."""
        self._messages += 1

    def on_body(self, data: bytes) -> None:
        """Take in a part of the body."""
        if not self.is_whole:
            self.body.append(data)
            self.size += len(data)

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        self.is_whole = True
