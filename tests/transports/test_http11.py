"""The fast transport: what it promises beyond the rules that every transport keeps."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from paymentsdk import Http11Transport, Request, RequestInvalid, SendFailed
from paymentsdk.testing import transport_conformance
from tests.faults import FaultServer, Peer, always, http
from tests.transports.http11 import opened, outcome, turns
from tests.transports.sending import assert_conforms
from tests.transports.skipping import SkippingLoop

CASES = transport_conformance.CASES


def make(*, ca: bytes | None = None, limit: int = 100) -> Http11Transport:
    """Make the transport as the suite wants it."""
    trusted = True if ca is None else ssl.create_default_context(cadata=ca.decode())
    return Http11Transport(ssl=trusted, limit=limit, drain=0.1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_conforms(case: transport_conformance.Case) -> None:
    """It keeps every rule."""
    # The name of a host is looked up in a thread, for which no loop may skip the time.
    with asyncio.Runner(loop_factory=None if case.name == "no_such_host" else SkippingLoop) as runner:
        runner.run(assert_conforms(case, make))


@pytest.mark.parametrize("case", CASES[::12], ids=str)
def test_it_conforms_on_uvloop(case: transport_conformance.Case) -> None:
    """It does so on the event loop that many services run on, which reads and closes in its own way."""
    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        runner.run(assert_conforms(case, make))


async def test_a_server_that_speaks_first_gets_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """If data, or the end of the connection, comes before the request, nothing was sent."""
    connect = asyncio.get_running_loop().create_connection

    async def connect_slowly(*arguments: object, **options: object) -> object:
        pair = await connect(*arguments, **options)
        await turns(10)
        return pair

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect_slowly)
    for script in (Peer.close, lambda peer: peer.write(b"220 ready\r\n")):
        async with FaultServer(script) as server, opened() as transport:
            failure = await outcome(transport, Request("POST", server.url()))
        assert (False, "before the request") == (failure.sent, failure.reason[-18:])


# --- options and requests ---------------------------------------------------------------------------------------------


def test_options_that_make_no_sense_are_rejected() -> None:
    """Without a context, no certificate would be checked."""
    with pytest.raises(RequestInvalid, match="ssl: must be an"):
        Http11Transport(ssl=None)


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "http://user:canary@127.0.0.1/"),
        Request("GET", "http://b\xfccher.example/"),
        Request("GET", "http://127.0.0.1?x=/1"),
        *(Request("GET", "http://127.0.0.1/", {name: "1"}) for name in ("Host", "content-length", "Transfer-Encoding")),
        *(Request("GET", "http://127.0.0.1/", {name: "1"}) for name in ("connection", "expect", "upgrade")),
    ],
    ids=repr,
)
async def test_what_would_be_another_request_is_rejected(request_: Request) -> None:
    """A URL or a header that would be another request on the wire fails for good, with nothing sent and no secret."""
    async with opened() as transport:
        failure = await outcome(transport, request_)

    assert isinstance(failure, SendFailed)
    assert (False, True) == (failure.sent, failure.permanent)
    assert "canary" not in str(failure)


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
async def test_a_url_may_have_no_port(scheme: str, port: int) -> None:
    """Without a port, the scheme says which."""
    async with opened() as transport:
        assert f"(nothing.invalid:{port})" in str(
            await outcome(transport, Request("GET", f"{scheme}://nothing.invalid"))
        )


async def test_a_url_may_have_no_path() -> None:
    """Without a path the root is asked for, and a fragment is not sent."""
    async with FaultServer(always(http())) as server, opened() as transport:
        for tail in ("", "#top", "/a#b"):
            await transport.send(Request("GET", server.url("/").removesuffix("/") + tail))

        assert ["/", "/", "/a"] == [request.target for request in server.seen]
        assert not any("content-length" in request.headers for request in server.seen)
