"""A rate that several processes share."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import asyncpg
import pytest

from paymentsdk import RateShare, RequestInvalid
from tests.conftest import PATIENCE

NOW = 1_700_000_000.0
#: Takes slots, all at the same moment, and says how far ahead they were.
PROCESS = """
import asyncio, sys
from paymentsdk import RateShare

async def main():
    share = RateShare(sys.argv[1], float(sys.argv[2]))
    for _ in range(int(sys.argv[3])):
        print(await share.reserve(1_700_000_000.0, 1e6))

asyncio.run(main())
"""


def slots_of_processes(*paths: object, rate: float = 100.0, each: int = 20) -> list[int]:
    """Return the numbers of the slots that processes took, one process for each path."""
    command = [sys.executable, "-c", PROCESS]
    started = [
        subprocess.Popen([*command, str(path), str(rate), str(each)], stdout=subprocess.PIPE, text=True)
        for path in paths
    ]
    outputs = [process.communicate(timeout=50)[0] for process in started]
    return sorted(round(float(line) * rate) for output in outputs for line in output.split())


def test_processes_take_different_slots(tmp_path):
    """Two that ask at the same moment get 40 slots, one after the other, each slot once."""
    assert list(range(40)) == slots_of_processes(*[tmp_path / "rate"] * 2)


async def test_a_slot_too_far_ahead_is_not_taken(tmp_path):
    """The next one who can wait for it gets it."""
    share = RateShare(tmp_path / "rate", 1.0)
    await share.reserve(NOW, 60.0)

    assert None is await share.reserve(NOW, 0.5)
    assert pytest.approx(1.0) == await share.reserve(NOW, 60.0)


async def test_no_slot_is_given_twice_however_far_ahead_the_next_one_is(tmp_path):
    """Where calls may wait for an hour, or slots are a quarter of an hour apart."""
    share = RateShare(tmp_path / "rate", 0.001)
    waits = [await share.reserve(NOW, 86_400.0) for _ in range(10)]

    assert pytest.approx([number * 1000 for number in range(len(waits))]) == waits
    assert await share.reserve(NOW, 30.0) is None


@pytest.mark.parametrize("back", [11.0, 3600.0])
@pytest.mark.control("paymentsdk._call.rate_share._SET_BACK", 1e9)
async def test_a_clock_that_is_set_back_takes_the_slots_along(tmp_path, back: float):
    """What was ahead is as far ahead as before, and nobody waits until the clock has caught up."""
    share = RateShare(tmp_path / "rate", 1.0)
    before = [await share.reserve(NOW, 60.0) for _ in range(3)]
    too_far = await share.reserve(NOW - back, 1.0)
    after = [await share.reserve(NOW - back + later, 60.0) for later in (1.0, 1.0, 30.0)]

    assert ([0.0, 1.0, 2.0], None, [2.0, 3.0, 0.0]) == (before, too_far, after)


async def test_an_unusable_file_stops_no_other_work(tmp_path, caplog):
    """The request goes out, and the log says why it was not held; the platform's own limit is still there."""
    share = RateShare(tmp_path / "missing" / "rate", 1.0)
    with caplog.at_level(logging.WARNING, "paymentsdk"):
        assert 0.0 == await share.reserve(NOW, 60.0)
        # It may have taken seconds to find that out: those behind this one do not, and later somebody tries again.
        assert [0.0, 0.0] == [await share.reserve(NOW + after, 60.0) for after in (9.9, 10.1)]

    assert 2 == caplog.text.count("cannot be used")


@pytest.mark.parametrize("rate", [0, True, float("nan"), "10", 1_000_001])
def test_an_invalid_rate_is_rejected(rate, tmp_path):
    """When it is made."""
    with pytest.raises(RequestInvalid, match=r"^rate: must be above 0"):
        RateShare(tmp_path / "rate", rate)


# --- in PostgreSQL ------------------------------------------------------------------------------------------------


async def test_machines_take_different_slots(dsn: str):
    """Two processes that ask at the same moment get a slot each, on the clock of the server."""
    # Slots that are so far apart that the time which passes meanwhile is a small part of one.
    slots = await asyncio.to_thread(slots_of_processes, *[dsn] * 2, rate=0.06, each=10)

    assert list(range(20)) == slots


async def test_slots_of_a_database_are_a_distance_apart(dsn: str):
    """Those who ask together, each by a share of its own, get slots one after the other; one too far ahead is left."""
    shares = [RateShare(dsn, 0.1), RateShare(dsn, 0.1), RateShare(dsn, 0.1, name="another")]
    clock = [0.0, NOW, 2 * NOW]  # Machines that do not agree on what time it is.

    waits = [await share.reserve(now, 60.0) for share, now in zip([*shares, *shares], clock * 2, strict=True)]
    too_far = await shares[0].reserve(NOW, 1.0)
    next_one = await shares[0].reserve(NOW, 60.0)

    assert [0.0, 10.0, 0.0, 20.0, 30.0, 10.0] == pytest.approx(waits, abs=2.0)
    assert too_far is None
    assert 40.0 == pytest.approx(next_one, abs=2.0)


async def test_a_connection_without_work_is_closed(dsn: str, monkeypatch: pytest.MonkeyPatch):
    """Nobody has to close a share."""
    monkeypatch.setattr("paymentsdk._call.rate_share._IDLE", 0.5)
    before = await sessions(dsn)
    await RateShare(dsn, 1000.0).reserve(NOW, 60.0)

    assert await sessions(dsn) - before
    async with asyncio.timeout(PATIENCE):
        while await sessions(dsn) - before:
            pass


async def sessions(dsn: str) -> set[int]:
    """Return the connections that the server has, but for this one."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        return {row["pid"] for row in rows}
    finally:
        await connection.close()


async def test_a_server_that_is_away_keeps_nothing_from_going(caplog, monkeypatch):
    """As with a file that cannot be used; the log does not show the password."""
    monkeypatch.setattr("paymentsdk._call.rate_share._LONGEST_LOCK", 0.1)
    share = RateShare("postgresql://me:secret-password@127.0.0.1:1/db", 10.0)

    assert 0.0 == await share.reserve(NOW, 60.0)

    assert "cannot be used" in caplog.text
    assert "secret-password" not in caplog.text + repr(share)
