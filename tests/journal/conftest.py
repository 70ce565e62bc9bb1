"""Records to keep, and a platform to send them to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paymentsdk.journal import Record, derive_key
from paymentsdk.journal._record import digest
from paymentsdk.testing import FakeClock
from tests.journal.platform import Platform

MakeRecord = Callable[..., Record]


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
