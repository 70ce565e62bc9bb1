"""Tokens that last, and the sources of others: what is sent with a call, and what is not sent without."""

from __future__ import annotations

import pytest

from paymentsdk import AuthenticationFailed, RequestInvalid, Response, SendFailed, StaticToken
from tests.engine.conftest import CREATED, TOKEN
from tests.engine.issuer import ORDER, START
from tests.observing import of_attempts

# --- static tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "two words", "line\nfeed", "ünicode", None, 5])
def test_a_token_that_cannot_stand_in_a_header(token: object) -> None:
    """A token that would break its header is rejected where it is given."""
    with pytest.raises(RequestInvalid, match="visible ASCII"):
        StaticToken(token)


def test_every_visible_character_can_stand_in_a_token() -> None:
    """A token may have any character that a header can have: none is rejected for being odd."""
    visible = "".join(map(chr, range(33, 127)))

    assert visible == StaticToken(visible).token(START)


# --- sources of others ------------------------------------------------------------------------------------------------


class Vault:
    """A source of tokens that gives what it has, and fails with what it has not."""

    def __init__(self, *tokens: object) -> None:
        self._tokens = list(tokens)

    def token(self, now: float) -> str | None:
        token = self._tokens.pop(0)
        if isinstance(token, Exception):
            raise token
        return token

    async def renew(self, rejected, exchange, now) -> str | None:
        return None


async def test_a_source_that_fails_does_not_hide_a_doubt(play) -> None:
    """Whatever a source of tokens raises after a first attempt is in doubt: the caller gets the key of it."""
    auth, attempts = Vault("APP_USR-access-1", KeyError("the lease has expired: s3cr3t")), []

    played = await play(
        "orders.cancel", SendFailed("reset"), auth=auth, access_token=None, observers=of_attempts(attempts.append)
    )

    assert played.is_unknown()
    assert [1, 0] == [attempt.number for attempt in attempts]
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("no token: KeyError (test_auth.py:")


OTHER = "APP_USR-9001-112305-fedcba9876543210-78"


@pytest.mark.control("paymentsdk._call.credential._is_of_another_seller", lambda token, before: False)
@pytest.mark.parametrize("due", [False, True], ids=["at hand", "waited for"])
async def test_a_retry_goes_out_as_the_seller_of_the_first_attempt(play, due: bool) -> None:
    """Under another's token the same key is a second order: somebody has replaced the pair in the store meanwhile."""

    class Overwritten(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return OTHER

    auth = Overwritten(TOKEN, None if due else OTHER)
    played = await play("orders.create", SendFailed("reset"), CREATED, auth=auth, access_token=None)

    assert (1, True) == (len(played.requests), played.is_unknown())
    assert "another seller" in played.error.reason


@pytest.mark.control("paymentsdk._call.credential._is_of_another_seller", lambda token, before: False)
async def test_a_refresh_with_the_token_of_another_seller_is_rejected(play) -> None:
    """The rejection stands: nothing was done, and nothing is done as somebody else."""

    class Overwritten(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return OTHER

    played = await play("orders.create", Response(401), CREATED, auth=Overwritten(TOKEN), access_token=None)

    assert (1, AuthenticationFailed) == (len(played.requests), type(played.error))
    assert "another seller" in played.error.__notes__[0]


@pytest.mark.control("paymentsdk._call.credential._is_of_another_seller", lambda token, before: False)
async def test_a_token_without_a_seller_does_not_hide_the_last_seller(play) -> None:
    """From one seller by such a token to another: a third attempt as that one would be a second order."""

    class Overwritten(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return OTHER

    auth, lost = Overwritten(TOKEN, "token-of-ones-own", OTHER), SendFailed("reset")
    played = await play("orders.create", lost, lost, CREATED, auth=auth, access_token=None)

    assert (2, True) == (len(played.requests), played.is_unknown())
    assert "another seller" in played.error.reason


@pytest.mark.parametrize("token", ["APP_USR-9001-112305-fedcba9876543210-77", "token-of-ones-own-78"])
async def test_a_retry_goes_out_with_a_newer_token_of_the_seller(play, token: str) -> None:
    """Also with one that does not tell whose it is."""
    played = await play("orders.create", SendFailed("reset"), CREATED, auth=Vault(TOKEN, token), access_token=None)

    assert [f"Bearer {TOKEN}", f"Bearer {token}"] == [request.headers["Authorization"] for request in played.requests]


@pytest.mark.parametrize("token", [b"APP_USR-access-1", "two words", "", "line\r\nX-Evil: 1"])
async def test_an_invalid_token_is_not_sent(play, token: object) -> None:
    """What a source gives is looked at before it gets into a header, each time that it is another."""
    played = await play("orders.cancel", ORDER, auth=Vault(token, token), access_token=None)

    assert (RequestInvalid, "access_token", []) == (type(played.error), played.error.path, played.requests)


@pytest.mark.parametrize("renewed", [None, "APP_USR-access-2"], ids=["no other token", "another token"])
async def test_a_rejection_that_says_in_progress_leaves_the_write_in_doubt(play, renewed: str | None) -> None:
    """Whether there is another token or not, and whatever is said to that: an attempt may have taken effect."""

    class Other(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return renewed

    in_progress = Response(401, {}, b'{"errors":[{"code":"refund_in_progress"}]}')
    auth = Other("APP_USR-access-1")
    played = await play("orders.cancel", in_progress, Response(403), auth=auth, access_token=None)

    assert (True, 1 + (renewed is not None)) == (played.is_unknown(), len(played.requests))
