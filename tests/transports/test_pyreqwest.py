"""What the transport on pyreqwest does beyond what every transport does."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys

import pytest

from paymentsdk import Request, RequestInvalid, SendFailed
from paymentsdk.testing._fault_server import FaultServer, Peer, always, http
from paymentsdk.transports.pyreqwest import PyreqwestTransport


def test_a_program_without_the_library_is_told_how_to_get_it(monkeypatch) -> None:
    """The import says which extra it comes with."""
    monkeypatch.delitem(sys.modules, "paymentsdk.transports.pyreqwest")
    monkeypatch.setitem(sys.modules, "pyreqwest.client", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'paymentsdk\[pyreqwest\]'"):
        importlib.import_module("paymentsdk.transports.pyreqwest")


async def test_the_library_can_be_configured_but_not_undone() -> None:
    """*configure* reaches the library, and what the transport relies on is set after it."""
    async with FaultServer(always(http(307, b"", "Location: /elsewhere"))) as server:
        transport = PyreqwestTransport(configure=lambda builder: builder.user_agent("mine").follow_redirects(True))
        response = await transport.send(Request("GET", server.url()))
        await transport.aclose()

        assert 307 == response.status
        assert ["mine"] == [seen.headers["user-agent"] for seen in server.seen]


@pytest.mark.parametrize("options", [{"ca": "no bytes"}, {"configure": lambda _: None}])
async def test_options_that_the_library_does_not_take_send_nothing(options: dict[str, object]) -> None:
    """They are found at the first request, which nobody has to take for one that was sent."""
    with pytest.raises(SendFailed, match="the transport's options") as refused:
        await PyreqwestTransport(**options).send(Request("POST", "http://127.0.0.1/"))

    assert (False, True) == (refused.value.sent, refused.value.permanent)


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "5", None])
def test_a_limit_that_lets_nothing_through_is_refused(limit: object) -> None:
    """With 0 places, which mean no limit to the other transport, every request would wait for one in vain."""
    with pytest.raises(RequestInvalid) as refused:
        PyreqwestTransport(limit=limit)

    assert "limit" == refused.value.path


async def test_it_keeps_the_time_itself() -> None:
    """A request ends after its timeout, connection and all, even if nobody cancels it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.hung_up()

    async with FaultServer(script) as server:
        transport = PyreqwestTransport()
        with pytest.raises(SendFailed, match="the time ran out") as caught:
            await transport.send(Request("GET", server.url(), timeout=0.1))
        assert caught.value.sent
        await server.all_hung_up()
        await transport.aclose()


@pytest.mark.parametrize("closing", [False, True])
async def test_an_answer_that_has_begun_ends_with_the_transport(closing: bool, until) -> None:
    """Closed in the middle of an answer, the request fails at once, connection and all; else when its time is over."""
    begun = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(http(200, b"{", length=9))
        begun.set()
        await peer.hung_up()

    async with FaultServer(script) as server:
        transport = PyreqwestTransport()
        timeout = 30.0 if closing else 0.3
        sending = asyncio.ensure_future(transport.send(Request("POST", server.url(), timeout=timeout)))
        await begun.wait()
        if closing:
            await until(lambda: transport._flying)
            await asyncio.gather(transport.aclose(), transport.aclose())
        with pytest.raises(SendFailed, match="the transport was closed" if closing else "the time ran out") as caught:
            await asyncio.wait_for(sending, 30)
        assert caught.value.sent
        await server.all_hung_up()
        await transport.aclose()


async def test_closing_ends_requests_of_a_pool_that_was_given_up(until) -> None:
    """A request whose pool made room for others fails at once as well, and does not outlive the transport."""

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            if seen.target == "/silent":
                await peer.hung_up()
            await peer.write(http())

    async with FaultServer(script) as server:
        transport = PyreqwestTransport()
        sending = asyncio.ensure_future(transport.send(Request("POST", server.url("/silent"), connect_timeout=1.0)))
        await until(lambda: server.seen)
        for bound in range(2, 20):
            await transport.send(Request("GET", server.url(), connect_timeout=bound))
        await transport.aclose()
        with pytest.raises(SendFailed, match="the transport was closed"):
            await asyncio.wait_for(sending, 30)


async def test_a_timeout_may_be_infinite() -> None:
    """No bound at all is a bound that the library can count to."""
    async with FaultServer(always(http())) as server:
        transport = PyreqwestTransport()
        assert 200 == (await transport.send(Request("GET", server.url(), timeout=float("inf")))).status
        await transport.aclose()


@pytest.mark.parametrize("url", ["/v1/orders", "http://", "http://127.0.0.1:99999/", "ftp://127.0.0.1/"])
async def test_what_is_no_url_is_not_sent(url: str) -> None:
    """A URL that leads nowhere fails with nothing sent."""
    transport = PyreqwestTransport()
    with pytest.raises(SendFailed) as caught:
        await transport.send(Request("GET", url))
    await transport.aclose()

    assert not caught.value.sent


async def test_a_connection_is_kept_whatever_the_bound() -> None:
    """What is left of a deadline is another bound for each call: it must not be another pool, nor a pool for ever."""
    async with FaultServer(always(http())) as server:
        transport = PyreqwestTransport()
        for bound in (0.8999, 0.8998, 0.8951, None, float("inf")):
            await transport.send(Request("GET", server.url(), connect_timeout=bound))
        kept = server.opened
        for bound in range(1, 60):
            await transport.send(Request("GET", server.url(), connect_timeout=bound))
        pools = len(transport._clients)
        await transport.aclose()

    assert (2, 16) == (kept, pools)


async def test_a_field_that_is_no_text_costs_no_answer() -> None:
    """A value that the library cannot read is left out: asked for later, it would raise after the money has moved."""
    answer = http(201, b"{}", "X-Bad: caf\u00e9", "X-Request-Id: r-1")
    async with FaultServer(always(answer)) as server, contextlib.aclosing(PyreqwestTransport()) as transport:
        response = await transport.send(Request("POST", server.url()))

    assert "r-1" == response.headers["x-request-id"]
    assert None is response.headers.get("X-Bad")
