"""A token that is refreshed before it ends: nobody waits for that, and nothing is lost if it fails."""

from __future__ import annotations

import asyncio

import pytest

from paymentsdk import (
    RefreshingToken,
    Response,
    SendFailed,
    Timeout,
)
from tests.engine.issuer import ONCE, START


@pytest.mark.parametrize(
    "trouble",
    [
        SendFailed("reset"),
        Response(503),
        Response(400),
    ],
)
async def test_an_early_refresh_that_fails_keeps_the_live_token(signed_in, issuer, clock, trouble: object) -> None:
    """The live token stays in use, and the next try is made a minute later, not with the next call."""
    issuer.trouble = [trouble] * 2
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

    assert 3 == len(issuer.refreshes)


async def test_an_ended_token_is_not_used(signed_in, issuer, clock) -> None:
    """A failed early refresh is left alone for a minute, but not beyond the end of the live token."""
    issuer.trouble = [SendFailed("refused", sent=False)]
    client = signed_in(issuer.pair(expires_at=START + 30))

    await client.orders.get("ORD1")
    clock.advance(30)
    await client.orders.get("ORD1")

    assert ["Bearer APP_USR-access-1", "Bearer APP_USR-access-2"] == issuer.used


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
