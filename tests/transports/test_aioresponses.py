"""The shape of what aiohttp is asked for, with aioresponses in the place of the network.

It replaces the request method of sessions, so nothing below is exercised here; that is what the real sockets are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import aiohttp
import pytest
from aioresponses import aioresponses
from yarl import URL

from paymentsdk import Request, SendFailed
from paymentsdk.transports.aiohttp import AiohttpTransport

ORDERS = "http://api.example.com/v1/orders"


class Answer(aiohttp.ClientResponse):
    """Pass what aiohttp 3.14 requires and aioresponses 0.7 leaves out, as the how-to for users of aiohttp does."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, stream_writer=SimpleNamespace(output_size=0), **options)


@pytest.fixture
def platform() -> Iterator[aioresponses]:
    """The platform, as aioresponses plays it."""
    with aioresponses() as platform:
        yield platform


@pytest.fixture
async def transport():
    """The default transport on a session, whose request method aioresponses replaces."""
    async with aiohttp.ClientSession() as session:
        yield AiohttpTransport(session=session)


async def test_what_aiohttp_is_asked_for(platform: aioresponses, transport: AiohttpTransport) -> None:
    """Method, URL, fields and bytes go as they are given; no redirects, and no timer but the one for connecting."""
    fields = {"Content-Type": "application/json", "X-Idempotency-Key": "k-1"}
    platform.post(ORDERS, status=201, body=b"{}", response_class=Answer)

    await transport.send(Request("POST", ORDERS, fields, b'{"a": 1}', timeout=30.0, connect_timeout=5.0))

    [(request, [call])] = platform.requests.items()
    assert ("POST", URL(ORDERS)) == request
    assert fields == call.kwargs["headers"]
    assert b'{"a": 1}' == call.kwargs["data"]
    assert call.kwargs["allow_redirects"] is False
    timeout = call.kwargs["timeout"]
    assert (None, 5.0, None, None) == (timeout.total, timeout.connect, timeout.sock_read, timeout.sock_connect)


async def test_a_fresh_connection_is_asked_for(platform: aioresponses, transport: AiohttpTransport) -> None:
    """The server is asked to close it after its only response."""
    platform.post(ORDERS, body=b"{}", response_class=Answer)

    await transport.send(Request("POST", ORDERS, {}, b"{}", fresh=True))

    [[call]] = platform.requests.values()
    assert "close" == call.kwargs["headers"]["Connection"]


@pytest.mark.parametrize("status", [200, 201, 204, 302, 400, 401, 404, 409, 429, 500, 503])
async def test_every_status_comes_back(status: int, platform: aioresponses, transport: AiohttpTransport) -> None:
    """No status is an error here: judging is up to the engine."""
    platform.get(ORDERS, status=status, body=b"{}", headers={"X-Request-Id": "r-1"}, response_class=Answer)

    response = await transport.send(Request("GET", ORDERS))

    assert (status, b"{}", "r-1") == (response.status, response.body, response.headers["x-request-id"])


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientPayloadError(), True),
        (aiohttp.ConnectionTimeoutError(), False),
    ],
)
async def test_errors_are_told_apart(
    error: Exception, sent: bool, platform: aioresponses, transport: AiohttpTransport
) -> None:
    """What aiohttp raises comes out as SendFailed, with the truth about what was sent."""
    platform.get(ORDERS, exception=error)

    with pytest.raises(SendFailed) as caught:
        await transport.send(Request("GET", ORDERS))

    assert sent is caught.value.sent
