"""The lock of a store ends with its process, whatever children that has; on Windows it is that of `msvcrt`."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from paymentsdk import FileTokenStore, LockingTokenStore, SQLiteTokenStore

# --- forks ------------------------------------------------------------------------------------------------------------


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


# --- Windows ----------------------------------------------------------------------------------------------------------


class Msvcrt(ModuleType):
    """Locks as Windows does: a byte range of a file, by handle, and not to be waited for."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[int, int] = {}
        self.rejection = errno.EACCES

    def locking(self, handle: int, mode: int, size: int) -> None:
        """Lock, or unlock, *size* bytes from where the file stands."""
        assert (1, 0) == (size, os.lseek(handle, 0, os.SEEK_CUR))
        inode = os.fstat(handle).st_ino
        if mode == self.LK_NBLCK:
            if inode in self.held:
                raise OSError(self.rejection, "locked")
            self.held[inode] = handle
        elif self.held.get(inode) != handle:
            raise OSError(errno.EACCES, "not locked")
        else:
            del self.held[inode]


@pytest.fixture
def msvcrt(monkeypatch: pytest.MonkeyPatch) -> Msvcrt:
    """Let the package take this system for Windows."""
    module = Msvcrt()
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    monkeypatch.setattr("paymentsdk._auth.token_store.sys", type("Windows", (), {"platform": "win32"}))
    monkeypatch.setattr("paymentsdk._auth.token_store.LOOK_AGAIN", 0)
    return module


@pytest.mark.parametrize("rejection", [errno.EACCES, errno.EDEADLK], ids=["EACCES", "EDEADLOCK"])
async def test_one_process_at_a_time_holds_the_pair(msvcrt: Msvcrt, tmp_path, rejection: int) -> None:
    """The second waits until the first lets go, whichever way Windows says that a file is locked."""
    msvcrt.rejection = rejection
    first, second = (FileTokenStore(tmp_path / "seller.json") for _ in range(2))
    held: list[str] = []

    async def hold(store: FileTokenStore, name: str) -> None:
        async with store.lock():
            held.append(name)
            for _ in range(10):
                await asyncio.sleep(0)
            held.append(name)

    await asyncio.gather(hold(first, "one"), hold(second, "other"))

    assert held[0] == held[1] != held[2] == held[3]
    assert {} == msvcrt.held
