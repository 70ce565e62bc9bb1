"""The lock of a store ends with the process that has it, whatever children that process has."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from paymentsdk import FileTokenStore, LockingTokenStore, SQLiteTokenStore


class Forgetful(set[int]):
    """Knows of no lock in a forked child."""

    def add(self, handle: int, /) -> None:
        """Forget it."""


def fork() -> int:
    """Return 0 in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Other tests have left threads, which wait.
        return os.fork()


def die_with_a_child(store: LockingTokenStore, pipe_end: int, lives: int) -> None:
    """Lock *store*, fork a child that lives until *lives* is closed, and be killed."""

    async def hold() -> None:
        async with store.lock():
            if fork() == 0:
                os.read(lives, 1)
                os._exit(0)
            os.write(pipe_end, b"x")
            os.kill(os.getpid(), signal.SIGKILL)

    with suppress(BaseException):
        asyncio.run(hold())
    os._exit(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.control("paymentsdk._auth.token_store._LOCK_FILES", Forgetful(), raises=TimeoutError)
def test_a_child_does_not_keep_the_lock_of_a_parent_that_died(kind: str, tmp_path: Path, patience: float) -> None:
    """A worker, as multiprocessing and servers fork it, may live for weeks."""
    store = FileTokenStore(tmp_path / "t.json") if kind == "file" else SQLiteTokenStore(tmp_path / "t.db", "shop-1")
    (lives, end), (heard, writing) = os.pipe(), os.pipe()
    holder = fork()
    if holder == 0:
        os.close(end)
        die_with_a_child(store, writing, lives)

    async def lock() -> None:
        async with asyncio.timeout(patience), store.lock():
            pass

    try:
        os.waitpid(holder, 0)
        assert b"x" == os.read(heard, 1)
        asyncio.run(lock())
    finally:
        for handle in (lives, end, heard, writing):
            os.close(handle)
