"""Tokens: one renewal for all who need it, saved before it is used, and the truth when there is none."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import stat
import tempfile

import pytest

from paymentsdk import (
    AuthenticationFailed,
    BadRequest,
    ClientClosed,
    FileTokenStore,
    MemoryTokenStore,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    ReauthorizationRequired,
    RefreshingToken,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    StaticToken,
    Timeout,
    TokenPair,
)
from paymentsdk.testing import MemoryTransport

ORDER = Response(200, {}, b'{"id":"ORD1"}')
ONCE = RetryPolicy(attempts=1)
START = 1_700_000_000.0


class Issuer:
    """A platform whose access tokens can end, and whose refresh tokens are good for one use each."""

    def __init__(self) -> None:
        self.generation = 1
        self.renewals: list[str] = []
        self.used: list[str] = []
        self.asked = 0
        self.lifetime = 3600
        #: What the next renewals end in, in place of a new pair.
        self.trouble: list[Response | Exception] = []

    def pair(self, generation: int = 1, expires_at: float | None = None) -> TokenPair:
        """The pair of a generation."""
        return TokenPair(
            access_token=f"APP_USR-access-{generation}", refresh_token=f"TG-refresh-{generation}", expires_at=expires_at
        )

    async def __call__(self, request) -> Response:
        self.asked += 1
        await asyncio.sleep(0)
        if request.url.endswith("/oauth/token"):
            answer = self.renew(json.loads(request.body)["refresh_token"])
            return await answer if asyncio.iscoroutine(answer) else answer
        token = request.headers.get("Authorization", "")
        self.used.append(token)
        return ORDER if token == f"Bearer APP_USR-access-{self.generation}" else Response(401)

    def renew(self, refresh_token: str) -> Response:
        """Give a new pair for a refresh token that was not used before."""
        self.renewals.append(refresh_token)
        if self.trouble:
            end = self.trouble.pop(0)
            if isinstance(end, Exception):
                raise end
            return end
        if refresh_token != f"TG-refresh-{self.generation}":
            return Response(400, {}, b'{"error":"invalid_grant"}')
        self.generation += 1
        pair = self.pair(self.generation)
        body = {"access_token": pair.access_token, "refresh_token": pair.refresh_token, "expires_in": self.lifetime}
        return Response(200, {}, json.dumps(body).encode())


@pytest.fixture
def issuer() -> Issuer:
    """A platform that issues tokens."""
    return Issuer()


@pytest.fixture
def signed_in(make_client, issuer: Issuer):
    """Make a client of `issuer` with a token that can be renewed."""

    def signed_in(pair: TokenPair | None = None, **settings: object) -> PaymentsClient:
        settings.setdefault("retry", ONCE)
        store = settings.pop("store", None)
        return make_client(issuer, auth=RefreshingToken(pair, store=store), **settings)

    return signed_in


async def naive_renewal(self, rejected, exchange, now) -> str:
    """What everybody writes first."""
    self._pair = await exchange(self._pair.refresh_token)
    return self._pair.access_token


# --- one renewal for all ----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._core.auth.RefreshingToken.renew", naive_renewal, raises=ReauthorizationRequired)
async def test_a_thousand_refusals_are_one_renewal(signed_in, issuer) -> None:
    """However many calls are refused at the same moment, the platform is asked once, and all go on with its answer."""
    client = signed_in(issuer.pair())
    issuer.generation = 2
    issuer.renew = counted(issuer)

    orders = await asyncio.gather(*(client.orders.get("ORD1") for _ in range(1000)))

    assert 1000 == len(orders)
    assert 1 == len(issuer.renewals)


def counted(issuer: Issuer):
    """A renewal that takes the refresh token of the generation before, once."""

    def renew(refresh_token: str) -> Response:
        issuer.renewals.append(refresh_token)
        if len(issuer.renewals) > 1:
            return Response(400, {}, b'{"error":"invalid_grant"}')
        body = {"access_token": f"APP_USR-access-{issuer.generation}", "refresh_token": "TG-refresh-next"}
        return Response(200, {}, json.dumps(body).encode())

    return renew


@pytest.mark.control("asyncio.shield", lambda arg: arg, raises=asyncio.CancelledError)
async def test_a_cancelled_waiter_does_not_take_the_renewal_with_it(signed_in, issuer, until) -> None:
    """Whoever is cancelled while it waits, even the first, the renewal goes on for the others."""
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
async def test_a_renewal_that_ends_with_nobody_waiting(issuer, until, caplog, end: str) -> None:
    """When all who waited are cancelled, a renewal that comes to nothing does so in silence."""
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


async def test_a_renewal_that_nobody_waits_for_is_kept(signed_in, issuer, until) -> None:
    """When all who waited are cancelled, the new pair is not lost, and nobody complains about the task."""
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    task = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)

    task.cancel()
    await until(lambda: store._pair)

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert 1 == len(issuer.renewals)


async def test_a_call_that_is_late_takes_the_token_of_the_others(signed_in, issuer, make_client) -> None:
    """A call that went out with the old token and comes back refused, after the renewal, asks for none of its own."""
    client = signed_in(issuer.pair())
    auth = client._settings.auth
    await client.orders.get("ORD1")
    issuer.generation = 2
    auth._pair = issuer.pair(2)

    assert "APP_USR-access-2" == await auth.renew("APP_USR-access-1", naive_renewal, START)
    assert [] == issuer.renewals


async def test_a_second_refusal_is_final(signed_in, issuer) -> None:
    """A call is sent again once with a new token; if that is refused as well, the refusal stands."""
    client = signed_in(issuer.pair())
    issuer.generation = 9
    issuer.renew = lambda refresh_token: Response(200, {}, b'{"access_token":"APP_USR-not-good-either"}')

    with pytest.raises(AuthenticationFailed) as refused:
        await client.orders.cancel("ORD1")

    assert 2 == refused.value.attempts == len(issuer.used)


async def test_every_refusal_is_observed(signed_in, issuer) -> None:
    """An observer learns of the attempt that was refused, and of the one with the new token."""
    seen = []
    client = signed_in(issuer.pair(), observer=seen.append)
    issuer.generation = 2
    issuer.renew = counted(issuer)

    await client.orders.get("ORD1")

    assert [("orders.get", 1, 401), ("orders.get", 2, 200)] == [
        (attempt.operation, attempt.number, attempt.status) for attempt in seen if attempt.operation == "orders.get"
    ]


# --- early renewal ----------------------------------------------------------------------------------------------------


async def test_a_token_is_renewed_before_it_ends(signed_in, issuer, clock) -> None:
    """Ten minutes before its end a token is renewed, so that no call has to be refused first."""
    client = signed_in(issuer.pair(expires_at=START + 601))

    await client.orders.get("ORD1")
    assert [] == issuer.renewals
    clock.advance(1)
    await client.orders.get("ORD1")

    assert ["TG-refresh-1"] == issuer.renewals
    assert ["Bearer APP_USR-access-1", "Bearer APP_USR-access-2"] == issuer.used


@pytest.mark.control("paymentsdk._core.auth.EARLY_PAUSE", 0.0)
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
async def test_an_early_renewal_that_fails_keeps_the_live_token(signed_in, issuer, clock, trouble: object) -> None:
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


async def test_an_early_renewal_holds_up_nobody_else(signed_in, issuer, clock, until) -> None:
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


async def test_an_early_renewal_that_fails_is_logged(signed_in, issuer, caplog) -> None:
    """A person can mend a grant that is spent, or a store that fails, while the live token still works."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=START + 300))

    await client.orders.get("ORD1")

    assert "the access token could not be renewed early: 400 invalid_grant" in caplog.text


async def test_a_short_lived_token_is_not_renewed_at_every_call(signed_in, issuer, clock) -> None:
    """A token that lives shorter than `early` is renewed at the half of its life, and in any case at its end."""
    client = signed_in(issuer.pair(expires_at=0.0))
    issuer.lifetime = 300

    for _ in range(3):
        await client.orders.get("ORD1")
        await client.orders.get("ORD1")
        clock.advance(149)
        await client.orders.get("ORD1")
        clock.advance(1)

    assert 3 == len(issuer.renewals)


async def test_an_ended_token_is_not_used(signed_in, issuer, clock) -> None:
    """A failed early renewal is left alone for a minute, but not beyond the end of the live token."""
    issuer.trouble = [SendFailed("refused", sent=False)]
    client = signed_in(issuer.pair(expires_at=START + 30))

    await client.orders.get("ORD1")
    clock.advance(30)
    await client.orders.get("ORD1")

    assert ["Bearer APP_USR-access-1", "Bearer APP_USR-access-2"] == issuer.used


async def test_a_live_token_without_a_refresh_token_is_used_to_its_end(signed_in, issuer, clock) -> None:
    """A token that cannot be renewed is no worse for ending soon."""
    client = signed_in(TokenPair(access_token="APP_USR-access-1", expires_at=START + 300))

    await client.orders.get("ORD1")
    clock.advance(300)

    with pytest.raises(ReauthorizationRequired, match="no refresh token"):
        await client.orders.get("ORD1")
    assert 1 == len(issuer.used)


async def test_an_early_renewal_is_no_answer_to_a_refusal(signed_in, issuer) -> None:
    """A call that is refused while an early renewal fails asks once more: what was kept is the refused token."""
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


# --- the end of a grant -----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._core.refusal.TERMINAL", frozenset())
@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_a_spent_grant_is_remembered(signed_in, issuer, code: str) -> None:
    """After a terminal refusal every call fails at once, with an error of its own, and nothing is sent any more."""
    issuer.trouble = [Response(400, {}, f'{{"error":"{code}","message":"no"}}'.encode())]
    client = signed_in(issuer.pair(expires_at=0.0))

    errors = await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(3)), return_exceptions=True)
    errors += await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(2)), return_exceptions=True)

    assert [(ReauthorizationRequired, code)] * 5 == [(type(error), getattr(error, "code", None)) for error in errors]
    assert 5 == len(set(map(id, errors)))
    assert (1, []) == (len(issuer.renewals), issuer.used)


async def test_a_late_refusal_of_an_old_token_leaves_the_live_one(signed_in, issuer) -> None:
    """A call that went out with the token before comes back refused: that says nothing of the live one."""
    issuer.generation = 2
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(2, expires_at=START + 300))
    await client.orders.get("ORD1")

    assert "APP_USR-access-2" == await client._settings.auth.renew("APP_USR-access-1", client._exchange, START)
    assert "ORD1" == (await client.orders.get("ORD1")).id


async def test_a_token_is_renewed_once_in_a_call(signed_in, issuer) -> None:
    """A platform that refuses every token is asked for one more, not for one at each attempt."""
    steps = iter([Response(401), Response(503), Response(401)])

    async def platform(request) -> Response:
        return await Issuer.__call__(issuer, request) if "oauth" in request.url else next(steps)

    client = signed_in(issuer.pair(), retry=RetryPolicy(), transport=MemoryTransport(platform))

    with pytest.raises(AuthenticationFailed):
        await client.orders.get("ORD1")

    assert 1 == len(issuer.renewals)


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": "APP_USR-access-2", "refresh_token": "TG-refresh-2", "expires_in": "100000"},
        {"access_token": "not a header", "refresh_token": "TG-refresh-2"},
    ],
)
async def test_a_new_refresh_token_outlives_what_is_wrong_beside_it(signed_in, issuer, answer: object) -> None:
    """The refresh token before is spent: the new one is kept, whatever the rest of the answer looks like."""
    issuer.trouble = [Response(200, {}, json.dumps(answer).encode())]
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


async def test_a_spent_grant_whose_token_is_refused(signed_in, issuer) -> None:
    """Once the live token of a spent grant is refused, no further call goes out with it."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=START + 300))
    await client.orders.get("ORD1")
    issuer.generation = 9

    for _ in range(3):
        with pytest.raises(ReauthorizationRequired):
            await client.orders.get("ORD1")

    assert (1, 2) == (len(issuer.renewals), len(issuer.used))


async def test_a_refusal_that_is_not_terminal(signed_in, issuer) -> None:
    """Any other refusal of a renewal is raised, and the next call tries again."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_scope"}')]
    client = signed_in(issuer.pair(expires_at=0.0))

    with pytest.raises(BadRequest) as refused:
        await client.orders.get("ORD1")
    await client.orders.get("ORD1")

    assert ("invalid_scope", 0) == (refused.value.code, refused.value.attempts)


# --- what the caller of a write learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [SendFailed("reset"), SendFailed("refused", sent=False), Response(503)])
async def test_a_renewal_without_an_answer_is_not_the_writes(signed_in, issuer, trouble: object) -> None:
    """If no token is to be had, nothing of the write was sent: its outcome is known, whatever came of the renewal."""
    issuer.trouble = [trouble] * 9
    client = signed_in(issuer.pair(expires_at=0.0))

    with pytest.raises(NotSent, match="no token") as unsent:
        await client.orders.cancel("ORD1")

    assert ("orders.cancel", 0) == (unsent.value.operation, unsent.value.attempts)
    assert [] == issuer.used


@pytest.mark.parametrize("trouble", [SendFailed("reset"), Response(503), Response(400)])
async def test_a_refusal_stands_when_the_token_cannot_be_renewed(signed_in, issuer, trouble, caplog) -> None:
    """A write that was refused for its token was refused: that is what is raised when there is no other token.

    Why there is none stands in the log.
    """
    issuer.trouble = [trouble] * 9
    client = signed_in(issuer.pair())
    issuer.generation = 2

    with pytest.raises(AuthenticationFailed) as refused:
        await client.orders.cancel("ORD1")

    assert 1 == refused.value.attempts
    [warned] = [record for record in caplog.records if "orders.cancel" in record.message]
    assert ("WARNING", True) == (warned.levelname, "no token: " in warned.message)
    assert "orders.cancel" == warned.payments_operation


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


# --- saved before it is used ------------------------------------------------------------------------------------------


class SlowStore(MemoryTokenStore):
    """Saves in its own time, and fails as often as it is told to."""

    def __init__(self, issuer: Issuer, failures: int = 0) -> None:
        super().__init__()
        self.issuer = issuer
        self.failures = failures
        self.log: list[tuple[str, int]] = []

    async def save(self, pair: TokenPair) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        new = sum("access-2" in token for token in self.issuer.used)
        if self.failures:
            self.failures -= 1
            self.log.append(("failed", new))
            raise OSError("no space left on device")
        self.log.append(("saved", new))
        await super().save(pair)


async def used_at_once(self, pair: TokenPair, now: float) -> TokenPair:
    """Let a pair be used while it is being saved."""
    self._pair, self._unsaved = pair, None
    await self._store.save(pair)
    return pair


@pytest.mark.control("paymentsdk._core.auth.RefreshingToken._keep", used_at_once)
async def test_a_new_pair_is_saved_before_it_is_used(signed_in, issuer, until) -> None:
    """No request carries the new token before the store has it, not even one that is refused in the meantime."""
    store = SlowStore(issuer)
    client = signed_in(issuer.pair(), store=store)
    await client.orders.get("ORD1")
    issuer.generation, issuer.renew = 2, counted(issuer)

    async def late() -> None:
        await until(lambda: issuer.renewals)
        await asyncio.sleep(0)
        await client.orders.get("ORD1")

    await asyncio.gather(client.orders.get("ORD1"), late(), late())

    assert [("saved", 0)] == store.log
    assert 1 == len(issuer.renewals)


async def test_whoever_is_refused_while_a_pair_is_saved_waits_for_it(issuer, until) -> None:
    """A call that was out with the old token gets the new one when the store has it, and not before."""
    store = SlowStore(issuer)
    auth = RefreshingToken(issuer.pair(), store=store)

    async def exchange(refresh_token: str) -> TokenPair:
        return issuer.pair(2)

    first = asyncio.create_task(auth.renew("APP_USR-access-1", exchange, START))
    await until(lambda: auth._unsaved)

    assert "APP_USR-access-2" == await auth.renew("APP_USR-access-1", exchange, START)
    assert [("saved", 0)] == store.log
    await first


@pytest.mark.control("paymentsdk._core.auth.RefreshingToken._keep", used_at_once)
@pytest.mark.parametrize("expires_at", [0.0, None])
async def test_a_store_that_fails_is_asked_again(signed_in, issuer, expires_at: float | None) -> None:
    """A pair that could not be saved is not used and not lost: the next call saves it, and needs no other renewal."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(expires_at=expires_at), store=store)
    if expires_at is None:
        issuer.generation, issuer.renew = 2, counted(issuer)

    with pytest.raises((NotSent, AuthenticationFailed)):
        await client.orders.cancel("ORD1")
    await client.orders.cancel("ORD1")

    assert [("failed", 0), ("saved", 0)] == store.log
    assert 1 == len(issuer.renewals)


@pytest.mark.control("paymentsdk._core.auth._alive", lambda pair, now: True)
async def test_a_refused_token_is_not_given_to_anyone(signed_in, issuer) -> None:
    """While the new pair waits to be saved, a call that was refused with a still older token saves it and takes it."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(), store=store)
    issuer.generation, issuer.renew = 2, counted(issuer)
    with pytest.raises(AuthenticationFailed):
        await client.orders.get("ORD1")

    token = await client._settings.auth.renew("APP_USR-access-0", client._exchange, START)

    assert "APP_USR-access-2" == token
    assert 1 == len(issuer.renewals)


async def test_a_store_that_fails_does_not_hide_a_doubt(make_client, issuer) -> None:
    """A write in doubt stays in doubt when the token store fails: the caller gets the key, not the store's error."""
    steps = iter([SendFailed("reset")])

    async def platform(request) -> Response:
        for step in steps:
            raise step
        return await issuer(request)

    auth = RefreshingToken(issuer.pair(), store=SlowStore(issuer, failures=9))
    issuer.generation = 9
    issuer.renew = counted(issuer)
    client = make_client(platform, auth=auth)

    with pytest.raises(OutcomeUnknown) as unknown:
        await client.orders.cancel("ORD1")

    assert unknown.value.idempotency_key


@pytest.mark.parametrize(
    ("failures", "trouble", "asked", "saved"),
    [(9, [], 1, 1), (0, [Response(503)] * 9, 2, 0), (0, [SendFailed("refused", sent=False)] * 9, 4, 0)],
)
async def test_what_gets_no_token_is_not_tried_again(
    make_client, issuer, *, failures: int, trouble: list[object], asked: int, saved: int
) -> None:
    """A renewal has attempts of its own: when they are over, those of the call that waited for it are as well."""
    issuer.trouble = trouble
    store = SlowStore(issuer, failures=failures)
    auth = RefreshingToken(issuer.pair(expires_at=0.0), store=store)

    with pytest.raises(NotSent, match="no token"):
        await make_client(issuer, auth=auth).orders.cancel("ORD1")

    assert (asked, saved) == (issuer.asked, len(store.log))


async def test_the_error_of_a_store_is_named(signed_in, issuer) -> None:
    """The kind of the store's error is told, and its place; its text is not: nobody knows what is in it."""
    client = signed_in(issuer.pair(expires_at=0.0), store=SlowStore(issuer, failures=1))

    with pytest.raises(NotSent, match=r"no token: OSError \(test_auth.py:[0-9]+ in save\)\Z"):
        await client.orders.cancel("ORD1")


# --- what other processes saved ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved_until", [None, START + 3600])
@pytest.mark.parametrize("expires_at", [None, START + 300])
async def test_a_pair_that_another_process_saved_is_taken_over(
    signed_in, issuer, expires_at: float | None, saved_until: float | None
) -> None:
    """On a refusal, and before an early renewal, a later pair in the store is used: it has the live refresh token."""
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=expires_at), store=store)
    issuer.generation = 2
    await store.save(issuer.pair(2, expires_at=saved_until))

    await client.orders.get("ORD1")

    assert [] == issuer.renewals
    assert "Bearer APP_USR-access-2" == issuer.used[-1]


async def test_who_comes_second_takes_the_pair_of_the_first(make_client, issuer, clock) -> None:
    """Two processes renew at once: the second finds its refresh token spent, and the new pair in the store."""
    store = MemoryTokenStore(issuer.pair(expires_at=START - 1))
    clients = [
        make_client(issuer, auth=RefreshingToken(issuer.pair(expires_at=START - 1), store=store)) for _ in range(2)
    ]

    orders = await asyncio.gather(*(client.orders.get("ORD1") for client in clients))

    assert ["ORD1", "ORD1"] == [order.id for order in orders]
    assert ["TG-refresh-1", "TG-refresh-1"] == issuer.renewals
    assert {"Bearer APP_USR-access-2"} == set(issuer.used)


async def test_the_pair_of_the_program_is_the_last_resort(signed_in, issuer) -> None:
    """Where nobody can tell which pair is later, the one that gave way to a spent one of the store is not lost."""
    issuer.generation = 5
    store = MemoryTokenStore(issuer.pair(4, expires_at=START + 9999))
    client = signed_in(TokenPair(access_token="APP_USR-ended", refresh_token="TG-refresh-5"), store=store)

    with pytest.raises(AuthenticationFailed):
        await client.orders.get("ORD1")
    await client.orders.get("ORD1")

    assert ["TG-refresh-4", "TG-refresh-5"] == issuer.renewals
    assert "Bearer APP_USR-access-6" == issuer.used[-1]


async def test_a_person_who_authorises_anew_needs_no_restart(signed_in, issuer) -> None:
    """A spent grant is not asked for again, but the store is: a new pair in it is taken as soon as it is there."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    store = MemoryTokenStore()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    for _ in range(2):
        with pytest.raises(ReauthorizationRequired):
            await client.orders.get("ORD1")

    issuer.generation = 7
    await store.save(issuer.pair(7, expires_at=START + 3600))

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert 1 == len(issuer.renewals)


async def test_a_renewed_pair_goes_to_a_file(make_client, issuer, tmp_path) -> None:
    """What a client obtained can be written by the store that comes with it, and read by the next process."""
    path = tmp_path / "tokens.json"
    auth = RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path))

    await make_client(issuer, auth=auth).orders.get("ORD1")
    again = make_client(issuer, auth=RefreshingToken(store=FileTokenStore(path)))

    assert "ORD1" == (await again.orders.get("ORD1")).id
    assert ["TG-refresh-1"] == issuer.renewals
    assert issuer.pair(2, expires_at=START + 3600) == await FileTokenStore(path).load()


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


@pytest.mark.parametrize("ended_at", [START - 1, START])
async def test_a_pair_of_the_store_that_has_ended_is_renewed(signed_in, issuer, ended_at: float) -> None:
    """With no pair to begin with, the store's is taken; if it has ended, it is renewed."""
    store = MemoryTokenStore(issuer.pair(expires_at=ended_at))

    await signed_in(store=store).orders.get("ORD1")

    assert ["TG-refresh-1"] == issuer.renewals


async def test_an_older_pair_of_the_store_is_left(signed_in, issuer) -> None:
    """A pair that ends before the one in use is a left-over: to use its spent refresh token would end the grant."""
    issuer.generation = 2
    store = MemoryTokenStore(issuer.pair(1, expires_at=START - 9999))
    client = signed_in(issuer.pair(2, expires_at=START - 1), store=store)

    await client.orders.get("ORD1")

    assert ["TG-refresh-2"] == issuer.renewals


async def test_nothing_in_the_store(signed_in, issuer) -> None:
    """With no pair at all a person has to authorise; once the store has a pair, calls go on."""
    store = MemoryTokenStore()
    client = signed_in(store=store)

    with pytest.raises(ReauthorizationRequired) as refused:
        await client.orders.get("ORD1")
    await store.save(issuer.pair())

    assert (401, "invalid_token") == (refused.value.status, refused.value.code)
    assert "ORD1" == (await client.orders.get("ORD1")).id


async def test_a_pair_keeps_its_refresh_token(make_client, clock) -> None:
    """An answer without a new refresh token leaves the old one good; without a lifetime, nobody knows the end."""
    client = make_client(Response(200, {}, b'{"access_token":"APP_USR-new"}'))

    pair = await client._exchange("TG-refresh-1")

    assert TokenPair(access_token="APP_USR-new", refresh_token="TG-refresh-1") == pair


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
    auth = Vault("APP_USR-access-1", KeyError("the lease has expired: s3cr3t"))

    played = await play("orders.cancel", SendFailed("reset"), auth=auth, access_token=None)

    assert played.is_unknown()
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("no token: KeyError (test_auth.py:")


@pytest.mark.parametrize("token", [b"APP_USR-access-1", "two words", "", "line\r\nX-Evil: 1"])
async def test_a_token_that_is_none_is_not_sent(play, token: object) -> None:
    """What a source gives is looked at before it gets into a header, each time that it is another."""
    played = await play("orders.cancel", ORDER, auth=Vault(token), access_token=None)

    assert (RequestInvalid, "access_token", []) == (type(played.error), played.error.path, played.requests)


# --- other sources ----------------------------------------------------------------------------------------------------


async def test_a_static_token_is_final(play) -> None:
    """A token for ever cannot be renewed: its first refusal is the last."""
    played = await play("orders.get", Response(401))

    assert (1, AuthenticationFailed) == (len(played.requests), type(played.error))


async def test_without_a_token_nothing_is_sent(play) -> None:
    """A client without a token refuses every call but those that obtain one."""
    refused = await play("orders.get", ORDER, access_token=None)
    obtained = await play("oauth.exchange_code", Response(200, {}, b'{"access_token":"a-token"}'), access_token=None)

    assert ("access_token", []) == (refused.error.path, refused.requests)
    assert RequestInvalid is type(refused.error)
    assert "Authorization" not in obtained.requests[0].headers


async def test_one_pool_many_sellers(make_client) -> None:
    """A copy with another seller's token shares the connections, and nothing else: each call carries its own token."""
    transport = MemoryTransport(lambda request: ORDER)
    client = make_client(transport=transport)
    sellers = [client.with_options(access_token=f"APP_USR-seller-{number}") for number in range(20)]

    await asyncio.gather(*(seller.orders.get("ORD1") for seller in sellers))

    assert {f"Bearer APP_USR-seller-{number}" for number in range(20)} == {
        request.headers["Authorization"] for request in transport.requests
    }
    assert all(seller._shared is client._shared for seller in sellers)


async def test_a_source_of_ones_own(make_client) -> None:
    """Any object with the two methods will do; one that has no token sends none."""

    class Nobody:
        def token(self, now):
            return None

        async def renew(self, rejected, exchange, now):
            return None

    transport = MemoryTransport([Response(401)])
    client = make_client(transport=transport, auth=Nobody())

    with pytest.raises(AuthenticationFailed):
        await client.orders.get("ORD1")
    assert "Authorization" not in transport.requests[0].headers


@pytest.mark.parametrize("token", ["", "two words", "line\nfeed", "ünicode", None, 5])
def test_a_token_that_cannot_stand_in_a_header(token: object) -> None:
    """A token that would break its header is refused where it is given."""
    with pytest.raises(RequestInvalid, match="visible ASCII"):
        StaticToken(token)


def test_every_visible_character_can_stand_in_a_token() -> None:
    """A token may have any character that a header can have: none is refused for being odd."""
    visible = "".join(map(chr, range(33, 127)))

    assert visible == StaticToken(visible).token(START)


@pytest.mark.parametrize("early", [-1, float("nan")])
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


async def test_a_renewal_needs_the_application(make_client, issuer) -> None:
    """Without the application's id and secret there is no renewal, and the error says which setting is missing."""
    auth = RefreshingToken(issuer.pair(expires_at=0.0))
    client = make_client(issuer, auth=auth, client_id=None, client_secret=None)

    with pytest.raises(RequestInvalid, match="client_id"):
        await client.orders.get("ORD1")


# --- the file store ---------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    """Where the pair is kept."""
    return tmp_path / "tokens.json"


async def test_a_file_keeps_a_pair(path, issuer) -> None:
    """What was saved last is what is loaded; before that there is nothing."""
    store = FileTokenStore(path)

    assert await store.load() is None
    await store.save(issuer.pair(1))
    await store.save(issuer.pair(2, expires_at=5.5))

    assert issuer.pair(2, expires_at=5.5) == await FileTokenStore(str(path)).load()
    assert [path] == list(path.parent.iterdir())


async def test_only_the_owner_can_read_the_file(path, issuer) -> None:
    """The file has mode 0600, whatever the umask is and whatever it was before."""
    path.write_text("{}")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        await FileTokenStore(path).save(issuer.pair())
    finally:
        os.umask(before)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


async def test_a_pair_is_written_beside_the_old_one(path, issuer, monkeypatch) -> None:
    """No other folder is used, as it may be of another disk, from which nothing is moved in one step."""
    monkeypatch.setattr(tempfile, "tempdir", str(path / "nowhere"))

    await FileTokenStore(path).save(issuer.pair())

    assert issuer.pair() == await FileTokenStore(path).load()


async def test_a_pair_is_on_the_disk_before_it_counts(path, issuer, monkeypatch) -> None:
    """All of it is forced to the disk before it takes the place of the old one, and after that the folder is."""
    steps, fsync, replace = [], os.fsync, os.replace

    def forced(descriptor: int) -> None:
        fsync(descriptor)
        steps.append(os.fstat(descriptor).st_size)

    def replaced(*given: object) -> None:
        replace(*given)
        steps.append("replaced")

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(os, "replace", replaced)
    await FileTokenStore(path).save(issuer.pair())

    assert [path.stat().st_size, "replaced", path.parent.stat().st_size] == steps


@pytest.mark.parametrize("broken", ["fsync", "replace"])
async def test_a_crash_leaves_the_old_pair(path, issuer, monkeypatch, broken: str) -> None:
    """A pair that could not be written whole replaces nothing and leaves nothing behind."""
    store = FileTokenStore(path)
    await store.save(issuer.pair(1))

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="disk full"):
        await store.save(issuer.pair(2))

    assert issuer.pair(1) == await store.load()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize(
    "garbage", [b"", b"{}", b"[", b"\xff\xfe", b'{"access_token":"\xff"}', b'{"access_token":5}', b"[" * 100_000]
)
async def test_garbage_in_the_file(path, issuer, caplog, garbage: bytes) -> None:
    """A file that holds no pair counts as none, with a warning that names it; the next save makes it good."""
    store = FileTokenStore(path)
    path.write_bytes(garbage)

    assert await store.load() is None
    assert [str(path)] == [str(record.args[0]) for record in caplog.records]
    await store.save(issuer.pair())
    assert issuer.pair() == await store.load()
