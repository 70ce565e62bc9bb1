"""Retry budgets: whose failures cost whom their retries."""

from __future__ import annotations

import contextlib

import pytest

from paymentsdk import PaymentsClient, PaymentsError, Response, RetryPolicy
from paymentsdk.testing import FakeClock, MemoryTransport

#: Enough failing calls to use up a budget of 500: four requests each, of which three cost 5.
MANY = 36


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


async def test_a_429_spends_nothing() -> None:
    """However often the platform asks to wait, a retry after that is free."""
    async with clients(429) as (client, transport):
        assert {4} == {await requests_of(transport, client.orders.get("ORD1")) for _ in range(2 * MANY)}


async def test_many_sellers_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more failing sellers than the bound, the one that failed longest ago is forgotten."""
    monkeypatch.setattr("paymentsdk._call.retry.RetryBudgets.MOST", 10)
    async with clients() as (client, transport):
        for number in range(15):
            await requests_of(transport, client.with_options(access_token=f"TEST-{number}").orders.get("ORD1"))

        assert 10 == len(client._engine.runtime.budgets.remaining)
