"""The file of a token store: whole whatever happens, its owner's alone, and on the disk before it counts."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from paymentsdk import (
    FileTokenStore,
    MemoryTokenStore,
    RequestInvalid,
    TokenPair,
)
from paymentsdk.resources.oauth import Token
from tests.engine.issuer import START


async def test_a_file_keeps_a_pair(path, issuer) -> None:
    """What was saved last is what is loaded; before that there is nothing."""
    store = FileTokenStore(path)

    assert await store.load() is None
    await store.save(issuer.pair(1))
    await store.save(issuer.pair(2, expires_at=5.5))

    assert issuer.pair(2, expires_at=5.5) == await FileTokenStore(str(path)).load()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("store", [FileTokenStore, lambda path: MemoryTokenStore()])
async def test_only_a_pair_is_kept(store, path) -> None:
    """A `Token` says how long it lasts and not when it ends: kept as it is, it would never be refreshed early."""
    with pytest.raises(RequestInvalid, match="pair: must be a TokenPair"):
        await store(path).save(Token(access_token="TEST-access", expires_in=60))

    assert not path.exists()


async def test_only_the_owner_can_read_the_file(path, issuer) -> None:
    """The file has mode 0600, whatever the umask is and whatever it was before."""
    path.write_text("{}")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        await FileTokenStore(path).save(issuer.pair())
    finally:
        os.umask(before)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


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


@pytest.mark.parametrize("broken", ["fsync", "replace"])
async def test_a_crash_leaves_the_old_pair(path, issuer, monkeypatch, broken: str) -> None:
    """A pair that could not be written whole replaces nothing and leaves nothing behind."""
    store = FileTokenStore(path)
    await store.save(issuer.pair(1))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, broken, fail)
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


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"[",
        b'{"access_token":5}',
        b"[" * 100_000,
    ],
)
async def test_garbage_in_the_file(path, issuer, caplog, garbage: bytes) -> None:
    """A file that holds no pair counts as none, with a warning that names it; the next save makes it good."""
    store = FileTokenStore(path)
    path.write_bytes(garbage)

    assert await store.load() is None
    assert [str(path)] == [str(record.args[0]) for record in caplog.records]
    await store.save(issuer.pair())
    assert issuer.pair() == await store.load()
