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

from paymentsdk import Request
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
