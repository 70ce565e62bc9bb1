"""The states of a grant: what each becomes, cell by cell, without a store, a platform, or time that passes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paymentsdk import ReauthorizationRequired, TokenPair
from paymentsdk._auth.refresh import (
    NO_PAIR,
    Active,
    PendingSave,
    Revoked,
    TokenState,
    after_reading,
    with_past,
    without,
)
from paymentsdk._auth.token_store import alive, usable
from tests.engine.issuer import START, Issuer

REFUSAL = ReauthorizationRequired(400, "invalid_grant", "it is spent")
pair = Issuer().pair
OWN = pair(2, START)
LEFT = pair(5, START + 2)
STATES = {
    "Active": Active(OWN, pair(1)),
    "PendingSave": PendingSave(OWN, pair(3, START + 9), with_past((), LEFT)),
    "Revoked": Revoked(OWN, REFUSAL),
}
STORED = {
    "own": OWN,
    "earlier": pair(7, START - 1),
    "same end": pair(7, START),
    "later": pair(7, START + 1),
    "endless": pair(7),
    "rejected": pair(0, START + 1),
    "new": pair(3, START + 9),
    "left": LEFT,
}

# What is in the store, and which pair gave way to it. "-": none did.
TABLE = """
         | own | earlier | same end | later | endless | rejected | new | left
Active     | -   | -       | own      | own   | own     | -        | own | own
PendingSave  | -   | new     | new      | new   | new     | new      | -   | -
Revoked    | -   | own     | own      | own   | own     | -        | own | own
"""


def cells() -> list[tuple[str, ...]]:
    """Return the name of the row, the name of the column, and what stands there, of each cell of the table."""
    (_, *columns), *rows = ([cell.strip() for cell in line.split("|")] for line in TABLE.strip("\n").splitlines())
    return [(row, *cell) for row, *values in rows for cell in zip(columns, values, strict=True)]


@pytest.mark.parametrize(("state", "stored", "former"), cells())
def test_what_is_after_reading(state: str, stored: str, former: str) -> None:
    """The pair of the store takes the place of another as the table says, and that one is the last resort.

    One that is left is remembered, so that nobody takes it for what came after a pair that the store does not have yet.
    """
    before = STATES[state]
    left = before
    if state == "Active":
        left = replace(before, kept=True) if stored == "own" else replace(before, past=with_past((), STORED[stored]))
    past = with_past(before.past, OWN, *([before.new] if state == "PendingSave" else []))

    after = after_reading(before, STORED[stored], "APP_USR-access-0")

    assert (left if former == "-" else Active(STORED[stored], STORED[former], past, kept=True)) == after


def test_what_the_store_has_had_gives_way_to_all_but_what_it_had_before() -> None:
    """Another pair there came after it, however early it ends; the one before it, which a backup has, did not."""
    earlier, before, older = pair(7, START - 1), pair(1, START - 2), pair(6, START - 3)
    grant = Active(OWN, before, with_past((), older, before), kept=True)

    assert Active(earlier, OWN, with_past(grant.past, OWN), kept=True) == after_reading(grant, earlier, None)
    assert grant == after_reading(grant, before, None) == after_reading(grant, older, None)


@pytest.mark.parametrize("own", [OWN, pair(2)])
def test_a_pair_without_an_end_may_be_older_than_any(own: TokenPair) -> None:
    """Where one of two ends is not known, nobody can tell which is later: the one of the store is tried first."""
    assert Active(pair(7), own, with_past((), own), kept=True) == after_reading(Active(own), pair(7), None)
    assert Active(OWN, pair(7), with_past((), pair(7)), kept=True) == after_reading(Active(pair(7)), OWN, None)


@pytest.mark.parametrize("stored", [*STORED.values(), TokenPair(access_token="", refresh_token="TG-first")])
def test_any_pair_takes_the_place_of_none(stored: TokenPair) -> None:
    """Who begins with nothing takes what is there, also one that has ended, or that is a refresh token alone."""
    assert Active(stored, NO_PAIR, with_past((), NO_PAIR), kept=True) == after_reading(Active(NO_PAIR), stored, None)


def test_no_pair_is_no_pair() -> None:
    """What stands for none has ended at any time, and there is nothing to renew it with."""
    assert not alive(NO_PAIR, -1e300)
    assert NO_PAIR.refresh_token is None


@pytest.mark.parametrize(("state", "ends"), [("Active", False), ("PendingSave", True), ("Revoked", True)])
def test_a_rejected_token_that_cannot_be_refreshed_ends(state: str, ends: bool) -> None:
    """Where its refresh token is spent, the token that was rejected is not used again; any other one is left."""
    grant: TokenState = STATES[state]

    after = without(grant, OWN.access_token)

    assert grant == without(grant, None) == without(grant, "APP_USR-access-0")
    assert (type(grant), not ends) == (type(after), alive(after.pair, START - 1))
    assert OWN.refresh_token == after.pair.refresh_token


def test_what_can_be_used() -> None:
    """A pair that has not ended, to the very second, and is not the one that was rejected."""
    assert usable(OWN, None, START - 1)
    assert usable(pair(2), "APP_USR-access-0", START)
    assert not usable(OWN, None, START)
    assert not usable(OWN, OWN.access_token, START - 1)


@pytest.mark.parametrize("grant", STATES.values())
def test_a_grant_does_not_show_its_tokens(grant: TokenState) -> None:
    """It is in variables while the platform is asked: a traceback that shows them shows no credential."""
    assert not any(secret in repr(grant) for secret in ("APP_USR", "TG-"))
