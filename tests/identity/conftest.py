"""A client over responses in memory, whose pauses take no time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from paymentsdk import PaymentsClient, Transport
from paymentsdk.testing import FakeClock


@pytest.fixture
async def client_over() -> AsyncIterator[Callable[..., PaymentsClient]]:
    """Make clients that are closed in the end."""
    clients: list[PaymentsClient] = []

    def make(transport: Transport, **settings: object) -> PaymentsClient:
        defaults = {"access_token": "APP_USR-1", "base_url": "https://platform.test", "clock": FakeClock()}
        clients.append(PaymentsClient(**{**defaults, **settings}, transport=transport))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()
