"""What the transport on aiohttp does beyond what every transport does."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from base64 import b64encode
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from paymentsdk import PaymentsClient, Request, SendFailed
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.faults import FaultServer, always, http, refused_port
from tests.transports.sending import TOKEN, failed

# --- the event loop ---------------------------------------------------------------------------------------------------


async def test_closed_from_another_running_loop(transport: AiohttpTransport) -> None:
    """Closing connections under the hands of the loop that runs them is rejected."""
    async with FaultServer(always(http())) as server:
        await transport.send(Request("GET", server.url()))

        with pytest.raises(ClientClosed, match="close the transport there"):
            await asyncio.to_thread(asyncio.run, transport.aclose())
        with pytest.raises(ClientClosed, match="the transport is closed"):
            await transport.send(Request("GET", server.url()))


# --- what goes out ----------------------------------------------------------------------------------------------------


#: What is out of the ordinary, and what arrives of it.
ODD = {
    "a fragment": (lambda url: Request("GET", url + "#part"), {"target": "/orders"}),
    "no body in the response": (lambda url: Request("HEAD", url), {"method": "HEAD"}),
    "a host of the caller's": (lambda url: Request("GET", url, {"host": "a.example"}), {"host": "a.example"}),
    "something to expect": (lambda url: Request("GET", url, {"Expect": "nothing"}), {"expect": "nothing"}),
    "a connection to be closed": (lambda url: Request("GET", url, {"Connection": "close"}), {"connection": "close"}),
    "a length of the caller's": (
        lambda url: Request("POST", url, {"content-Length": "2"}, b"{}"),
        {"content-length": "2"},
    ),
    "no path but a query": (lambda url: Request("GET", url.replace("/orders", "?x=/y")), {"target": "/?x=/y"}),
    "no path": (lambda url: Request("GET", url.removesuffix("/orders")), {"target": "/"}),
}


@pytest.mark.parametrize("name", ODD)
async def test_what_is_out_of_the_ordinary_arrives(name: str, transport: AiohttpTransport) -> None:
    """Whatever HTTP allows goes out as it was given."""
    make, expected = ODD[name]

    async with FaultServer(always(http(200, b""))) as server:
        assert 200 == (await transport.send(make(server.url("/orders")))).status

    [request] = server.seen
    arrived = {**request.headers, "target": request.target, "method": request.method}
    assert expected.items() <= arrived.items()


# --- injected sessions ------------------------------------------------------------------------------------------------


async def test_an_injected_session_is_left_as_it_was() -> None:
    """It is neither closed nor changed, and serves its owner before, between and after."""
    async with FaultServer(always(http())) as server, aiohttp.ClientSession() as session:
        before = {name: repr(value) for name, value in vars(session).items() if name != "_connector"}
        transport = AiohttpTransport(session=session)
        await transport.send(Request("GET", server.url(), TOKEN))
        await transport.aclose()

        assert before == {name: repr(value) for name, value in vars(session).items() if name != "_connector"}
        assert not session.closed
        async with session.get(server.url()) as response:
            assert 200 == response.status
        assert 1 == server.opened
        assert "authorization" not in server.seen[1].headers


async def test_a_session_that_its_owner_closed() -> None:
    """It is reported as closed, since nothing was sent."""
    async with aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)
    with pytest.raises(ClientClosed, match="session is closed"):
        await transport.send(Request("GET", "http://127.0.0.1:9/"))


async def test_a_session_with_credentials_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They cannot stand beside a token: a session with an auth is rejected, and nothing is sent beside a `.netrc`."""
    with warnings.catch_warnings(action="ignore"):  # aiohttp is about to drop the argument.
        session = aiohttp.ClientSession(auth=aiohttp.BasicAuth("u", "p"))
    with pytest.raises(RequestInvalid, match=r"^session: has its own auth"):
        PaymentsClient("TEST-token", base_url="http://127.0.0.1", session=session)
    await session.close()

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with FaultServer(always(http())) as server:
        async with aiohttp.ClientSession(trust_env=True) as session:
            outcome = await failed(AiohttpTransport(session=session), Request("GET", server.url(), TOKEN))
        assert outcome[2].startswith("aiohttp raised ValueError")
        assert not server.seen
        transport = AiohttpTransport()
        assert 200 == (await transport.send(Request("GET", server.url(), TOKEN))).status
        await transport.aclose()
        assert [TOKEN["Authorization"]] == [request.headers["authorization"] for request in server.seen]


async def test_a_discarded_response_empties_an_injected_session() -> None:
    """Its connection cannot be closed alone: the next requests ask the server to close theirs, as many as there are."""
    connector = aiohttp.TCPConnector(limit=2)
    async with FaultServer(always(http())) as server, aiohttp.ClientSession(connector=connector) as session:
        transport = AiohttpTransport(session=session)
        for discards in (True, False, False, False):
            response = await transport.send(Request("GET", server.url()))
            if discards:
                transport.discard(response)
    assert [None, "close", "close", None] == [request.headers.get("connection") for request in server.seen]


async def test_a_session_of_another_loop() -> None:
    """It is told before anything is sent, wherever the transport was made, which can be closed all the same."""

    async def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    elsewhere = await asyncio.to_thread(asyncio.run, session())
    transport = await asyncio.to_thread(AiohttpTransport, session=elsewhere)
    with pytest.raises(ClientClosed, match="session belongs to another event loop"):
        await transport.send(Request("GET", "http://127.0.0.1:9/"))
    await transport.aclose()
    assert not elsewhere.closed
    await elsewhere.connector.close()


# --- proxies ----------------------------------------------------------------------------------------------------------


async def test_a_proxy_that_rejects() -> None:
    """Nothing has been sent when a proxy does not connect to the platform, or is not there."""
    async with FaultServer(always(http(407))) as proxy:
        transport = AiohttpTransport(proxy=proxy.url())
        outcome = await failed(transport, Request("POST", "https://api.example.com/", TOKEN))
        await transport.aclose()

        assert outcome == (False, False, "the proxy refused to connect (status 407)")
        assert ["CONNECT"] == [request.method for request in proxy.seen]
        assert "authorization" not in proxy.seen[0].headers
    with refused_port() as port:
        transport = AiohttpTransport(proxy=f"http://127.0.0.1:{port}")
        outcome = await failed(transport, Request("POST", "https://api.example.com/", TOKEN))
        await transport.aclose()
    assert outcome == (False, False, f"no connection to the proxy (127.0.0.1:{port}): Connection refused")


@pytest.mark.control("paymentsdk.transports.aiohttp.proxy_of", lambda proxy: (URL(proxy), {}))
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_password_of_a_proxy_is_told_to_it_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The proxy gets it in a header field: the URL of a proxy is shown in the warnings of aiohttp."""
    keys: list[str] = []

    async def telling(
        connector: aiohttp.TCPConnector,
        request: aiohttp.ClientRequest,
        *arguments: object,
        connect=aiohttp.TCPConnector.connect,
    ) -> object:
        keys.append(repr(request.connection_key))
        return await connect(connector, request, *arguments)

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", telling)
    async with FaultServer(always(http(407))) as proxy:
        url = proxy.url().replace("://", "://us%65r:can%40ry-1@")
        transport = AiohttpTransport(proxy=url)
        async with contextlib.aclosing(transport):
            with contextlib.suppress(SendFailed):
                await transport.send(Request("GET", f"{scheme}://api.example.com/"))

        assert ["Basic " + b64encode(b"user:can@ry-1").decode()] == [
            request.headers["proxy-authorization"] for request in proxy.seen
        ]
    assert 1 == len(keys)
    assert "ry-1" not in keys[0]


# --- options, and what cannot be sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://127.0.0.1/", "the URL is not an http or https URL"),
        ("http://", "the URL or the proxy's URL has no host"),
        ("/v1/orders", "the URL or the proxy's URL has no host"),
        ("http://127.0.0.1:99999/", "the URL is malformed"),
    ],
)
async def test_what_is_no_url_is_not_sent(transport: AiohttpTransport, url: str, reason: str) -> None:
    """A URL that leads nowhere fails for good, with nothing sent."""
    assert (False, True, reason) == await failed(transport, Request("GET", url))
