"""A clock for many tasks at once."""

from __future__ import annotations

import pytest

from tests.flow.platform import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    """A clock that moves when everybody waits."""
    return SimulatedClock()
