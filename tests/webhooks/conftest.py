"""An inbox in each database, and a shop whose handler works in the same database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paymentsdk._database import close_shared
from tests.webhooks.shop import Shop


@pytest.fixture
async def closed_in_the_end() -> AsyncIterator[None]:
    """Close the connections that nobody has to close."""
    yield
    await close_shared()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, closed_in_the_end: None) -> str:
    """A new database of each kind."""
    return str(tmp_path / "shop.db") if request.param == "sqlite" else request.getfixturevalue("dsn")


@pytest.fixture
async def shop(database: str) -> Shop:
    """The shop in that database."""
    shop = Shop(database)
    await shop.start()
    return shop
