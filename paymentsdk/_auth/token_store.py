"""Token stores. A new pair is saved before it is used, since the old refresh token is spent by then."""

import asyncio
import errno
import logging
import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from paymentsdk._secrets import MaskedRepr, masked
from paymentsdk._validate import check_path
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("paymentsdk")

#: Seconds between two tries to lock a file that another process has locked.
LOOK_AGAIN = 0.05
#: Seconds that a file may stay locked: a refresh takes at most a minute, unless its process was stopped.
LONGEST_LOCK = 120.0
#: How many bytes are written to check that a pair can be saved.
_PROBE = 4_096
#: The error numbers for a file that another process has locked.
_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK})
#: Open files whose lock this process holds or waits for.
_LOCK_FILES: set[int] = set()
#: A complete access token; its last part is the user id (4.1). A token in another form may end with any number.
_WHOLE_TOKEN = re.compile(r"(?:APP_USR|TEST)-[^-]+-[0-9]{6}-[^-]+-([0-9]{1,20})\Z")


class TokenPair(MaskedRepr, Struct, frozen=True, kw_only=True):
    """An access token and its refresh token."""

    access_token: str
    """The bearer token."""
    refresh_token: str | None = None
    """The token for one refresh. `None` if the pair cannot be refreshed."""
    expires_at: float | None = None
    """When the access token expires, in seconds since the epoch. `None` if that is unknown."""
    issued_at: float | None = None
    """When the pair was issued, in seconds since the epoch. ``None`` if that is unknown. Store it with the rest: it
    decides how early the token is refreshed."""
    __secrets__: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token"})


def certain_user_id(token: str) -> str | None:
    """Return the user id of the seller in *token*; `None` if the token does not have the contract's form."""
    match = _WHOLE_TOKEN.match(token)
    return match and match[1]


def usable(pair: TokenPair, rejected: str | None, now: float) -> bool:
    """Return whether *pair* has not expired at *now*, and its token is not the *rejected* token."""
    return pair.access_token != rejected and (pair.expires_at is None or now < pair.expires_at)


class TokenStore(Protocol):
    """Keeps a token pair after the process has ended."""

    async def load(self) -> TokenPair | None:
        """Return the pair that was saved last, or ``None``."""
        ...

    async def save(self, pair: TokenPair) -> None:
        """Save *pair* durably before returning: its refresh token is the only valid one."""
        ...


@runtime_checkable
class LockingTokenStore(TokenStore, Protocol):
    """A store that several processes can share without spending each other's refresh tokens."""

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Hold the pair: only one of the processes that share the store holds it at a time, and only it may refresh."""
        ...


@runtime_checkable
class PreparingTokenStore(TokenStore, Protocol):
    """A store that can check that it can keep a new pair, before a refresh token is spent."""

    async def prepare(self) -> None:
        """Write once like `save`, but leave the pair unchanged. Called while the lock is held, if the store has a lock.

        If it raises, the refresh is not sent.
        """
        ...


class MemoryTokenStore:
    """Keeps a pair in memory, until the process ends."""

    __slots__ = ("_pair",)

    def __init__(self, pair: TokenPair | None = None) -> None:
        pair = masked(pair)
        check_pair(pair)
        self._pair = pair

    async def load(self) -> TokenPair | None:
        """See `TokenStore.load`."""
        return self._pair

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore.save`."""
        pair = masked(pair)
        check_pair(pair)
        self._pair = pair


class FileTokenStore:
    """Keeps a pair in a JSON file that only its owner can read.

    The file, or the target of a link, is replaced as a whole and forced to the disk. So a crash leaves either the old
    pair or the new pair, and perhaps an unfinished temporary file that only its owner can read. Processes that share
    the file refresh one after the other, and use the pair that another process has saved. They lock an empty file next
    to it, named like it with ``.lock`` appended. Before each refresh a file of 4 KiB is written next to it, and
    removed: no refresh begins on a full disk, or in a folder that cannot be written.

    In a container, mount the folder, not only the file. A file that is mounted on its own cannot be replaced, so it is
    overwritten: a crash may leave it incomplete, and it keeps its mode. Other containers do not see the lock either.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = check_path("path", path)

    async def load(self) -> TokenPair | None:
        """See `TokenStore.load`. A file without a token pair returns ``None``, with a warning in the log."""
        return await asyncio.to_thread(self._read)

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore.save`."""
        pair = masked(pair)
        check_pair(pair)
        await asyncio.to_thread(self._write, masked(msgspec.json.encode(pair)))

    def lock(self) -> AbstractAsyncContextManager[None]:
        """See `LockingTokenStore.lock`. A process that dies releases its lock.

        Raises:
            TimeoutError: Another process has held the lock for two minutes.
        """
        # Resolved each time: after a release or a new volume the link may point elsewhere, and other processes go
        # there.
        return file_lock(f"{self._path.resolve()}.lock")

    async def prepare(self) -> None:
        """See `PreparingTokenStore.prepare`."""
        await asyncio.to_thread(self._prove)

    def _read(self) -> TokenPair | None:
        try:
            return msgspec.json.decode(self._path.read_bytes().removeprefix(BOM_UTF8), type=TokenPair)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            logger.warning("%s holds no token pair", self._path)
            return None

    def _prove(self) -> None:
        # In another file: a thread that outlives a cancelled refresh must not write an old pair over a new one.
        path = self._path.resolve()
        probe = path.with_name(f"{path.name}.prepare")
        _write(probe, bytes(_PROBE))
        probe.unlink(missing_ok=True)

    def _write(self, content: bytes) -> None:
        try:
            _write(self._path, content)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # The file is mounted on its own, and cannot be replaced. The refresh token that it holds is spent.
            with self._path.open("r+b") as file:
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())


def _write(path: "Path", content: bytes) -> None:
    from paymentsdk._files import whole  # slow to import

    with whole(path, private=True) as unfinished:
        unfinished.write_bytes(content)


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """Create the empty file *path* and hold its lock until the end; a process that dies releases the lock.

    Raises:
        TimeoutError: Another process has held the lock for two minutes.
    """
    # Open it for writing: NFS locks only such a file, even if it stays empty.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    _LOCK_FILES.add(handle)
    try:
        async with asyncio.timeout(LONGEST_LOCK):
            while not _lock(handle):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(LOOK_AGAIN)
        yield
    finally:
        if handle in _LOCK_FILES:  # A forked child has closed it.
            _LOCK_FILES.remove(handle)
            _lock(handle, release=True)
            os.close(handle)


def _close_inherited() -> None:
    """Close the lock files that a forked child inherits: otherwise the locks would outlive a parent that dies."""
    while _LOCK_FILES:
        os.close(_LOCK_FILES.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def _lock(handle: int, *, release: bool = False) -> bool:
    """Lock an open file; return whether no other process has locked it. With *release*, unlock it.

    Closing it is not enough: a child that is being forked may still have the file open.
    """
    try:
        if sys.platform == "win32":
            import msvcrt  # only on Windows

            # The first byte of the empty file: Windows can lock bytes that do not exist.
            msvcrt.locking(handle, msvcrt.LK_UNLCK if release else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # not on Windows

            fcntl.flock(handle, fcntl.LOCK_UN if release else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Windows reports EACCES or EDEADLOCK, even when it unlocks a file that is not locked; other systems
        # EWOULDBLOCK.
        if error.errno not in _HELD:
            raise
        return False
    return True


def check_pair(pair: TokenPair | None) -> None:
    """Check that *pair* is a pair or ``None``.

    The token endpoint's response looks like a pair, but does not know when it expires.

    Raises:
        RequestInvalid: *pair* is something else. The error does not show it.
    """
    if pair is not None and not isinstance(pair, TokenPair):
        raise RequestInvalid("pair", "must be a TokenPair: `token.pair()` makes one of a Token")
