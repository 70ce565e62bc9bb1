"""What the errors of aiohttp mean: whether anything was sent, and no secret."""

from __future__ import annotations

import re
import traceback

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from paymentsdk import Request
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.faults import FaultServer, Peer, always, http
from tests.transports.sending import TOKEN, failed

NOT_SENT, SENT, FOR_GOOD = (False, False), (True, False), (False, True)

#: What each error of aiohttp means: whether the request may have been sent, and whether it would fail again.
ERRORS = {
    "ClientConnectionError": SENT,
    "ClientConnectionResetError": SENT,
    "ClientConnectorCertificateError": FOR_GOOD,
    "ClientConnectorDNSError": NOT_SENT,
    "ClientConnectorError": NOT_SENT,
    "ClientConnectorSSLError": NOT_SENT,
    "ClientError": SENT,
    "ClientHttpProxyError": NOT_SENT,
    "ClientOSError": SENT,
    "ClientPayloadError": SENT,
    "ClientProxyConnectionError": NOT_SENT,
    "ClientResponseError": SENT,
    "ClientSSLError": NOT_SENT,
    "ConnectionTimeoutError": NOT_SENT,
    "ContentTypeError": SENT,
    "InvalidURL": FOR_GOOD,
    "InvalidUrlClientError": FOR_GOOD,
    "InvalidUrlRedirectClientError": FOR_GOOD,
    "NonHttpUrlClientError": FOR_GOOD,
    "NonHttpUrlRedirectClientError": FOR_GOOD,
    "RedirectClientError": SENT,
    "ServerConnectionError": SENT,
    "ServerDisconnectedError": SENT,
    "ServerFingerprintMismatch": FOR_GOOD,
    "ServerTimeoutError": SENT,
    "SocketTimeoutError": SENT,
    "TooManyRedirects": SENT,
    "UnixClientConnectorError": NOT_SENT,
    "UploadAbortedError": SENT,
    "WSServerHandshakeError": SENT,
}


def below(base: type[Exception]) -> set[type[Exception]]:
    """Return *base* and every error that is one."""
    return {base}.union(*map(below, base.__subclasses__()))


@pytest.fixture
async def injected():
    """The default transport on a session of somebody else."""
    async with aiohttp.ClientSession() as session:
        yield AiohttpTransport(session=session)


#: Every error of aiohttp's client, by its name.
FOUND = {kind.__name__: kind for kind in below(aiohttp.ClientError) if kind.__module__.startswith("aiohttp.")}


def test_every_error_of_aiohttp_has_a_meaning() -> None:
    """None is forgotten; a new one fails this test until somebody has thought about it."""
    assert FOUND.keys() <= ERRORS.keys()


@pytest.mark.parametrize("name", sorted(FOUND))
async def test_what_an_error_means(name: str, injected: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what happens before the first byte is written counts as not sent, on a session that tells nothing else."""

    async def broken(*arguments: object, **options: object) -> None:
        raise Blank

    class Blank(FOUND[name]):
        status = certificate_error = os_error = errno = None

        def __init__(self) -> None:
            pass

    monkeypatch.setattr(aiohttp.ClientSession, "request", broken)

    assert ERRORS[name] == (await failed(injected, Request("GET", "http://127.0.0.1:9/")))[:2]


@pytest.mark.control("paymentsdk.transports._aiohttp_messages._RESENT", frozenset())
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_what_aiohttp_cannot_send_again_was_sent(method: str, injected: AiohttpTransport) -> None:
    """A kept connection breaks with the request, and there is no other: the server has the request all the same."""

    async def stops(peer: Peer) -> None:
        await peer.request()
        await peer.write(http())
        await peer.request()
        server._server.close()

    async with FaultServer(stops) as server:
        await injected.send(Request("GET", server.url(), TOKEN))
        sent, permanent, reason = await failed(injected, Request(method, server.url(), TOKEN))

    assert ["GET", method] == [request.method for request in server.seen]
    assert (True, False) == (sent, permanent)
    assert reason.startswith("no connection to the server")


@pytest.mark.parametrize("name", ["InvalidURL", "ClientConnectorError", "ConnectionTimeoutError"])
async def test_once_there_is_a_connection_anything_may_have_been_sent(name: str) -> None:
    """An error that says otherwise was raised by a trace, and not by what it is named after."""

    class Misleading(FOUND[name]):
        errno = os_error = None

        def __init__(self) -> None:
            pass

    async def mislead(*arguments: object) -> None:
        raise Misleading

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(mislead)
    transport = AiohttpTransport(trace_configs=[trace])
    async with FaultServer(always(http())) as server:
        sent, _, _ = await failed(transport, Request("POST", server.url(), TOKEN, b"{}"))
        await transport.aclose()
    assert sent


@pytest.mark.parametrize("owned", [True, False])
async def test_an_unexpected_error_is_ambiguous(
    transport: AiohttpTransport, injected: AiohttpTransport, monkeypatch: pytest.MonkeyPatch, *, owned: bool
) -> None:
    """An error that is not known is reported by its name and place, and as sent unless there never was a connection."""

    async def broken(*arguments: object, **options: object) -> None:
        raise LookupError("Bearer APP_USR-1-2-canary")

    monkeypatch.setattr(aiohttp.ClientSession, "request", broken)

    outcome = await failed(transport if owned else injected, Request("GET", "http://127.0.0.1:9/"))

    assert outcome[:2] == (not owned, False)
    assert re.fullmatch(r"aiohttp raised LookupError \(test_aiohttp_errors\.py:[0-9]+ in broken\)", outcome[2])


async def test_an_interrupt_shows_no_token(transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the program passes through as it is: a traceback that shows variables shows no request."""

    class Interrupt(BaseException):
        pass

    async def read(protocol: object) -> None:
        raise Interrupt

    monkeypatch.setattr(ResponseHandler, "read", read)
    async with FaultServer(always(http())) as server:
        request = Request("POST", server.url(), TOKEN, b"canary")
        with pytest.raises(Interrupt) as interrupted:
            await transport.send(request)

    text = "".join(traceback.TracebackException.from_exception(interrupted.value, capture_locals=True).format())
    assert "in send" in text
    assert "canary" not in text
