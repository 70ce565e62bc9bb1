"""Retry budgets: whose failures cost whom their retries."""

from __future__ import annotations

import contextlib
import json

import pytest

from paymentsdk import (
    PaymentsClient,
    PaymentsError,
    RefreshFailed,
    RefreshingToken,
    Request,
    Response,
    RetryPolicy,
    TokenPair,
)
from paymentsdk.testing import FakeClock, MemoryTransport

#: Enough failing calls to use up a budget of 500: four requests each, of which three cost 5.
MANY = 60


@contextlib.asynccontextmanager
async def clients(status: int = 503):
    """Yield a client, and the transport on which everything fails with *status*."""
    transport = MemoryTransport(lambda request: Response(status))
    async with PaymentsClient(
        "TEST-one",
        base_url="https://platform.test",
        transport=transport,
        clock=FakeClock(),
        retry=RetryPolicy(base_delay=0),
    ) as client:
        yield client, transport


async def requests_of(transport: MemoryTransport, call) -> int:
    """Return how many requests a call takes that fails."""
    before = len(transport.requests)
    with pytest.raises(PaymentsError):
        await call
    return len(transport.requests) - before


@pytest.mark.control("paymentsdk._call.retry._budget", lambda seller, rule: (seller, "all"))
async def test_failing_reads_cost_writes_nothing() -> None:
    """When the budget of the reads is used up, a payment has all of its retries."""
    async with clients() as (client, transport):
        for _ in range(MANY):
            last = await requests_of(transport, client.orders.get("ORD1"))

        assert 1 == last
        assert 4 == await requests_of(transport, client.orders.cancel("ORD1"))


@pytest.mark.control("paymentsdk._call.engine.Seller", lambda auth: None)
async def test_a_failing_seller_costs_another_nothing() -> None:
    """The sellers of one client do not share a budget; the copies for one token do."""
    async with clients() as (client, transport):
        for _ in range(MANY):
            last = await requests_of(transport, client.with_options(access_token="TEST-two").orders.get("ORD1"))

        assert 1 == last
        assert 4 == await requests_of(transport, client.orders.get("ORD1"))


@pytest.mark.control("paymentsdk._call.engine.Seller", lambda auth: None)
async def test_a_seller_whose_refreshes_fail_costs_another_nothing() -> None:
    """The one retry that a refresh has is paid from the budget of the seller whose token it is."""
    refresh_tokens: list[str] = []

    def platform(request: Request) -> Response:
        if not request.url.endswith("/oauth/token"):
            return Response(200, {}, b'{"id":"ORD1"}')
        refresh_tokens.append(json.loads(request.body)["refresh_token"])
        works = refresh_tokens.count("TG-healthy") == 2
        return Response(200, {}, b'{"access_token":"APP_USR-2","expires_in":3600}') if works else Response(503)

    async with PaymentsClient(
        base_url="https://platform.test",
        client_id="app-1",
        client_secret="TEST-client-secret",
        transport=MemoryTransport(platform),
        clock=FakeClock(),
        retry=RetryPolicy(base_delay=0),
    ) as client:
        failing, healthy = (
            client.with_options(
                auth=RefreshingToken(TokenPair(access_token="APP_USR-1", refresh_token=name, expires_at=1.0))
            )
            for name in ("TG-failing", "TG-healthy")
        )
        for _ in range(2 * MANY):
            with pytest.raises(RefreshFailed):
                await failing.orders.get("ORD1")
        assert 4 * MANY > refresh_tokens.count("TG-failing")  # Its budget is used up.
        with contextlib.suppress(RefreshFailed):
            await healthy.orders.get("ORD1")

        assert 2 == refresh_tokens.count("TG-healthy")


async def test_a_429_spends_nothing() -> None:
    """However often the platform asks to wait, a retry after that is free."""
    async with clients(429) as (client, transport):
        assert {4} == {await requests_of(transport, client.orders.get("ORD1")) for _ in range(2 * MANY)}
