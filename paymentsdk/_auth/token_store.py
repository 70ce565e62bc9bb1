"""Where token pairs are kept: a new pair is saved before it is used, since the old refresh token is spent by then."""

import asyncio
import errno
import logging
import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from paymentsdk._secrets import MaskedRepr, masked
from paymentsdk._validate import check_methods, check_path
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("paymentsdk")

#: The part of its life that a token has left when it is refreshed: 30 of 180 days. If a crash loses the new pair, that
#: is what the seller has to authorize again, with the old token still in use.
SHARE = 1 / 6
#: Seconds before its end at which a token is refreshed of which nobody knows how long it lives.
LEAST = 600.0
#: Seconds between two tries to lock a file that another process has locked, or to open one more than the process may.
_LOOK_AGAIN = 0.05
#: Seconds that a file may stay locked: a refresh takes a minute at most, unless its process has been stopped.
LONGEST_LOCK = 120.0
#: Seconds that saving a pair may wait, when the process has as many files open as it may. By then the connections that
#: are idle now are closed: they are kept for 15.
_LONGEST_SAVE = 20.0
#: What the system says of a file that another process has locked.
_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK})
#: Open files of which this process has or wants the lock.
_LOCK_FILES: set[int] = set()
#: Bytes that a mark takes while a refresh is under way, and when a save has taken the rest for the new pair.
_ROOM, _MARK = 16_384, 4_096
#: What the system says of a disk that is full, for everybody or for this user.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: An access token with all of its parts, the last of which is the user id (4.1): others may end with any number.
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


def lead(pair: TokenPair, early: float | None) -> float:
    """Return the seconds before its end at which *pair* is refreshed: *early*, or else a sixth of its life."""
    if early is not None:
        return early
    if pair.expires_at is None or pair.issued_at is None:
        return LEAST
    return max(0.0, (pair.expires_at - pair.issued_at) * SHARE)


def early_pause(left: float) -> float:
    """Return the seconds that a failed early refresh is left alone, while the live token has *left* to live.

    A minute at least: of 30 days, 7 hours.
    """
    return max(60.0, 0.01 * left)


def alive(pair: TokenPair, now: float) -> bool:
    """Whether *pair* has not ended."""
    return pair.expires_at is None or now < pair.expires_at


def certain_user_id(token: str) -> str | None:
    """Return the user id of the seller in *token*; `None` if it is not built as in the contract."""
    found = _WHOLE_TOKEN.match(token)
    return found and found[1]


def usable(pair: TokenPair, rejected: str | None, now: float) -> bool:
    """Whether *pair* is alive, and another than the one that was rejected."""
    return pair.access_token != rejected and alive(pair, now)


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
class MarkingTokenStore(TokenStore, Protocol):
    """A store that remembers a refresh under way, so that the next process knows of a pair that was lost in a crash."""

    async def begin_refresh(self, pair: TokenPair, now: float) -> None:
        """Keep for good that *pair* is about to be refreshed, at *now* (seconds since the epoch); `save` forgets it.

        The refresh is not sent if this raises: do so where the new pair could not be kept either, as far as the store
        can know.
        """
        ...

    async def end_refresh(self) -> None:
        """Forget the refresh: it ended without a new pair, and the old one is as good as before."""
        ...

    async def unfinished_refresh(self, pair: TokenPair) -> float | None:
        """Return when the refresh of *pair* began that was neither saved nor ended, or ``None``."""
        ...


class _Mark(Struct, frozen=True):
    """A refresh under way, as it stands in a file."""

    begun_at: float
    pair: str
    """The fingerprint of the pair, which tells nobody the token."""


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

    The file, or the one that a link leads to, is replaced as a whole and forced to the disk, so that a crash leaves
    either the old pair or the new one, and perhaps a half-written temporary file for its owner alone. Processes that
    share the file refresh one after the other, and take over a pair that another one has saved. They lock an empty file
    beside it, named like it with ``.lock`` appended. During a refresh there is another one with ``.refreshing``
    appended, without credentials: if a crash loses the new pair, the next process finds that file, and warns in the log
    by when the seller must authorize again. It takes 16 KiB, which are room for the new pair: no refresh begins on a
    disk that is too full for it, or in a folder that cannot be written.

    Into a container, mount the folder, not just the file. A file that is mounted alone cannot be replaced, so it is
    written over: a crash may leave it half written, and it keeps its mode. Nor do others see the container's lock.
    """

    __slots__ = ("_named",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._named = check_path("path", path)

    @property
    def _path(self) -> "Path":
        """Where the pair is now.

        What a link leads to is replaced, and not the link: it may lead to where files outlive a container. A release or
        a new volume may have the link lead elsewhere while this process runs, and other processes go there.
        """
        return self._named.resolve()

    async def load(self) -> TokenPair | None:
        """See `TokenStore.load`. A file without a token pair gives ``None``, with a warning in the log."""
        return await asyncio.to_thread(self._read)

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore.save`. Waits up to 20 s if the process may open no further file."""
        pair = masked(pair)
        check_pair(pair)
        loop = asyncio.get_running_loop()
        end = loop.time() + _LONGEST_SAVE
        while True:
            try:
                return await asyncio.to_thread(self._write, pair)
            except OSError as error:
                # The refresh token is spent by now, and other refreshes are about to close the files that they have.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or loop.time() > end:
                    raise
            await asyncio.sleep(_LOOK_AGAIN)

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """See `LockingTokenStore.lock`. A process that dies releases its lock.

        Raises:
            TimeoutError: Another process has held it for two minutes.
        """
        async with file_lock(f"{self._path}.lock"):
            yield

    async def begin_refresh(self, pair: TokenPair, now: float) -> None:
        """See `MarkingTokenStore.begin_refresh`."""
        mark = msgspec.json.encode(_Mark(now, fingerprint(pair)))
        # With room for the new pair, if the folder can be written.
        await asyncio.to_thread(_write_file, self._mark, mark.ljust(_ROOM))

    async def end_refresh(self) -> None:
        """See `MarkingTokenStore.end_refresh`."""
        await asyncio.to_thread(self._mark.unlink, missing_ok=True)

    async def unfinished_refresh(self, pair: TokenPair) -> float | None:
        """See `MarkingTokenStore.unfinished_refresh`."""
        try:
            mark = msgspec.json.decode(await asyncio.to_thread(self._mark.read_bytes), type=_Mark)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return mark.begun_at if mark.pair == fingerprint(pair) else None

    @property
    def _mark(self) -> "Path":
        path = self._path
        return path.with_name(f"{path.name}.refreshing")

    def _read(self) -> TokenPair | None:
        path = self._path
        try:
            return msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8), type=TokenPair)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            logger.warning("%s holds no token pair", path)
            return None

    def _write(self, pair: TokenPair) -> None:
        # Secret: it is in the variables of what may raise.
        content = masked(msgspec.json.encode(pair))
        try:
            self._replace(content)
        except OSError as error:
            if error.errno not in _FULL or not self._mark.exists():
                raise
            os.truncate(self._mark, _MARK)  # The room for this pair.
            self._replace(content)

    def _replace(self, content: bytes) -> None:
        _write_file(self._path, content)
        # A mark that stays is of another pair by now.
        with suppress(OSError):
            if self._mark.exists():
                self._mark.unlink()


def fingerprint(pair: TokenPair) -> str:
    from hashlib import sha256  # only a refresh needs it

    return sha256((pair.refresh_token or "").encode()).hexdigest()[:32]


def _write_file(path: "Path", content: bytes) -> None:
    """Have the disk keep *content* at *path*, or else what was there before."""
    import tempfile  # it brings half of the library along

    # mkstemp makes a file for its owner alone, in the same folder so that the replacement is one step.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    unfinished = path.parent / name
    try:
        with os.fdopen(handle, "wb") as file:
            _force(file, content)
        try:
            unfinished.replace(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # It is mounted by itself, and stays where it is. The refresh token that it has is spent.
            with path.open("r+b") as file:
                _force(file, content)
            unfinished.unlink()
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    _force_names(path.parent)


def _force(file: BinaryIO, content: bytes) -> None:
    """Have the disk keep *content* as all that is in *file*, which may have been longer."""
    file.write(content)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """Hold the empty file *path*, which is made, until the end; a process that dies lets go of it.

    Raises:
        TimeoutError: Another process has held it for two minutes.
    """
    # To be written: on NFS only such a file can be locked, although nothing is ever written into it.
    handle, owner = os.open(path, os.O_RDWR | os.O_CREAT, 0o600), os.getpid()
    _LOCK_FILES.add(handle)
    try:
        async with asyncio.timeout(LONGEST_LOCK):
            while not _lock(handle):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_LOOK_AGAIN)
        yield
    finally:
        if os.getpid() == owner:  # A forked child has closed it.
            _LOCK_FILES.discard(handle)
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


def _force_names(folder: "Path") -> None:
    """Have the disk keep which file has which name in *folder*: else a power cut may bring the old one back.

    Not every file system can, and not every folder may be read. A new pair is in its file all the same, and is the only
    one that still works: refusing to use it would help nobody.
    """
    if os.name == "posix":
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def check_pair(pair: TokenPair | None) -> None:
    """Reject anything but a pair or ``None``.

    The response of the token endpoint looks like a pair, but does not know when it expires.

    Raises:
        RequestInvalid: *pair* is something else. The error does not show it.
    """
    if pair is not None and not isinstance(pair, TokenPair):
        raise RequestInvalid("pair", "must be a TokenPair: of a Token, `token.pair()` makes one")


def check_store(store: TokenStore | None) -> None:
    """Reject anything but a store or ``None`` now: else the first refresh would fail.

    Raises:
        RequestInvalid: *store* lacks a method of a store, or has a ``lock`` that ``async with`` does not take.
    """
    check_methods("store", store, "load", "save")
    lock = getattr(store, "lock", None)
    if lock is not None and (not callable(lock) or iscoroutinefunction(lock) or isasyncgenfunction(lock)):
        reason = f"lock of {type(store).__name__} must return an asynchronous context manager: see asynccontextmanager"
        raise RequestInvalid("store", reason)
