"""Policies: every open point has a name, a default, and a sentence."""

from __future__ import annotations

import pytest

from paymentsdk.sandbox import Sandbox


def test_unknown_names_and_values_are_rejected():
    """At the start, with the place."""
    durations = [{"invoice_retries": text} for text in ("P1D,P1M", ",", "P9999999D")]
    for changes in (
        {"colour": "red"},
        {"cancel_from": "x"},
        {"page_size": 0},
        {"notification_timeout": "15"},
        *durations,
    ):
        with pytest.raises(
            ValueError, match=r"at `\$\.\w+`; |unknown field `\w+`; |(invoice_retries|notification_timeout) must be "
        ):
            Sandbox(policies=changes)


async def test_the_policies_of_a_seller_hold_for_a_token_that_is_rejected(sandbox, plain):
    """Revoked, or without the scope, it is still known whose it is; a token that is unknown is nobody's."""
    policies = {"error_shape": "flat", "denied_preference_status": 401}
    tenant = sandbox.create_tenant(scope="read", policies=policies)

    async def rejected(token: str) -> tuple[int, set[str]]:
        response = await plain("POST", "/checkout/preferences", {}, token=token)
        return response.status, set(response.json)

    assert (403, {"code", "message"}) == await rejected(tenant.access_token)
    sandbox.revoke(tenant.access_token)
    assert (401, {"code", "message"}) == await rejected(tenant.access_token)
    assert (400, {"message", "error", "status", "cause"}) == await rejected("TEST-unknown")
    with pytest.raises(ValueError, match="cancel_from"):
        sandbox.create_tenant(policies={"cancel_from": "nowhere"})


async def test_switches_that_were_set_outlive_the_process(tmp_path, plain_to):
    """As clock and keys do; what is asked for at a start wins over them, until that sandbox ends."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path, policies={"page_size": 5}) as sandbox:
        await plain_to(sandbox)("PATCH", "/_sandbox/policies", {"page_size": 7, "cancel_from": "any"})
        await plain_to(sandbox)("PATCH", "/_sandbox/policies", {"max_page_size": "9"})
    async with Sandbox(db=path) as sandbox:
        stored_policies = sandbox.policies
    async with Sandbox(db=path, policies={"page_size": 3}) as sandbox:
        start_policies = sandbox.policies
    async with Sandbox(db=path) as sandbox:
        assert stored_policies == sandbox.policies

    assert (7, "any", 9) == (stored_policies.page_size, stored_policies.cancel_from, stored_policies.max_page_size)
    assert (3, "any", 9) == (start_policies.page_size, start_policies.cancel_from, start_policies.max_page_size)


async def test_switches_can_be_set_while_it_runs(plain, sandbox):
    """Through the control API; a bad one changes nothing."""
    assert 200 == (await plain("PATCH", "/_sandbox/policies", {"page_size": 7})).status
    assert 400 == (await plain("PATCH", "/_sandbox/policies", {"page_size": 0})).status
    listed = {switch["name"]: switch for switch in (await plain("GET", "/_sandbox/policies")).json}

    assert 7 == sandbox.policies.page_size
    assert (7, 30) == (listed["page_size"]["value"], listed["page_size"]["default"])
    assert ["created", "any"] == listed["cancel_from"]["allowed"]
