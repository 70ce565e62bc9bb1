"""Each filter of a search is one in the sandbox, too."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from paymentsdk import OPERATIONS, PaymentsClient
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Sandbox

SEARCHES = [operation for operation in OPERATIONS.values() if operation.page is not None]
#: What decides on the order of rows, and not on which of them come.
ORDERING = {"offset", "limit", "sort", "criteria"}


async def filled(sandbox: Sandbox, client: PaymentsClient) -> None:
    """Give the seller a merchant order, a plan and an invoice."""
    item = PreferenceItemRequest(title="t", quantity=1, unit_price=Decimal(5))
    sandbox.buyer.pay_preference(await client.preferences.create(PreferenceRequest(items=[item])))
    sandbox.buyer.subscribe()


@pytest.mark.parametrize("operation", SEARCHES, ids=lambda operation: operation.name)
async def test_a_filter_that_nothing_meets_finds_nothing(operation: object) -> None:
    """No filter is ignored: `search(payment_id=999)` does not find another payment's invoice."""
    async with Sandbox() as sandbox, PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        await filled(sandbox, client)
        search = getattr(client, operation.name.partition(".")[0]).search
        assert await search().collect()
        moments = {"from": sandbox.clock.now() + timedelta(days=1), "to": sandbox.clock.now() - timedelta(days=80)}

        for name in operation.query.__annotations__.keys() - ORDERING:
            value = moments.get(name.rpartition("_")[2], "99999")
            assert [] == await search(**{name: value}).collect(), name
