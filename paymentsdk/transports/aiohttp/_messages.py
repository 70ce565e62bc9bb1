"""The messages of HTTP: the bytes of a request, and the body of an answer."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from paymentsdk._core.wire import Request, SendFailed, too_long
from paymentsdk.transports.aiohttp._pool import Server

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler


#: What no line of a request may hold; a tab may stand in the value of a field.
_CONTROLS = bytes({*range(32), 127} - {ord("\t")})
_CONTROL = re.compile(f"[{re.escape(_CONTROLS.decode())}]")


# --- what goes out ----------------------------------------------------------------------------------------------------


def message_of(request: Request, server: Server) -> bytes:
    """Return the bytes of *request*.

    Raises:
        SendFailed: It cannot be put into HTTP.
    """
    lines = [f"{request.method} {request.url[len(server.origin) :]} HTTP/1.1", f"Host: {server.host}"]
    lines += map(": ".join, request.headers.items())
    if request.body or request.method != "GET":
        lines.append(f"Content-Length: {len(request.body)}")
    lines += ("", "")
    head = _utf8("\r\n".join(lines))
    # The only control characters are those that end the lines.
    if head is None or len(head) - len(head.translate(None, _CONTROLS)) != 2 * (len(lines) - 1):
        raise SendFailed(flaw_of(request) or "the request cannot be written as HTTP", sent=False, permanent=True)
    return head + request.body


def flaw_of(request: Request) -> str | None:
    """Say why *request* cannot be put into HTTP, so that aiohttp refused it before it wrote anything."""
    lines = (request.method, *request.headers, *request.headers.values())
    if any(map(_CONTROL.search, lines)):
        return "a header has a line break or another control character in it"
    if _CONTROL.search(request.url) or "\t" in request.url:  # yarl would leave a tab out, and it is another path then.
        return "the URL has a control character in it"
    if None in map(_utf8, (request.url, *lines)):
        return "the URL or a header has a character that UTF-8 cannot hold"
    try:
        URL(request.url, encoded=True).port  # noqa: B018 - it is read when it is asked for
    except ValueError:
        return "the URL is malformed"
    return None


def _utf8(text: str) -> bytes | None:
    # Its own error would hold the text.
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


# --- what comes back --------------------------------------------------------------------------------------------------


async def read_body(status: int, headers: Mapping[str, str], content: aiohttp.StreamReader, most: int) -> bytes:
    """Return the body, if it has at most *most* bytes and came as it is."""
    if status == 101:  # noqa: PLR2004
        raise SendFailed("the server switched to another protocol", permanent=True)
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise SendFailed("the answer is compressed, which was not asked for", permanent=True)
    if content.is_eof() and content.total_bytes <= most and not _broken(content):
        return content.read_nowait()  # It came along with the head, as a small answer does.
    length = headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > most:
        raise too_long(most)
    chunks, size = [], 0
    with _ending_with_its_connection(content):
        # Cheaper than `response.read()`, and bounded whatever the header says.
        while chunk := await content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise too_long(most)
    if _broken(content) and not length and "chunked" not in headers.get("Transfer-Encoding", "").lower():
        # It had nothing but the end of the connection to end it, and aiohttp takes a reset for that.
        raise SendFailed("the answer is cut off or malformed")
    return b"".join(chunks)


@contextlib.contextmanager
def _ending_with_its_connection(content: aiohttp.StreamReader) -> Iterator[None]:
    """Have *content* fail if its connection ends before it does.

    aiohttp closes a connection on which a chunk is malformed, and lets the body wait for ever.
    """
    connection: ResponseHandler | None = getattr(content, "_protocol", None)
    closed = None if connection is None else connection.closed

    def fail(_: object) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError())

    if closed is None:  # It is over already.
        fail(closed)
        yield
        return
    closed.remove_done_callback(_heard)  # Once is enough.
    closed.add_done_callback(_heard)
    closed.add_done_callback(fail)
    try:
        yield
    finally:
        closed.remove_done_callback(fail)


def _heard(closed: asyncio.Future[None]) -> None:
    # Or asyncio would report how the connection ended, perhaps much later, as an error that nobody has asked for.
    if not closed.cancelled():
        closed.exception()


def _broken(content: aiohttp.StreamReader) -> bool:
    """Whether the connection of *content* has ended otherwise than by being closed."""
    connection: ResponseHandler | None = getattr(content, "_protocol", None)
    return connection is not None and isinstance(connection.exception(), aiohttp.ClientOSError)
