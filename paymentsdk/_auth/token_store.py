"""Where token pairs are kept: a new pair is saved before it is used, since the old refresh token is spent by then."""

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
#: Seconds that a file may stay locked: a refresh takes a minute at most, unless its process has been stopped.
LONGEST_LOCK = 120.0
#: Bytes that are written to show that a pair can be saved.
_PROBE = 4_096
#: Error numbers of the system for a file that another process has locked.
_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK})
#: Open files of which this process has or wants the lock.
_LOCK_FILES: set[int] = set()
#: An access token with all of its parts, the last of which is the user id (4.1). Tokens of another form may end with
#: any number.
_WHOLE_TOKEN = re.compile(r"(?:APP_USR|TEST)-[^-]+-[0-9]{6}-[^-]+-([0-9]{1,20})\Z")


class TokenPair(MaskedRepr, Struct, frozen=True, kw_only=True):
    """An access token and what refreshes it."""

    access_token: str
    """The bearer token."""
    refresh_token: str | None = None
    """Good for one refresh; `None` if there is none."""
    expires_at: float | None = None
    """Seconds since the epoch at which the access token ends; `None` if nobody knows."""
    issued_at: float | None = None
    """Seconds since the epoch at which the pair was issued; ``None`` if nobody knows. Keep it with the rest: how early
    the token is refreshed depends on how long it lives."""
    __secrets__: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token"})


def certain_user_id(token: str) -> str | None:
    """Return the user id of the seller in *token*; `None` if it is not built as in the contract."""
    match = _WHOLE_TOKEN.match(token)
    return match and match[1]


def usable(pair: TokenPair, rejected: str | None, now: float) -> bool:
    """Whether *pair* has not expired at *now*, and its token is not the one that was *rejected*."""
    return pair.access_token != rejected and (pair.expires_at is None or now < pair.expires_at)


class TokenStore(Protocol):
    """Keeps a token pair beyond the life of a process."""

    async def load(self) -> TokenPair | None:
        """Return the pair that was saved last, or ``None``."""
        ...

    async def save(self, pair: TokenPair) -> None:
        """Keep *pair* for good before returning: its refresh token is the only one that still works."""
        ...


@runtime_checkable
class LockingTokenStore(TokenStore, Protocol):
    """A store that several processes can share without spending each other's refresh tokens."""

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Hold the pair: of all who share the store, one at a time can hold it, and only the holder refreshes it."""
        ...


@runtime_checkable
class PreparingTokenStore(TokenStore, Protocol):
    """A store that can show, before a refresh token is spent, that it can keep the new pair."""

    async def prepare(self) -> None:
        """Write once as `save` will, and leave the pair as it is; called while the lock is held, if there is one.

        The refresh is not sent if this raises.
        """
        ...


class MemoryTokenStore:
    """Keeps a pair for the life of the process."""

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

    The file, or the file that a link leads to, is replaced as a whole and forced to the disk, so that a crash leaves
    either the old pair or the new one, and perhaps an unfinished temporary file for its owner alone. Processes that
    share the file refresh one after the other, and take over a pair that another one has saved. They lock an empty file
    beside it, named like it with ``.lock`` appended. Before each refresh a file of 4 KiB is written beside it, and
    removed: no refresh begins on a full disk, or in a folder that cannot be written.

    Into a container, mount the folder, not just the file. A file that is mounted alone cannot be replaced, so it is
    written over: a crash may leave it half written, and it keeps its mode. Nor do others see the container's lock.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = check_path("path", path)

    async def load(self) -> TokenPair | None:
        """See `TokenStore.load`. A file without a token pair gives ``None``, with a warning in the log."""
        return await asyncio.to_thread(self._read)

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore.save`."""
        pair = masked(pair)
        check_pair(pair)
        await asyncio.to_thread(self._write, masked(msgspec.json.encode(pair)))

    def lock(self) -> AbstractAsyncContextManager[None]:
        """See `LockingTokenStore.lock`. A process that dies releases its lock.

        Raises:
            TimeoutError: Another process has held it for two minutes.
        """
        # Each time: a release or a new volume may have the link lead elsewhere, and other processes go there.
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
        # Beside the pair: a thread that outlives a cancelled refresh must not write an old pair over a new one.
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
            # It is mounted by itself, and stays where it is. The refresh token that it has is spent.
            with self._path.open("r+b") as file:
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())


def _write(path: "Path", content: bytes) -> None:
    from paymentsdk._files import whole  # it brings half of the library along

    with whole(path, private=True) as unfinished:
        unfinished.write_bytes(content)


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """Hold the empty file *path*, which is made, until the end; a process that dies lets go of it.

    Raises:
        TimeoutError: Another process has held it for two minutes.
    """
    # To be written: on NFS only such a file can be locked, although nothing is ever written into it.
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
    """Close what a forked child has open of its parent's locks: else they would outlive a parent that dies."""
    while _LOCK_FILES:
        os.close(_LOCK_FILES.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def _lock(handle: int, *, release: bool = False) -> bool:
    """Lock an open file; return whether nobody else has locked it. With *release*, unlock it.

    Closing it is not enough: a child that is being forked may still have it open as well.
    """
    try:
        if sys.platform == "win32":
            import msvcrt  # not every system has it

            # The first byte of the file, which has none: Windows locks what is not there, too.
            msvcrt.locking(handle, msvcrt.LK_UNLCK if release else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # as above

            fcntl.flock(handle, fcntl.LOCK_UN if release else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Windows says EACCES or EDEADLOCK, also of one to unlock that is not locked; other systems EWOULDBLOCK.
        if error.errno not in _HELD:
            raise
        return False
    return True


def check_pair(pair: TokenPair | None) -> None:
    """Reject anything but a pair or ``None``.

    The response of the token endpoint looks like a pair, but does not know when it expires.

    Raises:
        RequestInvalid: *pair* is something else. The error does not show it.
    """
    if pair is not None and not isinstance(pair, TokenPair):
        raise RequestInvalid("pair", "must be a TokenPair: of a Token, `token.pair()` makes one")
