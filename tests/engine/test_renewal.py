"""Tokens that end: one refresh for all who need it, early if it can be, and the truth when there is none."""

from __future__ import annotations

import asyncio
import gc
import json
import traceback
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from paymentsdk import (
    AuthenticationFailed,
    BadRequest,
    ClientClosed,
    MemoryTokenStore,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
    TokenPair,
)
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.oauth import Token
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.testing import MemoryTransport
from tests.engine.issuer import ONCE, ORDER, START, Issuer, counted

CANARY = "TEST-refresh-canary"


async def naive_renewal(self, rejected, exchange, now) -> str:
    """What everybody writes first."""
    from paymentsdk._auth.token_state import Active

    self._state = Active(await exchange(self._state.pair.refresh_token))
    return self._state.pair.access_token


# --- one refresh for all ----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.renew", naive_renewal, raises=ReauthorizationRequired)
async def test_a_thousand_rejections_are_one_refresh(signed_in, issuer) -> None:
    """However many calls are rejected at the same moment, the platform is asked once, and all use its response."""
    client = signed_in(issuer.pair())
    issuer.generation = 2
    issuer.renew = counted(issuer)

    orders = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(1000)))

    assert 1000 == len(orders)
    assert 1 == len(issuer.renewals)


async def test_a_refresh_that_fails_is_one_failure_for_all(issuer) -> None:
    """All who waited for it learn of it, each by an error of its own; none of them asks the platform once more."""
    auth, asked = RefreshingToken(issuer.pair(expires_at=0.0)), []

    async def exchange(refresh_token: str) -> TokenPair:
        asked.append(refresh_token)
        await asyncio.sleep(0)
        raise NotSent("connection refused")

    failures = await asyncio.gather(*(auth.renew(None, exchange, START) for _ in range(20)), return_exceptions=True)

    assert ({NotSent}, 20) == ({type(failure) for failure in failures}, len({id(failure) for failure in failures}))
    assert ["TG-refresh-1"] == asked


async def test_a_token_that_stays_the_same_is_refreshed_once(signed_in, issuer) -> None:
    """A platform that gives the rejected token again is not asked by each call in turn: each costs a refresh token."""
    client = signed_in(issuer.pair())
    issuer.generation, issuer.used = 9, []
    same = {"access_token": "APP_USR-access-1", "refresh_token": "TG-refresh-2"}
    issuer.trouble = [Response(200, {}, json.dumps(same).encode())] * 50

    outcomes = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(20)), return_exceptions=True)

    assert {AuthenticationFailed} == {type(outcome) for outcome in outcomes}
    assert 1 == len(issuer.renewals)


async def test_a_client_that_is_closed_takes_nobody_along(make_client, issuer, until) -> None:
    """Two clients can share a token: when the one that renews it is closed, the other asks for itself."""
    token = RefreshingToken(issuer.pair(expires_at=0.0))
    hold, honest = asyncio.Event(), issuer.renew

    async def slow(refresh_token: str) -> Response:
        issuer.renew = honest
        await hold.wait()
        return Response(429)  # It would be tried again, but for the end of the client.

    issuer.renew = slow
    one, other = (make_client(issuer, auth=token) for _ in range(2))
    first = asyncio.create_task(one.orders.get("ORD1"))
    await until(lambda: issuer.asked)
    second = asyncio.create_task(other.orders.get("ORD1"))
    for _ in range(10):
        await asyncio.sleep(0)

    closing = asyncio.create_task(one.aclose())
    await asyncio.sleep(0)
    hold.set()
    await closing

    assert "ORD1" == (await second).id
    with pytest.raises(ClientClosed):
        await first


def goes_on(self) -> None:
    """Send for a client that is closed."""


@pytest.mark.control("paymentsdk._engine.call.Call._ensure_open", goes_on, raises=pytest.fail.Exception)
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
    await until(lambda: client._settings.auth._asked)
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
    tasks = [asyncio.create_task(client.orders.get("ORD1")) for _ in range(100)]
    await until(lambda: issuer.asked)

    for task in tasks[::2]:
        task.cancel()
    orders = await asyncio.gather(*tasks[1::2])

    assert {"ORD1"} == {order.id for order in orders}
    assert all(task.cancelled() for task in tasks[::2])
    assert 1 == len(issuer.renewals)


@pytest.mark.parametrize("end", ["fails", "is cancelled"])
async def test_a_refresh_that_ends_with_nobody_waiting(issuer, until, caplog, end: str) -> None:
    """When all who waited are cancelled, a refresh that comes to nothing does so in silence."""
    auth, go_on = RefreshingToken(issuer.pair(expires_at=0.0)), asyncio.Event()

    async def exchange(refresh_token: str) -> TokenPair:
        await go_on.wait()
        raise NotSent("connection refused")

    waiting = asyncio.create_task(auth.renew(None, exchange, START))
    await until(lambda: auth._flight)
    waiting.cancel()
    await asyncio.wait([waiting])
    auth._flight.cancel() if end == "is cancelled" else go_on.set()
    await until(lambda: auth._flight is None)
    gc.collect()

    assert [] == caplog.records


async def test_a_refresh_that_nobody_waits_for_is_kept(signed_in, issuer, until) -> None:
    """When all who waited are cancelled, the new pair is not lost, and nobody complains about the task."""
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    task = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)

    task.cancel()
    await until(lambda: store._pair)

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert 1 == len(issuer.renewals)


async def test_a_call_that_is_late_takes_the_token_of_the_others(issuer) -> None:
    """A call that went out with the old token and comes back rejected, after the refresh, asks for none of its own."""
    auth, exchanged = RefreshingToken(issuer.pair()), []

    async def exchange(refresh_token: str) -> TokenPair:
        exchanged.append(refresh_token)
        return issuer.pair(2)

    tokens = [await auth.renew("APP_USR-access-1", exchange, START) for _ in range(2)]

    assert ["APP_USR-access-2"] * 2 == tokens
    assert ["TG-refresh-1"] == exchanged


async def test_a_second_rejection_is_final(signed_in, issuer) -> None:
    """A call is sent again once with a new token; if that is rejected as well, the rejection stands."""
    client = signed_in(issuer.pair())
    issuer.generation = 9
    issuer.renew = lambda refresh_token: Response(200, {}, b'{"access_token":"APP_USR-not-good-either"}')

    with pytest.raises(AuthenticationFailed) as refused:
        await client.orders.cancel("ORD1")

    assert 2 == refused.value.attempts == len(issuer.used)


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


@pytest.mark.parametrize("status", [400, 403, 404, 409, 429, 500, 503])
async def test_only_the_rejection_of_a_token_asks_for_another(signed_in, issuer, status: int) -> None:
    """Whatever else the platform says is not about the token: no grant is spent on it, and nothing is sent again."""
    client = signed_in(issuer.pair())
    issuer.generation, issuer.rejection = 2, Response(status)

    with pytest.raises(PaymentsError):
        await client.customers.create(CustomerRequest(email="ann@example.com"))

    assert ([], 1) == (issuer.renewals, len(issuer.used))


@pytest.mark.parametrize("rule", ["KEYED", "READ"])
async def test_the_table_says_whose_token_is_refreshed(signed_in, issuer, monkeypatch, rule: str) -> None:
    """The table of verdicts decides about a rejected token as about all else: with a stop there, no grant is spent."""
    from paymentsdk._operation.rules import TABLE, Failure, RetryClass, Verdict

    stopped = {RetryClass[rule]: {**TABLE[RetryClass[rule]], Failure.UNAUTHORIZED: Verdict.STOP}}
    monkeypatch.setattr("paymentsdk._engine.retry.TABLE", {**TABLE, **stopped})
    client = signed_in(issuer.pair())
    issuer.generation = 2
    calls = {"KEYED": client.orders.cancel, "READ": client.orders.get}

    with pytest.raises(AuthenticationFailed):
        await calls.pop(rule)("ORD1")
    assert [] == issuer.renewals

    issuer.renew = counted(issuer)
    assert ["ORD1"] == [(await call("ORD1")).id for call in calls.values()]


async def test_every_rejection_is_observed(signed_in, issuer) -> None:
    """An observer learns of the attempt that was rejected, and of the one with the new token."""
    seen = []
    client = signed_in(issuer.pair(), observer=seen.append)
    issuer.generation = 2
    issuer.renew = counted(issuer)

    await client.orders.get("ORD1")

    assert [("orders.get", 1, 401), ("orders.get", 2, 200)] == [
        (attempt.operation, attempt.number, attempt.status) for attempt in seen if attempt.operation == "orders.get"
    ]


@pytest.mark.parametrize(
    ("end", "numbers"), [("a new pair", [1, 2]), ("a spent grant", [1, 0]), ("a cancellation", [1])]
)
async def test_a_rejection_is_observed_when_it_comes(
    signed_in, issuer, clock, until, *, end: str, numbers: list[int]
) -> None:
    """An observer learns of a rejected token at once, not when it is refreshed, nor if there is no other."""
    seen, go_on, honest = [], asyncio.Event(), counted(issuer)

    async def slowly(refresh_token: str) -> Response:
        await go_on.wait()
        return honest(refresh_token) if end == "a new pair" else Response(400, {}, b'{"error":"invalid_grant"}')

    issuer.renew = slowly
    client = signed_in(issuer.pair(), observer=seen.append)
    issuer.generation = 2
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked == 2)
    clock.advance(20)
    if end == "a cancellation":
        call.cancel()
    go_on.set()
    await asyncio.wait([call])

    first, *others = [attempt for attempt in seen if attempt.operation == "orders.get"]
    assert (401, 0.0) == (first.status, first.elapsed)
    assert numbers == [first.number] + [attempt.number for attempt in others]
    # The attempt with the new token begins once there is one.
    assert {0.0 if end == "a new pair" else 20.0} >= {attempt.elapsed for attempt in others}


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


def test_closing_does_not_wait_for_a_refresh_of_a_loop_that_is_gone(make_client, issuer, until) -> None:
    """What was under way on a loop that has stopped never ends there: closing on another one does not hang."""
    client = make_client(issuer, auth=RefreshingToken(issuer.pair(expires_at=0.0)))

    async def give_up() -> None:
        call = asyncio.create_task(client.orders.get("ORD1"))
        await until(lambda: issuer.asked)
        call.cancel()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(give_up())
        second.run(asyncio.wait_for(client.aclose(), 5))

    assert "(closed)" in repr(client)


async def test_a_refresh_needs_the_application(make_client, issuer) -> None:
    """Without the application's id and secret there is no refresh, and the error says which setting is missing."""
    auth = RefreshingToken(issuer.pair(expires_at=0.0))
    client = make_client(issuer, auth=auth, client_id=None, client_secret=None)

    with pytest.raises(RequestInvalid, match="client_id"):
        await client.orders.get("ORD1")


# --- early refresh ----------------------------------------------------------------------------------------------------


async def test_a_token_is_refreshed_before_it_ends(signed_in, issuer, clock) -> None:
    """Ten minutes before its end a token is refreshed, so that no call has to be rejected first."""
    client = signed_in(issuer.pair(expires_at=START + 601))

    await client.orders.get("ORD1")
    assert [] == issuer.renewals
    clock.advance(1)
    await client.orders.get("ORD1")

    assert ["TG-refresh-1"] == issuer.renewals
    assert ["Bearer APP_USR-access-1", "Bearer APP_USR-access-2"] == issuer.used


@pytest.mark.control("paymentsdk._auth.refresh.early_pause", lambda left: 0.0)
@pytest.mark.parametrize(
    "trouble",
    [
        SendFailed("reset"),
        SendFailed("refused", sent=False),
        Response(503),
        Response(429),
        Response(400),
        Response(403),
    ],
)
async def test_an_early_refresh_that_fails_keeps_the_live_token(signed_in, issuer, clock, trouble: object) -> None:
    """The live token stays in use, and the next try is made a minute later, not with the next call."""
    issuer.trouble = [trouble] * 2
    client = signed_in(issuer.pair(expires_at=START + 300))

    await client.orders.get("ORD1")
    tries = len(issuer.renewals)
    await client.orders.get("ORD1")
    await client.orders.get("ORD1")

    assert 1 <= tries == len(issuer.renewals)
    issuer.trouble = []
    clock.advance(60)
    await client.orders.get("ORD1")
    assert ["Bearer APP_USR-access-1"] * 3 + ["Bearer APP_USR-access-2"] == issuer.used


async def test_an_early_refresh_holds_up_nobody_else(signed_in, issuer, clock, until) -> None:
    """While the token endpoint hangs, the call that asked it waits as long as an attempt may take; no other waits.

    All of them go out with the live token, and the pause before the next try begins when this one has ended.
    """
    hanging = asyncio.Event()

    async def hang(refresh_token: str) -> Response:
        issuer.renewals.append(refresh_token)
        await hanging.wait()
        return Response(503)

    issuer.renew = hang
    client = signed_in(issuer.pair(expires_at=START + 500), timeout=Timeout(total=100, attempt=30))
    first = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.renewals)

    await asyncio.gather(*(client.orders.get("ORD1") for _ in range(10)))
    assert 10 == len(issuer.used)
    clock.advance(30)
    assert "ORD1" == (await first).id
    hanging.set()
    await until(lambda: client._settings.auth._flight is None)
    clock.advance(100)
    await client.orders.get("ORD1")
    assert 1 == len(issuer.renewals)
    clock.advance(60)
    await client.orders.get("ORD1")
    assert 2 == len(issuer.renewals)
    assert {"Bearer APP_USR-access-1"} == set(issuer.used)


@pytest.mark.parametrize("end", ["an early one fails", "its client is closed"])
async def test_a_refresh_that_has_just_ended_is_not_waited_for(issuer, until, end: str) -> None:
    """Who is rejected in the very turn of the loop in which a refresh fails asks for one of their own."""
    token, asked, hold = RefreshingToken(issuer.pair(expires_at=START + 1)), [], asyncio.Event()

    async def exchange(refresh_token: str) -> TokenPair:
        asked.append(refresh_token)
        if len(asked) == 1:
            await hold.wait()
            raise NotSent("reset") if end == "an early one fails" else ClientClosed("the client is closed")
        return issuer.pair(2)

    async def refused() -> str | None:
        await hold.wait()
        return await token.renew("APP_USR-access-1", exchange, START)

    first = asyncio.create_task(token.renew(None, exchange, START))
    await until(lambda: asked)
    second = asyncio.create_task(refused())
    await asyncio.sleep(0)
    hold.set()
    await asyncio.wait((first, second))

    assert ("APP_USR-access-2", 2) == (await second, len(asked))


async def test_an_early_refresh_that_fails_is_logged(signed_in, issuer, caplog) -> None:
    """A person can repair a grant that is spent, or a store that fails, while the live token still works."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=START + 300))

    await client.orders.get("ORD1")

    assert "the access token could not be refreshed early: 400 invalid_grant" in caplog.text


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

    assert 3 == len(issuer.renewals)


async def test_a_refresh_that_failed_is_forgotten_with_its_token(signed_in, issuer, clock) -> None:
    """Once there is a new token, its own early refresh comes when it is due: a failure before it puts off nothing."""
    issuer.trouble = [SendFailed("refused", sent=False)]
    client = signed_in(issuer.pair(expires_at=START + 300))
    auth = client._settings.auth
    await client.orders.get("ORD1")
    assert "APP_USR-access-2" == await auth.renew("APP_USR-access-1", client._exchange, START)

    clock.advance(issuer.lifetime - 601)
    await client.orders.get("ORD1")
    clock.advance(1)
    await client.orders.get("ORD1")

    assert [f"Bearer APP_USR-access-{generation}" for generation in (1, 2, 3)] == issuer.used


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


async def test_an_early_refresh_is_no_response_to_a_rejection(signed_in, issuer) -> None:
    """A call that is rejected while an early refresh fails asks once more: what was kept is the rejected token."""
    client = signed_in(issuer.pair(expires_at=START + 300))
    auth, asked = client._settings.auth, []

    async def exchange(refresh_token: str) -> TokenPair:
        asked.append(refresh_token)
        await asyncio.sleep(0)
        if len(asked) == 1:
            raise NotSent("connection refused")
        return issuer.pair(2)

    early = asyncio.create_task(auth.renew(None, exchange, START))
    await asyncio.sleep(0)
    refused = asyncio.create_task(auth.renew("APP_USR-access-1", exchange, START))

    assert ["APP_USR-access-1", "APP_USR-access-2"] == await asyncio.gather(early, refused)


class Forgetful:
    """Loads, and cannot save."""

    async def load(self) -> None:
        """Have nothing."""


@pytest.mark.parametrize("store", [Forgetful(), MemoryTokenStore, "tokens.json"])
def test_a_store_that_cannot_keep_a_pair_is_rejected_before_it_is_needed(store: object) -> None:
    """Found after the exchange, it would cost the grant: the new pair would be nowhere."""
    with pytest.raises(RequestInvalid, match="store"):
        RefreshingToken(store=store)


class LocksWithAnAttribute(MemoryTokenStore):
    """Has a lock of another kind."""

    lock = asyncio.Lock()


class LocksWithACoroutine(MemoryTokenStore):
    """Has to be awaited."""

    async def lock(self) -> None:
        """Hold it."""


class LocksWithAGenerator(MemoryTokenStore):
    """Lacks its decorator."""

    async def lock(self) -> AsyncIterator[None]:
        """Hold it."""
        yield


@pytest.mark.parametrize("store", [LocksWithAnAttribute(), LocksWithACoroutine(), LocksWithAGenerator()])
def test_a_store_whose_lock_cannot_be_held_is_rejected_before_it_is_needed(store: MemoryTokenStore) -> None:
    """The lock is first asked for when the token has to be refreshed, which may be half a year later."""
    with pytest.raises(RequestInvalid, match=r"store: lock of Locks.* must return an asynchronous context manager"):
        RefreshingToken(store=store)


@pytest.mark.parametrize(
    "keep", [RefreshingToken, MemoryTokenStore, partial(RefreshingToken, store=MemoryTokenStore())]
)
@pytest.mark.parametrize(
    "pair", [Token(access_token="TEST-access", refresh_token=CANARY), CANARY, {"refresh_token": "TEST-refresh"}]
)
def test_what_is_no_pair_is_rejected_where_it_is_given(keep: Callable[[object], object], pair: object) -> None:
    """The response of the token endpoint is no pair yet: it does not know when it ends. The error shows none of it."""
    with pytest.raises(RequestInvalid, match="pair: must be a TokenPair") as refused:
        keep(pair)

    shown = traceback.TracebackException.from_exception(refused.value, capture_locals=True)
    ours = [frame.locals for frame in shown.stack if "paymentsdk" in frame.filename]
    assert CANARY not in f"{refused.value} {ours}"


@pytest.mark.parametrize("early", [-1, float("nan"), "600"])
def test_early_is_a_number_of_seconds(early: float) -> None:
    """`early` counts seconds before the end."""
    with pytest.raises(RequestInvalid, match="early"):
        RefreshingToken(early=early)


async def test_early_may_be_nothing(make_client, issuer, clock) -> None:
    """With `early=0` a token is used to its very end, and not after it."""
    auth = RefreshingToken(issuer.pair(expires_at=START + 10), early=0)
    client = make_client(issuer, auth=auth, retry=ONCE)

    for _ in range(2):
        await client.orders.get("ORD1")
        clock.advance(9.5)
    assert ["Bearer APP_USR-access-1", "Bearer APP_USR-access-1"] == issuer.used
    await client.orders.get("ORD1")

    assert "Bearer APP_USR-access-2" == issuer.used[-1]


# --- the end of a grant -----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._operation.error_response.TERMINAL", frozenset())
@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_a_spent_grant_is_remembered(signed_in, issuer, code: str) -> None:
    """After a terminal rejection every call fails at once, with an error of its own, and nothing is sent any more."""
    issuer.trouble = [Response(400, {}, f'{{"error":"{code}","message":"no"}}'.encode())]
    client = signed_in(issuer.pair(expires_at=0.0))

    errors = await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(3)), return_exceptions=True)
    errors += await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(2)), return_exceptions=True)

    assert [(ReauthorizationRequired, code)] * 5 == [(type(error), getattr(error, "code", None)) for error in errors]
    assert 5 == len(set(map(id, errors)))
    assert (1, []) == (len(issuer.renewals), issuer.used)


async def test_a_late_rejection_of_an_old_token_leaves_the_live_one(signed_in, issuer) -> None:
    """A call that went out with the token before comes back rejected: that says nothing of the live one."""
    issuer.generation = 2
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(2, expires_at=START + 300))
    await client.orders.get("ORD1")

    assert "APP_USR-access-2" == await client._settings.auth.renew("APP_USR-access-1", client._exchange, START)
    assert "ORD1" == (await client.orders.get("ORD1")).id


async def test_a_token_is_refreshed_once_in_a_call(signed_in, issuer) -> None:
    """A platform that rejects every token is asked for one more, not for one at each attempt."""
    steps = iter([Response(401), Response(503), Response(401)])

    async def platform(request) -> Response:
        return await Issuer.__call__(issuer, request) if "oauth" in request.url else next(steps)

    client = signed_in(issuer.pair(), retry=RetryPolicy(), transport=MemoryTransport(platform))

    with pytest.raises(AuthenticationFailed):
        await client.orders.get("ORD1")

    assert 1 == len(issuer.renewals)


@pytest.mark.parametrize(
    "response",
    [
        {"access_token": "APP_USR-access-2", "refresh_token": "TG-refresh-2", "expires_in": "100000"},
        {"access_token": "not a header", "refresh_token": "TG-refresh-2"},
        {"access_token": "APP_USR-access-2", "refresh_token": "TG-refresh-2", "expires_in": 10**400},
    ],
)
async def test_a_new_refresh_token_outlives_what_is_wrong_beside_it(signed_in, issuer, response: object) -> None:
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
    assert (1, 2) == (len(issuer.renewals), len(issuer.used))


async def test_a_spent_grant_whose_token_is_rejected(signed_in, issuer) -> None:
    """Once the live token of a spent grant is rejected, no further call goes out with it."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=START + 300))
    await client.orders.get("ORD1")
    issuer.generation = 9

    for _ in range(3):
        with pytest.raises(ReauthorizationRequired):
            await client.orders.get("ORD1")

    assert (1, 2) == (len(issuer.renewals), len(issuer.used))


async def test_a_rejection_that_is_not_terminal(signed_in, issuer) -> None:
    """After any other rejection of a refresh the next call tries again."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_scope"}')]
    client = signed_in(issuer.pair(expires_at=0.0))

    with pytest.raises(RefreshFailed, match="refreshed: 400 invalid_scope") as unsent:
        await client.orders.get("ORD1")
    await client.orders.get("ORD1")

    assert 0 == unsent.value.attempts


async def test_a_pair_keeps_its_refresh_token(make_client, clock) -> None:
    """A response without a new refresh token leaves the old one good; without a lifetime, nobody knows the end."""
    client = make_client(Response(200, {}, b'{"access_token":"APP_USR-new"}'))

    pair = await client._exchange("TG-refresh-1")

    assert TokenPair(access_token="APP_USR-new", refresh_token="TG-refresh-1", issued_at=START) == pair


# --- what the caller of a write learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [SendFailed("reset"), SendFailed("refused", sent=False), Response(503)])
async def test_a_refresh_without_a_response_is_not_the_writes(signed_in, issuer, trouble: object) -> None:
    """If no token is to be had, nothing of the write was sent: its outcome is known, whatever came of the refresh."""
    issuer.trouble = [trouble] * 9
    client = signed_in(issuer.pair(expires_at=0.0))

    with pytest.raises(RefreshFailed) as unsent:
        await client.orders.cancel("ORD1")

    assert ("orders.cancel", 0) == (unsent.value.operation, unsent.value.attempts)
    assert [] == issuer.used


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


@pytest.mark.parametrize("status", [400, 404, 409, 429])
async def test_the_rejection_of_a_refresh_is_not_that_of_the_request(signed_in, issuer, status: int) -> None:
    """A call that has no token was not sent: nobody settles a write, or misses an order, by what its refresh met."""
    issuer.trouble = [Response(status, {}, b'{"error":"invalid_request"}')] * 9
    client = signed_in(issuer.pair(expires_at=0.0))

    for call in (client.orders.cancel("ORD1", idempotency_key="kept"), client.orders.get("ORD1")):
        with pytest.raises(RefreshFailed, match=f"refreshed: {status} invalid_request"):
            await call

    assert [] == issuer.used


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


@pytest.mark.control("paymentsdk._engine.retry.History.age", lambda self, clock: 0.0, raises=pytest.fail.Exception)
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
