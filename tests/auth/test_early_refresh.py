"""A token is refreshed long before it ends, and a crash in the middle of that is found by the next process."""

from __future__ import annotations

import asyncio
import errno
import os
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

from paymentsdk import (
    FileTokenStore,
    MemoryTokenStore,
    RefreshFailed,
    RefreshingToken,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk._auth.refresh import Active, TokenState, after_reading
from paymentsdk.testing import FakeClock
from tests.auth.platform import DAY, START, Platform

HALF_YEAR = 180 * DAY


@pytest.mark.parametrize(
    ("lifetime", "due"),
    [(HALF_YEAR, 150 * DAY), (6 * 3600.0, 5 * 3600.0), (600.0, 500.0), (6.0, 5.0)],
    ids=["180-days", "6-hours", "10-minutes", "6-seconds"],
)
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


async def test_the_next_pair_says_when_it_was_issued(make_client, platform: Platform, clock, tmp_path) -> None:
    """A process that starts later finds in the store how long the token lives, and refreshes it as early."""
    store = FileTokenStore(tmp_path / "seller.json")
    await make_client(platform.pair(expires_at=0.0), store=store).orders.get("ORD1")

    clock.advance(150 * DAY)
    client = make_client(store=store)
    for _ in range(2):
        await client.orders.get("ORD1")

    assert ["TG-refresh-1", "TG-refresh-2"] == platform.refreshes


def by_their_ends_alone(grant: TokenState, stored: TokenPair, rejected: str | None) -> TokenState:
    """Take for later what ends later, also of pairs that the store has had."""
    grant = replace(grant, kept=False) if isinstance(grant, Active) else grant
    return after_reading(grant, stored, rejected)


@pytest.mark.control("paymentsdk._auth.refresh.after_reading", by_their_ends_alone)
async def test_a_pair_that_took_the_place_of_another_came_after_it(make_client, platform: Platform, clock) -> None:
    """A machine whose clock is two days behind refreshes: the other does not take the new pair for older.

    It ends earlier by its maker's clock, and is adopted without a further request to the platform.
    """
    pair = platform.pair(expires_at=START + HALF_YEAR - DAY, issued_at=START - DAY)
    store = MemoryTokenStore(pair)
    ahead = make_client(store=store)
    await ahead.orders.get("ORD1")
    behind = make_client(store=store, clock=FakeClock(START - 2 * DAY))

    platform.accepts_only = 2
    await behind.orders.get("ORD1")
    await ahead.orders.get("ORD1")

    assert (await store.load()).expires_at < pair.expires_at
    assert ["TG-refresh-1"] == platform.refreshes


async def test_an_older_pair_that_comes_back_is_not_taken_for_a_new_one(make_client, platform: Platform, clock) -> None:
    """A backup of the store was restored under a process that has gone on: its spent refresh token is not sent."""
    old = platform.pair(expires_at=START + 40 * DAY, issued_at=START - 140 * DAY)
    store = MemoryTokenStore(old)
    client = make_client(store=store)
    await client.orders.get("ORD1")
    for day in (20, 150):
        clock.advance(day * DAY)
        await client.orders.get("ORD1")
        await store.save(old)

    assert ["TG-refresh-1", "TG-refresh-2"] == platform.refreshes


@pytest.mark.control("paymentsdk._auth.refresh.with_past", lambda past, *pairs: ())
@pytest.mark.parametrize("backup", [1, 2, 3])
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


# --- the mark of a refresh under way ----------------------------------------------------------------------------------


async def crash(store: FileTokenStore, pair: TokenPair, platform: Platform) -> list[bool]:
    """Let a process die in the middle of a refresh that the platform carries out; was the mark there by then?"""
    marked = []

    async def exchange(refresh_token: str) -> TokenPair:
        marked.append(await store.unfinished_refresh(pair) is not None)
        platform.generation += 1
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await RefreshingToken(pair, store=store).renew(pair.access_token, exchange, START)
    return marked


async def forgetful(self: FileTokenStore, pair: TokenPair, now: float) -> None:
    """Keep no mark."""


@pytest.mark.control("paymentsdk.FileTokenStore.begin_refresh", forgetful)
@pytest.mark.parametrize(
    ("expires_at", "deadline"),
    [
        (START + 20 * DAY, "by 2023-12-04T22:13:20+00:00"),
        (None, "when the access token is rejected"),
        (START - 1, "now"),
        (-1e18, "now"),
    ],
    ids=["live", "unknown", "ended", "long-ended"],
)
async def test_the_next_process_says_by_when_to_authorize_again(
    make_client, platform: Platform, tmp_path, *, caplog, expires_at: float | None, deadline: str
) -> None:
    """After a crash between the refresh and the save, the log warns; the live token is used until it ends."""
    store = FileTokenStore(tmp_path / "seller.json")
    pair = platform.pair(expires_at=expires_at, issued_at=START - 160 * DAY)
    await store.save(pair)
    assert [True] == await crash(store, pair, platform)
    platform.accepts_only = None if expires_at else 9

    client = make_client(store=FileTokenStore(tmp_path / "seller.json"))
    for _ in range(3):
        await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    warned = [record.getMessage() for record in caplog.records if "never saved" in record.getMessage()]
    began, lost = "2023-11-14T22:13:20+00:00", "if the platform has issued a new pair, it is lost"
    words = f"a token refresh that began at {began} was never saved: {lost}, and the seller must authorize again"
    assert [f"{words} {deadline}"] == warned
    if deadline.startswith("by"):
        assert ["1", "1", "1"] == platform.calls


async def test_an_end_in_no_calendar_keeps_no_token_from_being_refreshed(
    make_client, platform, tmp_path, caplog
) -> None:
    """The warning has it as a number: so does a pair whose program counts milliseconds."""
    store = FileTokenStore(tmp_path / "seller.json")
    pair = platform.pair(expires_at=START * 1000)
    await store.save(pair)
    await store.begin_refresh(pair, START - 60)
    platform.accepts_only = 2

    await make_client(store=store).orders.get("ORD1")

    assert "must authorize again by 1.7e+12 seconds after 1970" in caplog.text


async def test_a_crash_before_the_request_left_costs_nothing(make_client, platform, tmp_path, caplog) -> None:
    """The next process warns, since it cannot know; its refresh succeeds, and nobody is warned again."""
    store = FileTokenStore(tmp_path / "seller.json")
    pair = platform.pair(expires_at=START - 1)
    await store.save(pair)
    await store.begin_refresh(pair, START - 60)

    for _ in range(2):
        await make_client(store=store).orders.get("ORD1")

    assert 1 == caplog.text.count("never saved")
    assert ["seller.json", "seller.json.lock"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trouble", "stays"),
    [
        (SendFailed("refused", sent=False), False),
        (Response(429), False),
        (Response(400), False),
        (Response(400, {}, b'{"error":"invalid_grant"}'), False),
        (SendFailed("reset"), True),
        (Response(503), True),
    ],
    ids=["unsent", "429", "400", "spent", "reset", "503"],
)
async def test_the_mark_stays_while_the_refresh_is_in_doubt(
    make_client, platform: Platform, tmp_path, *, trouble: object, stays: bool
) -> None:
    """A rejection, or a request that never left, changed nothing: the next process has nothing to warn of."""
    store, pair = FileTokenStore(tmp_path / "seller.json"), platform.pair(expires_at=START - 1)
    client = make_client(pair, store=store)
    platform.trouble = [trouble] * 9

    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    assert (START if stays else None) == await store.unfinished_refresh(pair)


async def test_a_mark_of_another_pair_is_none(platform: Platform, tmp_path, caplog) -> None:
    """A process that died between saving the pair and removing the mark has lost nothing; nor does litter matter."""
    store = FileTokenStore(tmp_path / "seller.json")
    await store.begin_refresh(platform.pair(1), START)
    assert START == await store.unfinished_refresh(platform.pair(1))

    assert await store.unfinished_refresh(platform.pair(2)) is None
    (tmp_path / "seller.json.refreshing").write_bytes(b"\xff{")
    assert await store.unfinished_refresh(platform.pair(1)) is None
    assert "TG-refresh" not in (tmp_path / "seller.json.refreshing").read_text(errors="replace")


async def test_a_store_that_cannot_be_written_spends_no_refresh_token(make_client, platform, tmp_path) -> None:
    """A full disk shows before the request is sent: the pair stays good, and the call says that it may try again."""
    store = FileTokenStore(tmp_path / "seller.json")
    (tmp_path / "seller.json.refreshing").mkdir()  # Nobody can write it.
    client = make_client(platform.pair(expires_at=START - 1), store=store)

    with pytest.raises(RefreshFailed):
        await client.orders.get("ORD1")

    assert [] == platform.refreshes
    (tmp_path / "seller.json.refreshing").rmdir()
    assert "ORD1" == (await client.orders.get("ORD1")).id


class Disk:
    """It has room for so many bytes."""

    room: float = inf


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Where the files are."""
    made, keep = Disk(), os.fsync

    def fsync(handle: int) -> None:
        if sum(file.stat().st_size for file in tmp_path.iterdir()) > made.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        keep(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return made


@pytest.mark.control("paymentsdk._auth.token_store._ROOM", 0)
async def test_a_disk_without_room_for_the_new_pair_spends_no_refresh_token(
    make_client, platform, tmp_path, disk: Disk
) -> None:
    """Room for the mark alone is not enough; nothing of it stays that would be taken for a refresh."""
    store = FileTokenStore(tmp_path / "seller.json")
    await store.save(old := platform.pair(expires_at=START - 1))
    disk.room = 1_000

    with pytest.raises(RefreshFailed):
        await make_client(old, store=store).orders.get("ORD1")

    assert [] == platform.refreshes
    assert await store.unfinished_refresh(old) is None


@pytest.mark.control("paymentsdk._auth.token_store._FULL", frozenset(), raises=OSError)
async def test_a_disk_that_fills_during_a_refresh_keeps_the_new_pair(platform, tmp_path, disk: Disk) -> None:
    """It takes the room that the mark has held for it."""
    path = tmp_path / "seller.json"
    store = FileTokenStore(path)
    await store.save(platform.pair(1))
    await store.begin_refresh(platform.pair(1), START)
    disk.room = sum(file.stat().st_size for file in tmp_path.iterdir())

    await store.save(platform.pair(2))

    assert platform.pair(2) == await store.load()
    assert [path] == [*tmp_path.iterdir()]


async def test_a_mark_that_can_be_written_in_a_folder_that_cannot(
    make_client, platform, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash has left it: the new pair could not be saved beside it."""
    store = FileTokenStore(tmp_path / "seller.json")
    await store.save(old := platform.pair(expires_at=START - 1))
    (tmp_path / "seller.json.lock").touch()
    await store.begin_refresh(old, START - 9)
    system_open = os.open

    def read_only(path: str | Path, flags: int, *mode: int, **options: object) -> int:
        if Path(path).parent == tmp_path and not Path(path).exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return system_open(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(RefreshFailed):
        await make_client(old, store=store).orders.get("ORD1")

    assert [] == platform.refreshes
    assert START - 9 == await store.unfinished_refresh(old)
