"""A client whose token can be refreshed, over a platform in memory, with a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from paymentsdk import PaymentsClient, RefreshingToken, TokenPair, TokenStore
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.auth.platform import Platform


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def platform(clock: FakeClock) -> Platform:
    """A platform that issues tokens."""
    return Platform(clock)


@pytest.fixture
async def make_client(clock: FakeClock, platform: Platform) -> AsyncIterator[Callable[..., PaymentsClient]]:
    """Make clients of `platform` that are closed in the end; `pair`, `store` and `early` are those of their tokens."""
    clients: list[PaymentsClient] = []

    def make(
        pair: TokenPair | None = None,
        *,
        store: TokenStore | None = None,
        early: float | None = None,
        **settings: object,
    ) -> PaymentsClient:
        options = {} if early is None else {"early": early}
        settings.setdefault("auth", RefreshingToken(pair, store=store, **options))
        defaults = {"base_url": "https://platform.test", "client_id": "app-1", "client_secret": "TEST-client-secret"}
        client = PaymentsClient(**{**defaults, "clock": clock, "transport": MemoryTransport(platform), **settings})
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose(grace=0)
