"""A token that is rejected or has ended: one refresh for all who need another, and the truth when there is none."""

from __future__ import annotations

import asyncio
import gc
import json
import traceback
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from paymentsdk import (
    AuthenticationFailed,
    BadRequest,
    ClientClosed,
    MemoryTokenStore,
    NotSent,
    PaymentsError,
    ReauthorizationRequired,
    RefreshingToken,
    RequestInvalid,
    Response,
    TokenPair,
)
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.oauth import Token
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from tests.engine.issuer import START, counted
from tests.observing import of_attempts

CANARY = "TEST-refresh-canary"


async def naive_refresh(self, rejected, exchange, now) -> str:
    """What everybody writes first."""
    self._state = replace(self._state, pair=await exchange(self._state.pair.refresh_token))
    return self._state.pair.access_token


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.renew", naive_refresh, raises=ReauthorizationRequired)
async def test_a_thousand_rejections_are_one_refresh(signed_in, issuer) -> None:
    """However many calls are rejected at the same moment, the platform is asked once, and all use its response."""
    client = signed_in(issuer.pair())
    issuer.generation = 2
    issuer.renew = counted(issuer)

    orders = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(1000)))

    assert 1000 == len(orders)
    assert 1 == len(issuer.refreshes)


async def test_a_refresh_that_fails_is_one_failure_for_all(issuer) -> None:
    """All who waited for it learn of it, each by an error of its own; none of them asks the platform once more."""
    auth, requests = RefreshingToken(issuer.pair(expires_at=0.0)), []

    async def exchange(refresh_token: str) -> TokenPair:
        requests.append(refresh_token)
        await asyncio.sleep(0)
        raise NotSent("connection refused")

    failures = await asyncio.gather(*(auth.renew(None, exchange, START) for _ in range(20)), return_exceptions=True)

    assert ({NotSent}, 20) == ({type(failure) for failure in failures}, len({id(failure) for failure in failures}))
    assert ["TG-refresh-1"] == requests


async def test_a_token_that_stays_the_same_is_refreshed_once(signed_in, issuer) -> None:
    """A platform that gives the rejected token again is not asked by each call in turn: each costs a refresh token."""
    client = signed_in(issuer.pair())
    issuer.generation, issuer.used = 9, []
    same = {"access_token": "APP_USR-access-1", "refresh_token": "TG-refresh-2"}
    issuer.trouble = [Response(200, {}, json.dumps(same).encode())] * 50

    outcomes = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(20)), return_exceptions=True)

    assert {AuthenticationFailed} == {type(outcome) for outcome in outcomes}
    assert 1 == len(issuer.refreshes)


async def test_closing_a_client_does_not_cancel_other_callers(make_client, issuer, until) -> None:
    """Two clients can share a token: when the one that renews it is closed, the other asks for itself."""
    token = RefreshingToken(issuer.pair(expires_at=0.0))
    hold, honest = asyncio.Event(), issuer.renew

    async def slow(refresh_token: str) -> Response:
        issuer.renew = honest
        await hold.wait()
        return Response(429)  # It would be tried again, but for the end of the client.

    issuer.renew = slow
    closed, living = (make_client(issuer, auth=token) for _ in range(2))
    first = asyncio.create_task(closed.orders.get("ORD1"))
    await until(lambda: issuer.asked)
    second = asyncio.create_task(living.orders.get("ORD1"))
    for _ in range(10):
        await asyncio.sleep(0)

    closing = asyncio.create_task(closed.aclose())
    await asyncio.sleep(0)
    hold.set()
    await closing

    assert "ORD1" == (await second).id
    with pytest.raises(ClientClosed):
        await first


def of_anybody(original):
    """Drain as if each refresh was the closing client's own."""
    return lambda tokens, asking, clock, grace: original(tokens, [*map(id, tokens)], clock, grace)


@pytest.mark.control("paymentsdk.client.drain", around=of_anybody, raises=ClientClosed)
@pytest.mark.parametrize("grace", [0.0, 5.0])
async def test_a_client_that_is_closed_ends_no_refresh_of_another(
    make_client, issuer, clock, until, grace: float
) -> None:
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

    closing = asyncio.create_task(closed.aclose(grace=grace))
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance(grace)
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
    tasks = [asyncio.create_task(client.orders.get("ORD1")) for _ in range(100)]
    await until(lambda: issuer.asked)

    for task in tasks[::2]:
        task.cancel()
    orders = await asyncio.gather(*tasks[1::2])

    assert {"ORD1"} == {order.id for order in orders}
    assert all(task.cancelled() for task in tasks[::2])
    assert 1 == len(issuer.refreshes)


@pytest.mark.parametrize("end", ["fails", "is cancelled"])
async def test_a_refresh_that_ends_without_waiters(issuer, until, caplog, end: str) -> None:
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


async def test_a_refresh_cancelled_before_it_begins_is_started_again(issuer) -> None:
    """Whoever cancels every task of a program that goes on leaves no token that cannot be refreshed any more."""
    auth = RefreshingToken(issuer.pair(expires_at=0.0))

    async def exchange(refresh_token: str) -> TokenPair:
        return issuer.pair(2)

    first = asyncio.create_task(auth.renew(None, exchange, START))
    await asyncio.sleep(0)
    auth._flight.cancel()
    await asyncio.wait([first])

    assert first.cancelled()
    assert "APP_USR-access-2" == await auth.renew(None, exchange, START)


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._flight_done", lambda self, flight: None)
async def test_a_refresh_that_is_cancelled_before_it_begins_leaves_the_token_due(issuer) -> None:
    """A live token is due for its early refresh again: else that would not come before the token has ended."""
    auth = RefreshingToken(issuer.pair(expires_at=START + 300))

    first = asyncio.create_task(auth.renew(None, issuer.renew, START))
    await asyncio.sleep(0)
    auth._flight.cancel()
    await asyncio.wait([first])

    assert auth.token(START) is None


def test_a_refresh_of_a_closed_loop_is_not_joined(issuer) -> None:
    """When it is thrown away at last, whoever comes next still joins the new one: a refresh token is good for one."""
    auth, requests = RefreshingToken(issuer.pair(expires_at=0.0)), list[str]()

    async def exchange(refresh_token: str) -> TokenPair:
        requests.append(refresh_token)
        await asyncio.sleep(0.01)
        return issuer.pair(2)

    async def begin() -> asyncio.Task[str | None]:
        waiting = asyncio.create_task(auth.renew(None, exchange, START))
        for _ in range(3):
            await asyncio.sleep(0)
        return waiting

    async def begin_anew() -> None:
        first = await begin()
        thrown_away.close()
        await asyncio.gather(first, auth.renew(None, exchange, START))

    gone = asyncio.new_event_loop()
    waiting = gone.run_until_complete(begin())
    gone.close()
    flight = auth._flight
    thrown_away = flight.get_coro()  # As the garbage collector does.
    asyncio.run(begin_anew())
    waiting.get_coro().close()

    assert ["TG-refresh-1"] * 2 == requests
    for task in (waiting, flight):
        task._log_destroy_pending = False


async def test_a_refresh_without_waiters_is_kept(signed_in, issuer, until) -> None:
    """When all who waited are cancelled, the new pair is not lost, and nobody complains about the task."""
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    task = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)

    task.cancel()
    await until(lambda: store._pair)

    assert "ORD1" == (await client.orders.get("ORD1")).id
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

    assert ([], 1) == (issuer.refreshes, len(issuer.used))


async def test_every_rejection_is_observed(signed_in, issuer) -> None:
    """An observer learns of the attempt that was rejected, and of the one with the new token."""
    attempts = []
    client = signed_in(issuer.pair(), observers=of_attempts(attempts.append))
    issuer.generation = 2
    issuer.renew = counted(issuer)

    await client.orders.get("ORD1")

    assert [("orders.get", 1, 401), ("orders.get", 2, 200)] == [
        (attempt.operation, attempt.number, attempt.status) for attempt in attempts if attempt.operation == "orders.get"
    ]


@pytest.mark.parametrize(
    ("end", "numbers"), [("a new pair", [1, 2]), ("a spent grant", [1, 0]), ("a cancellation", [1])]
)
async def test_a_rejection_is_observed_when_it_comes(
    signed_in, issuer, clock, until, *, end: str, numbers: list[int]
) -> None:
    """An observer learns of a rejected token at once, not when it is refreshed, nor if there is no other."""
    attempts, go_on, honest = [], asyncio.Event(), counted(issuer)

    async def slowly(refresh_token: str) -> Response:
        await go_on.wait()
        return honest(refresh_token) if end == "a new pair" else Response(400, {}, b'{"error":"invalid_grant"}')

    issuer.renew = slowly
    client = signed_in(issuer.pair(), observers=of_attempts(attempts.append))
    issuer.generation = 2
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked == 2)
    clock.advance(20)
    if end == "a cancellation":
        call.cancel()
    go_on.set()
    await asyncio.wait([call])

    first, *later = [attempt for attempt in attempts if attempt.operation == "orders.get"]
    assert (401, 0.0) == (first.status, first.elapsed)
    assert numbers == [first.number] + [attempt.number for attempt in later]
    # The attempt with the new token begins once there is one.
    assert {0.0 if end == "a new pair" else 20.0} >= {attempt.elapsed for attempt in later}


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


class Forgetful:
    """Loads, and cannot save."""

    async def load(self) -> None:
        """Have nothing."""


@pytest.mark.parametrize("store", [Forgetful(), MemoryTokenStore, "tokens.json"])
def test_a_store_that_cannot_keep_a_pair_is_rejected_before_it_is_needed(store: object) -> None:
    """Found after the exchange, it would cost the grant: the new pair would be nowhere."""
    with pytest.raises(RequestInvalid, match="store"):
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

    report = traceback.TracebackException.from_exception(refused.value, capture_locals=True)
    ours = [frame.locals for frame in report.stack if "paymentsdk" in frame.filename]
    assert CANARY not in f"{refused.value} {ours}"
