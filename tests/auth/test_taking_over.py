"""Which of two pairs a refresh uses: the pair of the program, or the pair that is in the store."""

from __future__ import annotations

import pytest

from paymentsdk import MemoryTokenStore, ReauthorizationRequired, RefreshingToken, TokenPair
from tests.engine.issuer import START, Issuer

pair = Issuer().pair
#: The pair that the platform issues for a refresh token.
NEW = pair(9, START + 3600)


class Platform:
    """Exchanges each refresh token but those that are *spent*."""

    def __init__(self, *spent: str) -> None:
        self.spent = spent
        self.received: list[str] = []

    async def exchange(self, refresh_token: str) -> TokenPair:
        """Return a new pair."""
        self.received.append(refresh_token)
        if refresh_token in self.spent:
            raise ReauthorizationRequired(400, "invalid_grant", "it is spent")
        return NEW


@pytest.mark.parametrize(
    ("expires_at", "stored", "sent"),
    [
        (START, START - 1, "TG-refresh-1"),
        (START, START, "TG-refresh-2"),
        (START, None, "TG-refresh-2"),
        (None, START, "TG-refresh-2"),
        (START - 2, START - 1, "TG-refresh-2"),
    ],
)
async def test_the_pair_that_expires_later_is_used(expires_at: float | None, stored: float | None, sent: str) -> None:
    """So does a stored pair when one of the two expiries is unknown; a pair that has expired is refreshed."""
    platform = Platform()
    token = RefreshingToken(pair(1, expires_at), store=MemoryTokenStore(pair(2, stored)))

    access = await token.renew("APP_USR-access-1" if expires_at is None else None, platform.exchange, START)

    if stored is None:
        assert ([], "APP_USR-access-2") == (platform.received, access)
    else:
        assert ([sent], NEW.access_token) == (platform.received, access)


@pytest.mark.parametrize("stored", [START - 1, START + 1, None])
async def test_a_spent_pair_gives_way_to_any_other(stored: float | None) -> None:
    """Also to a stored pair that expires earlier; the token that the platform rejected is not used again."""
    platform, store = Platform("TG-refresh-1"), MemoryTokenStore()
    token = RefreshingToken(pair(1, START), store=store)
    with pytest.raises(ReauthorizationRequired):
        await token.renew(None, platform.exchange, START)
    assert token.revoked

    await store.save(pair(2, stored))
    access = await token.renew(None, platform.exchange, START)

    used = NEW.access_token if stored == START - 1 else "APP_USR-access-2"
    assert (used, False) == (access, token.revoked)
