"""What the fast transport takes for a response: what is well formed, by the grammar, and nothing behind it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from paymentsdk import Request, Response, SendFailed
from paymentsdk.transports._http11_connection import Parts
from tests.faults import FaultServer, http
from tests.transports.http11 import CHUNKED, once, opened, outcome

# --- what is no response ----------------------------------------------------------------------------------------------

#: What the suite of all transports does not have.
MALFORMED = {
    "tab before colon": b"HTTP/1.1 200 OK\r\nX\t: 2\r\nContent-Length: 2\r\n\r\n{}",
    "folded field": b"HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "one length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "two codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n{}",
    **{
        f"chunk of size {size!r}": CHUNKED + size + b"\r\n{}\r\n0\r\n\r\n"
        for size in (b"+2", b" 2", b"2 ", b"0_2", b"2,", b"2\x00", b"00000000000000002", b";x=y", b"2;\x7f")
    },
    "chunk without its line break": CHUNKED + b"2\r\n{}0\r\n\r\n",
    "trailer that is no field": CHUNKED + b"2\r\n{}\r\n0\r\nxyz\r\n\r\n",
    "trailer that is folded": CHUNKED + b"2\r\n{}\r\n0\r\nX: 1\r\n 2\r\n\r\n",
    "a megabyte in chunks of a byte": CHUNKED + b"1\r\nx\r\n" * 2**20,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "endless trailer": CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: " + b"y" * 200_000,
    "tiny chunks": CHUNKED + b"1;" + b"x" * 150_000 + b"\r\n{\r\n",
    "interim heads without end": b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" * 3_000,
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_parsers_read_differently_is_no_response(name: str) -> None:
    """A malformed response is a failure at once, with the request sent, and its connection is closed."""
    await assert_rejected(name)


async def assert_rejected(name: str) -> None:
    """See the request fail as sent, and its connection closed."""
    async with FaultServer(once(MALFORMED[name])) as server, opened() as transport:
        failure = await outcome(transport, Request("GET", server.url()))

        assert isinstance(failure, SendFailed)
        assert failure.sent
        await server.all_hung_up()


@pytest.mark.control(
    "paymentsdk.transports._http11_connection._HEAD", around=lambda _: re.compile(rb"HTTP/... ?([0-9]+)[^$]*")
)
@pytest.mark.parametrize("name", ["HTTP/2", "tab before colon", "folded field"])
async def test_heads_keep_the_grammar(name: str) -> None:
    """A head has to match the grammar of RFC 9112 in full, with nothing that the RFC only tolerates."""
    await assert_rejected(name)


@pytest.mark.control("paymentsdk.transports._http11_connection._refuse", lambda reason: None)
async def test_framing_is_not_ambiguous() -> None:
    """A list of transfer codings is rejected."""
    await assert_rejected("two codings")


SURPLUS = {
    "line break": http(200, b"{}") + b"\r\n",
    "half a line break": http(200, b"{}") + b"\r",
    "after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n" + http(200, b"stray"),
    "empty response after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n" + http(200, b""),
    "line break after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n\r\n",
    "line feed after chunks": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n\n",
    "after a trailer": CHUNKED + b"2\r\n{}\r\n0\r\nX: y\r\n\r\n\r\n",
    "length of a 204": b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    "chunks of a 204": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
}


async def assert_takes_two_connections(text: bytes) -> None:
    """See two requests get *text* as a response, each on a connection of its own."""
    async with FaultServer(once(text)) as server, opened(limit=1) as transport:
        for _ in range(2):
            response = await outcome(transport, Request("GET", server.url()))
            assert isinstance(response, Response)
            assert response.body == (b"" if response.status in {204, 304} else b"{}")
        assert 2 == server.opened


@pytest.mark.parametrize("name", SURPLUS)
async def test_surplus_is_not_the_next_response(name: str) -> None:
    """A complete response with more bytes behind it comes back, and its connection is closed."""
    await assert_takes_two_connections(SURPLUS[name])


def keeping(read_parts: Callable[..., Parts]) -> Callable[..., Parts]:
    """Read responses, and let another request follow each."""

    def read(*arguments: object, **options: object) -> Parts:
        status, head, body, _ = yield from read_parts(*arguments, **options)
        return status, head, body, True

    return read


@pytest.mark.control("paymentsdk.transports._http11_connection.read_parts", around=keeping)
async def test_surplus_of_any_form_is_seen() -> None:
    """Whole responses behind a response end its connection."""
    await assert_takes_two_connections(SURPLUS["empty response after chunks"])


WELL_FORMED = {
    "chunks": CHUNKED + b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
    "trailer": CHUNKED + b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n",
    "two trailers and zeros": CHUNKED + b"0002\r\n{}\r\n000\r\nX-Sum: 1\r\nY:\r\n\r\n",
    "blanks before an extension": CHUNKED + b"2 \t; x=y\r\n{}\r\n0\r\n\r\n",
    "no reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}",
    "blank in a value": b"HTTP/1.1 200 OK\r\nX: a : b\r\nContent-Length:   2  \r\n\r\n{}",
    "interim": b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + http(),
    "close in a value": b"HTTP/1.1 200 OK\r\nX: close\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", WELL_FORMED)
async def test_what_is_well_formed_keeps_its_connection(name: str) -> None:
    """Chunks, trailers, interim responses: in one piece or byte by byte, the connection is used again."""
    text = WELL_FORMED[name]
    for pieces in ([text], [text[i : i + 1] for i in range(len(text))]):
        async with FaultServer(once(*pieces)) as server, opened() as transport:
            for _ in range(2):
                assert b"{}" == (await transport.send(Request("GET", server.url()))).body
            assert 1 == server.opened


async def test_a_body_may_have_many_chunks() -> None:
    """Framing is counted once: a page in thousands of chunks is no attack."""
    text = CHUNKED + b"10\r\n0123456789abcdef\r\n" * 4000 + b"0\r\n\r\n"
    async with FaultServer(once(text)) as server, opened() as transport:
        assert 64_000 == len((await transport.send(Request("GET", server.url()))).body)


async def test_header_fields_are_a_mapping() -> None:
    """The first of equal names counts, in upper or lower case, and a `repr` shows no value of an unknown field."""
    text = b"HTTP/1.1 200 OK\r\nX-One: 1\r\nx-one: 2\r\nServer: s\r\nContent-Length: 0\r\n\r\n"
    async with FaultServer(once(text)) as server, opened() as transport:
        fields = (await transport.send(Request("GET", server.url()))).headers
    assert ({"x-one": "1", "Server": "s", "Content-Length": "0"}, 3) == (dict(fields), len(fields))
    assert "{'x-one': '***', 'Server': 's', 'Content-Length': '0'}" == repr(fields)


async def test_a_response_to_head_has_no_body() -> None:
    """The response to a HEAD request has the length of a body, and none; its connection goes on."""
    async with FaultServer(once(http(200, b"", length=5))) as server, opened() as transport:
        for _ in range(2):
            response = await outcome(transport, Request("HEAD", server.url()))
            assert (200, b"") == (response.status, response.body)
        assert 1 == server.opened
        assert "content-length" not in server.seen[0].headers


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: CLOSE\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: y, close\r\n",
    ],
)
async def test_a_server_that_will_close_is_not_asked_again(head: bytes) -> None:
    """HTTP/1.0, and `Connection: close` in any case, end a connection, even if the server leaves it open."""
    async with FaultServer(once(head + b"Content-Length: 2\r\n\r\n{}")) as server, opened() as transport:
        for _ in range(2):
            await transport.send(Request("GET", server.url()))
        assert 2 == server.opened
