"""Which requests are sent where, which responses are returned, and which secrets no failure shows."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import ssl
import tempfile
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING
from unittest.mock import patch

from msgspec import structs

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import Peer, Step, always, echo, http, once, play, refused_port, replies
from paymentsdk.testing.transport_conformance._case import Link, MakeTransport, Options, case, linked, served
from paymentsdk.transports.base import Request, SendFailed, header

if TYPE_CHECKING:
    import trustme

#: The header fields that HTTP itself needs or allows, and that say nothing about the caller.
_MAY_BE_ADDED = {"host", "content-length", "content-type", "connection", "accept", "accept-encoding", "user-agent"}
_TOKEN = {"Authorization": "Bearer APP_USR-1-2-3"}


@served(always(http(201)))
async def a_request_arrives_as_it_is(link: Link) -> None:
    """Method, percent-encoded target, header fields and body arrive byte for byte, also a body of 512 KiB."""
    path = "/v1/orders/a%2Fb%20c%E2%82%AC%3a~//x;y=1,2/"
    targets = ["/", path, f"{path}?x=a%2Bb&y=%26%3D&date=2026-01-31T09%3A30%3A00.000-03%3A00&z=", "/search?"]
    fields = {"Content-Type": "application/json", "X-Idempotency-Key": "k-1", "authorization": "Bearer APP_USR-1-2-3"}
    body = b'{"description": "caf\xc3\xa9 \\u20ac"}' + bytes(range(256)) * 2048  # More than the buffers hold.
    for target in targets:
        await link.send(target, "POST", headers=fields, body=body)
        request = link.server.seen[-1]
        arrived = f"{request.method} with {len(request.body)} bytes arrived"
        expect((request.method, request.body) == ("POST", body), arrived)
        expect(request.target in {target, target.removesuffix("?")}, f"the target became {request.target}")
        for name, value in fields.items():
            expect(request.headers.get(name.lower()) == value, f"{name} became {request.headers.get(name.lower())}")


@served(echo)
async def every_method_goes_out(link: Link) -> None:
    """GET, POST, PUT, PATCH and DELETE are sent as such, each exactly once, and no body is added."""
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    for method in methods:
        await link.send(method=method)
    expect([request.method for request in link.server.seen] == methods, f"{link.server.seen} arrived")
    expect(not any(request.body for request in link.server.seen), "a body was invented")
    expect("transfer-encoding" not in link.server.seen[1].headers, "an empty body was sent in chunks")


@served(echo)
async def nothing_is_added_that_says_who_calls(link: Link) -> None:
    """Only the given header fields and the fields of HTTP are sent: no cookie, no credentials, no referer."""
    await link.send(headers={"X-One": "1"})
    added = link.server.seen[0].headers.keys() - _MAY_BE_ADDED - {"x-one"}
    expect(not added, f"these fields were added: {added}")


@served(always(http(200, b"{}", "Set-Cookie: seller=1; Path=/")))
async def cookies_are_not_kept(link: Link) -> None:
    """A cookie from one seller's response is not sent with the next seller's request."""
    for target in ("/1", "/2"):
        await link.exchange(Request("GET", link.server.url(target, host="localhost")))
    expect("cookie" not in link.server.seen[1].headers, "a cookie was kept and sent")


@served(echo)
async def the_token_is_the_one_that_was_given(link: Link) -> None:
    """A password for the host in a ``.netrc`` does not replace the token: it may belong to another seller."""
    with tempfile.NamedTemporaryFile("w", suffix=".netrc") as file:
        file.write("machine 127.0.0.1 login another password secret\n")
        file.flush()
        with patch.dict(os.environ, {"NETRC": file.name}):
            await link.send(headers=_TOKEN)
    sent = link.server.seen[0].headers["authorization"]
    expect(sent == _TOKEN["Authorization"], f"it became {sent}")


@served(echo)
async def a_header_with_a_line_break_is_not_sent(link: Link) -> None:
    """A header field with a line break, which would smuggle in another field, is rejected before anything is sent."""
    for line_break in ("\r\n", "\n", "\r"):
        for fields in ({"X-One": f"1{line_break}X-Two: 2"}, {f"X-One: 1{line_break}X-Two": "2"}):
            await link.fail(link.request(headers=fields), sent=False)
    expect(not link.server.seen, "it was sent")


_STATUSES = {
    f"/{status}": [http(status, b'{"code": "%d"}' % status, "X-Request-Id: r-1", "Retry-After: 7")]
    for status in (200, 201, 202, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504)
}


@served(replies(_STATUSES))
async def every_status_is_a_response(link: Link) -> None:
    """A rejection is a response like any other: status, header fields in any case, and body are returned unchanged."""
    for target in _STATUSES:
        response = await link.send(target)
        came = (f"/{response.status}", response.body)
        expect(came == (target, b'{"code": "%d"}' % response.status), f"{came} came back to {target}")
        for name in ("X-Request-Id", "x-request-id", "X-REQUEST-ID"):
            expect(header(response.headers, name) == "r-1", f"{name} became {header(response.headers, name)}")


@case
async def redirects_are_not_followed(make: MakeTransport) -> None:
    """A redirect is returned as a response: key, token and body are never sent to its address."""
    async with linked(make, echo) as elsewhere:
        location = f"Location: {elsewhere.server.url('/stolen')}"
        away = {f"/{status}": [http(status, b"", location)] for status in (301, 302, 303, 307, 308)}
        async with linked(make, replies(away)) as link:
            for target in away:
                for method, body in (("GET", b""), ("POST", b'{"token": "t"}')):
                    fields = {**_TOKEN, "X-Idempotency-Key": "k-1"}
                    response = await link.send(target, method, headers=fields, body=body)
                    expect(target == f"/{response.status}", f"{target} became {response.status}")
        expect(not elsewhere.server.seen, f"{elsewhere.server.seen} went to the other origin")


@served(replies({"/204": [b"HTTP/1.1 204 No Content\r\n\r\n"], "/200": [http(200, b"")]}))
async def an_empty_response_is_a_response(link: Link) -> None:
    """A 204, and a 200 without bytes, are returned with an empty body, and the connection is kept."""
    await link.receive("/204", b"", status=204)
    await link.receive("/200", b"")
    await link.receive("/more", b"/more")
    expect(link.server.opened < len(link.server.seen), f"it took {link.server.opened} connections")


def _in_bytes(response: bytes) -> list[Step]:
    return [bytes([byte]) for byte in response]


_CHUNKS = b"5\r\n01234\r\n5;x=y\r\n56789\r\n0\r\nX-Trailer: t\r\n\r\n"
_FORMS: dict[str, list[Step]] = {
    "/length": _in_bytes(http(200, b"0123456789")),
    "/chunked": _in_bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _CHUNKS),
    "/end": [*_in_bytes(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789"), Peer.close],
}


@served(replies(_FORMS))
async def the_body_may_come_in_any_form(link: Link) -> None:
    """A body is returned whole if it has a length, comes in chunks, byte by byte, or ends with the connection."""
    for target in (*_FORMS, "/length"):
        await link.receive(target, b"0123456789")


_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


@served(always(_INTERIM + http(201, b"made")))
async def interim_responses_are_passed_over(link: Link) -> None:
    """A 100 or a 103 before the response is not taken for the response."""
    for _ in range(2):
        await link.receive("/", b"made", "POST", status=201, body=b"{}")


# --- TLS --------------------------------------------------------------------------------------------------------------


def _authority() -> trustme.CA:
    import trustme  # only these cases need it

    return trustme.CA()


def _serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def _reject(make: MakeTransport, certificate: trustme.LeafCert, ca: trustme.CA | None) -> None:
    """Check that *certificate* is rejected permanently, with nothing sent."""
    pem = None if ca is None else ca.cert_pem.bytes()
    async with linked(make, echo, tls=_serving(certificate), ca=pem) as link:
        failed = await link.fail(link.request(), sent=False)
        expect(failed.permanent, "a second attempt would meet the same certificate, so the error must be permanent")
        expect(not link.server.seen, "the request was sent to an untrusted server")


@case
async def tls_works(make: MakeTransport) -> None:
    """With a trusted authority, requests are sent, connections are kept, and fresh connections are new."""
    ca, body = _authority(), b"x" * 100_000
    tls = _serving(ca.issue_cert("127.0.0.1", "localhost"))
    async with linked(make, always(http(200, body)), tls=tls, ca=ca.cert_pem.bytes()) as link:
        for host in ("127.0.0.1", "localhost"):
            before = link.server.opened
            for fresh in (False, False, True, False):
                request = Request("POST", link.server.url(host=host), {}, b"{}", fresh=fresh)
                response = await link.exchange(request)
                expect(response.body == body, f"{len(response.body)} bytes came back")
            opened_now = link.server.opened - before
            expect(opened_now in {2, 3}, f"it took {opened_now} connections")


@case
async def an_unknown_authority_is_refused(make: MakeTransport) -> None:
    """A certificate of an unknown authority is rejected permanently, with nothing sent."""
    await _reject(make, _authority().issue_cert("127.0.0.1"), None)
    await _reject(make, _authority().issue_cert("127.0.0.1"), _authority())


@case
async def another_host_is_refused(make: MakeTransport) -> None:
    """A certificate for another host is rejected permanently, with nothing sent."""
    ca = _authority()
    await _reject(make, ca.issue_cert("api.example.com"), ca)


@case
async def an_expired_certificate_is_refused(make: MakeTransport) -> None:
    """A certificate that has expired is rejected permanently, with nothing sent."""
    ca = _authority()
    await _reject(make, ca.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)), ca)


async def _fail_handshake(link: Link, connect_timeout: float) -> None:
    """Check that a TLS request to the server, which does not speak TLS, fails with nothing sent."""
    url = link.server.url().replace("http:", "https:")
    await link.fail(Request("GET", url, timeout=10.0, connect_timeout=connect_timeout), sent=False)


@served(play(http(400)), Peer.close)
async def a_handshake_that_fails(link: Link) -> None:
    """A server that speaks no TLS, or hangs up in the handshake, causes a failure with nothing sent."""
    await _fail_handshake(link, 5.0)


@served(Peer.hung_up)
async def a_handshake_that_hangs(link: Link) -> None:
    """A handshake that is not done within ``connect_timeout`` is a failure with nothing sent."""
    await _fail_handshake(link, 0.2)
    await link.server.all_hung_up()


# --- secrets ----------------------------------------------------------------------------------------------------------

_BEARER, _CARD, _GRANT = "APP_USR-1-010203-canary-7", "card-token-canary", "TG-refresh-canary"
_FIELDS = {"Authorization": f"Bearer {_BEARER}", "Content-Type": "application/json"}
_SENT: Options = {"headers": _FIELDS, "body": f'{{"token": "{_CARD}"}}'.encode(), "timeout": 5.0}
_TOKENS = f'{{"refresh_token": "{_GRANT}"'.encode()


def _search(text: str, verb: str) -> None:
    for canary in (_BEARER, _CARD, _GRANT):
        expect(canary not in text, f"a credential is {verb}:\n{text}")


async def _fail_silently(link: Link, request: Request) -> None:
    """Send *request*, which fails or runs out of time, and search for the canaries.

    They must not be in the text of the error, its traceback with the locals of every frame, or its pickle.
    """
    try:
        await link.exchange(request)
    except Exception as error:  # noqa: BLE001 - other cases check the kind of the error
        lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
        pickled = pickle.dumps(error) if isinstance(error, SendFailed) else b""
        _search("\n".join([str(error), repr(error), *lines, pickled.decode("latin-1")]), "shown")
    else:
        raise AssertionError("a failure was expected")


@served(
    once(),
    once(_TOKENS + b"\r\n\r\n"),
    once(http(200, _TOKENS, length=99)),
    once(http(200, _TOKENS, length=10**9)),
    once(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _TOKENS + b"\r\n"),
)
async def failures_hold_no_credentials(link: Link) -> None:
    """No failure shows the token, the body or the response in its text, traceback, locals, context or pickle."""
    await _fail_silently(link, link.request("/", "POST", **_SENT))
    with refused_port() as port:
        request = Request("POST", f"http://127.0.0.1:{port}/", **_SENT)
        await _fail_silently(link, request)
    await _fail_silently(link, structs.replace(request, headers={**_FIELDS, "X-One": "1\n2"}))


@served(once(Peer.hung_up))
async def cancellation_holds_no_credentials(link: Link) -> None:
    """A cancellation does not show the token in the locals of the frames that it has passed."""
    await _fail_silently(link, structs.replace(link.request("/", "POST", **_SENT), timeout=0.1))


@contextlib.contextmanager
def _logged() -> Iterator[StringIO]:
    """Collect all log records, except those below a level that their logger has set itself."""
    root, text = logging.getLogger(), StringIO()
    level, handler = root.level, logging.StreamHandler(text)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@case
async def logs_hold_no_credentials(make: MakeTransport) -> None:
    """No token and no body, of request or response, is logged at any level, whether the request fails or not."""
    with _logged() as text:
        for response in (http(200, _TOKENS + b"}"), b"garbage\r\n\r\n", b""):
            async with linked(make, once(response)) as link:
                with contextlib.suppress(SendFailed):
                    await link.send("/", "POST", **_SENT)
    _search(text.getvalue(), "logged")
