"""A signer of the other package: each attempt is signed, and its secret is shown to nobody and refreshed once."""

from __future__ import annotations

import asyncio
import logging
from decimal import Decimal

import pytest
from paymentsdk_foo import (
    FooClient,
    HmacAuth,
    VoucherRequest,
)

from paymentsdk import (
    AuthenticationFailed,
    NotSent,
    RequestInvalid,
    Response,
)
from paymentsdk.errors import APIError
from paymentsdk.testing import FakeClock, MemoryTransport

GIFT = VoucherRequest(amount=Decimal("20.00"), reference="gift-1")


async def test_the_signature_is_checked(sandbox):
    """Whoever signs with another secret is rejected; a token is good as well."""
    async with FooClient(auth=HmacAuth("test", "wrong"), base_url=sandbox.base_url) as stranger:
        with pytest.raises(AuthenticationFailed, match="bad_signature"):
            await stranger.vouchers.create(GIFT)
    async with FooClient(sandbox.access_token, base_url=sandbox.base_url) as insider:
        assert GIFT.reference == (await insider.vouchers.create(GIFT)).reference


async def test_each_attempt_is_signed_as_it_is_sent():
    """A retry has another time, so another signature; both cover the header fields and bytes that go out."""
    clock, attempts = FakeClock(), []

    class Auth:
        async def sign(self, request: object, now: float) -> dict[str, str]:
            await asyncio.sleep(0)
            attempts.append((request, now))
            return {"authorization": f"FOO {now}"}

    transport = MemoryTransport([503, Response(201, {}, b'{"id": "VOU1"}')])
    async with FooClient(auth=Auth(), base_url="http://127.0.0.1:1", transport=transport, clock=clock) as client:
        await client.vouchers.create(GIFT)

    assert [f"FOO {now}" for _, now in attempts] == [sent.headers["authorization"] for sent in transport.requests]
    assert 2 == len({now for _, now in attempts})
    assert [(sent.body, sent.url) for sent, _ in attempts] == [(sent.body, sent.url) for sent in transport.requests]
    sent = transport.requests[0].headers
    assert {"Foo-Request-Id", "X-Foo-Version", "Content-Type"} <= sent.keys()
    assert "X-Idempotency-Key" not in sent


async def test_signed_content_is_not_shown(caplog):
    """Not in a `repr` of a request, and not where the platform repeats it."""
    caplog.set_level(logging.DEBUG)

    class Auth:
        def sign(self, request: object, now: float) -> dict[str, str]:
            return {"X-Foo-Signature": "canary-of-a-signature"}

    echo = Response(400, {"X-Request-Id": "r-canary-of-a-signature"}, b'{"message": "bad canary-of-a-signature"}')
    transport = MemoryTransport([echo])
    async with FooClient(auth=Auth(), base_url="http://127.0.0.1:1", transport=transport) as client:
        with pytest.raises(APIError) as refused:
            await client.vouchers.get("VOU1")

    text = f"{transport.requests[0]!r} {refused.value!r} {refused.value} {refused.value.raw!r} {caplog.text}"
    assert "canary-of-a-signature" == str(transport.requests[0].headers["X-Foo-Signature"])
    assert "canary" not in text


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"Host": "elsewhere"}, "auth.sign.Host"),
        ({"X-A": "two\nlines"}, "auth.sign.X-A"),
        ({"no name": "x"}, "auth.sign"),
        (None, "auth.sign"),
    ],
)
async def test_a_signature_that_cannot_be_sent(fields: object, place: str):
    """It is rejected before anything is sent, with the place, and without the value."""

    class Auth:
        def sign(self, request: object, now: float) -> object:
            return fields

    transport = MemoryTransport([200])
    async with FooClient(auth=Auth(), base_url="http://127.0.0.1:1", transport=transport) as client:
        with pytest.raises(RequestInvalid) as refused:
            await client.vouchers.get("VOU1")

    assert (place, []) == (refused.value.path, transport.requests)
    assert "lines" not in str(refused.value)


async def test_a_signer_that_fails_or_hangs():
    """Nothing was sent; a deadline ends the wait, and a cancellation of the caller stays one."""

    class Broken:
        def sign(self, request: object, now: float) -> dict[str, str]:
            raise KeyError("secret-of-the-signer")

    class Hanging:
        async def sign(self, request: object, now: float) -> dict[str, str]:
            await asyncio.Event().wait()
            return {}

    clock, transport = FakeClock(), MemoryTransport()
    async with FooClient(auth=Broken(), base_url="http://127.0.0.1:1", transport=transport) as client:
        with pytest.raises(NotSent, match="could not be signed: KeyError") as failed:
            await client.vouchers.create(GIFT)
        assert ("secret-of-the-signer" not in str(failed.value), 1) == (True, failed.value.attempts)
    async with FooClient(auth=Hanging(), base_url="http://127.0.0.1:1", transport=transport, clock=clock) as client:
        call = asyncio.ensure_future(client.vouchers.create(GIFT))
        await asyncio.sleep(0)
        clock.advance(61)
        with pytest.raises(NotSent, match="while the request was signed"):
            await call
        call = asyncio.ensure_future(client.vouchers.create(GIFT))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert [] == transport.requests
