"""TLS: who is at the other end is certain before anything is sent."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import FaultServer, Peer, always, http
from paymentsdk.testing.transport_conformance._case import MakeTransport, case, failure, opened, send
from paymentsdk.transports.base import Request

if TYPE_CHECKING:
    import trustme


def _authority() -> trustme.CA:
    import trustme  # only these cases need it

    return trustme.CA()


def _serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def _rejected(make: MakeTransport, certificate: trustme.LeafCert, ca: trustme.CA | None) -> None:
    """See *certificate* rejected for good, with nothing sent."""
    pem = None if ca is None else ca.cert_pem.bytes()
    async with FaultServer(always(http()), tls=_serving(certificate)) as server, opened(make, ca=pem) as transport:
        failed = await failure(transport, Request("GET", server.url()), sent=False)
        expect(failed.permanent, "the certificate will be as wrong the next time, so it is permanent")
        expect(not server.seen, "the request went out to a stranger")


@case
async def tls_works(make: MakeTransport) -> None:
    """With an authority that is trusted, requests go out, connections are kept, and fresh ones are new."""
    ca = _authority()
    tls = _serving(ca.issue_cert("127.0.0.1", "localhost"))
    body = b"x" * 100_000
    async with (
        FaultServer(always(http(200, body)), tls=tls) as server,
        opened(make, ca=ca.cert_pem.bytes()) as transport,
    ):
        for host in ("127.0.0.1", "localhost"):
            before = server.opened
            for fresh in (False, False, True, False):
                request = Request("POST", server.url(host=host), {}, b"{}", fresh=fresh)
                response = await send(transport, request)
                expect(response.body == body, f"{len(response.body)} bytes came back")
            opened_now = server.opened - before
            expect(opened_now in {2, 3}, f"it took {opened_now} connections")


@case
async def an_unknown_authority_is_refused(make: MakeTransport) -> None:
    """A certificate of an unknown authority is rejected for good, with nothing sent."""
    await _rejected(make, _authority().issue_cert("127.0.0.1"), None)
    await _rejected(make, _authority().issue_cert("127.0.0.1"), _authority())


@case
async def another_host_is_refused(make: MakeTransport) -> None:
    """A certificate for another host is rejected for good, with nothing sent."""
    ca = _authority()
    await _rejected(make, ca.issue_cert("api.example.com"), ca)


@case
async def an_expired_certificate_is_refused(make: MakeTransport) -> None:
    """A certificate that has expired is rejected for good, with nothing sent."""
    ca = _authority()
    await _rejected(make, ca.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)), ca)


@case
async def a_handshake_that_fails(make: MakeTransport) -> None:
    """A server that speaks no TLS, or hangs up in the handshake, is a failure with nothing sent."""

    async def speaks_no_tls(peer: Peer) -> None:
        await peer.write(http(400))

    async def hangs_up(peer: Peer) -> None:
        await peer.close()

    for script in (speaks_no_tls, hangs_up):
        async with FaultServer(script) as server, opened(make) as transport:
            await failure(transport, Request("GET", server.url().replace("http:", "https:")), sent=False)


@case
async def a_handshake_that_hangs(make: MakeTransport) -> None:
    """A handshake that is not done within ``connect_timeout`` is a failure with nothing sent."""

    async def script(peer: Peer) -> None:
        await peer.hung_up()

    async with FaultServer(script) as server, opened(make) as transport:
        url = server.url().replace("http:", "https:")
        await failure(transport, Request("GET", url, timeout=10.0, connect_timeout=0.2), sent=False)
        await server.all_hung_up()
