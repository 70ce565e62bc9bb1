"""The end of a grant, and what the caller of a write learns of a refresh."""

from __future__ import annotations

import asyncio
import json

import pytest

from paymentsdk import (
    AuthenticationFailed,
    MemoryTokenStore,
    OutcomeUnknown,
    ReauthorizationRequired,
    RefreshingToken,
    Response,
    RetryPolicy,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import MemoryTransport
from tests.engine.issuer import ORDER, START, Issuer

# --- the end of a grant -----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._contract.error_response.TERMINAL", frozenset())
@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client"])
async def test_a_spent_grant_is_remembered(signed_in, issuer, code: str) -> None:
    """After a terminal rejection every call fails at once, with an error of its own, and nothing is sent any more."""
    issuer.trouble = [Response(400, {}, f'{{"error":"{code}","message":"no"}}'.encode())]
    client = signed_in(issuer.pair(expires_at=0.0))

    errors = await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(3)), return_exceptions=True)
    errors += await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(2)), return_exceptions=True)

    assert [(ReauthorizationRequired, code)] * 5 == [(type(error), getattr(error, "code", None)) for error in errors]
    assert 5 == len(set(map(id, errors)))
    assert (1, []) == (len(issuer.refreshes), issuer.used)


async def test_a_late_rejection_of_an_old_token_leaves_the_live_one(signed_in, issuer) -> None:
    """A call that went out with the token before comes back rejected: that says nothing of the live one."""
    issuer.generation = 2
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(2, expires_at=START + 300))
    await client.orders.get("ORD1")

    assert "APP_USR-access-2" == await client._engine.settings.auth.renew(
        "APP_USR-access-1", client._engine._exchange, START
    )
    assert "ORD1" == (await client.orders.get("ORD1")).id


async def test_a_token_is_refreshed_once_in_a_call(signed_in, issuer) -> None:
    """A platform that rejects every token is asked for one more, not for one at each attempt."""
    steps = iter([Response(401), Response(503), Response(401)])

    async def platform(request) -> Response:
        return await Issuer.__call__(issuer, request) if "oauth" in request.url else next(steps)

    client = signed_in(issuer.pair(), retry=RetryPolicy(), transport=MemoryTransport(platform))

    with pytest.raises(AuthenticationFailed):
        await client.orders.get("ORD1")

    assert 1 == len(issuer.refreshes)


@pytest.mark.parametrize(
    "response",
    [
        {"access_token": "APP_USR-access-2", "refresh_token": "TG-refresh-2", "expires_in": "100000"},
        {"access_token": "not a header", "refresh_token": "TG-refresh-2"},
        {"access_token": "APP_USR-access-2", "refresh_token": "TG-refresh-2", "expires_in": 10**400},
    ],
)
async def test_a_new_refresh_token_survives_malformed_members(signed_in, issuer, response: object) -> None:
    """The refresh token before is spent: the new one is kept, whatever the rest of the response looks like."""
    issuer.trouble = [Response(200, {}, json.dumps(response).encode())]
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=0.0), store=store, strict=True)

    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    assert "TG-refresh-2" == (await store.load()).refresh_token


async def test_a_spent_grant_leaves_the_live_token(signed_in, issuer, clock) -> None:
    """A grant that is found spent early still has its live token: it is used until it ends."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=START + 300))

    await client.orders.get("ORD1")
    clock.advance(299)
    await client.orders.get("ORD1")
    clock.advance(1)

    with pytest.raises(ReauthorizationRequired):
        await client.orders.get("ORD1")
    assert (1, 2) == (len(issuer.refreshes), len(issuer.used))


async def test_a_pair_keeps_its_refresh_token(make_client, clock) -> None:
    """A response without a new refresh token leaves the old one good; without a lifetime, nobody knows the end."""
    client = make_client(Response(200, {}, b'{"access_token":"APP_USR-new"}'))

    pair = await client._engine._exchange("TG-refresh-1")

    assert TokenPair(access_token="APP_USR-new", refresh_token="TG-refresh-1", issued_at=START) == pair


# --- what the caller of a write learns --------------------------------------------------------------------------------


async def test_a_rejection_stands_where_there_is_no_way_to_refresh(make_client, issuer, caplog) -> None:
    """A client without the application's id and secret cannot refresh: the 401 is raised, and says why there is none.

    The reason stands in the log, too.
    """
    client = make_client(issuer, auth=RefreshingToken(issuer.pair()), client_id=None, client_secret=None)
    issuer.generation = 2

    with pytest.raises(AuthenticationFailed) as refused:
        await client.orders.cancel("ORD1")

    assert 1 == refused.value.attempts
    [warned] = [record for record in caplog.records if "orders.cancel" in record.message]
    assert ("WARNING", "orders.cancel") == (warned.levelname, warned.payments_operation)
    assert ["the token could not be refreshed: no token: client_id"] == [note[:53] for note in refused.value.__notes__]


async def test_a_doubt_outlives_the_token(make_client, issuer) -> None:
    """A write in doubt stays in doubt when the grant turns out to be spent: the key must not be lost."""
    steps = iter([SendFailed("reset"), Response(401), Response(400, {}, b'{"error":"invalid_grant"}')])

    async def platform(request) -> Response:
        step = next(steps)
        if isinstance(step, Exception):
            raise step
        return step

    client = make_client(platform, auth=RefreshingToken(issuer.pair()))

    with pytest.raises(OutcomeUnknown) as unknown:
        await client.orders.cancel("ORD1")

    assert ReauthorizationRequired is type(unknown.value.last_error)
    assert unknown.value.idempotency_key


@pytest.mark.control(
    "paymentsdk._call.verdicts.History.key_lasts", lambda self, clock: 1e9, raises=pytest.fail.Exception
)
@pytest.mark.parametrize("refused", [True, False], ids=["refused", "ended"])
async def test_a_machine_that_slept_while_the_token_was_refreshed(make_client, issuer, clock, *, refused: bool) -> None:
    """A laptop that is shut during a refresh wakes up a day later: the platform has forgotten the key by then."""
    sent = []

    async def platform(request) -> Response:
        if request.url.endswith("/oauth/token"):
            clock._now += 24 * 3600
            return Response(200, {}, b'{"access_token":"APP_USR-new","expires_in":86400}')
        sent.append(request)
        if len(sent) == 1:
            clock._now += 0 if refused else 60
            raise SendFailed("reset")
        return Response(401) if "APP_USR-new" not in request.headers["Authorization"] else ORDER

    ends = None if refused else START + 60
    client = make_client(platform, auth=RefreshingToken(issuer.pair(expires_at=ends), early=0))

    with pytest.raises(OutcomeUnknown, match="23 hours"):
        await client.orders.cancel("ORD1")

    assert 1 + refused == len(sent)
