"""The same bytes through every transport: the same verdict, or a reason why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paymentsdk import AiohttpTransport, Http11Transport, Request, SendFailed, Transport
from paymentsdk.testing.transport_conformance import AIOHTTP_DEVIATIONS
from paymentsdk.testing.transport_conformance._responses import MALFORMED
from tests.conftest import PATIENCE
from tests.faults import FaultServer, Peer, http

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CLOSING = OK + b"Connection: close\r\n\r\n"

#: Well-formed responses: each comes back with this status and this body.
WELL: dict[str, tuple[bytes, int, bytes]] = {
    **{
        f"{status}": (http(status, b"{}"), status, b"{}")
        for status in (201, 206, 301, 307, 401, 404, 409, 429, 500, 599)
    },
    "no body": (http(400, b""), 400, b""),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\n\r\n", 304, b""),
    "no reason": (b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "a reason that is not ASCII": (b"HTTP/1.1 200 \xc3\xa9\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "HTTP/1.0 without a length": (b"HTTP/1.0 200 OK\r\n\r\n{}", 200, b"{}"),
    "no length": (CLOSING + b"{}", 200, b"{}"),
    "no length, no body": (CLOSING, 200, b""),
    "one chunk": (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", 200, b"{}"),
    "no chunk": (CHUNKED + b"0\r\n\r\n", 200, b""),
    "two chunks": (CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", 200, b"{}"),
    "a chunk with an extension": (CHUNKED + b"2;a=b\r\n{}\r\n0\r\n\r\n", 200, b"{}"),
    "a chunk with zeros before its size": (CHUNKED + b"0002\r\n{}\r\n0\r\n\r\n", 200, b"{}"),
    "a chunk in capital hex": (CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n", 200, b"0123456789"),
    "a trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nX-One: 1\r\n\r\n", 200, b"{}"),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + http(), 200, b"{}"),
    "103 first": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http(), 200, b"{}"),
    "three interim responses": (b"HTTP/1.1 102 Processing\r\n\r\n" * 3 + http(), 200, b"{}"),
    "names in small letters": (OK + b"content-length: 2\r\n\r\n{}", 200, b"{}"),
    "names in capitals": (OK + b"CONTENT-LENGTH: 2\r\n\r\n{}", 200, b"{}"),
    "no space behind the colon": (OK + b"Content-Length:2\r\n\r\n{}", 200, b"{}"),
    "spaces around a value": (OK + b"Content-Length: \t 2 \t\r\n\r\n{}", 200, b"{}"),
    "an empty value": (OK + b"X-One:\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "a value that is no UTF-8": (OK + b"X-One: \xe9\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "the same field twice": (OK + b"X-One: 1\r\nX-One: 2\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "sixty fields": (OK + b"".join(b"X-%d: 1\r\n" % i for i in range(60)) + b"Content-Length: 2\r\n\r\n{}", 200, b"{}"),
    "keep-alive": (http(200, b"{}", "Connection: keep-alive", "Keep-Alive: timeout=5"), 200, b"{}"),
    "a cookie": (http(200, b"{}", "Set-Cookie: a=b"), 200, b"{}"),
    "identity": (http(200, b"{}", "Content-Encoding: identity"), 200, b"{}"),
    "an empty line before it": (b"\r\n" + http(), 200, b"{}"),
    "a body that looks like a head": (http(200, http()), 200, http()),
    "a large body": (http(200, b"x" * 300_000), 200, b"x" * 300_000),
}
#: No response at all, besides those of the suite.
ILL: dict[str, bytes] = {
    **MALFORMED,
    "half a last chunk": CHUNKED + b"2\r\n{}\r\n0\r\n",
    "only an interim response": b"HTTP/1.1 100 Continue\r\n\r\n",
    "HTML": b"<html><body>Bad Gateway</body></html>\r\n\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "a request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
}

#: What each shape is to come to: the status and the body, or that it was sent and no response came.
EXPECTED: dict[str, tuple[bytes, object]] = {
    **{name: (data, (status, body)) for name, (data, status, body) in WELL.items()},
    **{name: (data, "sent") for name, data in ILL.items()},
}

_LENIENT = {name.removesuffix("_is_no_response"): reason for name, reason in AIOHTTP_DEVIATIONS.items()}
_SHORT = "a_chunk_that_is_one_byte_short"
#: Where a transport comes to something else, and why. `None` for the transport that differs nowhere.
REASONS: dict[str, dict[str, tuple[object, str]]] = {
    "aiohttp": {
        **{name: ((200, b"{}"), reason) for name, reason in _LENIENT.items() if name in MALFORMED},
        _SHORT: ((200, b"{}\r"), _LENIENT[_SHORT]),
    },
    "http11": {"an empty line before it": ("sent", "RFC 9112 has a server skip one, and says nothing of clients")},
}


def aiohttp_transport() -> Transport:
    """Make the default transport."""
    return AiohttpTransport(drain=0.1)


def http11_transport() -> Transport:
    """Make the fast transport."""
    return Http11Transport(drain=0.1)


TRANSPORTS: dict[str, Callable[[], Transport]] = {"aiohttp": aiohttp_transport, "http11": http11_transport}


async def verdict(transport: Transport, request: Request) -> object:
    """Return what comes of *request*."""
    try:
        async with asyncio.timeout(PATIENCE):
            response = await transport.send(request)
    except SendFailed as failure:
        return "sent" if failure.sent else "not sent"
    return response.status, response.body


@pytest.mark.parametrize("pieces", ["whole", "in pieces"])
@pytest.mark.parametrize("name", TRANSPORTS)
async def test_every_transport_comes_to_the_same(name: str, pieces: str) -> None:
    """Each shape has one verdict, however its bytes arrive; where a transport differs, the reason is written down."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if request is None:
            return
        data, _ = EXPECTED[shapes[int(request.target[1:])]]
        cut = len(data) // 2 if pieces == "in pieces" and len(data) < 1_000 else len(data)
        for part in (data[:cut], data[cut:]):
            if part:
                await peer.write(part)
                await asyncio.sleep(0.002 if pieces == "in pieces" else 0)

    shapes, transport = list(EXPECTED), TRANSPORTS[name]()
    actual, expected = {}, {}
    async with FaultServer(script) as server:
        for number, shape in enumerate(shapes):
            actual[shape] = await verdict(transport, Request("GET", server.url(f"/{number}"), fresh=True))
            expected[shape] = REASONS[name].get(shape, (EXPECTED[shape][1], ""))[0]
        await transport.aclose()

    assert {} == {shape: (actual[shape], expected[shape]) for shape in shapes if actual[shape] != expected[shape]}
