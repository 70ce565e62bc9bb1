"""Both sides of the contract: the real client, and a real sandbox on a socket, under a reading of the spec."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paymentsdk import PaymentsClient, RetryPolicy
from paymentsdk.sandbox import Sandbox, describe_policies

#: What the spec gives twice, at the value that is not the default.
TWICE = {
    "max_order_expiration": "PT3H",
    "partial_refund_detail": "refunded",
    "denied_preference_status": 401,
    "cancel_from": "any",
}
#: Policies that make the sandbox reject what the examples ask for.
STRICTER = {"customer_required", "test_emails", "discount_promise", "sponsors", "invoice_filters"}
#: Every other policy at its last value: readings of what the spec does not show.
REST = {
    policy.name: next(value for value in reversed(policy.allowed) if value != policy.value)
    for policy in describe_policies()
    # Rows of one moment in no fixed order: no walk by offset is whole then. An empty date is an anomaly.
    if policy.allowed and policy.name not in {*STRICTER, "equal_moments", "unset_strings"}
}
READINGS = {"first": {}, "second": TWICE, "rest": REST}


@pytest.fixture
def policies(request) -> dict[str, object]:
    """A reading of the spec: the first, or what the test names."""
    return READINGS[getattr(request, "param", "first")]


@pytest.fixture
async def sandbox(policies) -> AsyncIterator[Sandbox]:
    """A sandbox that follows the reading, with the same identifiers every time, whose clock stands still."""
    async with Sandbox(seed=7, frozen=True, policies=policies) as sandbox:
        yield sandbox


@pytest.fixture
async def client(sandbox, policies) -> AsyncIterator[PaymentsClient]:
    """A client that tries once."""
    info = sandbox.describe()
    async with PaymentsClient(
        access_token=info.access_token,
        base_url=info.base_url,
        client_id=info.client_id,
        client_secret=info.client_secret,
        retry=RetryPolicy(attempts=1),
    ) as client:
        yield client
