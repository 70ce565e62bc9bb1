"""A new pair is saved before it is used, and before its client is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from paymentsdk import (
    FileTokenStore,
    MemoryTokenStore,
    RefreshFailed,
    RefreshingToken,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import MemoryTransport
from tests.conftest import PATIENCE
from tests.engine.issuer import ONCE, ORDER, START, Issuer, SlowStore, Unsure, counted


class Unsteady(MemoryTokenStore):
    """Cannot save a pair the first time."""

    failures = 1

    async def save(self, pair: TokenPair) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        await super().save(pair)


def used_at_once(persist):
    """Let a pair be used while it is being saved."""

    async def use_and_save(self, new: TokenPair, now: float) -> TokenPair:
        store, self._store = self._store, MemoryTokenStore()
        await persist(self, new, now)
        self._store = store
        await store.save(new)
        return new

    return use_and_save


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


async def test_a_call_rejected_during_a_save_waits_for_the_save(issuer, until) -> None:
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


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._persist", around=used_at_once)
@pytest.mark.parametrize("expires_at", [0.0, None])
@pytest.mark.parametrize("held", [False, True])
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


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_pair_is_saved_before_its_client_is_closed(signed_in, issuer, until) -> None:
    """Whoever gives up a call and ends the program loses no grant: closing the client waits for the store."""
    store = SlowStore(issuer)
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: issuer.refreshes)
    call.cancel()

    await client.aclose()
    saved = list(store.log)
    await until(lambda: store.log)

    assert [("saved", 0)] == saved


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


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_pair_that_is_on_its_way_is_saved_before_its_client_is_closed(signed_in, issuer, until) -> None:
    """Once the platform was asked, the refresh token is spent: closing waits for the response as well."""
    store, response = SlowStore(issuer), asyncio.Event()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    await begin_refresh(client, issuer, until, response.wait)

    closing = asyncio.create_task(client.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
    response.set()
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

    def ensure_whole(self) -> None:
        """Fail what is in flight once it is closed."""
        if self.cut.is_set():
            raise SendFailed("the transport was closed")


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
async def test_a_refresh_ends_before_its_transport_is_closed(signed_in, issuer, until) -> None:
    """A transport that gives requests in flight no time does not lose the response with the only pair that works."""
    store, transport = MemoryTokenStore(), Abrupt(issuer)
    client = signed_in(issuer.pair(expires_at=0.0), store=store, transport=transport)

    async def a_while() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        transport.ensure_whole()

    await begin_refresh(client, issuer, until, a_while)

    await client.aclose()
    await until(lambda: client._engine.settings.auth._flight is None)

    assert transport.closed
    assert "TG-refresh-2" == getattr(await store.load(), "refresh_token", None)


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
async def test_a_pair_that_is_saved_at_last_is_waited_for(signed_in, issuer, until) -> None:
    """One that the store could not keep at first is saved by the next call: closing waits for that one, too."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    with pytest.raises(RefreshFailed):
        await client.orders.cancel("ORD1")
    call = asyncio.create_task(client.orders.cancel("ORD1"))
    await until(lambda: client._engine.settings.auth._flight)
    call.cancel()

    await client.aclose()
    saved = list(store.log)
    await until(lambda: len(store.log) > 1)

    assert [("failed", 0), ("saved", 0)] == saved


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken.drain", forgets)
@pytest.mark.parametrize("expires_at", [START + 300, 0.0])
async def test_an_abandoned_pair_is_saved_in_the_end(signed_in, issuer, expires_at: float) -> None:
    """A program that makes no further call loses no grant to a store that failed once: closing tries it again."""
    store = SlowStore(issuer, failures=1)
    client = signed_in(issuer.pair(expires_at=expires_at), store=store)
    issuer.rejection = ORDER  # The old token does as well.
    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    await client.aclose()

    assert [("failed", 0), ("saved", 0)] == store.log
    assert "TG-refresh-2" == (await store.load()).refresh_token


async def test_a_pair_is_saved_in_the_end_also_without_grace(signed_in, issuer) -> None:
    """Who waits for nothing loses no grant to a store that can save at once."""
    store = Unsteady()
    client = signed_in(issuer.pair(expires_at=0.0), store=store)
    await asyncio.gather(client.orders.get("ORD1"), return_exceptions=True)

    await client.aclose(grace=0)

    assert "TG-refresh-2" == (await store.load()).refresh_token


async def test_a_pair_is_saved_in_the_end_after_a_refresh_that_was_cancelled_before_it_began(issuer) -> None:
    """Whoever cancels every task of a program, and closes the client then, loses no grant."""
    store = Unsteady()
    auth = RefreshingToken(issuer.pair(expires_at=0.0), store=store)

    async def exchange(refresh_token: str) -> TokenPair:
        return issuer.pair(2)

    await asyncio.gather(auth.renew(None, exchange, START), return_exceptions=True)
    second = asyncio.create_task(auth.renew(None, exchange, START))
    await asyncio.sleep(0)
    auth._flight.cancel()
    await asyncio.wait([second])
    await auth.drain(START)

    assert issuer.pair(2) == await store.load()


async def test_a_pair_that_is_saved_in_the_end_is_as_new_as_any(make_client, issuer) -> None:
    """A client that goes on with the same token renews it no sooner because another one has saved it as it closed."""
    issuer.lifetime = 300
    auth = RefreshingToken(issuer.pair(expires_at=0.0), store=SlowStore(issuer, failures=1))
    first, second = (make_client(issuer, auth=auth, retry=ONCE) for _ in range(2))
    with pytest.raises(RefreshFailed):
        await first.orders.get("ORD1")

    await first.aclose()
    await second.orders.get("ORD1")

    assert ["TG-refresh-1"] == issuer.refreshes


async def test_a_pair_that_cannot_be_saved_in_the_end(signed_in, issuer, caplog) -> None:
    """A store that fails in the end as well keeps no client from being closed: the log has a warning."""
    store = SlowStore(issuer, failures=9)
    client = signed_in(issuer.pair(expires_at=START + 300), store=store)
    issuer.rejection = ORDER
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
    assert 1 == len(issuer.refreshes)


@pytest.mark.parametrize("refreshes", [0, 1], ids=["first-refresh", "second-refresh"])
async def test_closing_does_not_wait_for_another_process(
    signed_in, issuer, path, monkeypatch, until, *, refreshes: int
) -> None:
    """One that hangs with the lock in its hand keeps no client from being closed; nothing is asked for after that."""
    monkeypatch.setattr("paymentsdk._auth.token_store.LOOK_AGAIN", 0)
    client = signed_in(issuer.pair(expires_at=0.0), store=FileTokenStore(path))
    token = client._engine.settings.auth
    if refreshes:
        await client.orders.get("ORD1")
        issuer.generation += 1  # The new token is rejected as well.

    async with FileTokenStore(path).lock():
        call = asyncio.create_task(client.orders.get("ORD1"))
        await until(lambda: token._flight is not None)
        call.cancel()
        async with asyncio.timeout(PATIENCE):
            await client.aclose()
    await until(lambda: token._flight is None)

    assert refreshes == len(issuer.refreshes)
