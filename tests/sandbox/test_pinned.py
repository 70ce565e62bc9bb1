"""A seller whose token, application and point of sale are the same at every start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paymentsdk import AuthenticationFailed
from tests.sandbox.orders import members

PINNED: dict[str, Any] = {
    "access_token": "TEST-ci",
    "client_id": "ci",
    "client_secret": "s",
    "external_pos_ids": ("TILL-1",),
}


async def test_a_pinned_token_does_not_follow_the_clock(start, connect, order):
    """The token, the application and the point of sale are those of the start, also a year later."""
    sandbox = await start(tenant=PINNED)
    async with connect(sandbox) as client:
        sandbox.clock.advance("P365D")

        new_order = await client.orders.create(order())

    names = "access_token client_id client_secret external_pos_id"
    assert ("TEST-ci", "ci", "s", "TILL-1") == members(sandbox.describe(), names)
    assert str(sandbox.tenant.user_id) == new_order.user_id


async def test_a_pinned_seller_survives_a_restart(start, tmp_path: Path):
    """With a file the seller comes back, also after the token was revoked, and another token makes another seller."""
    file = str(tmp_path / "shop.db")
    first = await start(db=file, tenant=PINNED)
    seller = first.tenant.user_id
    first.revoke("TEST-ci")
    assert first.access_token != "TEST-ci"
    await first.stop()

    second = await start(db=file, tenant=PINNED)
    assert ("TEST-ci", seller) == (second.access_token, second.tenant.user_id)
    await second.stop()

    third = await start(db=file, tenant={"access_token": "TEST-other"})
    assert "TEST-other" == third.access_token
    assert third.tenant.user_id != seller


@pytest.mark.parametrize("change", [{"client_secret": "t"}, {"external_pos_ids": ("TILL-2",)}])
async def test_a_file_with_another_seller_is_rejected(start, tmp_path: Path, change: dict[str, Any]):
    """The seller of the file is not changed silently."""
    file = str(tmp_path / "shop.db")
    await (await start(db=file, tenant=PINNED)).stop()
    [name] = change

    with pytest.raises(ValueError, match=f"the seller in the file has another {name}; use another file"):
        await start(db=file, tenant={**PINNED, **change})


async def test_a_seller_is_pinned_over_http(plain, sandbox, connect, order):
    """`POST tenants` takes the token and the secret; a restart of the program can do the same again."""
    body = {**PINNED, "access_token": "TEST-two"}
    response = await plain("POST", "/_sandbox/tenants", body)

    assert (200, "TEST-two", "ci") == (response.status, response.json["access_token"], response.json["client_id"])
    async with connect(sandbox).with_options(access_token="TEST-two") as client:
        assert str(response.json["user_id"]) == (await client.orders.create(order())).user_id


CLASHES = [
    ({"access_token": "TEST-ci-7"}, "$.access_token: belongs to seller 7; give every seller a token of their own"),
    ({"access_token": "TEST-x-7"}, "$.access_token: ends with the user id of another seller, 7; use another number"),
    ({"access_token": "TEST-x-07"}, "$.access_token: ends with a number that is not a user id"),
    ({"access_token": "ci"}, "Expected `str` matching regex"),
    ({"client_id": "ci", "client_secret": "t"}, "$.client_secret: differs from the secret of the application ci"),
    ({"client_id": "ci2"}, "$.client_id: no seller has the application ci2; give client_secret, too, to create it"),
]


async def test_a_seller_that_cannot_be_pinned_is_rejected(plain):
    """One sentence says which field and what to do; it shows no token and no secret, and no seller is made."""
    await plain("POST", "/_sandbox/tenants", {"access_token": "TEST-ci-7", "client_id": "ci", "client_secret": "s"})
    for second, complaint in CLASHES:
        response = await plain("POST", "/_sandbox/tenants", second)

        assert (400, True) == (response.status, complaint in response.json["message"])
        assert "TEST-" not in response.json["message"].replace("TEST-[", "")
    assert 2 == len((await plain("GET", "/_sandbox/tenants")).json)


async def test_an_unknown_token_is_told_where_known_ones_are(start, connect):
    """A program with the token of yesterday's sandbox is told the way out."""
    sandbox = await start()
    async with connect(sandbox).with_options(access_token="TEST-of-yesterday") as client:
        with pytest.raises(AuthenticationFailed, match="GET /_sandbox/tenants lists the valid ones"):
            await client.plans.get(sandbox.plan_id)


async def test_health_says_that_requests_are_handled(plain):
    """As a container is looked at."""
    response = await plain("GET", "/_sandbox/health", token=None)

    assert (200, {"status": "ok"}) == (response.status, response.json)
