"""Connections that end at any moment: no attempt is sent twice, and none that was seen counts as not sent."""

from __future__ import annotations

import pytest

from paymentsdk.transports import aiohttp as default
from paymentsdk.transports.aiohttp import Attempt
from tests.transports.races import KINDS, race


class Forgetful(Attempt):
    """Does not know that it was given a connection."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "connection":
            super().__setattr__(name, value)


@pytest.mark.parametrize("name", KINDS)
async def test_an_attempt_is_sent_once_and_its_failure_is_true(name: str) -> None:
    """`python -m benchmarks.bench_connections` does the same 10,000 times for each transport."""
    outcomes = await race(name, 150, seed=7)

    assert [] == outcomes.breaches
    assert outcomes.counts["response"] > 60
    assert outcomes.counts["failed as sent"] > 0


async def test_the_races_find_what_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: aiohttp resends by itself, and what it has sent counts as not sent."""
    monkeypatch.setattr(default, "Attempt", Forgetful)

    outcomes = await race("aiohttp", 400, seed=7)

    assert any("seen 2 times" in breach for breach in outcomes.breaches)
    assert any("failed as not sent, and seen" in breach for breach in outcomes.breaches)
