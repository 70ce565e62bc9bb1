"""What goes out, and which responses come back."""

from __future__ import annotations

import os
import tempfile
from unittest.mock import patch

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import FaultServer, Peer, always, http, turns
from paymentsdk.testing.transport_conformance._case import MakeTransport, case, failure, opened, send
from paymentsdk.transports.base import Request, header

#: What HTTP itself needs or allows to say, and nothing about who is calling.
_MAY_BE_ADDED = {"host", "content-length", "content-type", "connection", "accept", "accept-encoding", "user-agent"}


@case
async def a_request_arrives_as_it_is(make: MakeTransport) -> None:
    """Method, percent-encoded target, header fields and body arrive byte for byte."""
    path = "/v1/orders/a%2Fb%20c%E2%82%AC%3a~//x;y=1,2/"
    targets = ["/", path, f"{path}?x=a%2Bb&y=%26%3D&date=2026-01-31T09%3A30%3A00.000-03%3A00&z=", "/search?"]
    fields = {"Content-Type": "application/json", "X-Idempotency-Key": "k-1", "authorization": "Bearer APP_USR-1-2-3"}
    body = b'{"description": "caf\xc3\xa9 \\u20ac", "binary": "\x00\x7f"}'
    async with FaultServer(always(http(201))) as server, opened(make) as transport:
        for target in targets:
            await send(transport, Request("POST", server.url(target), fields, body))
            seen = server.seen[-1]
            expect(seen.method == "POST", f"the method became {seen.method}")
            expect(seen.target in {target, target.removesuffix("?")}, f"the target became {seen.target}")
            expect(seen.body == body, f"the body became {seen.body!r}")
            for name, value in fields.items():
                expect(seen.headers.get(name.lower()) == value, f"{name} became {seen.headers.get(name.lower())}")


@case
async def every_method_goes_out(make: MakeTransport) -> None:
    """GET, POST, PUT, PATCH and DELETE go out as such, each exactly once, and none gets a body."""
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    async with FaultServer(always(http())) as server, opened(make) as transport:
        for method in methods:
            await send(transport, Request(method, server.url()))
        expect([seen.method for seen in server.seen] == methods, f"{server.seen} arrived")
        expect(not any(seen.body for seen in server.seen), "a body was invented")
        expect("transfer-encoding" not in server.seen[1].headers, "an empty body was sent in chunks")


@case
async def a_large_body_arrives(make: MakeTransport) -> None:
    """A body of 512 KiB, more than the buffers between the two ends, arrives whole."""
    body = bytes(range(256)) * 2048
    async with FaultServer(always(http())) as server, opened(make) as transport:
        await send(transport, Request("POST", server.url(), {"Content-Type": "application/octet-stream"}, body))
        expect(server.seen[0].body == body, f"{len(server.seen[0].body)} bytes arrived")


@case
async def nothing_is_added_that_says_who_calls(make: MakeTransport) -> None:
    """Beyond what HTTP needs, only the given header fields go out: no cookie, no credentials, no referer."""
    async with FaultServer(always(http())) as server, opened(make) as transport:
        await send(transport, Request("GET", server.url(), {"X-One": "1"}))
        added = server.seen[0].headers.keys() - _MAY_BE_ADDED - {"x-one"}
        expect(not added, f"these fields were added: {added}")


@case
async def cookies_are_not_kept(make: MakeTransport) -> None:
    """A cookie that one seller's response sets does not go out with the next seller's request."""
    async with (
        FaultServer(always(http(200, b"{}", "Set-Cookie: seller=1; Path=/"))) as server,
        opened(make) as transport,
    ):
        await send(transport, Request("GET", server.url("/1", host="localhost")))
        await send(transport, Request("GET", server.url("/2", host="localhost")))
        expect("cookie" not in server.seen[1].headers, "a cookie was kept and sent")


@case
async def the_token_is_the_one_that_was_given(make: MakeTransport) -> None:
    """A password for the host in a ``.netrc`` does not replace the token: it may be another seller's."""
    token = {"Authorization": "Bearer APP_USR-1-2-3"}
    with tempfile.NamedTemporaryFile("w", suffix=".netrc") as file:
        file.write("machine 127.0.0.1 login another password secret\n")
        file.flush()
        with patch.dict(os.environ, {"NETRC": file.name}):
            async with FaultServer(always(http())) as server, opened(make) as transport:
                await send(transport, Request("GET", server.url(), token))
    sent = server.seen[0].headers["authorization"]
    expect(sent == token["Authorization"], f"it became {sent}")


@case
async def a_header_with_a_line_break_is_not_sent(make: MakeTransport) -> None:
    """A header field that would smuggle in another one is rejected before anything is sent."""
    async with FaultServer(always(http())) as server, opened(make) as transport:
        for line_break in ("\r\n", "\n", "\r"):
            for fields in ({"X-One": f"1{line_break}X-Two: 2"}, {f"X-One: 1{line_break}X-Two": "2"}):
                await failure(transport, Request("GET", server.url(), fields), sent=False)
        expect(not server.seen, "it was sent")


@case
async def every_status_is_a_response(make: MakeTransport) -> None:
    """A rejection is a response like any other: status, header fields in any case, and body come back as they are."""
    async with opened(make) as transport:
        for status in (200, 201, 202, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504):
            sent = http(status, b'{"code": "%d"}' % status, "X-Request-Id: r-1", "Retry-After: 7")
            async with FaultServer(always(sent)) as server:
                response = await send(transport, Request("GET", server.url()))
            expect(response.status == status, f"{status} became {response.status}")
            expect(response.body == b'{"code": "%d"}' % status, f"the body became {response.body!r}")
            for name in ("X-Request-Id", "x-request-id", "X-REQUEST-ID"):
                expect(header(response.headers, name) == "r-1", f"{name} became {header(response.headers, name)}")


@case
async def html_is_a_response(make: MakeTransport) -> None:
    """A page of HTML from a gateway, with a 502 or even a 200, comes back as it is: judging it is up to the engine."""
    page = b"<html><body>Bad Gateway \xe9</body></html>"
    async with opened(make) as transport:
        for status in (502, 200):
            async with FaultServer(always(http(status, page, "Content-Type: text/html"))) as server:
                response = await send(transport, Request("GET", server.url()))
            expect((response.status, response.body) == (status, page), f"{response!r} {response.body!r} came back")


@case
async def redirects_are_not_followed(make: MakeTransport) -> None:
    """A redirect is a response: key, token and body never go to the address that it names."""
    async with FaultServer(always(http())) as elsewhere, opened(make) as transport:
        for status in (301, 302, 303, 307, 308):
            for method in ("GET", "POST"):
                away = http(status, b"", f"Location: {elsewhere.url('/stolen')}")
                async with FaultServer(always(away)) as server:
                    fields = {"Authorization": "Bearer APP_USR-1-2-3", "X-Idempotency-Key": "k-1"}
                    body = b'{"token": "t"}' if method == "POST" else b""
                    response = await send(transport, Request(method, server.url(), fields, body))
                expect(response.status == status, f"{status} became {response.status}")
        expect(not elsewhere.seen, f"{elsewhere.seen} went to the other origin")


@case
async def an_empty_response_is_a_response(make: MakeTransport) -> None:
    """A 204, and a 200 of no bytes, come back with an empty body, and the connection goes on."""
    responses = [b"HTTP/1.1 204 No Content\r\n\r\n", http(200, b""), http()]

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            await peer.write(responses.pop(0))

    async with FaultServer(script) as server, opened(make) as transport:
        bodies = [(await send(transport, Request("DELETE", server.url()))).body for _ in range(3)]
        expect(bodies == [b"", b"", b"{}"], f"{bodies} came back")
        expect(server.opened < len(bodies), f"it took {server.opened} connections")


@case
async def the_body_may_come_in_any_form(make: MakeTransport) -> None:
    """A body comes back whole whether it has a length, comes in chunks, byte by byte, or ends with the connection."""
    chunks = b"5\r\n01234\r\n5;x=y\r\n56789\r\n0\r\nX-Trailer: t\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    unbounded = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789"

    async def in_pieces(peer: Peer, response: bytes) -> None:
        for i in range(len(response)):
            await peer.write(response[i : i + 1])
            await turns()

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            response = {"/length": http(200, b"0123456789"), "/chunked": chunked, "/end": unbounded}[seen.target]
            await in_pieces(peer, response)
            if response is unbounded:
                return

    async with FaultServer(script) as server, opened(make) as transport:
        for target in ("/length", "/chunked", "/end", "/length"):
            response = await send(transport, Request("GET", server.url(target)))
            expect(response.body == b"0123456789", f"{target}: {response.body!r} came back")


@case
async def interim_responses_are_passed_over(make: MakeTransport) -> None:
    """A 100 or a 103 before the response is not the response."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with FaultServer(always(interim + http(201, b"made"))) as server, opened(make) as transport:
        for _ in range(2):
            response = await send(transport, Request("POST", server.url(), {}, b"{}"))
            expect((response.status, response.body) == (201, b"made"), f"{response!r} came back")
