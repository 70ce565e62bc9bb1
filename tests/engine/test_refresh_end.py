"""The end of a grant, what the caller of a write learns of it, and a new pair that is saved before it is used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from paymentsdk import (
    AuthenticationFailed,
    FileTokenStore,
    MemoryTokenStore,
    OutcomeUnknown,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    Response,
    RetryPolicy,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import MemoryTransport
from tests.conftest import PATIENCE
from tests.engine.issuer import ORDER, START, Issuer, SlowStore, Unsure, counted

# --- the end of a grant -----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._contract.error_response.TERMINAL", frozenset())
async def test_a_spent_grant_is_remembered(signed_in, issuer) -> None:
    """After a terminal rejection every call fails at once, with an error of its own, and nothing is sent any more."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=0.0))

    errors = await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(3)), return_exceptions=True)
    errors += await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(2)), return_exceptions=True)

    assert [ReauthorizationRequired] * 5 == [type(error) for error in errors]
    assert 5 == len(set(map(id, errors)))
    assert (1, []) == (len(issuer.refreshes), issuer.used)


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


async def test_a_spent_grant_leaves_the_live_token(signed_in, issuer, clock, caplog) -> None:
    """A grant that is found spent early still has its live token: it is used until it ends, and the log says so."""
    issuer.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = signed_in(issuer.pair(expires_at=START + 300))

    await client.orders.get("ORD1")
    assert "the access token could not be refreshed early: 400 invalid_grant" in caplog.text
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


# --- a new pair is saved before it is used ----------------------------------------------------------------------------


def used_at_once(persist):
    """Let a pair be used while it is being saved."""

    async def use_and_save(self, new: TokenPair, now: float) -> TokenPair:
        store, self._store = self._store, MemoryTokenStore()
        await persist(self, new, now)
        self._store = store
        await store.save(new)
        return new

    return use_and_save


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._persist", around=used_at_once)
async def test_a_new_pair_is_saved_before_it_is_used(signed_in, issuer, until) -> None:
    """No request carries the new token before the store has it, not even one that is rejected in the meantime."""
    store = SlowStore(issuer)
    client = signed_in(issuer.pair(), store=store)
    await client.orders.get("ORD1")
    issuer.generation, issuer.renew = 2, counted(issuer)

    async def late() -> None:
        await until(lambda: issuer.refreshes)
        await asyncio.sleep(0)
        await client.orders.get("ORD1")

    await asyncio.gather(client.orders.get("ORD1"), late(), late())

    assert [("saved", 0)] == store.log
    assert 1 == len(issuer.refreshes)


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._persist", around=used_at_once)
@pytest.mark.parametrize(("expires_at", "held"), [(0.0, False), (None, True)])
async def test_a_store_that_fails_is_asked_again(signed_in, issuer, expires_at: float | None, held: bool) -> None:
    """A pair that could not be saved is not used and not lost: the next call saves it, and needs no other refresh.

    The pair before it, which the store still holds, is not what came after it.
    """
    store, pair = SlowStore(issuer, failures=1), issuer.pair(expires_at=expires_at)
    if held:
        await MemoryTokenStore.save(store, pair)
    client = signed_in(pair, store=store)
    if expires_at is None:
        issuer.generation, issuer.renew = 2, counted(issuer)

    with pytest.raises(RefreshFailed):
        await client.orders.cancel("ORD1")
    await client.orders.cancel("ORD1")

    assert [("failed", 0), ("saved", 0)] == store.log
    assert 1 == len(issuer.refreshes)


async def forgets(self, now: float) -> None:
    """Wait for nothing."""


async def begin_refresh(client, issuer: Issuer, until, wait: Callable[[], Awaitable[object]]) -> None:
    """Have the platform be asked for a pair by a call that then gives up, and respond after *wait*."""
    renew = issuer.renew

    async def slowly(refresh_token: str) -> Response:
        await wait()
        return renew(refresh_token)

    issuer.renew = slowly
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)
    call.cancel()


class Abrupt(MemoryTransport):
    """Ends what is in flight when it is closed."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__(issuer)
        self.cut = asyncio.Event()

    async def aclose(self) -> None:
        await super().aclose()
        self.cut.set()

    def ensure_whole(self) -> None:
        """Fail what is in flight once it is closed."""
        if self.cut.is_set():
            raise SendFailed("the transport was closed")


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_refresh_ends_before_its_client_after_any_cancellation(signed_in, issuer, until) -> None:
    """Closing that is cancelled, again and again as anyio does, ends as cancelled once the only pair is saved."""
    store, transport, response = MemoryTokenStore(), Abrupt(issuer), asyncio.Event()
    client = signed_in(issuer.pair(expires_at=0.0), store=store, transport=transport)

    async def until_told() -> None:
        await response.wait()
        transport.ensure_whole()

    await begin_refresh(client, issuer, until, until_told)

    closing = asyncio.create_task(client.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
        closing.cancel()
    response.set()
    with pytest.raises(asyncio.CancelledError):
        await closing

    await until(lambda: client._engine.settings.auth._flight is None)
    assert transport.closed
    assert "TG-refresh-2" == getattr(await store.load(), "refresh_token", None)


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_an_abandoned_pair_is_saved_in_the_end(signed_in, issuer) -> None:
    """A program that makes no further call loses no grant to a store that failed once: closing tries it again."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(expires_at=START + 300), store=store)
    issuer.rejection = ORDER  # The old token does as well.
    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    await client.aclose()

    assert [("failed", 0), ("saved", 0)] == store.log
    assert "TG-refresh-2" == (await store.load()).refresh_token


async def test_closing_does_not_wait_for_another_process(signed_in, issuer, path, monkeypatch, until) -> None:
    """One that hangs with the lock in its hand keeps no client from being closed; nothing is asked for after that."""
    monkeypatch.setattr("paymentsdk._auth.token_store.LOOK_AGAIN", 0)
    client, before = signed_in(issuer.pair(expires_at=0.0), store=FileTokenStore(path)), asyncio.all_tasks()
    async with FileTokenStore(path).lock():
        call = asyncio.create_task(client.orders.get("ORD1"))
        for _ in range(50):
            await asyncio.to_thread(int)  # The wait for the lock takes place in a thread.
        call.cancel()
        async with asyncio.timeout(PATIENCE):
            await client.aclose()
    await until(lambda: asyncio.all_tasks() <= before)

    assert [] == issuer.refreshes


# --- stores that fail -------------------------------------------------------------------------------------------------


@pytest.mark.control(
    "paymentsdk._auth.refresh.RefreshingToken._came_after", lambda self, *_: False, raises=ReauthorizationRequired
)
@pytest.mark.parametrize(("expires_at", "generation"), [(START, 4)])
async def test_a_pair_that_was_saved_all_the_same(signed_in, issuer, expires_at: float | None, generation: int) -> None:
    """A store that fails after it has saved does not make an old pair take the place of one that came after it.

    If that one has ended, it is refreshed in its turn.
    """
    store = Unsure()
    first, second = (signed_in(issuer.pair(), store=store) for _ in range(2))
    issuer.generation, issuer.used = 1, []
    for client in (first, second):
        await client.orders.get("ORD1")
    auth = first._engine.settings.auth
    auth._state = replace(auth._state, pair=issuer.pair(expires_at=0.0), stored=False)
    with pytest.raises(RefreshFailed):
        await first.orders.get("ORD1")  # Its new pair is in the store, and it does not know.
    issuer.renew("TG-refresh-2")
    await store.save(issuer.pair(3, expires_at))  # Another process has gone on from there.

    for _ in range(2):
        await first.orders.get("ORD1")

    assert f"APP_USR-access-{generation}" == (await store.load()).access_token
    assert [f"Bearer APP_USR-access-{generation}"] * 2 == issuer.used[-2:]
    assert [f"TG-refresh-{spent}" for spent in range(1, generation)] == issuer.refreshes


@pytest.mark.control("paymentsdk._auth.refresh.usable", lambda pair, rejected, now: pair.access_token != rejected)
async def test_a_rejected_token_is_not_given_to_anyone(signed_in, issuer) -> None:
    """While the new pair waits to be saved, a call that was rejected with a still older token saves it and takes it."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(), store=store)
    issuer.generation, issuer.renew = 2, counted(issuer)
    with pytest.raises(RefreshFailed):
        await client.orders.get("ORD1")

    token = await client._engine.settings.auth.renew("APP_USR-access-0", client._engine._exchange, START)

    assert "APP_USR-access-2" == token
    assert 1 == len(issuer.refreshes)
