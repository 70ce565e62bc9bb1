"""A token store that processes share: pairs that others saved, the lock that they wait for, and the file."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest

from paymentsdk import (
    FileTokenStore,
    MemoryTokenStore,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    Response,
    TokenPair,
)
from tests.engine.issuer import START

# --- what other processes saved ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("expires_at", "saved_until"), [(None, None), (START + 300, START + 3600)])
async def test_a_pair_that_another_process_saved_is_taken_over(
    signed_in, issuer, expires_at: float | None, saved_until: float | None
) -> None:
    """On a rejection, and before an early refresh, a later pair in the store is used: it has the live refresh token."""
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=expires_at), store=store)
    issuer.generation = 2
    await store.save(issuer.pair(2, expires_at=saved_until))

    await client.orders.get("ORD1")

    assert [] == issuer.refreshes
    assert "Bearer APP_USR-access-2" == issuer.used[-1]


async def test_a_new_authorization_needs_no_restart(signed_in, issuer) -> None:
    """A spent grant is not asked for again, but the store is: a new pair in it is taken as soon as it is there."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    for _ in range(2):
        with pytest.raises(ReauthorizationRequired):
            await client.orders.get("ORD1")

    issuer.generation = 7
    await store.save(issuer.pair(7, expires_at=START + 3600))

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert 1 == len(issuer.refreshes)


async def test_a_store_is_all_that_a_client_needs(signed_in, issuer, path) -> None:
    """What one process has saved is the token of the next."""
    await FileTokenStore(path).save(issuer.pair())

    assert "ORD1" == (await signed_in(store=FileTokenStore(path)).orders.get("ORD1")).id
    assert [] == issuer.refreshes


async def test_nothing_in_the_store(signed_in, issuer) -> None:
    """With no pair at all a person has to authorize; once the store has a pair, calls go on."""
    store = MemoryTokenStore()
    client = signed_in(store=store)

    with pytest.raises(ReauthorizationRequired) as rejected:
        await client.orders.get("ORD1")
    assert 0 == issuer.asked
    await store.save(issuer.pair())

    text = "the store has no tokens for this seller; exchange an authorization code first, and save its pair"
    assert (0, None, text) == (rejected.value.status, rejected.value.code, str(rejected.value))
    assert "ORD1" == (await client.orders.get("ORD1")).id


# --- processes that wait for each other -------------------------------------------------------------------------------


@pytest.mark.control(
    "paymentsdk._auth.token_store._lock",
    lambda handle, *, release=False: True,
    raises=(AssertionError, ReauthorizationRequired, RefreshFailed),
)
async def test_processes_that_share_a_file_renew_one_after_the_other(
    make_client, issuer, path, monkeypatch, until
) -> None:
    """While one asks for a new pair the others wait, and then use its pair: no refresh token is sent twice."""
    monkeypatch.setattr("paymentsdk._auth.token_store.LOOK_AGAIN", 0)
    old, honest, hold = issuer.pair(expires_at=START - 1), issuer.renew, asyncio.Event()

    async def slow(refresh_token: str) -> Response:
        await hold.wait()
        return honest(refresh_token)

    issuer.renew = slow
    stores = [FileTokenStore(path) for _ in range(3)]
    await stores[0].save(old)
    clients = [make_client(issuer, auth=RefreshingToken(old, store=store)) for store in stores]
    calls = [asyncio.create_task(client.orders.get("ORD1")) for client in clients]
    await until(lambda: issuer.asked)
    for _ in range(50):
        await asyncio.to_thread(int)  # The others work in threads as well.
    requests = issuer.asked
    hold.set()
    orders = await asyncio.gather(*calls)

    assert 1 == requests
    assert ["ORD1"] * 3 == [order.id for order in orders]
    assert ["TG-refresh-1"] == issuer.refreshes


async def test_a_file_in_a_folder_that_is_not_there(make_client, issuer, path) -> None:
    """The error names the file, and nothing was spent: once the folder is there, the client goes on."""
    auth = RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path.parent / "missing" / path.name))
    client = make_client(issuer, auth=auth)

    with pytest.raises(
        RefreshFailed, match=r"refreshed: FileNotFoundError '.*missing.*': No such file or directory \(token_store.py:"
    ):
        await client.orders.get("ORD1")
    assert [] == issuer.refreshes

    (path.parent / "missing").mkdir()
    assert "ORD1" == (await client.orders.get("ORD1")).id


async def test_a_process_that_was_stopped_stops_the_others_for_so_long(make_client, issuer, path, monkeypatch) -> None:
    """Who holds the lock for ever keeps calls from their token, and no client from being closed."""
    monkeypatch.setattr("paymentsdk._auth.token_store.LONGEST_LOCK", 0)
    client = make_client(issuer, auth=RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path)))

    async with FileTokenStore(path).lock():
        with pytest.raises(RefreshFailed, match="refreshed: TimeoutError"):
            await client.orders.get("ORD1")
        await client.aclose()

    assert [] == issuer.refreshes


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_only_the_owner_can_read_the_file(path, issuer) -> None:
    """The file and its lock have mode 0600, whatever the umask is and whatever it was before."""
    path.write_text("{}")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        await FileTokenStore(path).save(issuer.pair())
        async with FileTokenStore(path).lock():
            modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
    finally:
        os.umask(before)

    assert [0o600] * 2 == modes


async def test_a_pair_is_on_the_disk_before_it_counts(path, issuer, monkeypatch) -> None:
    """All of it is forced to the disk before it takes the place of the old one, and after that the folder is."""
    steps, fsync, replace = [], os.fsync, os.replace

    def forced(descriptor: int) -> None:
        fsync(descriptor)
        steps.append(os.fstat(descriptor).st_size)

    def replaced(*arguments: object) -> None:
        replace(*arguments)
        steps.append("replaced")

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(os, "replace", replaced)
    await FileTokenStore(path).save(issuer.pair())

    assert [path.stat().st_size, "replaced", path.parent.stat().st_size] == steps


async def test_a_crash_leaves_the_old_pair(path, issuer, monkeypatch) -> None:
    """A pair that could not be written whole replaces nothing and leaves nothing behind."""
    store = FileTokenStore(path)
    await store.save(issuer.pair(1))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        await store.save(issuer.pair(2))

    assert issuer.pair(1) == await store.load()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.control("paymentsdk._auth.token_store.os.path.realpath", lambda path, **_: path)
@pytest.mark.skipif(os.name == "nt", reason="not everybody may make links there")
async def test_a_link_stays_one(path, issuer) -> None:
    """The pair is kept where the link leads, for all that come there, and they share the lock."""
    target = path.parent / "volume" / "kept.json"
    target.parent.mkdir()
    path.symlink_to(target)

    async with FileTokenStore(path).lock():
        await FileTokenStore(path).save(issuer.pair())

    assert path.is_symlink()
    assert issuer.pair() == await FileTokenStore(target).load()
    assert {"kept.json", "kept.json.lock"} == {file.name for file in target.parent.iterdir()}


async def test_a_file_that_is_mounted_by_itself(path, signed_in, issuer, monkeypatch) -> None:
    """Nothing can take its place, as in a container: it gets the new pair all the same, since the old one is spent.

    Of that one, which may have been longer, nothing is left behind.
    """
    store, replace = FileTokenStore(path), os.replace
    await store.save(TokenPair(access_token="a" * 500, refresh_token="TG-refresh-1", expires_at=START))

    def fail(source: object, target: Path) -> None:
        if target == path:
            raise OSError(errno.EBUSY, "Device or resource busy")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    await signed_in(store=store).orders.get("ORD1")

    assert "TG-refresh-2" == (await store.load()).refresh_token
    assert [path.name, f"{path.name}.lock"] == sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("garbage", [b"", b"[", b'{"access_token":5}', b"[" * 100_000])
async def test_garbage_in_the_file(path, issuer, caplog, garbage: bytes) -> None:
    """A file that holds no pair counts as none, with a warning that names it; the next save makes it good."""
    store = FileTokenStore(path)
    path.write_bytes(garbage)

    assert await store.load() is None
    assert [str(path)] == [str(record.args[0]) for record in caplog.records]
    await store.save(issuer.pair())
    assert issuer.pair() == await store.load()
