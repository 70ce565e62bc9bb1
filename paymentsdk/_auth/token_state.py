"""What is known of a grant: its states, by name, and what leads from one to another. Nothing here waits.

===========  =========================  ======================  ====================  =====================
state        another pair in the store  the platform refreshes  the platform rejects  the new pair is saved
===========  =========================  ======================  ====================  =====================
Active       Active, if it came after   PendingSave             Revoked
PendingSave  Active, if it came after                                                 Active
Revoked      Active
===========  =========================  ======================  ====================  =====================
"""

from __future__ import annotations

from math import inf
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._auth.token_store import TokenPair
from paymentsdk.errors import ReauthorizationRequired

#: The part of its life that a token has left when it is refreshed: 30 of 180 days. If a crash loses the new pair, that
#: is what the seller has to authorize again, with the old token still in use.
SHARE = 1 / 6
#: Seconds before its end at which a token is refreshed of which nobody knows how long it lives.
LEAST = 600.0
#: Stands where nobody has seen a pair yet: it has ended, cannot be refreshed, and no store has its like.
NO_PAIR = TokenPair(access_token=chr(0), expires_at=-inf)


#: Pairs that are remembered as older than the one in use; of ten minutes each, those of a night.
MOST_PAST = 100


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


def usable(pair: TokenPair, rejected: str | None, now: float) -> bool:
    """Whether *pair* is alive, and another than the one that was rejected."""
    return pair.access_token != rejected and alive(pair, now)


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
