"""Who the caller is: a token that stays, or one that is renewed, once for all who wait for it."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._core.report import in_words
from paymentsdk._core.secrets import Secretive, hide
from paymentsdk.errors import ClientClosed, PaymentsError, ReauthorizationRequired, RequestInvalid

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("paymentsdk")

#: Seconds before a token expires at which it is renewed.
EARLY = 600.0
#: Seconds that a failed early renewal is left alone while the live token still works.
EARLY_PAUSE = 60.0
#: Seconds after which a file that another process has locked is tried again.
_LOOK_AGAIN = 0.05
#: Seconds that a file may stay locked: a renewal takes a minute at most, unless its process has been stopped.
_LONGEST_LOCK = 120.0
_TOKEN = re.compile(r"[!-~]+\Z")


class Credentials(Secretive, Struct, frozen=True, kw_only=True):
    """The application at the token endpoint (4.1)."""

    client_id: str
    client_secret: str
    __secrets__: ClassVar[frozenset[str]] = frozenset({"client_secret"})


class TokenPair(Secretive, Struct, frozen=True, kw_only=True):
    """An access token and what renews it.

    Attributes:
        access_token: The bearer token.
        refresh_token: Good for one renewal; ``None`` if there is none.
        expires_at: Seconds since the epoch at which the access token ends; ``None`` if nobody knows.
    """

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    __secrets__: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token"})


#: Asks the platform for a new pair, given a refresh token.
Exchange = Callable[[str], Awaitable[TokenPair]]


class Auth(Protocol):
    """Gives calls their bearer token: a source of tokens is any object with these two methods."""

    def token(self, now: float) -> str | None:
        """Return the token to use at *now* (seconds since the epoch), or ``None`` if :meth:`renew` must be awaited."""
        ...

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """Return a token other than *rejected*, or ``None`` if there can be none.

        Every call that has no token, or whose token was refused, asks at the same time: let one of them obtain the new
        token, and return it to the others as well.

        Args:
            rejected: The token that the platform refused; ``None`` when :meth:`token` had none.
            exchange: Asks the platform for a new pair.
            now: Seconds since the epoch.

        Raises:
            ReauthorizationRequired: The grant is spent.
            PaymentsError: The platform could not be asked.
        """
        ...


def check_token(token: str, name: str = "access_token") -> str:
    """Return *token* if it can stand in a header.

    Raises:
        RequestInvalid: It cannot. The error does not show it.
    """
    token = hide(token)
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise RequestInvalid(name, "must be visible ASCII characters without spaces")
    return token


def check_methods(name: str, value: object, *methods: str) -> None:
    """Refuse a part of the caller's own that has not what will be asked of it; ``None`` is none.

    Raises:
        RequestInvalid: It lacks one of *methods*, or is a class.
    """
    if value is None:
        return
    if isinstance(value, type):
        raise RequestInvalid(name, f"must be an instance, not the class {value.__name__}")
    if missing := [method for method in methods if not callable(getattr(value, method, None))]:
        raise RequestInvalid(name, f"must have {' and '.join(missing)}, and {type(value).__name__} has not")


def check_pair(pair: TokenPair | None) -> None:
    """Refuse what is no pair; ``None`` is none.

    The answer of the token endpoint looks like one, and does not know when it ends.

    Raises:
        RequestInvalid: It is something else. The error does not show it.
    """
    pair = hide(pair)
    if pair is not None and not isinstance(pair, TokenPair):
        raise RequestInvalid("pair", "must be a TokenPair: of a Token, `token.pair()` makes one")


class StaticToken:
    """One token for ever. A 401 is final."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        token = hide(token)
        self._token = check_token(token)

    def token(self, now: float) -> str | None:  # noqa: ARG002 - see Auth
        """See :meth:`Auth.token`."""
        return self._token

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:  # noqa: ARG002
        """See :meth:`Auth.renew`."""
        return None

    def __repr__(self) -> str:
        return "StaticToken(***)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("StaticToken holds a credential and cannot be pickled")


class NoToken:
    """For a client that only obtains tokens: every other call is refused here."""

    __slots__ = ()

    def token(self, now: float) -> str | None:  # noqa: ARG002
        """See :meth:`Auth.token`."""
        return None

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:  # noqa: ARG002
        """See :meth:`Auth.renew`."""
        raise RequestInvalid("access_token", "is not set: give PaymentsClient an access_token or auth")


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
        """Hold the pair, so that nobody else who shares the store can: one of them at a time renews it."""
        ...


class MemoryTokenStore:
    """Keeps a pair for the life of the process."""

    __slots__ = ("_pair",)

    def __init__(self, pair: TokenPair | None = None) -> None:
        pair = hide(pair)
        check_pair(pair)
        self._pair = pair

    async def load(self) -> TokenPair | None:
        """See :meth:`TokenStore.load`."""
        return self._pair

    async def save(self, pair: TokenPair) -> None:
        """See :meth:`TokenStore.save`."""
        pair = hide(pair)
        check_pair(pair)
        self._pair = pair


class FileTokenStore:
    """Keeps a pair in a JSON file that only its owner can read.

    The file is replaced as a whole and forced to the disk, so that a crash leaves either the old pair or the new one.
    Processes that share the file renew one after the other, and take over what another one has saved. For that there
    is an empty file beside it, of the same name with ``.lock`` behind it. On Windows they do not wait for each other:
    let one process do the renewing there.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from pathlib import Path  # noqa: PLC0415 - it brings half of the library along, and most programs have no such file

        self._path = Path(path)

    async def load(self) -> TokenPair | None:
        """See :meth:`TokenStore.load`. A file that holds no token pair counts as none, with a warning in the log."""
        return await asyncio.to_thread(self._read)

    async def save(self, pair: TokenPair) -> None:
        """See :meth:`TokenStore.save`."""
        pair = hide(pair)
        check_pair(pair)
        await asyncio.to_thread(self._write, pair)

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """See :meth:`LockingTokenStore.lock`. The lock of a process that dies is gone with it.

        Raises:
            TimeoutError: Another process has held it for two minutes.
        """
        # To be written: on NFS only such a file can be locked, although nothing is ever written into it.
        handle, owner = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600), os.getpid()
        try:
            async with asyncio.timeout(_LONGEST_LOCK):
                while not _lock(handle):  # noqa: ASYNC110 - another process sets no event
                    await asyncio.sleep(_LOOK_AGAIN)
            yield
        finally:
            if os.getpid() == owner:
                _unlock(handle)
            os.close(handle)

    def _read(self) -> TokenPair | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=TokenPair)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            logger.warning("%s holds no token pair", self._path)
            return None

    def _write(self, pair: TokenPair) -> None:
        import tempfile  # noqa: PLC0415 - it brings half of the library along

        # mkstemp makes a file for its owner alone, in the same folder so that the replacement is one step.
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(pair))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)  # noqa: PTH105
        except BaseException:
            os.unlink(name)  # noqa: PTH108
            raise
        # Not every file system can, and not every folder may be read. The new pair is in the file all the same, and is
        # the only one that still works: refusing to use it would help nobody.
        with suppress(OSError):
            _force_names(self._path.parent)


def _lock(handle: int) -> bool:
    """Lock an open file; return whether nobody else has locked it."""
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - not every system has it

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _unlock(handle: int) -> None:
    """Unlock an open file. Closing it is not enough: a child that was forked meanwhile has it open as well."""
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - as above

        fcntl.flock(handle, fcntl.LOCK_UN)


def _force_names(folder: Path) -> None:
    """Have the disk keep which file has which name in *folder*: else a power cut may bring the old one back."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class RefreshingToken:
    """A token that is renewed before it expires, and when the platform refuses it.

    However many calls find out at the same moment, the platform is asked once, and all of them get the same new token.
    A caller that is cancelled while it waits does not take the renewal with it. The new pair is saved before anyone
    uses it. An early renewal holds up nobody but the call that begins it, and when it fails, or takes too long, the
    live token stays in use. A grant that is spent is remembered: once the live token has ended or is refused, every
    call fails at once with :class:`~paymentsdk.ReauthorizationRequired`.

    Args:
        pair: What to begin with; ``None`` to begin with what *store* has. When the token has to be renewed, a pair in
            the store that ends later, or whose end nobody knows, takes its place; any other does when its
            grant is spent.
        store: Where pairs are kept; in memory unless given.
        early: Seconds before the expiry at which a renewal is tried, 0 or more.

    The application's ``client_id`` and ``client_secret`` are those of the client that uses it.

    Raises:
        RequestInvalid: *early* is negative, *pair* is no pair, or *store* is no store or has a ``lock`` that cannot be
            held.
    """

    __slots__ = (
        "__weakref__",
        "_asked",
        "_early",
        "_early_again",
        "_failed_early",
        "_flight",
        "_former",
        "_loop",
        "_pair",
        "_spent",
        "_store",
        "_unsaved",
    )

    def __init__(self, pair: TokenPair | None = None, *, store: TokenStore | None = None, early: float = EARLY) -> None:
        if not early >= 0:
            raise RequestInvalid("early", "must be 0 or more seconds")
        pair = hide(pair)
        check_pair(pair)
        check_methods("store", store, "load", "save")
        _check_lock(store)
        self._pair = pair
        #: The pair that gave way to a stored one.
        self._former: TokenPair | None = None
        #: A new pair that the store could not keep yet.
        self._unsaved: TokenPair | None = None
        self._store: TokenStore = store or MemoryTokenStore(pair)
        self._early = early
        self._early_again = 0.0
        self._failed_early = False
        self._spent: ReauthorizationRequired | None = None
        self._flight: asyncio.Task[TokenPair] | None = None
        #: Whether the renewal under way has asked the platform.
        self._asked = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        store = getattr(self, "_store", None)  # A traceback shows one that was refused, too.
        return f"RefreshingToken(store={type(store).__name__})"

    def token(self, now: float) -> str | None:
        """See :meth:`Auth.token`."""
        pair = self._pair
        if pair is None:
            return None
        ends = pair.expires_at
        if ends is None or now < ends - self._early:
            return pair.access_token
        if now >= ends:
            return None
        if self._failed_early and now >= self._early_again:
            # The pause begins here and not with the renewal, which may have taken longer than the pause.
            self._failed_early = False
            self._early_again = now + EARLY_PAUSE
        due = now >= self._early_again and self._flight is None
        return None if due else pair.access_token

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """See :meth:`Auth.renew`."""
        pair = self._pair
        if rejected is not None and pair is not None and pair.access_token != rejected and _alive(pair, now):
            return pair.access_token  # Someone else has renewed it in the meantime.
        self._check_loop()
        flight = self._flight
        # One that has ended in this very turn of the loop could be joined again and again, with no turn in between.
        joins = flight is not None and not flight.done()
        if flight is None or not joins:
            self._asked = False
            flight = self._flight = asyncio.create_task(self._renew(rejected, exchange, now))
            flight.add_done_callback(self._flight_done)
        try:
            renewed = await asyncio.shield(flight)
        except PaymentsError as error:
            # A copy: one error raised in a thousand tasks would collect a thousand tracebacks.
            failure = copy.copy(error)
        else:
            if joins and renewed is pair and renewed.access_token == rejected:
                # It was an early renewal, which failed and left the token in use that the platform refuses.
                return await self.renew(rejected, exchange, now)
            return renewed.access_token
        if joins and isinstance(failure, ClientClosed):
            # Another client began it, and was closed. This one can ask for itself.
            return await self.renew(rejected, exchange, now)
        raise failure

    async def settle(self) -> None:
        """Wait until a renewal that is under way has ended, and its pair is saved.

        Whoever gave up waiting for it has not ended it. A client does this for its own before it is closed. One that
        has no pair to save, since it still waits for another process, is not waited for: that may hang.
        """
        pending = self._asked or self._unsaved is not None
        if self._flight is not None and pending and self._loop is asyncio.get_running_loop():
            await asyncio.wait((self._flight,))

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise ClientClosed("the RefreshingToken belongs to another event loop; share its store instead")
            self._loop = loop
            self._flight = None

    def _flight_done(self, flight: asyncio.Task[TokenPair]) -> None:
        if self._flight is flight:
            self._flight = None
        if not flight.cancelled():
            flight.exception()  # Everyone who waited may have been cancelled; nobody is left to look.

    async def _renew(self, rejected: str | None, exchange: Exchange, now: float) -> TokenPair:
        pair = self._pair
        try:
            async with self._store.lock() if isinstance(self._store, LockingTokenStore) else nullcontext():
                return await self._renewed(rejected, exchange, now)
        except Exception as error:
            if self._unsaved is not None or self._spent is not None:
                self._end(rejected)
            if rejected is not None or pair is None or not _alive(pair, now):
                raise
            # It was early, and the live token will do until the next try.
            logger.warning("the access token could not be renewed early: %s", in_words(error))
            self._failed_early = True
            return pair

    def _end(self, rejected: str | None) -> None:
        """Let nobody use the *rejected* token again."""
        if self._pair is not None and self._pair.access_token == rejected:
            self._pair = replace(self._pair, expires_at=0.0)

    async def _renewed(self, rejected: str | None, exchange: Exchange, now: float) -> TokenPair:
        if self._unsaved is not None:
            successor = await self._successor(self._unsaved)
            if successor is None:
                return await self._keep(self._unsaved, now)
            self._pair, self._former, self._unsaved = successor, self._unsaved, None
            if successor.access_token != rejected and _alive(successor, now):
                return successor
        found = await self._newer_in_store(rejected, now)
        if found is not None:
            return found
        if self._spent is not None:
            raise copy.copy(self._spent)
        try:
            self._unsaved = await self._exchanged(exchange)
        except ReauthorizationRequired:
            # Another process may have been faster, and the refresh token is spent because of it.
            found = await self._newer_in_store(rejected, now)
            if found is not None:
                return found
            if self._spent is not None:
                raise
            # The store had a pair that has ended: what it has to give is its refresh token.
            self._unsaved = await self._exchanged(exchange)
        return await self._keep(self._unsaved, now)

    async def _successor(self, unsaved: TokenPair) -> TokenPair | None:
        """Return what the store has in place of *unsaved* and of the pair before it, if it has something.

        A store that failed may have saved it all the same, and another process may have gone on from there: then
        *unsaved* is spent, and must not take the place of what came after it.
        """
        stored = await self._store.load()
        known = {pair.refresh_token for pair in (unsaved, self._pair) if pair is not None}
        return None if stored is None or self._pair is None or stored.refresh_token in known else stored

    async def _keep(self, pair: TokenPair, now: float) -> TokenPair:
        """Save *pair*, then let it be used. If the store fails, the next call tries to save it again."""
        await self._store.save(pair)
        self._pair, self._former, self._unsaved = pair, None, None
        if pair.expires_at is not None:
            # Not before the half of its life: it may be shorter than `early`.
            self._early_again = (now + pair.expires_at) / 2
        return pair

    async def _newer_in_store(self, rejected: str | None, now: float) -> TokenPair | None:
        """Return the pair that another process has saved, if there is one and it is alive."""
        stored = await self._store.load()
        if stored is None or stored.access_token == rejected:
            return None
        if self._pair is not None:
            # When the own grant is spent, any other is better, whenever it ends.
            if stored.access_token == self._pair.access_token or not (self._spent or _later(stored, self._pair)):
                return None
            self._former = self._pair
        self._pair = stored
        self._spent = None
        return stored if _alive(stored, now) else None

    async def _exchanged(self, exchange: Exchange) -> TokenPair:
        """Exchange the newest refresh token, and that of the pair before it if the newest is spent."""
        refresh_tokens = [pair.refresh_token for pair in (self._pair, self._former) if pair and pair.refresh_token]
        spent = ReauthorizationRequired(401, "invalid_token", "there is no refresh token to renew the access token")
        for refresh_token in refresh_tokens:
            self._asked = True
            try:
                return await exchange(refresh_token)
            except ReauthorizationRequired as error:
                spent = error
        if refresh_tokens:
            self._spent = spent
        raise spent


def _check_lock(store: TokenStore | None) -> None:
    """Refuse a store whose ``lock`` cannot be held: it would be found out when the token has to be renewed.

    Raises:
        RequestInvalid: It is no method, or one that ``async with`` does not take.
    """
    lock = getattr(store, "lock", None)
    if lock is not None and (not callable(lock) or iscoroutinefunction(lock) or isasyncgenfunction(lock)):
        reason = f"lock of {type(store).__name__} must return an asynchronous context manager: see asynccontextmanager"
        raise RequestInvalid("store", reason)


def _alive(pair: TokenPair, now: float) -> bool:
    return pair.expires_at is None or now < pair.expires_at


def _later(one: TokenPair, other: TokenPair) -> bool:
    """Whether *one* was made after *other*, as far as their ends tell."""
    return one.expires_at is None or other.expires_at is None or one.expires_at >= other.expires_at
