"""On Windows, a `FileTokenStore` locks by `msvcrt`; here another implementation of its two calls takes its place."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from types import ModuleType

import pytest

from paymentsdk import FileTokenStore


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
