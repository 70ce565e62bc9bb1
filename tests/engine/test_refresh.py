"""A token that is rejected, has ended or ends soon: one refresh for all who need another."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from paymentsdk import (
    AuthenticationFailed,
    BadRequest,
    ClientClosed,
    MemoryTokenStore,
    PaymentsError,
    ReauthorizationRequired,
    RefreshingToken,
    RequestInvalid,
    Response,
    SendFailed,
    Timeout,
    TokenPair,
)
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.oauth import Token
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from tests.engine.issuer import START, counted

# --- on a rejection, and at the end -----------------------------------------------------------------------------------


CANARY = "TEST-refresh-canary"


async def naive_refresh(self, rejected, exchange, now) -> str:
    """What everybody writes first."""
    self._state = replace(self._state, pair=await exchange(self._state.pair.refresh_token))
    return self._state.pair.access_token


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.renew", naive_refresh, raises=ReauthorizationRequired)
async def test_a_hundred_rejections_are_one_refresh(signed_in, issuer) -> None:
    """However many calls are rejected at the same moment, the platform is asked once, and all use its response."""
    client = signed_in(issuer.pair())
    issuer.generation = 2
    issuer.renew = counted(issuer)

    orders = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(100)))

    assert 100 == len(orders)
    assert 1 == len(issuer.refreshes)


async def test_a_token_that_stays_the_same_is_refreshed_once(signed_in, issuer) -> None:
    """A platform that gives the rejected token again is not asked by each call in turn: each costs a refresh token."""
    client = signed_in(issuer.pair())
    issuer.generation, issuer.used = 9, []
    same = {"access_token": "APP_USR-access-1", "refresh_token": "TG-refresh-2"}
    issuer.trouble = [Response(200, {}, json.dumps(same).encode())] * 50

    outcomes = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(20)), return_exceptions=True)

    assert {AuthenticationFailed} == {type(outcome) for outcome in outcomes}
    assert 1 == len(issuer.refreshes)


def of_anybody(original):
    """Drain as if each refresh was the closing client's own."""
    return lambda tokens, asking, clock, grace: original(tokens, [*map(id, tokens)], clock, grace)


@pytest.mark.control("paymentsdk.client.drain", around=of_anybody, raises=ClientClosed)
async def test_a_client_that_is_closed_ends_no_refresh_of_another(make_client, issuer, clock, until) -> None:
    """Two clients can share a token: the refresh token that one has sent is spent, and the new pair is on its way."""
    token, hold = RefreshingToken(issuer.pair(expires_at=0.0)), asyncio.Event()
    closed, living = (make_client(issuer, auth=token) for _ in range(2))
    await closed.orders.get("ORD1")
    issuer.generation, honest = 3, issuer.renew

    async def slow(refresh_token: str) -> Response:
        await hold.wait()
        issuer.generation = 2  # As if it had been spent now.
        return honest(refresh_token)

    issuer.renew = slow
    call = asyncio.create_task(living.orders.get("ORD1"))
    requests_before = issuer.asked
    await until(lambda: issuer.asked == requests_before + 2)

    closing = asyncio.create_task(closed.aclose(grace=5))
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance(5)
    await closing
    hold.set()

    assert "ORD1" == (await call).id
    assert ["TG-refresh-1", "TG-refresh-2"] == issuer.refreshes


@pytest.mark.parametrize("expires_at", [0.0, None], ids=["ended", "refused"])
async def test_nothing_is_sent_for_a_client_that_was_closed_during_a_refresh(
    signed_in, issuer, until, expires_at: float | None
) -> None:
    """A write that would begin as the connections end is not sent, rather than cut off with its outcome unknown."""
    client, response, renew = signed_in(issuer.pair(expires_at=expires_at)), asyncio.Event(), counted(issuer)

    async def slowly(refresh_token: str) -> Response:
        await response.wait()
        return renew(refresh_token)

    issuer.renew, issuer.generation = slowly, 2
    call = asyncio.create_task(client.orders.cancel("ORD1"))
    await until(lambda: client._engine.settings.auth._is_sent)
    sent = len(issuer.used)

    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0)
    response.set()
    await closing

    with pytest.raises(ClientClosed):
        await call
    assert sent == len(issuer.used)


@pytest.mark.control("asyncio.shield", lambda arg: arg, raises=asyncio.CancelledError)
async def test_a_cancelled_waiter_does_not_take_the_refresh_with_it(signed_in, issuer, until) -> None:
    """Whoever is cancelled while it waits, even the first, the refresh goes on for the others."""
    client = signed_in(issuer.pair(expires_at=0.0))
    tasks = [asyncio.create_task(client.orders.get("ORD1")) for _ in range(10)]
    await until(lambda: issuer.asked)

    for task in tasks[::2]:
        task.cancel()
    orders = await asyncio.gather(*tasks[1::2])

    assert {"ORD1"} == {order.id for order in orders}
    assert all(task.cancelled() for task in tasks[::2])
    assert 1 == len(issuer.refreshes)


async def test_a_call_that_is_late_takes_the_token_of_the_others(issuer) -> None:
    """A call that went out with the old token and comes back rejected, after the refresh, asks for none of its own."""
    auth, exchanged = RefreshingToken(issuer.pair()), []

    async def exchange(refresh_token: str) -> TokenPair:
        exchanged.append(refresh_token)
        return issuer.pair(2)

    tokens = [await auth.renew("APP_USR-access-1", exchange, START) for _ in range(2)]

    assert ["APP_USR-access-2"] * 2 == tokens
    assert ["TG-refresh-1"] == exchanged


async def test_a_preference_says_with_a_400_that_the_token_is_rejected(signed_in, issuer) -> None:
    """`invalid_access_token`, the contract's code for it there, renews the token as a 401 does: once in a call."""
    issuer.rejection = Response(400, {}, b'{"error":"invalid_access_token","status":400}')
    client, basket = signed_in(issuer.pair()), PreferenceRequest(items=[PreferenceItemRequest(title="A book")])
    issuer.generation = 2
    issuer.renew = counted(issuer)

    assert "ORD1" == (await client.preferences.create(basket)).id
    issuer.generation = 9
    issuer.renew = lambda refresh_token: Response(200, {}, b'{"access_token":"APP_USR-not-good-either"}')
    with pytest.raises(BadRequest, match="invalid_access_token") as refused:
        await client.preferences.create(basket)

    assert 2 == refused.value.attempts
    assert 4 == len(issuer.used)


@pytest.mark.parametrize("status", [400, 403])
async def test_only_the_rejection_of_a_token_asks_for_another(signed_in, issuer, status: int) -> None:
    """Whatever else the platform says is not about the token: no grant is spent on it, and nothing is sent again."""
    client = signed_in(issuer.pair())
    issuer.generation, issuer.rejection = 2, Response(status)

    with pytest.raises(PaymentsError):
        await client.customers.create(CustomerRequest(email="ann@example.com"))

    assert ([], 1) == (issuer.refreshes, len(issuer.used))


def test_one_loop_for_one_refreshing_token(issuer) -> None:
    """Two loops would renew twice, and the second would find the grant spent: it is told before it asks."""
    auth = RefreshingToken(issuer.pair(expires_at=0.0))

    async def exchange(refresh_token: str) -> TokenPair:
        return issuer.pair(2)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert "APP_USR-access-2" == first.run(auth.renew(None, exchange, START))
        with pytest.raises(ClientClosed, match="share its store"):
            second.run(auth.renew("APP_USR-access-2", exchange, START))
    with asyncio.Runner() as third:
        assert "APP_USR-access-2" == third.run(auth.renew("APP_USR-access-2", exchange, START))


class Forgetful:
    """Loads, and cannot save."""

    async def load(self) -> None:
        """Have nothing."""


@pytest.mark.parametrize("store", [Forgetful(), MemoryTokenStore, "tokens.json"])
def test_a_store_that_cannot_keep_a_pair_is_rejected_before_it_is_needed(store: object) -> None:
    """Found after the exchange, it would cost the grant: the new pair would be nowhere."""
    with pytest.raises(RequestInvalid, match="store"):
        RefreshingToken(store=store)


@pytest.mark.parametrize("keep", [RefreshingToken, MemoryTokenStore])
@pytest.mark.parametrize("pair", [Token(access_token="TEST-access", refresh_token=CANARY), CANARY])
def test_what_is_no_pair_is_rejected_where_it_is_given(keep: Callable[[object], object], pair: object) -> None:
    """The response of the token endpoint is no pair yet: it does not know when it ends. The error shows none of it."""
    with pytest.raises(RequestInvalid, match="pair: must be a TokenPair") as refused:
        keep(pair)

    report = traceback.TracebackException.from_exception(refused.value, capture_locals=True)
    ours = [frame.locals for frame in report.stack if "paymentsdk" in frame.filename]
    assert CANARY not in f"{refused.value} {ours}"


# --- before the end ---------------------------------------------------------------------------------------------------


async def test_an_early_refresh_that_fails_keeps_the_live_token(signed_in, issuer, clock) -> None:
    """The live token stays in use, and the next try is made a minute later, not with the next call."""
    issuer.trouble = [Response(503)] * 2
    client = signed_in(issuer.pair(expires_at=START + 300))

    await client.orders.get("ORD1")
    tries = len(issuer.refreshes)
    await client.orders.get("ORD1")
    await client.orders.get("ORD1")

    assert 1 <= tries == len(issuer.refreshes)
    issuer.trouble = []
    clock.advance(60)
    await client.orders.get("ORD1")
    assert ["Bearer APP_USR-access-1"] * 3 + ["Bearer APP_USR-access-2"] == issuer.used


async def test_an_early_refresh_blocks_no_other_call(signed_in, issuer, clock, until) -> None:
    """While the token endpoint hangs, the call that asked it waits as long as an attempt may take; no other waits.

    All of them go out with the live token, and the pause before the next try begins when this one has ended.
    """
    hanging = asyncio.Event()

    async def hang(refresh_token: str) -> Response:
        issuer.refreshes.append(refresh_token)
        await hanging.wait()
        return Response(503)

    issuer.renew = hang
    client = signed_in(issuer.pair(expires_at=START + 500), timeout=Timeout(total=100, attempt=30))
    first = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.refreshes)

    await asyncio.gather(*(client.orders.get("ORD1") for _ in range(10)))
    assert 10 == len(issuer.used)
    clock.advance(30)
    assert "ORD1" == (await first).id
    hanging.set()
    await until(lambda: client._engine.settings.auth._flight is None)
    clock.advance(100)
    await client.orders.get("ORD1")
    assert 1 == len(issuer.refreshes)
    clock.advance(60)
    await client.orders.get("ORD1")
    assert 2 == len(issuer.refreshes)
    assert {"Bearer APP_USR-access-1"} == set(issuer.used)


async def test_a_short_lived_token_is_not_refreshed_at_every_call(signed_in, issuer, clock) -> None:
    """A token that lives shorter than `early` is refreshed at the half of its life, and in any case at its end."""
    client = signed_in(auth=RefreshingToken(issuer.pair(expires_at=0.0), early=600))
    issuer.lifetime = 300

    for _ in range(3):
        await client.orders.get("ORD1")
        await client.orders.get("ORD1")
        clock.advance(149)
        await client.orders.get("ORD1")
        clock.advance(1)

    assert 3 == len(issuer.refreshes)


async def test_an_ended_token_is_not_used(signed_in, issuer, clock) -> None:
    """A failed early refresh is left alone for a minute, but not beyond the end of the live token."""
    issuer.trouble = [SendFailed("refused", sent=False)]
    client = signed_in(issuer.pair(expires_at=START + 30))

    await client.orders.get("ORD1")
    clock.advance(30)
    await client.orders.get("ORD1")

    assert ["Bearer APP_USR-access-1", "Bearer APP_USR-access-2"] == issuer.used


async def test_a_live_token_without_a_refresh_token_is_used_to_its_end(signed_in, issuer, clock) -> None:
    """A token that cannot be refreshed is no worse for ending soon."""
    client = signed_in(TokenPair(access_token="APP_USR-access-1", expires_at=START + 300))

    await client.orders.get("ORD1")
    clock.advance(300)

    with pytest.raises(ReauthorizationRequired, match="no refresh token"):
        await client.orders.get("ORD1")
    assert 1 == len(issuer.used)


@pytest.mark.parametrize("early", [-1, float("nan"), "600"])
def test_early_is_a_number_of_seconds(early: float) -> None:
    """`early` counts seconds before the end."""
    with pytest.raises(RequestInvalid, match="early"):
        RefreshingToken(early=early)
