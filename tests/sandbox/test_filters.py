"""Each filter of a search is one in the sandbox, too."""

from __future__ import annotations

import copy
import dataclasses
from datetime import timedelta
from decimal import Decimal

import pytest

from paymentsdk import OPERATIONS, PaymentsClient
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Sandbox
from paymentsdk.sandbox._handlers import NOUNS

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


@pytest.mark.parametrize("operation", SEARCHES, ids=lambda operation: operation.name)
def test_a_filter_without_a_column_is_rejected_at_import(operation: object) -> None:
    """A filter that is added to an operation alone fails when the sandbox is imported, and in no search."""
    noun = NOUNS[operation.name.partition(".")[0]]
    handlers = [handler for handler in noun.handlers if handler.operation is operation]
    columns = {name: get for name, get in noun.searched.columns.items() if name not in {"status", "payment_id"}}
    table = copy.copy(noun.searched)
    table.columns = columns

    with pytest.raises(ValueError, match=rf"{operation.name}: the sandbox ignores the filter (status|payment_id)"):
        dataclasses.replace(noun, handlers=handlers, searched=table)
