"""TLS, by which it is certain who is at the other end before anything is sent, and secrets that no failure shows.

A failure ends up in logs, in debuggers, and in other processes.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import ssl
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING

from msgspec import structs

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import Peer, always, echo, http, once, play, refused_port
from paymentsdk.testing.transport_conformance._case import Link, MakeTransport, Options, case, linked, served
from paymentsdk.transports.base import Request, SendFailed

if TYPE_CHECKING:
    import trustme

# --- TLS --------------------------------------------------------------------------------------------------------------


def _authority() -> trustme.CA:
    import trustme  # only these cases need it

    return trustme.CA()


def _serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def _reject(make: MakeTransport, certificate: trustme.LeafCert, ca: trustme.CA | None) -> None:
    """See *certificate* rejected for good, with nothing sent."""
    pem = None if ca is None else ca.cert_pem.bytes()
    async with linked(make, echo, tls=_serving(certificate), ca=pem) as link:
        failed = await link.fail(link.request(), sent=False)
        expect(failed.permanent, "the certificate will be as wrong the next time, so it is permanent")
        expect(not link.server.seen, "the request went out to a stranger")


@case
async def tls_works(make: MakeTransport) -> None:
    """With an authority that is trusted, requests go out, connections are kept, and fresh ones are new."""
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
    """A certificate of an unknown authority is rejected for good, with nothing sent."""
    await _reject(make, _authority().issue_cert("127.0.0.1"), None)
    await _reject(make, _authority().issue_cert("127.0.0.1"), _authority())


@case
async def another_host_is_refused(make: MakeTransport) -> None:
    """A certificate for another host is rejected for good, with nothing sent."""
    ca = _authority()
    await _reject(make, ca.issue_cert("api.example.com"), ca)


@case
async def an_expired_certificate_is_refused(make: MakeTransport) -> None:
    """A certificate that has expired is rejected for good, with nothing sent."""
    ca = _authority()
    await _reject(make, ca.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)), ca)


async def _shake_no_hands(link: Link, connect_timeout: float) -> None:
    """See a request of TLS to the server, which does not speak it, fail with nothing sent."""
    url = link.server.url().replace("http:", "https:")
    await link.fail(Request("GET", url, timeout=10.0, connect_timeout=connect_timeout), sent=False)


@served(play(http(400)), Peer.close)
async def a_handshake_that_fails(link: Link) -> None:
    """A server that speaks no TLS, or hangs up in the handshake, is a failure with nothing sent."""
    await _shake_no_hands(link, 5.0)


@served(Peer.hung_up)
async def a_handshake_that_hangs(link: Link) -> None:
    """A handshake that is not done within ``connect_timeout`` is a failure with nothing sent."""
    await _shake_no_hands(link, 0.2)
    await link.server.all_hung_up()


# --- secrets ----------------------------------------------------------------------------------------------------------

_BEARER, _CARD, _GRANT = "APP_USR-1-010203-canary-7", "card-token-canary", "TG-refresh-canary"
_FIELDS = {"Authorization": f"Bearer {_BEARER}", "Content-Type": "application/json"}
_SENT: Options = {"headers": _FIELDS, "body": f'{{"token": "{_CARD}"}}'.encode(), "timeout": 5.0}
_TOKENS = f'{{"refresh_token": "{_GRANT}"'.encode()


def _search(text: str, what: str) -> None:
    for canary in (_BEARER, _CARD, _GRANT):
        expect(canary not in text, f"a credential is {what}:\n{text}")


async def _fail_silently(link: Link, request: Request) -> None:
    """Send *request*, which fails or runs out of time, and search for the canaries.

    They must not be in the text of the error, its traceback with the locals of every frame, or its pickle.
    """
    try:
        await link.exchange(request)
    except Exception as error:  # noqa: BLE001 - which it may be is for other cases
        lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
        pickled = pickle.dumps(error) if isinstance(error, SendFailed) else b""
        _search("\n".join([str(error), repr(error), *lines, pickled.decode("latin-1")]), "told")
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
    """No failure shows the token, the body or the response: not in its text, traceback, locals, context or pickle."""
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
    """Collect what is logged, at any level that its logger has not been given itself."""
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
    """Neither token nor body, of the request or of the response, is logged at any level, whether it fails or not."""
    with _logged() as text:
        for response in (http(200, _TOKENS + b"}"), b"garbage\r\n\r\n", b""):
            async with linked(make, once(response)) as link:
                with contextlib.suppress(SendFailed):
                    await link.send("/", "POST", **_SENT)
    _search(text.getvalue(), "logged")
