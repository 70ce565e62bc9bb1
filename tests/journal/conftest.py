"""Records to keep, and a platform to send them to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.journal import Record, SQLiteJournal, derive_key
from paymentsdk.journal._record import digest
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import TOKEN, URL, Platform

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
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def platform(clock: FakeClock) -> Platform:
    """A platform whose clock is that of the client."""
    return Platform(clock)


@pytest.fixture
async def start(tmp_path: Path, clock: FakeClock, platform: Platform) -> AsyncIterator[Start]:
    """Start a process: a client over the one journal. A second one stands for the process after a restart."""
    clients: list[PaymentsClient] = []

    def start(
        token: str | None = TOKEN,
        *,
        kind: type[PaymentsClient] = PaymentsClient,
        journal: type[SQLiteJournal] = SQLiteJournal,
        seal: Callable[[bytes], bytes] | None = None,
        unseal: Callable[[bytes], bytes] | None = None,
        handler: Callable[..., object] = platform,
        **settings: object,
    ) -> PaymentsClient:
        store = journal(tmp_path / "payments.db", now=clock.now, seal=seal, unseal=unseal or seal)
        settings = {"base_url": URL, "clock": clock, "transport": MemoryTransport(handler), **settings}
        clients.append(kind(token, journal=store, **settings))
        return clients[-1]

    yield start
    for client in clients:
        await client.aclose(grace=0)
