"""What the transport on aiohttp does beyond what every transport does."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import socket
import ssl
import traceback
import warnings
from base64 import b64encode
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import pytest
import trustme
from yarl import URL

from paymentsdk import PaymentsClient, Request, SendFailed
from paymentsdk.errors import ClientClosed, RequestInvalid
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.faults import FaultServer, Peer, always, http, refused_port
from tests.transports.sending import TOKEN, failed

# --- the event loop ---------------------------------------------------------------------------------------------------


async def test_closed_from_another_running_loop(transport: AiohttpTransport) -> None:
    """Closing connections under the hands of the loop that runs them is rejected."""
    async with FaultServer(always(http())) as server:
        await transport.send(Request("GET", server.url()))

        with pytest.raises(ClientClosed, match="close the transport there"):
            await asyncio.to_thread(asyncio.run, transport.aclose())


async def test_an_injected_session_binds_at_once() -> None:
    """A transport that was made with a session belongs to the loop that it was made on, before its first request."""
    async with aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)

        with pytest.raises(ClientClosed, match="another event loop"):
            await asyncio.to_thread(asyncio.run, transport.send(Request("GET", "http://127.0.0.1:9/")))


def test_it_can_be_made_without_a_loop() -> None:
    """Making one opens nothing, so a program can make its client before it runs."""

    async def send(transport: AiohttpTransport) -> int:
        async with FaultServer(always(http())) as server:
            response = await transport.send(Request("GET", server.url()))
            await transport.aclose()
        return response.status

    async def make() -> AiohttpTransport:
        return AiohttpTransport()

    assert 200 == asyncio.run(send(AiohttpTransport()))
    assert 200 == asyncio.run(send(asyncio.run(make())))  # The loop that it was made on is not that of its connections.
    with asyncio.Runner() as runner:

        async def session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession()

        injected = runner.run(session())
        assert 200 == runner.run(send(AiohttpTransport(session=injected)))
        runner.run(injected.close())


# --- what goes out ----------------------------------------------------------------------------------------------------


#: What is out of the ordinary, and what arrives of it.
ODD = {
    "a fragment": (lambda url: Request("GET", url + "#part"), {"target": "/orders"}),
    "no body in the response": (lambda url: Request("HEAD", url), {"method": "HEAD"}),
    "a host of the caller's": (lambda url: Request("GET", url, {"host": "a.example"}), {"host": "a.example"}),
    "a new connection": (lambda url: Request("GET", url, fresh=True), {"connection": "close"}),
    "a user in the URL": (
        lambda url: Request("GET", url.replace("//", "//who:word@")),
        {"authorization": "Basic d2hvOndvcmQ="},
    ),
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


@pytest.mark.parametrize(
    "request_",
    [
        lambda url: Request("GET", url, {"X-Name": "\ud800canary"}),
        lambda url: Request("GET", url + "\ud800canary"),
        lambda url: Request("GET", url, {"X-Name": "one\r\nX-Other: canary"}),
        lambda url: Request("GET", url, {"X-Name\n": "canary"}),
        lambda url: Request("GET", url, {"X-Name": "canary\0"}),
        lambda url: Request("GET", url, {"X-Name": "canary\x01"}),
        lambda url: Request("GET", url + "\x7fcanary"),
        lambda url: Request("GET", url + "\ncanary"),
        lambda url: Request("GET", url + "\tcanary"),
        lambda url: Request("GET", url + " canary"),
        lambda url: Request("GET /canary", url),
    ],
)
async def test_what_is_no_http_is_not_sent(request_: Callable[[str], Request], transport: AiohttpTransport) -> None:
    """A string that cannot be written, or would be read as more than one line, fails for good and is not repeated."""
    async with FaultServer(always(http())) as server:
        with pytest.raises(SendFailed) as caught:
            await transport.send(request_(server.url("/orders")))
        assert not server.seen

    assert (False, True) == (caught.value.sent, caught.value.permanent)
    report = traceback.TracebackException.from_exception(caught.value)
    assert "canary" not in "".join(report.format())


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


async def test_a_session_comes_without_options() -> None:
    """Options beside a session would have no effect, so they are rejected."""
    async with aiohttp.ClientSession() as session:
        for options in ({"proxy": "http://127.0.0.1:9"}, {"limit": 5}):
            with pytest.raises(RequestInvalid, match=r"^session: cannot be combined with options"):
                AiohttpTransport(session=session, **options)


def test_a_session_of_another_library_is_rejected() -> None:
    """One that sends before anybody awaits it, as that of `requests` does, is rejected where it is given."""

    class Session:
        auth = None

        def request(self, method: str, url: str) -> object:
            raise NotImplementedError

        def close(self) -> None:
            raise NotImplementedError

    with pytest.raises(RequestInvalid, match=r"^session: must be an aiohttp.ClientSession, not Session$"):
        AiohttpTransport(session=Session())


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


async def test_a_value_error_of_a_trace_says_nothing() -> None:
    """What the owner of a session has it call can raise the same error after the request was sent."""

    async def refuse(session: object, context: object, params: object) -> None:
        raise ValueError("no")

    config = aiohttp.TraceConfig()
    config.on_request_end.append(refuse)
    async with FaultServer(always(http())) as server, aiohttp.ClientSession(trace_configs=[config]) as session:
        outcome = await failed(AiohttpTransport(session=session), Request("GET", server.url(), TOKEN))

    assert (True, False) == outcome[:2]
    assert re.fullmatch(r"aiohttp raised ValueError \(test_aiohttp\.py:[0-9]+ in refuse\)", outcome[2])


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


# --- aiohttp as everybody has it --------------------------------------------------------------------------------------


@pytest.mark.parametrize("owned", [True, False])
async def test_trace_configs_see_every_request(owned: bool) -> None:
    """What instruments aiohttp sees the requests of a session, the transport's own or another's, and how they end."""
    events: list[tuple[str, object]] = []
    config = aiohttp.TraceConfig()

    async def began(session: object, context: object, params: aiohttp.TraceRequestStartParams) -> None:
        events.append(("began", str(params.url.path)))

    async def ended(session: object, context: object, params: aiohttp.TraceRequestEndParams) -> None:
        events.append(("ended", params.response.status))

    async def failed_(session: object, context: object, params: aiohttp.TraceRequestExceptionParams) -> None:
        events.append(("failed", "canary" in repr(params.exception) or type(params.exception) is Exception))

    config.on_request_start.append(began)
    config.on_request_end.append(ended)
    config.on_request_exception.append(failed_)

    async with FaultServer(always(http(201))) as server, contextlib.AsyncExitStack() as stack:
        if owned:
            transport = AiohttpTransport(trace_configs=[config], drain=0.1)
        else:
            session = await stack.enter_async_context(aiohttp.ClientSession(trace_configs=[config]))
            transport = AiohttpTransport(session=session, drain=0.1)
        stack.push_async_callback(transport.aclose)
        for fresh in (False, True):
            await transport.send(Request("POST", server.url("/orders"), TOKEN, b"{}", fresh=fresh))
        with refused_port() as port:
            await failed(transport, Request("POST", f"http://127.0.0.1:{port}/orders", TOKEN, b"{}"))

    assert [("began", "/orders"), ("ended", 201)] * 2 + [("began", "/orders"), ("failed", False)] == events


def test_nothing_private_of_aiohttp_is_used() -> None:
    """No name with an underscore is read from anything but what is our own, and no defence asks for a version."""
    package = Path(find_spec("paymentsdk").origin).parent
    files = [
        path for path in package.rglob("*.py") if re.search(r"^(from|import) aiohttp", path.read_text(), re.MULTILINE)
    ]
    private = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if is_private_of_another(node)
    ]

    assert len(files) > 3
    assert [] == private
    assert [] == [path.name for path in (package / "transports").glob("*.py") if "__version__" in path.read_text()]


def is_private_of_another(node: ast.AST) -> bool:
    """Whether *node* reads a private name: an attribute of something else than `self`, or of a module."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return False
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")), attr=name):
            return name.startswith("_") and not name.startswith("__")
        case ast.Attribute(value=ast.Name(id="aiohttp"), attr=name):
            return name.startswith("_") and name != "__version__"
        case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "aiohttp":
            return any(part.startswith("_") for part in [*module.split("."), *(name.name for name in names)])
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name.startswith("_")
    return False


@pytest.mark.parametrize(
    "line", ["aiohttp._x", "from aiohttp import _x", "getattr(pool, '_conns', {})", "self.session._conns"]
)
def test_what_is_private_is_found(line: str) -> None:
    """The search finds what it looks for."""
    assert any(map(is_private_of_another, ast.walk(ast.parse(line))))


# --- methods ----------------------------------------------------------------------------------------------------------


async def test_a_get_stays_a_get(transport: AiohttpTransport) -> None:
    """Turning off that requests are sent again changes nothing else: a GET gets no length, a HEAD no body."""
    async with FaultServer(always(http(200, b"{}"))) as server:
        await transport.send(Request("GET", server.url()))
        assert "content-length" not in server.seen[0].headers
    async with FaultServer(always(http(200, b"", length=100))) as server:
        assert b"" == (await transport.send(Request("HEAD", server.url()))).body
        assert b"" == (await transport.send(Request("HEAD", server.url()))).body
        assert 1 == server.opened


async def test_lower_case_is_sent_once_too(transport: AiohttpTransport) -> None:
    """A method in small letters is not sent again either."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(http())
        await peer.request()

    async with FaultServer(script) as server:
        await transport.send(Request("GET", server.url()))
        assert await failed(transport, Request("get", server.url())) == (
            True,
            False,
            "the server closed the connection without a response",
        )
        assert ["GET", "GET"] == [request.method for request in server.seen]


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


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("answer", [b"", b"no HTTP\r\n\r\n"])
async def test_a_proxy_that_breaks_off(answer: bytes, *, fresh: bool) -> None:
    """A proxy that never led to the platform cannot have brought it a byte of the request."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(answer)

    async with FaultServer(script) as proxy, contextlib.aclosing(AiohttpTransport(proxy=proxy.url())) as transport:
        sent, *_ = await failed(transport, Request("POST", "https://api.example.com/", TOKEN, fresh=fresh))

        assert ["CONNECT"] == [request.method for request in proxy.seen]
    assert not sent


@pytest.mark.control("paymentsdk.transports._aiohttp_messages._without_login", lambda proxy: (URL(proxy), None))
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


@pytest.mark.parametrize("login", ["us%E2%82%ACer:canary", "user:can%E2%82%ACary", "us%3Aer:canary"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_login_that_no_proxy_can_be_told(scheme: str, login: str) -> None:
    """A user or password that HTTP cannot carry is the mistake of a setting: nothing was sent, nor is it shown."""
    async with contextlib.aclosing(AiohttpTransport(proxy=f"http://{login}@127.0.0.1:9")) as transport:
        with pytest.raises(SendFailed) as rejected:
            await transport.send(Request("POST", f"{scheme}://api.example.com/", TOKEN))

    assert (False, True) == (rejected.value.sent, rejected.value.permanent)
    assert rejected.value.__context__ is None
    assert "canary" not in rejected.value.reason


# --- options, and what cannot be sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"limit_of_hosts": 3}, {"ssl": "yes"}, {"force_close": True, "keepalive_timeout": 3}]
)
async def test_options_that_aiohttp_does_not_take_send_nothing(options: dict[str, object]) -> None:
    """They are found at every request, which nobody has to take for one that was sent."""
    transport = AiohttpTransport(**options)
    for _ in range(2):
        with pytest.raises(SendFailed, match="options of its connector") as rejected:
            await transport.send(Request("POST", "http://127.0.0.1/"))

        assert (False, True) == (rejected.value.sent, rejected.value.permanent)


async def test_options_reach_aiohttp() -> None:
    """What aiohttp's connector takes can be given: here a maker of sockets, and one connection at a time."""
    addresses = []

    def make(address: tuple) -> socket.socket:
        addresses.append(address[4])
        return socket.socket(*address[:3])

    async with FaultServer(always(http())) as server:
        transport = AiohttpTransport(limit=1, socket_factory=make)
        await asyncio.gather(*(transport.send(Request("GET", server.url())) for _ in range(3)))
        await transport.aclose()

        assert 1 == server.opened == len(addresses)


async def test_a_fingerprint_is_checked() -> None:
    """A certificate with another fingerprint is rejected for good, with nothing sent."""
    certificate = trustme.CA().issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    async with FaultServer(always(http()), tls=context) as server:
        transport = AiohttpTransport(ssl=aiohttp.Fingerprint(bytes(32)))
        outcome = await failed(transport, Request("GET", server.url()))
        await transport.aclose()

        assert outcome == (False, True, "the server's certificate has another fingerprint")
        assert not server.seen


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
