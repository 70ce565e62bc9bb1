"""Records to keep, and a platform to send them to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.journal import Record, derive_key
from paymentsdk.journal._record import digest
from paymentsdk.testing import FakeClock
from tests.journal.platform import TOKEN, Platform, World

MakeRecord = Callable[..., Record]
Start = Callable[..., PaymentsClient]


def make_record(name: str = "table-7/1", owner: str = "p/1", body: bytes = b'{"a":1}', **more: object) -> Record:
    """Return a new record."""
    fixed = {
        "key": derive_key("http://platform.test", "77", "orders.create", name),
        "name": name,
        "operation": "orders.create",
        "base_url": "http://platform.test",
        "seller": "77",
        "path": "/v1/orders",
        "digest": digest("POST", "/v1/orders", body),
        "begun": 100.0,
        "not_after": 700.0,
    }
    return Record(**{**fixed, "owner": owner, "body": body, **more})


@pytest.fixture(scope="session")
def record() -> MakeRecord:
    """Make records."""
    return make_record


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A new one."""
    return World(tmp_path / "payments.db")


@pytest.fixture
def clock(world: World) -> FakeClock:
    """A clock that stands still."""
    return world.clock


@pytest.fixture
def platform(world: World) -> Platform:
    """A platform whose clock is that of the client."""
    return world.platform


@pytest.fixture
async def start(world: World) -> AsyncIterator[Start]:
    """Start processes that end with the test."""
    clients: list[PaymentsClient] = []

    def start(token: str | None = TOKEN, **settings: object) -> PaymentsClient:
        clients.append(world.connect(token=token, **settings))
        return clients[-1]

    yield start
    for client in clients:
        await client.aclose(grace=0)
