"""All attempts of a call are of one seller, also where one goes out without a token."""

from __future__ import annotations

import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, Request, Response, RetryPolicy
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.auth.test_sellers import ANN, BOB, pair
from tests.journal.platform import order


class Tokens:
    """A source of tokens of one's own, which has one for the first attempt, none for the next, then another."""

    def __init__(self, last: str) -> None:
        self.given = [ANN.access_token, None, last]

    def token(self, now: float) -> str | None:
        return self.given.pop(0) if len(self.given) > 1 else self.given[0]

    async def renew(self, rejected: str | None, exchange: object, now: float) -> str | None:
        return None


class Restarting:
    """A platform whose gateway fails twice, the first time behind the write."""

    def __init__(self) -> None:
        self.writers: list[str] = []

    async def __call__(self, request: Request) -> Response:
        self.writers.append(request.headers.get("Authorization", "").rpartition("-")[2])
        return Response(201, {}, b'{"id":"ORD1"}') if len(self.writers) > 2 else Response(503)


def client_with(tokens: Tokens, platform: Restarting) -> PaymentsClient:
    """Connect to a *platform*."""
    return PaymentsClient(
        base_url="https://api.example.com",
        auth=tokens,
        transport=MemoryTransport(platform),
        clock=FakeClock(),
        retry=RetryPolicy(base_delay=0.0),
    )


@pytest.mark.control("paymentsdk._call.credential._check_seller", lambda token, before: None)
async def test_a_retry_after_one_without_a_token_stays_with_the_seller() -> None:
    """The same key would be a second order of somebody else."""
    platform = Restarting()

    async with client_with(Tokens(BOB.access_token), platform) as client:
        with pytest.raises(OutcomeUnknown, match="another seller"):
            await client.orders.create(order())

    assert ["77", ""] == platform.writers


async def test_a_retry_after_one_without_a_token_takes_the_next_of_the_seller() -> None:
    """The control of the test."""
    platform = Restarting()

    async with client_with(Tokens(pair(77, number=2).access_token), platform) as client:
        await client.orders.create(order())

    assert ["77", "", "77"] == platform.writers
