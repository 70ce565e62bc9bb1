"""The platform's time counts on from the last `Date`, by whichever clock of the machine has gone further."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from paymentsdk.journal._platform_clock import PlatformClock
from paymentsdk.testing import FakeClock


def test_the_time_of_the_platform_counts_on() -> None:
    """Before a response nobody knows it; after it, the own one does not matter."""
    local = FakeClock(now=5.0)
    clock = PlatformClock(local)

    assert (None, False) == (clock.now(), clock.is_fresh(clock.moment()))
    clock.observe({"Date": "no date"})
    clock.observe({})
    assert clock.now() is None

    clock.observe({"Date": "Tue, 14 Nov 2023 22:13:20 GMT"})
    local.advance(10)
    assert (1_700_000_010.0, True) == (clock.now(), clock.is_fresh(clock.moment()))
    clock.observe({"Date": "Tue, 14 Nov 2023 22:13:20 GMT", "Age": "25"})
    assert 1_700_000_025.0 == clock.now()
    local.advance(301)
    assert not clock.is_fresh(clock.moment())


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process cannot be set there")
def test_a_date_without_a_zone_is_not_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in UTC, as all dates of HTTP: three hours off, a record would be sent after its key is forgotten."""
    clock = PlatformClock(FakeClock())
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/Sao_Paulo")
        time.tzset()
        clock.observe({"Date": "Tue, 14 Nov 2023 22:13:20"})
        moment = clock.now()
    time.tzset()

    assert 1_700_000_000.0 == moment


@pytest.mark.parametrize(("jump", "now"), [(3600, 3610), (-3600, 10)])
def test_a_clock_that_jumps_makes_nothing_younger(jump: float, now: float) -> None:
    """Where both clocks of the machine disagree, the larger time has passed."""

    class Jumping(FakeClock):
        skew = 0.0

        def now(self) -> float:
            return super().now() + self.skew

    local = Jumping()
    clock = PlatformClock(local)
    clock.observe({"Date": formatdate(0.0, usegmt=True)})
    local.advance(10)
    local.skew = jump

    assert now == clock.now()
