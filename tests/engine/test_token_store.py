"""Where tokens are kept: saved before they are used, shared with other processes, and whole whatever happens."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from paymentsdk import (
    AuthenticationFailed,
    FileTokenStore,
    MemoryTokenStore,
    OutcomeUnknown,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    RequestInvalid,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk.resources.oauth import Token
from paymentsdk.testing import MemoryTransport
from tests.engine.issuer import ONCE, ORDER, START, Issuer, counted


@pytest.fixture
def path(tmp_path):
    """Where the pair is kept."""
    return tmp_path / "tokens.json"


# --- saved before it is used ------------------------------------------------------------------------------------------


class SlowStore(MemoryTokenStore):
    """Saves in its own time, and fails as often as it is told to."""

    def __init__(self, issuer: Issuer, failures: int = 0) -> None:
        super().__init__()
        self.issuer = issuer
        self.failures = failures
        self.log: list[tuple[str, int]] = []
        self.saving = False

    async def save(self, pair: TokenPair) -> None:
        self.saving = True
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
    from paymentsdk._auth.token_state import Active

    self._state = Active(pair)
    await self._store.save(pair)
    return pair


async def test_a_store_that_is_empty_is_a_store() -> None:
    """A store may be a collection, and empty: the new pair is kept there, and not in the memory of this process."""

    class Kept(list[TokenPair]):
        async def load(self) -> TokenPair | None:
            return self[-1] if self else None

        async def save(self, pair: TokenPair) -> None:
            self.append(pair)

    store, new = Kept(), TokenPair(access_token="access-2", refresh_token="refresh-2")

    async def exchange(refresh_token: str) -> TokenPair:
        return new

    old = TokenPair(access_token="access-1", refresh_token="refresh-1", expires_at=START)
    token = RefreshingToken(old, store=store)

    assert "access-2" == await token.renew(None, exchange, START)
    assert [new] == store


async def only_awaits(given: object) -> object:
    """Wait also for what nobody can wait for."""
    return await given


@pytest.mark.control("paymentsdk._auth.refresh._awaited", only_awaits, raises=RefreshFailed)
async def test_a_store_of_plain_methods_loses_no_pair(signed_in, issuer) -> None:
    """What a method that is not async has saved is saved: its call goes on with it, and the grant is spent once."""

    class Plain:
        kept: TokenPair | None = None

        async def load(self) -> TokenPair | None:
            return self.kept

        def save(self, pair: TokenPair) -> None:
            self.kept = pair

    store = Plain()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert ["TG-refresh-1"] == issuer.renewals
    assert "APP_USR-access-2" == store.kept.access_token


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._persist", used_at_once)
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
    await until(lambda: store.saving)

    assert "APP_USR-access-2" == await auth.renew("APP_USR-access-1", exchange, START)
    assert [("saved", 0)] == store.log
    await first


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._persist", used_at_once)
@pytest.mark.parametrize("expires_at", [0.0, None])
@pytest.mark.parametrize("held", [False, True])
async def test_a_store_that_fails_is_asked_again(signed_in, issuer, expires_at: float | None, held: bool) -> None:
    """A pair that could not be saved is not used and not lost: the next call saves it, and needs no other renewal.

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
    assert 1 == len(issuer.renewals)


async def forgets(self, now: float) -> None:
    """Wait for nothing."""


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_pair_is_saved_before_its_client_is_closed(signed_in, issuer, until) -> None:
    """Whoever gives up a call and ends the program loses no grant: closing the client waits for the store."""
    store = SlowStore(issuer)
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.renewals)
    call.cancel()

    await client.aclose()
    saved = list(store.log)
    await until(lambda: store.log)

    assert [("saved", 0)] == saved


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_pair_that_is_on_its_way_is_saved_before_its_client_is_closed(signed_in, issuer, until) -> None:
    """Once the platform was asked, the refresh token is spent: closing waits for the answer as well."""
    store, answer = SlowStore(issuer), asyncio.Event()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    renew = issuer.renew

    async def slowly(refresh_token: str) -> Response:
        await answer.wait()
        return renew(refresh_token)

    issuer.renew = slowly
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)
    call.cancel()

    closing = asyncio.create_task(client.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
    answer.set()
    await closing
    saved = list(store.log)
    await until(lambda: store.log)

    assert [("saved", 0)] == saved


class Abrupt(MemoryTransport):
    """Ends what is in flight when it is closed."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__(issuer)
        self.cut = asyncio.Event()

    async def aclose(self) -> None:
        await super().aclose()
        self.cut.set()


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_renewal_ends_before_its_transport_is_closed(signed_in, issuer, until) -> None:
    """A transport that gives requests in flight no time does not take away the answer with the only pair that works."""
    store, transport, renew = MemoryTokenStore(), Abrupt(issuer), issuer.renew
    client = signed_in(issuer.pair(expires_at=0.0), store=store, transport=transport)

    async def slowly(refresh_token: str) -> Response:
        for _ in range(50):
            await asyncio.sleep(0)
        if transport.cut.is_set():
            raise SendFailed("the transport was closed")
        return renew(refresh_token)

    issuer.renew = slowly
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)
    call.cancel()

    await client.aclose()
    await until(lambda: client._settings.auth._flight is None)

    assert transport.closed
    assert "TG-refresh-2" == getattr(await store.load(), "refresh_token", None)


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_renewal_ends_before_its_client_whoever_loses_patience(signed_in, issuer, until) -> None:
    """Closing that is cancelled, again and again as anyio does, ends as cancelled once the only pair is saved."""
    store, transport, answer, renew = MemoryTokenStore(), Abrupt(issuer), asyncio.Event(), issuer.renew
    client = signed_in(issuer.pair(expires_at=0.0), store=store, transport=transport)

    async def slowly(refresh_token: str) -> Response:
        await answer.wait()
        if transport.cut.is_set():
            raise SendFailed("the transport was closed")
        return renew(refresh_token)

    issuer.renew = slowly
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.asked)
    call.cancel()

    closing = asyncio.create_task(client.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
        closing.cancel()
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await closing

    await until(lambda: client._settings.auth._flight is None)
    assert transport.closed
    assert "TG-refresh-2" == getattr(await store.load(), "refresh_token", None)


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_pair_that_is_saved_at_last_is_waited_for(signed_in, issuer, until) -> None:
    """One that the store could not keep at first is saved by the next call: closing waits for that one, too."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    with pytest.raises(RefreshFailed):
        await client.orders.cancel("ORD1")
    call = asyncio.create_task(client.orders.cancel("ORD1"))
    await until(lambda: client._settings.auth._flight)
    call.cancel()

    await client.aclose()
    saved = list(store.log)
    await until(lambda: len(store.log) > 1)

    assert [("failed", 0), ("saved", 0)] == saved


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
@pytest.mark.parametrize("expires_at", [START + 300, 0.0])
async def test_a_pair_that_nobody_saves_any_more_is_saved_in_the_end(signed_in, issuer, expires_at: float) -> None:
    """A program that makes no further call loses no grant to a store that failed once: closing tries it again."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(expires_at=expires_at), store=store)
    issuer.refusal = ORDER  # The old token does as well.
    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    await client.aclose()

    assert [("failed", 0), ("saved", 0)] == store.log
    assert "TG-refresh-2" == (await store.load()).refresh_token


async def test_a_pair_that_is_saved_in_the_end_is_as_new_as_any(make_client, issuer) -> None:
    """A client that goes on with the same token renews it no sooner because another one has saved it as it closed."""
    issuer.lifetime = 300
    auth = RefreshingToken(issuer.pair(expires_at=0.0), store=SlowStore(issuer, failures=1))
    one, other = (make_client(issuer, auth=auth, retry=ONCE) for _ in range(2))
    with pytest.raises(RefreshFailed):
        await one.orders.get("ORD1")

    await one.aclose()
    await other.orders.get("ORD1")

    assert ["TG-refresh-1"] == issuer.renewals


async def test_a_pair_that_cannot_be_saved_in_the_end(signed_in, issuer, caplog) -> None:
    """A store that fails in the end as well keeps no client from being closed: the log has a warning."""
    store = SlowStore(issuer, failures=9)
    client = signed_in(issuer.pair(expires_at=START + 300), store=store)
    issuer.refusal = ORDER
    await client.orders.get("ORD1")
    caplog.clear()

    await client.aclose()

    assert [("failed", 0)] * 2 == store.log
    assert "a new token pair could not be saved" in caplog.text


@pytest.mark.parametrize("expires_at", [START + 9000, 0.0])
async def test_closing_asks_for_no_pair(signed_in, issuer, expires_at: float) -> None:
    """A pair that came after the one that could not be saved stays in the store, and nothing is asked for."""
    store = Unsure()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)
    await store.save(issuer.pair(3, expires_at))  # Another process has gone on from there.

    await client.aclose()

    assert issuer.pair(3, expires_at) == await store.load()
    assert 1 == len(issuer.renewals)


@pytest.mark.parametrize("renewals", [0, 1], ids=["first-renewal", "second-renewal"])
async def test_closing_does_not_wait_for_another_process(
    signed_in, issuer, path, monkeypatch, until, *, renewals: int
) -> None:
    """One that hangs with the lock in its hand keeps no client from being closed; nothing is asked for after that."""
    monkeypatch.setattr("paymentsdk._auth.token_store._LOOK_AGAIN", 0)
    client = signed_in(issuer.pair(expires_at=0.0), store=FileTokenStore(path))
    token = client._settings.auth
    if renewals:
        await client.orders.get("ORD1")
        issuer.generation += 1  # The new token is refused as well.

    async with FileTokenStore(path).lock():
        call = asyncio.create_task(client.orders.get("ORD1"))
        await until(lambda: token._flight is not None)
        call.cancel()
        async with asyncio.timeout(1):
            await client.aclose()
    await until(lambda: token._flight is None)

    assert renewals == len(issuer.renewals)


class Unsure(MemoryTokenStore):
    """Saves, and fails to say so as often as it is told to."""

    failures = 1

    async def save(self, pair: TokenPair) -> None:
        await super().save(pair)
        if self.failures:
            self.failures -= 1
            raise ConnectionError


def none(grant, stored: TokenPair, rejected: str | None):
    """Find nothing that came after."""
    return grant


@pytest.mark.control("paymentsdk._auth.refresh.after_reading", none, raises=ReauthorizationRequired)
@pytest.mark.parametrize(("expires_at", "generation"), [(None, 3), (START, 4)])
async def test_a_pair_that_was_saved_all_the_same(signed_in, issuer, expires_at: float | None, generation: int) -> None:
    """A store that fails after it has saved does not make an old pair take the place of one that came after it.

    If that one has ended, it is renewed in its turn.
    """
    from paymentsdk._auth.token_state import Active

    store = Unsure()
    one, other = (signed_in(issuer.pair(), store=store) for _ in range(2))
    issuer.generation, issuer.used = 1, []
    for client in (one, other):
        await client.orders.get("ORD1")
    one._settings.auth._state = Active(issuer.pair(expires_at=0.0))
    with pytest.raises(RefreshFailed):
        await one.orders.get("ORD1")  # Its new pair is in the store, and it does not know.
    issuer.renew("TG-refresh-2")
    await store.save(issuer.pair(3, expires_at))  # Another process has gone on from there.

    for _ in range(2):
        await one.orders.get("ORD1")

    assert f"APP_USR-access-{generation}" == (await store.load()).access_token
    assert [f"Bearer APP_USR-access-{generation}"] * 2 == issuer.used[-2:]
    assert [f"TG-refresh-{spent}" for spent in range(1, generation)] == issuer.renewals


@pytest.mark.parametrize(("rejected", "ends"), [("APP_USR-access-3", None), (None, START)])
async def test_a_pair_that_came_after_is_renewed_if_it_cannot_be_used(signed_in, issuer, rejected, ends) -> None:
    """If it is the very one that was refused, or has ended, its refresh token gets the next one, which is saved."""
    store = Unsure(issuer.pair())
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    with pytest.raises(RefreshFailed):
        await client.orders.get("ORD1")  # Its new pair waits to be saved.
    issuer.renew("TG-refresh-2")
    await store.save(issuer.pair(3, expires_at=ends))  # Another process has gone on from there.

    token = await client._settings.auth.renew(rejected, client._exchange, START)

    assert "APP_USR-access-4" == token == (await store.load()).access_token
    assert ["TG-refresh-1", "TG-refresh-2", "TG-refresh-3"] == issuer.renewals


@pytest.mark.control("paymentsdk._auth.token_state.alive", lambda pair, now: True)
async def test_a_refused_token_is_not_given_to_anyone(signed_in, issuer) -> None:
    """While the new pair waits to be saved, a call that was refused with a still older token saves it and takes it."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(), store=store)
    issuer.generation, issuer.renew = 2, counted(issuer)
    with pytest.raises(RefreshFailed):
        await client.orders.get("ORD1")

    token = await client._settings.auth.renew("APP_USR-access-0", client._exchange, START)

    assert "APP_USR-access-2" == token
    assert 1 == len(issuer.renewals)


def forgetting(after_reading):
    """Know nothing of what the store had before."""
    from paymentsdk._auth.token_state import PendingSave

    def forgotten(grant, stored: TokenPair, rejected: str | None):
        waits = isinstance(grant, PendingSave)
        return after_reading(PendingSave(grant.pair, grant.new) if waits else grant, stored, rejected)

    return forgotten


@pytest.mark.control("paymentsdk._auth.refresh.after_reading", around=forgetting)
@pytest.mark.parametrize("ends", [START - 9999, START + 60])
async def test_a_pair_that_was_left_did_not_come_after(signed_in, issuer, ends: float) -> None:
    """While a new pair waits to be saved, an old one that the store had before is a left-over as ever.

    To send its spent refresh token would end the grant; and nobody would save the new pair if that one took its place.
    """
    issuer.generation = 2
    store = SlowStore(issuer, failures=1)
    await MemoryTokenStore.save(store, issuer.pair(1, ends))
    client = signed_in(issuer.pair(2, START + 3600), store=store)
    auth = client._settings.auth
    with pytest.raises(OSError, match="no space left"):
        await auth.renew("APP_USR-access-2", client._exchange, START)

    await auth.drain(START)

    assert ["TG-refresh-2"] == issuer.renewals
    assert "TG-refresh-3" == (await store.load()).refresh_token


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

    with pytest.raises(RefreshFailed, match="could not be refreshed"):
        await make_client(issuer, auth=auth).orders.cancel("ORD1")

    assert (asked, saved) == (issuer.asked, len(store.log))


async def test_the_error_of_a_store_is_named(signed_in, issuer) -> None:
    """The kind of the store's error is told, and its place; its text is not: nobody knows what is in it."""
    client = signed_in(issuer.pair(expires_at=0.0), store=SlowStore(issuer, failures=1))

    with pytest.raises(RefreshFailed, match=r"refreshed: OSError \(test_token_store.py:[0-9]+ in save\); nothing"):
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


async def test_a_renewed_pair_goes_to_a_file(make_client, issuer, path) -> None:
    """What a client obtained can be written by the store that comes with it, and read by the next process."""
    auth = RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path))

    await make_client(issuer, auth=auth).orders.get("ORD1")
    again = make_client(issuer, auth=RefreshingToken(store=FileTokenStore(path)))

    assert "ORD1" == (await again.orders.get("ORD1")).id
    assert ["TG-refresh-1"] == issuer.renewals
    assert structs.replace(issuer.pair(2, START + 3600), issued_at=START) == await FileTokenStore(path).load()


@pytest.mark.parametrize("ended_at", [START - 1, START])
async def test_a_pair_of_the_store_that_has_ended_is_renewed(signed_in, issuer, ended_at: float) -> None:
    """With no pair to begin with, the store's is taken; if it has ended, it is renewed."""
    store = MemoryTokenStore(issuer.pair(expires_at=ended_at))

    await signed_in(store=store).orders.get("ORD1")

    assert ["TG-refresh-1"] == issuer.renewals


@pytest.mark.parametrize(("own", "other", "in_use"), [(START - 1, START - 2, 3), (START + 3600, START + 60, 2)])
async def test_any_other_pair_is_better_than_a_spent_one(
    signed_in, issuer, *, own: float, other: float, in_use: int
) -> None:
    """Another process has renewed for a shorter time: who finds the own refresh token spent goes on with that pair."""
    issuer.generation = 2
    store = MemoryTokenStore(issuer.pair(2, expires_at=other))
    client = signed_in(issuer.pair(1, expires_at=own), store=store)

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert f"Bearer APP_USR-access-{in_use}" == issuer.used[-1]


async def test_a_spent_grant_beside_a_spent_one(signed_in, issuer) -> None:
    """When the other pair of the store is spent as well, each is asked for once, and a person has to authorise."""
    issuer.generation = 9
    store = MemoryTokenStore(issuer.pair(1, expires_at=START - 9999))
    client = signed_in(issuer.pair(2, expires_at=START - 1), store=store)

    for _ in range(3):
        with pytest.raises(ReauthorizationRequired):
            await client.orders.get("ORD1")

    assert {"TG-refresh-1", "TG-refresh-2"} == set(issuer.renewals)
    assert len(issuer.renewals) <= 3


async def test_nothing_in_the_store(signed_in, issuer) -> None:
    """With no pair at all a person has to authorise; once the store has a pair, calls go on."""
    store = MemoryTokenStore()
    client = signed_in(store=store)

    with pytest.raises(ReauthorizationRequired) as refused:
        await client.orders.get("ORD1")
    await store.save(issuer.pair())

    assert (401, "invalid_token") == (refused.value.status, refused.value.code)
    assert "ORD1" == (await client.orders.get("ORD1")).id


# --- processes that wait for each other -------------------------------------------------------------------------------


@pytest.mark.control(
    "paymentsdk._auth.token_store._lock", lambda handle: True, raises=(AssertionError, ReauthorizationRequired)
)
async def test_processes_that_share_a_file_renew_one_after_the_other(
    make_client, issuer, path, monkeypatch, until
) -> None:
    """While one asks for a new pair the others wait, and then use its pair: no refresh token is sent twice."""
    monkeypatch.setattr("paymentsdk._auth.token_store._LOOK_AGAIN", 0)
    old, honest, hold = issuer.pair(expires_at=START - 1), issuer.renew, asyncio.Event()

    async def slow(refresh_token: str) -> Response:
        await hold.wait()
        return honest(refresh_token)

    issuer.renew = slow
    stores = [FileTokenStore(path) for _ in range(3)]
    await stores[0].save(old)
    clients = [make_client(issuer, auth=RefreshingToken(old, store=store)) for store in stores]
    calls = [asyncio.create_task(client.orders.get("ORD1")) for client in clients]
    await until(lambda: issuer.asked)
    for _ in range(50):
        await asyncio.sleep(0)
    asked = issuer.asked
    hold.set()
    orders = await asyncio.gather(*calls)

    assert 1 == asked
    assert ["ORD1"] * 3 == [order.id for order in orders]
    assert ["TG-refresh-1"] == issuer.renewals


async def test_a_renewal_that_fails_lets_the_next_one_try(make_client, issuer, path) -> None:
    """Whatever comes of a renewal, the file is free again after it."""
    issuer.trouble = [Response(429)]
    auth = RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path))
    client = make_client(issuer, auth=auth, retry=ONCE)
    with pytest.raises(RefreshFailed):
        await client.orders.get("ORD1")

    async with asyncio.timeout(10):
        await wait_for(FileTokenStore(path))


async def test_a_file_in_a_folder_that_is_not_there(make_client, issuer, path) -> None:
    """The error names the file, and nothing was spent: once the folder is there, the client goes on."""
    auth = RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path.parent / "missing" / path.name))
    client = make_client(issuer, auth=auth)

    with pytest.raises(
        RefreshFailed, match=r"refreshed: FileNotFoundError '.*missing.*': No such file or directory \(token_store.py:"
    ):
        await client.orders.get("ORD1")
    assert [] == issuer.renewals

    (path.parent / "missing").mkdir()
    assert "ORD1" == (await client.orders.get("ORD1")).id


async def test_a_process_that_was_stopped_stops_the_others_for_so_long(make_client, issuer, path, monkeypatch) -> None:
    """Who holds the lock for ever keeps calls from their token, and no client from being closed."""
    monkeypatch.setattr("paymentsdk._auth.token_store.LONGEST_LOCK", 0)
    client = make_client(issuer, auth=RefreshingToken(issuer.pair(expires_at=START - 1), store=FileTokenStore(path)))

    async with FileTokenStore(path).lock():
        with pytest.raises(RefreshFailed, match="refreshed: TimeoutError"):
            await client.orders.get("ORD1")
        await client.aclose()

    assert [] == issuer.renewals


async def test_who_begins_with_a_live_pair_waits_for_nobody(make_client, issuer, path) -> None:
    """A program that starts takes the token that is in the file, also while another one renews it."""
    await FileTokenStore(path).save(issuer.pair(expires_at=START + 3600))
    client = make_client(issuer, auth=RefreshingToken(store=FileTokenStore(path)))

    async with FileTokenStore(path).lock(), asyncio.timeout(10):
        assert "ORD1" == (await client.orders.get("ORD1")).id

    assert [] == issuer.renewals


class WholeDatabase(MemoryTokenStore):
    """A store that nobody can read while somebody else has its lock, nor before the lock has connected it."""

    connected = False

    async def load(self) -> TokenPair | None:
        if not self.connected:
            raise OSError("the database is locked")
        return await super().load()

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        self.connected = True
        yield
        self.connected = False


@pytest.mark.parametrize("ends", [START + 3600, START - 1])
async def test_a_store_that_cannot_be_read_without_its_lock_is_read_with_it(make_client, issuer, ends: float) -> None:
    """The pair that a program begins with is taken in turn where it can be had in no other way."""
    client = make_client(issuer, auth=RefreshingToken(store=WholeDatabase(issuer.pair(expires_at=ends))))

    assert "ORD1" == (await client.orders.get("ORD1")).id

    assert (["TG-refresh-1"] if ends < START else []) == issuer.renewals


async def wait_for(store: FileTokenStore) -> None:
    """Have the lock for a moment."""
    async with store.lock():
        pass


async def test_who_gives_up_waiting_for_the_lock(path) -> None:
    """A task that is cancelled while it waits for its turn holds nothing afterwards."""
    store = FileTokenStore(path)

    async with store.lock():
        waiter = asyncio.create_task(wait_for(store))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    async with asyncio.timeout(10):
        await wait_for(store)


_LOCKER = """
import asyncio, sys
from paymentsdk import FileTokenStore

async def main():
    async with FileTokenStore(sys.argv[1]).lock():
        print("locked", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


async def test_the_lock_of_a_process_that_dies_is_gone_with_it(path, monkeypatch) -> None:
    """A worker that is killed in the middle of a renewal stops no other one."""
    monkeypatch.setattr("paymentsdk._auth.token_store._LOOK_AGAIN", 0)
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", _LOCKER, path, stdin=pipe, stdout=pipe)
    assert b"locked\n" == await worker.stdout.readline()
    waiter = asyncio.create_task(wait_for(FileTokenStore(path)))
    for _ in range(50):
        await asyncio.sleep(0)
    waited = not waiter.done()
    worker.kill()
    async with asyncio.timeout(10):
        await waiter
        await worker.wait()

    assert waited


async def test_a_lock_leaves_no_file_open(path) -> None:
    """A process that renews for months does not run out of files."""

    def lowest_free() -> int:
        descriptor = os.dup(0)
        os.close(descriptor)
        return descriptor

    free = lowest_free()
    async with FileTokenStore(path).lock():
        assert free < lowest_free()

    assert free == lowest_free()


@pytest.fixture
def forked(path, monkeypatch):
    """The file of the lock as a forked child has it open: by a descriptor of its own, but the same file."""
    inherited = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: os.dup(inherited))
        yield patch
    os.close(inherited)


def is_free(path) -> bool:
    """Whether another process could lock the file now."""
    from paymentsdk._auth.token_store import _lock

    other = os.open(f"{path}.lock", os.O_RDWR)
    try:
        return _lock(other)
    finally:
        os.close(other)


@pytest.mark.control("paymentsdk._auth.token_store._unlock", lambda handle: None)
async def test_a_child_does_not_keep_the_lock(path, forked) -> None:
    """One that was forked in the middle of a renewal, and lives on, holds up nobody when that has ended."""
    await wait_for(FileTokenStore(path))
    forked.undo()

    assert is_free(path)


async def test_a_child_does_not_take_the_lock_away(path, forked) -> None:
    """One that was forked in the middle of a renewal, and ends before that, leaves the lock to its parent."""
    async with FileTokenStore(path).lock():
        forked.setattr(os, "getpid", lambda: 0)
    forked.undo()

    assert not is_free(path)


async def test_the_file_is_locked_to_be_written(path, monkeypatch) -> None:
    """Where a lock is one on the bytes of the file, as on NFS, nobody can lock what is open to be read."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", fcntl.lockf)

    await wait_for(FileTokenStore(path))


async def test_nobody_else_can_hold_the_lock(path) -> None:
    """The file beside the pair is its owner's alone, too: who could lock it could stop every renewal."""
    async with FileTokenStore(path).lock():
        assert 0o600 == stat.S_IMODE((path.parent / f"{path.name}.lock").stat().st_mode)


# --- the file store ---------------------------------------------------------------------------------------------------


async def test_a_file_keeps_a_pair(path, issuer) -> None:
    """What was saved last is what is loaded; before that there is nothing."""
    store = FileTokenStore(path)

    assert await store.load() is None
    await store.save(issuer.pair(1))
    await store.save(issuer.pair(2, expires_at=5.5))

    assert issuer.pair(2, expires_at=5.5) == await FileTokenStore(str(path)).load()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.control("paymentsdk._auth.token_store._is_unfinished", lambda name, of: False)
async def test_what_a_process_left_that_died_is_removed(path, issuer) -> None:
    """Tokens that were being written when a process died do not stay in the folder; those being written now do."""
    dead, living, other = (
        path.with_name(name) for name in (".tokens.json.abcd1234", ".tokens.json.efgh5678", ".tokens.json.backup")
    )
    alike = path.with_name("orders-of-january.csv")  # A name of the same length, and nobody's token.
    for file in (dead, living, other, alike):
        file.write_bytes(b"{")
    for file in (dead, other, alike):
        os.utime(file, (0, 0))

    await FileTokenStore(path).save(issuer.pair(1))

    assert {path, living, other, alike} == set(path.parent.iterdir())


async def test_what_a_save_of_its_own_left_is_removed(path, issuer, monkeypatch) -> None:
    """A file that a save leaves half written has a name by which a later one knows it."""
    store = FileTokenStore(path)
    with monkeypatch.context() as died:
        died.setattr(os, "fsync", lambda descriptor: os.fstat(-1))
        died.setattr(os, "unlink", lambda name: None)
        with pytest.raises(OSError, match="descriptor"):
            await store.save(issuer.pair(1))
    [left] = path.parent.iterdir()
    os.utime(left, (0, 0))

    await store.save(issuer.pair(2))

    assert [path] == list(path.parent.iterdir())


async def test_what_cannot_be_removed_does_not_keep_the_others(path, issuer, monkeypatch) -> None:
    """All that can be removed is, whatever stands in the folder before it."""
    dead = [path.with_name(f".tokens.json.abcd123{i}") for i in range(3)]
    for file in dead:
        file.write_bytes(b"{")
        os.utime(file, (0, 0))
    unlink, asked = os.unlink, []

    def first_fails(name: str) -> None:
        asked.append(name)
        if len(asked) == 1:
            raise PermissionError
        unlink(name)

    monkeypatch.setattr(os, "unlink", first_fails)
    await FileTokenStore(path).save(issuer.pair(1))

    assert 3 == len(asked)
    assert 1 == sum(file.exists() for file in dead)


@pytest.mark.control("paymentsdk._auth.token_store._LONGEST_SAVE", -1.0, raises=RefreshFailed)
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_a_pair_waits_for_a_file(path, signed_in, issuer, monkeypatch, number: int) -> None:
    """When the process has as many files as it may, the pair of a grant that is spent is saved once there is room."""
    mkstemp, asked = tempfile.mkstemp, []

    def crowded(**options: object) -> object:
        asked.append(options)
        if len(asked) < 4:
            raise OSError(number, "too many open files")
        return mkstemp(**options)

    monkeypatch.setattr("paymentsdk._auth.token_store._LOOK_AGAIN", 0.0)
    monkeypatch.setattr(tempfile, "mkstemp", crowded)
    await signed_in(issuer.pair(expires_at=0.0), store=FileTokenStore(path)).orders.get("ORD1")

    assert (4, 1) == (len(asked), len(issuer.renewals))
    assert "APP_USR-access-2" == (await FileTokenStore(path).load()).access_token


@pytest.mark.parametrize("store", [FileTokenStore, lambda path: MemoryTokenStore()])
async def test_only_a_pair_is_kept(store, path) -> None:
    """A `Token` says how long it lasts and not when it ends: kept as it is, it would never be renewed early."""
    with pytest.raises(RequestInvalid, match="pair: must be a TokenPair"):
        await store(path).save(Token(access_token="TEST-access", expires_in=60))

    assert not path.exists()


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


async def test_a_folder_that_cannot_be_forced_to_the_disk(path, issuer, monkeypatch) -> None:
    """Some file systems cannot do it: a pair that has taken the place of the old one is saved all the same."""
    fsync = os.fsync

    def forced(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError("not of folders")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", forced)
    await FileTokenStore(path).save(issuer.pair())

    assert issuer.pair() == await FileTokenStore(path).load()


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


@pytest.mark.control("paymentsdk._auth.token_store.os.path.realpath", lambda path, **_: path)
@pytest.mark.skipif(os.name == "nt", reason="not everybody may make links there")
async def test_a_link_stays_one(path, issuer) -> None:
    """The pair is kept where the link leads, for all that come there, and they share the lock."""
    kept = path.parent / "volume" / "kept.json"
    kept.parent.mkdir()
    path.symlink_to(kept)

    async with FileTokenStore(path).lock():
        await FileTokenStore(path).save(issuer.pair())

    assert path.is_symlink()
    assert issuer.pair() == await FileTokenStore(kept).load()
    assert {"kept.json", "kept.json.lock"} == {file.name for file in kept.parent.iterdir()}


@pytest.mark.control("paymentsdk._auth.token_store.os.path.realpath", lambda path, **_: path)
@pytest.mark.skipif(os.name == "nt", reason="not everybody may make links there")
async def test_a_link_that_leads_elsewhere_later(path, issuer) -> None:
    """The pair goes where the link leads by then, and others look for it: where it led before may be gone."""
    old, new = path.parent / "release-1", path.parent / "release-2"
    old.mkdir()
    new.mkdir()
    path.symlink_to(old / "kept.json")
    store = FileTokenStore(path)
    path.unlink()
    old.rmdir()
    path.symlink_to(new / "kept.json")

    async with store.lock():
        await store.save(issuer.pair())

    assert path.is_symlink()
    assert issuer.pair() == await store.load() == await FileTokenStore(new / "kept.json").load()
    assert {"kept.json", "kept.json.lock"} == {file.name for file in new.iterdir()}


async def test_a_relative_path_means_one_file(path, issuer, monkeypatch) -> None:
    """A store finds its pair again after the process has gone to another folder."""
    monkeypatch.chdir(path.parent)
    store = FileTokenStore(path.name)
    (path.parent / "elsewhere").mkdir()
    monkeypatch.chdir(path.parent / "elsewhere")

    await store.save(issuer.pair())

    assert issuer.pair() == await FileTokenStore(path).load()


def written_over(path, content: bytes) -> None:
    """Leave what stood behind *content* where it was."""
    with path.open("r+b") as file:
        file.write(content)


@pytest.mark.control("paymentsdk._auth.token_store._write_over", written_over)
async def test_a_file_that_is_mounted_by_itself(path, issuer, monkeypatch) -> None:
    """Nothing can take its place, as in a container: it gets the new pair all the same, since the old one is spent.

    Of that one, which may have been longer, nothing is left behind.
    """
    store = FileTokenStore(path)
    await store.save(TokenPair(access_token="APP_USR-" + "a" * 500, refresh_token="TG-" + "r" * 500, expires_at=START))

    def fail(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "replace", fail)
    await store.save(issuer.pair())

    assert issuer.pair() == await store.load()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{}",
        b"[",
        b"\xff\xfe",
        b'{"access_token":"\xff"}',
        b'{"access_token":5}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
async def test_garbage_in_the_file(path, issuer, caplog, garbage: bytes) -> None:
    """A file that holds no pair counts as none, with a warning that names it; the next save makes it good."""
    store = FileTokenStore(path)
    path.write_bytes(garbage)

    assert await store.load() is None
    assert [str(path)] == [str(record.args[0]) for record in caplog.records]
    await store.save(issuer.pair())
    assert issuer.pair() == await store.load()
