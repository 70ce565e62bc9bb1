"""A new pair is saved before it is used, and before its client is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from paymentsdk import (
    FileTokenStore,
    MemoryTokenStore,
    RefreshFailed,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import MemoryTransport
from tests.conftest import PATIENCE
from tests.engine.issuer import ORDER, START, Issuer, SlowStore, counted


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
