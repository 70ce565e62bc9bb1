"""A token that is refreshed, once for all calls that wait for it.

What is known of its grant is one of three states, by name, and this is what leads from one to another:

===========  =========================  ======================  ====================  =====================
state        another pair in the store  the platform refreshes  the platform rejects  the new pair is saved
===========  =========================  ======================  ====================  =====================
Active       Active, if it came after   PendingSave             Revoked
PendingSave  Active, if it came after                                                 Active
Revoked      Active
===========  =========================  ======================  ====================  =====================

The way of a refresh, each step in a method below:

- `renew`: a call without a usable token begins the refresh, or joins the one under way. It waits for a task of its own,
  so that a call that is cancelled takes it from nobody.
- `_refresh_once` takes the turn among the processes that share the store. If it fails, and was early, the live token
  stays in use.
- `_refresh_alone` looks in the store first (`_adopt`). Only if nobody has been faster, it has the platform exchange the
  refresh token (`_exchanged`, with a mark in the store), and saves the new pair before anyone uses it (`_persist`).
- `drain` and `give_up` end it when the client is closed.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Collection, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from inspect import isawaitable
from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._auth.token_store import (
    LockingTokenStore,
    MarkingTokenStore,
    MemoryTokenStore,
    TokenPair,
    TokenStore,
    alive,
    certain_user_id,
    check_pair,
    check_store,
    early_pause,
    lead,
    usable,
)
from paymentsdk._futures import retrieve_exception, wait_for_one
from paymentsdk._secrets import masked
from paymentsdk.errors import (
    ClientClosed,
    NoAnswer,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RequestInvalid,
    ServerError,
    describe,
)

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Exchange
    from paymentsdk._clock import Clock

R = TypeVar("R")

logger = logging.getLogger("paymentsdk")

#: Stands where nobody has seen a pair yet: it has ended, cannot be refreshed, and no store has its like.
NO_PAIR = TokenPair(access_token=chr(0), expires_at=-inf)
#: Pairs that are remembered as older than the one in use; of ten minutes each, those of a night.
MOST_PAST = 100


# --- what is known of a grant: nothing here waits ---------------------------------------------------------------------


class Active(Struct, frozen=True):
    """A pair whose refresh token may be good."""

    pair: TokenPair
    former: TokenPair = NO_PAIR
    """The one that gave way to it, as the last resort: who knows which of them is later?"""
    past: tuple[int, ...] = ()
    """Pairs that gave way to others, or that were not adopted: a backup of the store may bring them back."""
    kept: bool = False
    """Whether the store has had it: then a new one there came after it, whatever the clocks of their makers say."""


class PendingSave(Struct, frozen=True):
    """A pair whose refresh token is spent, and the new one, which nobody may use before the store has it."""

    pair: TokenPair
    new: TokenPair
    past: tuple[int, ...] = ()
    """Those before *pair*."""


class Revoked(Struct, frozen=True):
    """A pair that the platform does not refresh, and its rejection."""

    pair: TokenPair
    error: ReauthorizationRequired
    past: tuple[int, ...] = ()
    """Those before *pair*."""


TokenState: TypeAlias = Active | PendingSave | Revoked


def after_reading(grant: TokenState, stored: TokenPair, rejected: str | None) -> TokenState:
    """Return what *grant* becomes once *stored* was read from the store: it may take the place of the pair in use.

    One that has ended is taken over all the same: its refresh token may be good.
    """
    match grant:
        case Active(pair, former, past, kept):
            if stored.access_token == pair.access_token:
                return Active(pair, former, past, kept=True)
            # Else it is a left-over: to use its spent refresh token would end the grant.
            came_after = _mark(stored) not in past if kept else _later(stored, pair)
            if came_after and stored.access_token != rejected:
                return Active(stored, pair, with_past(past, pair), kept=True)
            return Active(pair, former, with_past(past, stored), kept)
        case PendingSave(pair, new, past):
            # A store that failed may have saved the new pair all the same, and another process may have gone on from
            # there: then that pair is spent, and must not take the place of what came after it.
            if stored.refresh_token in (pair.refresh_token, new.refresh_token) or _mark(stored) in past:
                return grant
            return Active(stored, new, with_past(past, pair, new), kept=True)
        case Revoked(pair, _, past):
            # Any other is better, whenever it ends.
            better = stored.access_token not in (rejected, pair.access_token)
            return Active(stored, pair, with_past(past, pair), kept=True) if better else grant


def without(grant: TokenState, rejected: str | None) -> TokenState:
    """Return *grant* after a refresh that failed: a *rejected* token ends if its refresh token is spent."""
    if isinstance(grant, Active) or grant.pair.access_token != rejected:
        return grant
    return replace(grant, pair=replace(grant.pair, expires_at=0.0))


def with_past(past: tuple[int, ...], *pairs: TokenPair) -> tuple[int, ...]:
    """Return *past* with *pairs*, the latest of them."""
    marks = (mark for pair in pairs if (mark := _mark(pair)) not in past)
    return (*past, *marks)[-MOST_PAST:]


def _mark(pair: TokenPair) -> int:
    """Return what tells *pair* from others, and nobody its token."""
    return hash(pair.access_token)


def _later(one: TokenPair, other: TokenPair) -> bool:
    """Whether *one* was made after *other*, as far as their ends tell."""
    return one.expires_at is None or other.expires_at is None or one.expires_at >= other.expires_at


# --- the refresh ------------------------------------------------------------------------------------------------------


class RefreshingToken:
    """A token that is refreshed before it expires, and when the platform rejects it.

    However many calls need a new token at the same moment, the platform is asked once, and all of them get that token.
    Cancelling one of the waiting calls does not cancel the refresh. The new pair is saved before anyone uses it. An
    early refresh holds up only the call that begins it; if it fails, or takes too long, the live token stays in use. A
    spent grant is remembered: once the live token has expired or is rejected, every call fails at once with
    `ReauthorizationRequired`.

    Args:
        pair: The first pair; ``None`` to begin with the pair in *store*. A refresh looks in the store first, and takes
            over the pair there unless *pair* is known to expire later; once the grant of *pair* is spent, it takes over
            any other.
        store: Where pairs are kept; in memory by default. A pair whose token names another seller than the one in use
            is not taken over, from there or as the response to a refresh, which raises `RefreshFailed`.
        early: Seconds before the expiry at which a refresh is tried, 0 or more. By default a sixth of the life of the
            token (30 days of 180, 100 s of 10 minutes); 600 if the pair does not say when it was issued.

    The application's ``client_id`` and ``client_secret`` are those of the client that uses this object.

    Raises:
        RequestInvalid: *early* is negative or not a number, *pair* is not a pair, or *store* is not a store or has a
            ``lock`` that cannot be held.
    """

    def __init__(
        self, pair: TokenPair | None = None, *, store: TokenStore | None = None, early: float | None = None
    ) -> None:
        if early is not None and (not isinstance(early, int | float) or not early >= 0):
            raise RequestInvalid("early", "must be 0 or more seconds")
        pair = masked(pair)
        check_pair(pair)
        check_store(store)
        #: The pair in use, and what else is known; a refresh changes it as soon as it knows more.
        self._state: TokenState = Active(pair or NO_PAIR)
        self._store: TokenStore = MemoryTokenStore(pair) if store is None else store
        self._early = early
        #: When an early refresh may be tried; ``None`` after one that failed, until the pause after it begins.
        self._early_from: float | None = 0.0
        self._flight: asyncio.Task[TokenPair] | None = None
        #: Whether the store was asked for a refresh that a crash has ended.
        self._looked = False
        #: Whether the refresh under way has asked the platform.
        self._asked = False
        #: Whether it was cancelled because its client is closed.
        self._given_up = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        store = getattr(self, "_store", None)  # A traceback shows one that was rejected, too.
        return f"RefreshingToken(store={type(store).__name__})"

    def __reduce__(self) -> str | tuple[object, ...]:
        # A `deepcopy` of some configuration would spend the grant of all others.
        raise TypeError("a RefreshingToken cannot be copied, as its refresh token is good once: share it, or its store")

    @property
    def revoked(self) -> bool:
        """Whether the refresh token is spent, or there is none: a person has to authorize again."""
        state = self._state
        if isinstance(state, Active) and state.pair is not NO_PAIR:
            return not any(pair.refresh_token for pair in (state.pair, state.former))
        return isinstance(state, Revoked)

    @property
    def expires_at(self) -> float | None:
        """When the access token ends, in seconds since the epoch; `None` if that is not known."""
        return self._state.pair.expires_at

    def token(self, now: float) -> str | None:
        """See `Auth.token`."""
        pair = self._state.pair
        if (ends := pair.expires_at) is None or now < ends - lead(pair, self._early):
            return pair.access_token
        if now >= ends:
            return None
        if self._early_from is None:
            # The pause begins here and not with the refresh, which may have taken longer than the pause.
            self._early_from = now + early_pause(ends - now)
        due = now >= self._early_from and self._flight is None
        return None if due else pair.access_token

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """See `Auth.renew`."""
        pair = self._state.pair
        if rejected is not None and usable(pair, rejected, now):
            return pair.access_token  # Someone else has refreshed it in the meantime.
        if self._loop is not (loop := asyncio.get_running_loop()):
            if self._loop is not None and not self._loop.is_closed():
                raise ClientClosed("the RefreshingToken belongs to another event loop; share its store instead")
            self._loop, self._flight = loop, None
        joined = self._flight
        if joined is not None and joined.done():
            # It has ended in this very turn of the loop: it could be joined again and again, with no turn in between.
            joined = None
        try:
            found = await asyncio.shield(joined or self._begin(rejected, exchange, now))
        except PaymentsError as error:
            # A copy: one error raised in a thousand tasks would collect a thousand tracebacks.
            failure = copy.copy(error)
        else:
            if joined and found is pair and found.access_token == rejected:
                # It was an early refresh, which failed and left the token in use that the platform rejects.
                return await self.renew(rejected, exchange, now)
            return found.access_token
        if joined and isinstance(failure, ClientClosed):
            # Another client began it, and was closed. This one can ask for itself.
            return await self.renew(rejected, exchange, now)
        raise failure

    async def drain(self, now: float) -> None:
        """Wait until a refresh that is under way at *now* (seconds since the epoch) has ended, and its pair is saved.

        A refresh goes on after a call has given up waiting for it. Before a client is closed, it settles its own
        tokens. A refresh that has no pair to save, since it still waits for another process, is not waited for: that
        may hang. A pair that the store failed to save is given to it once more.
        """
        if self._loop is not asyncio.get_running_loop():
            return
        try:
            if self._flight is not None and (self._asked or isinstance(self._state, PendingSave)):
                await asyncio.wait((self._flight,))
            if self._flight is None and isinstance(self._state, PendingSave):
                # No call may come any more that saves it.
                await asyncio.wait((self._begin(None, _ask_nobody, now),))
                if isinstance(self._state, PendingSave):
                    logger.warning("a new token pair could not be saved when the client was closed")
        except asyncio.CancelledError:
            if isinstance(self._state, PendingSave):
                logger.warning("a new token pair was not saved yet when the client was closed")
            raise

    def give_up(self) -> None:
        """End a refresh that `drain` has waited for in vain; who waits for it learns that the client is closed."""
        if self._flight is None or self._loop is not asyncio.get_running_loop():
            return
        if self._asked and not isinstance(self._state, PendingSave):
            self._given_up = True
            self._flight.cancel()

    def _begin(self, rejected: str | None, exchange: Exchange, now: float) -> asyncio.Task[TokenPair]:
        self._asked = self._given_up = False
        flight = self._flight = asyncio.create_task(self._refresh_once(rejected, exchange, now))
        flight.add_done_callback(self._flight_done)
        return flight

    def _flight_done(self, flight: asyncio.Task[TokenPair]) -> None:
        # Not in the flight itself: it may be cancelled before it begins, or thrown away with its loop, when another one
        # is under way.
        if self._flight is flight:
            self._flight = None
        retrieve_exception(flight)  # Everyone who waited may have been cancelled.

    async def _refresh_once(self, rejected: str | None, exchange: Exchange, now: float) -> TokenPair:
        """Refresh the pair for all who wait; if that was early and fails, return the live one."""
        pair = self._state.pair
        try:
            if pair is NO_PAIR and isinstance(self._store, LockingTokenStore):
                # To take what is there needs no turn: nothing is spent by it. But not every store can be read without
                # its lock, or while somebody else has it.
                with suppress(Exception):
                    if (found := await self._adopt(rejected, now)) is not None:
                        return found
            async with self._store.lock() if isinstance(self._store, LockingTokenStore) else nullcontext():
                return await self._refresh_alone(rejected, exchange, now)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
            # Those who wait for it have not been cancelled.
            raise ClientClosed("the client was closed while the token was refreshed") from None
        except Exception as error:
            self._state = without(self._state, rejected)
            if rejected is not None or not alive(pair, now):
                raise
            # It was early, and the live token will do until the next try.
            logger.warning("the access token could not be refreshed early: %s", describe(error))
            self._early_from = None
            return pair

    async def _refresh_alone(self, rejected: str | None, exchange: Exchange, now: float) -> TokenPair:
        """Refresh the pair while nobody else who shares the store does: take over, or exchange and save."""
        # Twice: another process may have been faster, and the refresh token is spent because of it. Not more often: two
        # replicas of a store may show one spent pair after the other.
        for _ in range(2):
            if (found := await self._adopt(rejected, now)) is not None:
                return found
            if not isinstance(self._state, Active):
                break
            self._state = await self._exchanged(self._state, exchange, now)
            if isinstance(self._state, PendingSave):
                break
        if isinstance(state := self._state, PendingSave):
            return await self._persist(state.new, now)
        raise copy.copy(cast("Revoked", state).error)

    async def _adopt(self, rejected: str | None, now: float) -> TokenPair | None:
        """Take over the pair that another process has saved, if there is one, and return it if it can be used."""
        stored, before = await _awaited(self._store.load()), self._state.pair
        if stored is not None:
            _check_seller(before, stored, "the store has")
            self._state = after_reading(self._state, stored, rejected)
        pair = self._state.pair
        return pair if pair is not before and usable(pair, rejected, now) else None

    async def _exchanged(self, held: Active, exchange: Exchange, now: float) -> PendingSave | Revoked:
        """Exchange the newest refresh token, and that of the pair before it if the newest is spent."""
        refused = None
        for pair in (held.pair, held.former):
            if pair.refresh_token:
                try:
                    return PendingSave(held.pair, await self._asked_for(pair, exchange, now), held.past)
                except ReauthorizationRequired as error:
                    refused = error
        if held.pair is NO_PAIR:
            reason = "the store has no tokens for this seller; exchange an authorization code first, and save its pair"
            raise ReauthorizationRequired(0, None, reason)
        if refused is None:
            raise ReauthorizationRequired(401, "invalid_token", "there is no refresh token for the access token")
        return Revoked(held.pair, refused, held.past)

    async def _asked_for(self, pair: TokenPair, exchange: Exchange, now: float) -> TokenPair:
        """Return what the platform gives for the refresh token of *pair*; the store knows that it is asked."""
        store = self._store if isinstance(self._store, MarkingTokenStore) else None
        if store is not None:
            if not self._looked and (begun := await _awaited(store.unfinished_refresh(pair))) is not None:
                logger.warning("%s", _lost(pair, begun, now))
            self._looked = True
            await _awaited(store.begin_refresh(pair, now))
        self._asked = True
        try:
            new = await exchange(pair.refresh_token or "")
        except (NoAnswer, ServerError):
            raise  # It may have been done: the mark stays.
        except PaymentsError:
            if store is not None:
                with suppress(Exception):
                    await _awaited(store.end_refresh())
            raise
        _check_seller(pair, new, "the platform has sent")
        return new

    async def _persist(self, new: TokenPair, now: float) -> TokenPair:
        """Save the *new* pair, then let it be used. If the store fails, the next call tries to save it again."""
        await _awaited(self._store.save(new))
        self._state = Active(new, past=with_past(self._state.past, self._state.pair), kept=True)
        if new.expires_at is not None:
            # Not before the half of its life: it may be shorter than `early`.
            self._early_from = (now + new.expires_at) / 2
        return new


def _check_seller(ours: TokenPair, other: TokenPair, who_has: str) -> None:
    """Reject a pair that is certainly of another seller than *ours*.

    In the middle of a call, a retry would do for that seller what may have been done for this one.

    Raises:
        RefreshFailed: It is.
    """
    own, another = certain_user_id(ours.access_token), certain_user_id(other.access_token)
    if own and another and own != another:
        raise RefreshFailed(f"{who_has} the token pair of another seller: of user {another}, not {own}")


def _lost(pair: TokenPair, begun: float, now: float) -> str:
    """Say what a crash in the middle of the refresh of *pair* may have cost, and until when it can be repaired."""
    until = "now"  # Whatever its end is: who sets it to make a token be refreshed may take any moment.
    if pair.expires_at is None:
        until = "when the access token is rejected"
    elif alive(pair, now):
        until = f"by {_in_utc(pair.expires_at)}"
    return (
        f"a token refresh that began at {_in_utc(begun)} was never saved: if the platform has issued a new pair, it is "
        f"lost, and the seller must authorize again {until}"
    )


def _in_utc(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # In the calendar is no such day, as where it counts milliseconds.
        return f"{seconds:g} seconds after 1970"


async def drain(tokens: Sequence[RefreshingToken], asking: Collection[int], clock: Clock, grace: float) -> None:
    """Wait as `RefreshingToken.drain` does for each of *tokens*, *grace* seconds at most, also when cancelled.

    Then the refresh ends of those whose ids are in *asking*, of the client: that of another client goes on. A refresh
    token that was sent is spent, whoever loses patience.
    """
    now, over = clock.now(), asyncio.Event()
    alarm = clock.call_at(clock.monotonic() + grace, over.set)
    if not grace:
        over.set()  # Now, whatever the clock says.
    drains = [asyncio.ensure_future(token.drain(now)) for token in tokens]
    drained = asyncio.gather(*drains)
    drained.add_done_callback(retrieve_exception)
    # A task: without any grace, too, each token has its turn to begin to save its pair.
    ends = asyncio.ensure_future(over.wait())
    cancelled = await wait_for_one(drained, ends)
    alarm.cancel()
    ends.cancel()
    if not drained.done():
        for token, its_drain in zip(tokens, drains, strict=True):
            if its_drain.cancel() and id(token) in asking:  # Else a refresh is another client's, which goes on.
                token.give_up()
    if cancelled is not None:
        raise cancelled
    if drained.done():
        drained.result()


async def _awaited(given: Awaitable[R]) -> R:
    """Return what a method of a store gives, also of one that is not async: a grant that is spent must not be lost.

    Whether a method that is no coroutine function can be awaited is only seen when it was called.
    """
    return await given if isawaitable(given) else cast("R", given)


async def _ask_nobody(_: str) -> TokenPair:
    raise ClientClosed("the client is closed")
