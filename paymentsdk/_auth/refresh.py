"""Token refresh: one refresh for all calls that wait for it.

The pair in use is in one of three states:

===========  =========================  ======================  ====================  =====================
state        another pair in the store  the platform refreshes  the platform rejects  the new pair is saved
===========  =========================  ======================  ====================  =====================
Active       Active, if it came after   PendingSave             Revoked
PendingSave  Active, if it came after                                                 Active
Revoked      Active
===========  =========================  ======================  ====================  =====================

The steps of a refresh are the methods below:

- `renew`: a call without a usable token starts the refresh, or joins the current refresh. The refresh is a task of its
  own, so that a cancelled call does not cancel it for the others.
- `_refresh_once` takes the lock of the store. If an early refresh fails, the current token stays in use.
- `_refresh_alone` reads the store first (`_adopt`). If no other process was faster, it checks that the store can be
  written, and the platform exchanges the refresh token (`_exchanged`). The new pair is saved before it is used
  (`_persist`).
- `drain` and `give_up` end a refresh when the client is closed.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from math import inf
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._auth.token_store import (
    LockingTokenStore,
    MemoryTokenStore,
    PreparingTokenStore,
    TokenPair,
    TokenStore,
    certain_user_id,
    check_pair,
    usable,
)
from paymentsdk._futures import retrieve_exception, wait_for_one
from paymentsdk._secrets import masked
from paymentsdk._validate import check_methods
from paymentsdk.errors import (
    ClientClosed,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RequestInvalid,
    describe,
)

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Exchange
    from paymentsdk._clock import Clock

logger = logging.getLogger("paymentsdk")

#: The pair in use before any pair is known: it has expired, cannot be refreshed, and is in no store.
NO_PAIR = TokenPair(access_token=chr(0), expires_at=-inf)
#: How many older pairs are remembered. With pairs that live ten minutes, a night fills it.
MOST_PAST = 100
#: A token is refreshed when this share of its life is left: 30 of 180 days. If a crash loses the new pair, the seller
#: has this time to authorize again, while the old token is in use.
SHARE = 1 / 6
#: A token with an unknown life is refreshed this many seconds before its expiry.
LEAST = 600.0


class Active(Struct, frozen=True):
    """A pair whose refresh token may be valid."""

    pair: TokenPair
    stored: bool = False
    """Whether the store has had this pair. Then another pair in the store is newer, whatever the clocks say."""


class PendingSave(Struct, frozen=True):
    """A pair whose refresh token is spent, and the new pair, which must not be used before the store has it."""

    pair: TokenPair
    new: TokenPair


class Revoked(Struct, frozen=True):
    """A pair that the platform does not refresh, and its rejection."""

    pair: TokenPair
    error: ReauthorizationRequired


TokenState: TypeAlias = Active | PendingSave | Revoked


class RefreshingToken:
    """A token that is refreshed before it expires, and when the platform rejects it.

    If many calls need a new token at the same moment, the platform is asked once, and all calls get that token.
    Cancelling one of the calls does not cancel the refresh. The new pair is saved before it is used. An early refresh
    delays only the call that begins it. If an early refresh fails or takes too long, the current token stays in use. A
    spent grant is remembered: once the current token has expired or is rejected, every call immediately fails with
    `ReauthorizationRequired`.

    Args:
        pair: The first pair. ``None`` to begin with the pair in *store*. A refresh looks in the store first, and uses
            the stored pair unless *pair* is known to expire later. Once the grant of *pair* is spent, it uses any other
            pair.
        store: Keeps the pairs. In memory by default. A pair of another seller is not used, whether it comes from the
            store or from the platform: the refresh raises `RefreshFailed`.
        early: Seconds before the expiry at which a refresh is tried, 0 or more. By default a sixth of the life of the
            token (30 days of 180, 100 s of 10 minutes), or 600 if the pair does not say when it was issued.

    The application's ``client_id`` and ``client_secret`` come from the client that uses this object.

    Raises:
        RequestInvalid: *early* is negative or not a number, *pair* is not a pair, or *store* is not a store.
    """

    def __init__(
        self, pair: TokenPair | None = None, *, store: TokenStore | None = None, early: float | None = None
    ) -> None:
        if early is not None and (not isinstance(early, int | float) or not early >= 0):
            raise RequestInvalid("early", "must be 0 or more seconds")
        pair = masked(pair)
        check_pair(pair)
        # A store without `save` would lose the first new pair.
        check_methods("store", store, "load", "save")
        self._state: TokenState = Active(pair or NO_PAIR)
        #: Marks of pairs that were replaced, or were not adopted. A restored backup may bring them back.
        self._past: deque[int] = deque(maxlen=MOST_PAST)
        self._store: TokenStore = MemoryTokenStore(pair) if store is None else store
        self._early = early
        #: When an early refresh may be tried; ``None`` between a failed early refresh and the pause after it.
        self._early_from: float | None = 0.0
        self._flight: asyncio.Task[TokenPair] | None = None
        #: Whether the current refresh has sent its refresh token.
        self._is_sent = False
        #: Whether the refresh was cancelled because its client is closed.
        self._given_up = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        store = getattr(self, "_store", None)  # A traceback also shows a token whose arguments were rejected.
        return f"RefreshingToken(store={type(store).__name__})"

    def __reduce__(self) -> str | tuple[object, ...]:
        # A `deepcopy` of a configuration would spend the grant of all other copies.
        raise TypeError("a RefreshingToken cannot be copied, as its refresh token is good once: share it, or its store")

    @property
    def revoked(self) -> bool:
        """Whether the seller must authorize again: the refresh token is spent or missing."""
        state = self._state
        if isinstance(state, Active) and state.pair is not NO_PAIR:
            return not state.pair.refresh_token
        return isinstance(state, Revoked)

    @property
    def expires_at(self) -> float | None:
        """When the access token expires, in seconds since the epoch; `None` if that is unknown."""
        return self._state.pair.expires_at

    def token(self, now: float) -> str | None:
        """See `Auth.token`."""
        pair = self._state.pair
        if (expiry := pair.expires_at) is None or now < expiry - _lead(pair, self._early):
            return pair.access_token
        if now >= expiry:
            return None
        if self._early_from is None:
            # The pause begins now and not with the refresh, which may have taken longer than the pause.
            self._early_from = now + max(60.0, 0.01 * (expiry - now))
        is_due = now >= self._early_from and self._flight is None
        return None if is_due else pair.access_token

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """See `Auth.renew`."""
        pair = self._state.pair
        if rejected is not None and usable(pair, rejected, now):
            return pair.access_token  # Another call has refreshed it meanwhile.
        if self._loop is not (loop := asyncio.get_running_loop()):
            if self._loop is not None and not self._loop.is_closed():
                raise ClientClosed("the RefreshingToken belongs to another event loop; share its store instead")
            self._loop, self._flight = loop, None
        joined = self._flight
        if joined is not None and joined.done():
            # The refresh has ended in this turn of the loop: joining it could repeat forever without a turn in between.
            joined = None
        try:
            result = await asyncio.shield(joined or self._begin(rejected, exchange, now))
        except PaymentsError as error:
            # A copy: an error that is raised in a thousand tasks would collect a thousand tracebacks.
            failure = copy.copy(error)
        else:
            if joined and result is pair and result.access_token == rejected:
                # An early refresh failed and left the current token in use, but the platform rejects that token.
                return await self.renew(rejected, exchange, now)
            return result.access_token
        if joined and isinstance(failure, ClientClosed):
            # Another client began the refresh, and was closed. This client can begin its own.
            return await self.renew(rejected, exchange, now)
        raise failure

    async def drain(self, now: float) -> None:
        """Wait until the current refresh has ended and its pair is saved. *now* is in seconds since the epoch.

        A refresh goes on after a call has stopped waiting for it, so a client settles its tokens before it is closed. A
        refresh that still waits for another process has no pair to save. It is not waited for, because it may hang. If
        the store has failed to save a pair, the pair is saved once more.
        """
        if self._loop is not asyncio.get_running_loop():
            return
        try:
            if self._flight is not None and (self._is_sent or isinstance(self._state, PendingSave)):
                await asyncio.wait((self._flight,))
            if self._flight is None and isinstance(self._state, PendingSave):
                # A later call that saves it may never come.
                await asyncio.wait((self._begin(None, _ask_nobody, now),))
        finally:
            if isinstance(self._state, PendingSave):
                logger.warning("a new token pair could not be saved when the client was closed")

    def give_up(self) -> None:
        """Cancel a refresh that `drain` has waited for too long; the waiting calls learn that the client is closed."""
        if self._flight is None or self._loop is not asyncio.get_running_loop():
            return
        if self._is_sent and not isinstance(self._state, PendingSave):
            self._given_up = True
            self._flight.cancel()

    def _begin(self, rejected: str | None, exchange: Exchange, now: float) -> asyncio.Task[TokenPair]:
        self._is_sent = self._given_up = False
        flight = self._flight = asyncio.create_task(self._refresh_once(rejected, exchange, now))
        flight.add_done_callback(self._flight_done)
        return flight

    def _flight_done(self, flight: asyncio.Task[TokenPair]) -> None:
        # A callback and not part of the refresh: the task may be cancelled before it begins, or lost with its loop,
        # while another refresh runs.
        if self._flight is flight:
            self._flight = None
        retrieve_exception(flight)  # All calls that waited may have been cancelled.

    async def _refresh_once(self, rejected: str | None, exchange: Exchange, now: float) -> TokenPair:
        """Refresh the pair for all waiting calls; if that was early and fails, return the current pair."""
        pair = self._state.pair
        try:
            if pair is NO_PAIR and isinstance(self._store, LockingTokenStore):
                # Adopting the stored pair needs no lock, since it spends nothing. But some stores cannot be read
                # without their lock, or while another process holds it.
                with suppress(Exception):
                    if (stored := await self._adopt(rejected, now)) is not None:
                        return stored
            async with self._store.lock() if isinstance(self._store, LockingTokenStore) else nullcontext():
                return await self._refresh_alone(rejected, exchange, now)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
            # The calls that wait for the refresh were not cancelled.
            raise ClientClosed("the client was closed while the token was refreshed") from None
        except Exception as error:
            state = self._state
            if not isinstance(state, Active) and state.pair.access_token == rejected:
                # Its refresh token is spent. Let the pair expire, so that no call sends the token again.
                self._state = replace(state, pair=replace(state.pair, expires_at=0.0))
            if rejected is not None or not usable(pair, None, now):
                raise
            # It was early, so the current token is used until the next try.
            logger.warning("the access token could not be refreshed early: %s", describe(error))
            self._early_from = None
            return pair

    async def _refresh_alone(self, rejected: str | None, exchange: Exchange, now: float) -> TokenPair:
        """Refresh the pair while no other process with this store does: adopt a pair, or exchange and save."""
        # Try twice: if another process was faster, the refresh token is spent. Not more often: two replicas of a store
        # may return one spent pair after the other.
        for _ in range(2):
            if (stored := await self._adopt(rejected, now)) is not None:
                return stored
            if isinstance(self._state, Revoked):
                break
            if isinstance(self._state, Active):
                self._state = await self._exchanged(self._state.pair, exchange)
            if isinstance(self._state, PendingSave):
                return await self._persist(self._state.new, now)
        raise copy.copy(cast("Revoked", self._state).error)

    async def _adopt(self, rejected: str | None, now: float) -> TokenPair | None:
        """Adopt the pair that another process has saved, if there is one, and return it if it can be used."""
        stored, before = await self._store.load(), self._state.pair
        if stored is None:
            return None
        _check_seller(before, stored, "the store has")
        if self._came_after(stored, rejected):
            self._remember(before)
            self._state = Active(stored, stored=True)
            return stored if usable(stored, rejected, now) else None
        if stored.access_token != before.access_token:
            self._remember(stored)
        elif isinstance(self._state, Active):
            self._state = Active(before, stored=True)
        return None

    def _came_after(self, stored: TokenPair, rejected: str | None) -> bool:
        """Return whether the *stored* pair replaces the pair in use, even if it has expired.

        Adopting an older pair and sending its spent refresh token would end the grant.
        """
        match self._state:
            case Revoked(pair):
                return stored.access_token not in (rejected, pair.access_token)  # Any other pair is better.
            case PendingSave():
                # A store that failed may have saved the new pair, and another process may have refreshed it. Then the
                # new pair is spent.
                return _mark(stored) not in self._past
            case Active(pair, was_stored):
                if stored.access_token in (rejected, pair.access_token) or _mark(stored) in self._past:
                    return False
                if was_stored or stored.expires_at is None or pair.expires_at is None:
                    return True
                return stored.expires_at >= pair.expires_at

    def _remember(self, *pairs: TokenPair) -> None:
        """Remember that *pairs* are older than the pair in use."""
        self._past.extend(mark for pair in pairs if (mark := _mark(pair)) not in self._past)

    async def _exchanged(self, pair: TokenPair, exchange: Exchange) -> PendingSave | Revoked:
        """Exchange the refresh token of *pair*, after a check that the store can keep the new pair."""
        if pair is NO_PAIR:
            reason = "the store has no tokens for this seller; exchange an authorization code first, and save its pair"
            raise ReauthorizationRequired(0, None, reason)
        if not pair.refresh_token:
            raise ReauthorizationRequired(401, "invalid_token", "there is no refresh token for the access token")
        if isinstance(self._store, PreparingTokenStore):
            await self._store.prepare()
        self._is_sent = True
        try:
            new = await exchange(pair.refresh_token)
        except ReauthorizationRequired as error:
            return Revoked(pair, error)
        _check_seller(pair, new, "the platform has sent")
        self._remember(pair, new)
        return PendingSave(pair, new)

    async def _persist(self, new: TokenPair, now: float) -> TokenPair:
        """Save the *new* pair, then use it. If the store fails, the next call tries to save it again."""
        await self._store.save(new)
        self._state = Active(new, stored=True)
        if new.expires_at is not None:
            # Not before half of its life has passed: its life may be shorter than `early`.
            self._early_from = (now + new.expires_at) / 2
        return new


def _lead(pair: TokenPair, early: float | None) -> float:
    """Return how many seconds before its expiry *pair* is refreshed: *early*, or else a sixth of its life."""
    if early is not None:
        return early
    if pair.expires_at is None or pair.issued_at is None:
        return LEAST
    return max(0.0, (pair.expires_at - pair.issued_at) * SHARE)


def _mark(pair: TokenPair) -> int:
    """Return a number that identifies *pair* without revealing its token."""
    return hash(pair.access_token)


def _check_seller(before: TokenPair, new: TokenPair, who_has: str) -> None:
    """Reject the *new* pair if it certainly belongs to another seller than the pair *before*.

    In the middle of a call, the retry of a write could otherwise repeat it for another seller.

    Raises:
        RefreshFailed: The pair belongs to another seller.
    """
    user, new_user = certain_user_id(before.access_token), certain_user_id(new.access_token)
    if user and new_user and user != new_user:
        raise RefreshFailed(f"{who_has} the token pair of another seller: of user {new_user}, not {user}")


async def drain(tokens: Sequence[RefreshingToken], asking: Collection[int], clock: Clock, grace: float) -> None:
    """Call `RefreshingToken.drain` for each of *tokens*, and wait at most *grace* seconds, even if cancelled.

    After that, cancel the refreshes whose ids are in *asking*: these belong to this client. A refresh of another client
    goes on. Waiting despite a cancellation is needed, because a refresh token that was sent is spent.
    """
    now, over = clock.now(), asyncio.Event()
    alarm = clock.call_at(clock.monotonic() + grace, over.set)
    if not grace:
        over.set()  # Immediately, whatever the clock says.
    drains = [asyncio.ensure_future(token.drain(now)) for token in tokens]
    drained = asyncio.gather(*drains)
    drained.add_done_callback(retrieve_exception)
    # A task, so that each token gets a turn to begin saving its pair, even without any grace.
    expiry = asyncio.ensure_future(over.wait())
    cancelled = await wait_for_one(drained, expiry)
    alarm.cancel()
    expiry.cancel()
    if not drained.done():
        for token, its_drain in zip(tokens, drains, strict=True):
            if its_drain.cancel() and id(token) in asking:  # Otherwise another client's refresh goes on.
                token.give_up()
    if cancelled is not None:
        raise cancelled
    if drained.done():
        drained.result()


async def _ask_nobody(_: str) -> TokenPair:
    raise ClientClosed("the client is closed")
