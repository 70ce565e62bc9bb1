"""A token is refreshed long before it ends, and only where the new pair can be saved."""

from __future__ import annotations

import errno
import os

import pytest

from paymentsdk import FileTokenStore, MemoryTokenStore, RefreshFailed, Response
from tests.auth.platform import DAY, START, Platform

HALF_YEAR = 180 * DAY


@pytest.mark.parametrize(("lifetime", "due"), [(HALF_YEAR, 150 * DAY), (6.0, 5.0)], ids=["180-days", "6-seconds"])
async def test_a_token_is_refreshed_with_a_sixth_of_its_life_left(
    make_client, platform: Platform, clock, *, lifetime: float, due: float
) -> None:
    """Of 180 days that is 30: what a seller has to authorize again, should the new pair be lost."""
    client = make_client(platform.pair(expires_at=START + lifetime, issued_at=START))

    clock.advance(due - 0.5)
    await client.orders.get("ORD1")
    assert [] == platform.refreshes
    clock.advance(0.5)
    await client.orders.get("ORD1")

    assert ["TG-refresh-1"] == platform.refreshes


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._remember", lambda self, *pairs: None)
@pytest.mark.parametrize("backup", [1, 3])
async def test_a_backup_of_any_age_is_not_taken_for_a_new_pair(make_client, platform: Platform, clock, backup) -> None:
    """What others have taken the place of is spent, and a platform may end the grant of whoever sends it."""
    store = MemoryTokenStore(platform.pair(expires_at=START + 40 * DAY, issued_at=START - 140 * DAY))
    client = make_client(store=store)
    backups = []
    for _ in range(4):
        await client.orders.get("ORD1")
        backups.append(await store.load())
        clock.advance(155 * DAY)
    await store.save(backups[backup - 1])

    await client.orders.get("ORD1")

    assert [f"TG-refresh-{number}" for number in range(1, 5)] == platform.refreshes


async def test_an_early_refresh_that_fails_is_left_alone_for_a_share_of_the_rest(
    make_client, platform: Platform, clock
) -> None:
    """The live token stays in use; with 30 days left, an endpoint that is down is not asked every minute."""
    client = make_client(platform.pair(expires_at=START + HALF_YEAR, issued_at=START))
    platform.trouble = [Response(400)]
    clock.advance(150 * DAY)
    for seconds in (0, 1, 7 * 3600):
        clock.advance(seconds)
        await client.orders.get("ORD1")
    assert 1 == len(platform.refreshes)

    clock.advance(3600)
    await client.orders.get("ORD1")

    assert ["1", "1", "1", "2"] == platform.calls


# --- a store shows that it can be written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "number"), [("fsync", errno.ENOSPC), ("replace", errno.EROFS)], ids=["full", "read-only"]
)
async def test_a_store_that_cannot_be_written_spends_no_refresh_token(
    make_client, platform, tmp_path, monkeypatch: pytest.MonkeyPatch, *, step: str, number: int
) -> None:
    """That shows before the request is sent: the pair stays good, and the call says that it may try again."""
    store = FileTokenStore(tmp_path / "seller.json")
    await store.save(old := platform.pair(expires_at=START - 1))
    client = make_client(old, store=store)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(RefreshFailed):
            await client.orders.get("ORD1")

    assert [] == platform.refreshes
    assert old == await store.load()
    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert ["seller.json", "seller.json.lock"] == sorted(path.name for path in tmp_path.iterdir())
