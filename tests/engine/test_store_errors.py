"""A token store that fails loses no pair, and hides no write in doubt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paymentsdk import (
    MemoryTokenStore,
    OutcomeUnknown,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    Response,
    SendFailed,
)
from tests.engine.issuer import START, SlowStore, Unsure, counted


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


@pytest.mark.control("paymentsdk._auth.refresh.RefreshingToken._remember", lambda self, *pairs: None)
@pytest.mark.parametrize("ends", [START + 60])
async def test_a_pair_that_was_left_did_not_come_after(signed_in, issuer, ends: float) -> None:
    """While a new pair waits to be saved, an old one that the store had before is a left-over as ever.

    To send its spent refresh token would end the grant; and nobody would save the new pair if that one took its place.
    """
    issuer.generation = 2
    store = SlowStore(issuer, failures=1)
    await MemoryTokenStore.save(store, issuer.pair(1, ends))
    client = signed_in(issuer.pair(2, START + 3600), store=store)
    auth = client._engine.settings.auth
    with pytest.raises(OSError, match="no space left"):
        await auth.renew("APP_USR-access-2", client._engine._exchange, START)

    await auth.drain(START)

    assert ["TG-refresh-2"] == issuer.refreshes
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


async def test_the_error_of_a_store_is_named(signed_in, issuer) -> None:
    """The kind of the store's error is told, and its place; its text is not: nobody knows what is in it."""
    client = signed_in(issuer.pair(expires_at=0.0), store=SlowStore(issuer, failures=1))

    with pytest.raises(RefreshFailed, match=r"refreshed: OSError \(issuer.py:[0-9]+ in save\); nothing"):
        await client.orders.cancel("ORD1")
