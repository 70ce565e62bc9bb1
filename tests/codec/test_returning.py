"""Operations that decode less than a response has."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec import Struct

from paymentsdk import OPERATIONS, Operation, Pager, PaymentsClient, RequestInvalid, Response, RetryClass
from paymentsdk.testing import MemoryTransport


class Sum(Struct, frozen=True):
    """The few fields that somebody needs."""

    id: int
    total_amount: Decimal


class Sums(Struct, frozen=True):
    """A page of them."""

    elements: tuple[Sum, ...] | None
    total: int
    next_offset: int


BODY = b'{"elements": [{"id": 1, "total_amount": 24.90, "payments": [{"id": 7}]}], "total": 1, "next_offset": 0}'


async def test_an_operation_returns_a_struct_of_ones_own() -> None:
    """A walk gives rows of that Struct, exact as ever; the operation itself is as it was."""
    search = OPERATIONS["merchant_orders.search"]
    async with PaymentsClient(
        "token", base_url="https://x", transport=MemoryTransport([Response(200, {}, BODY)])
    ) as client:
        rows = await Pager(client, search.returning(Sums)).collect()

    assert [Sum(1, Decimal("24.90"))] == rows
    assert search.result is not Sums
    assert search.page is search.returning(Sums).page


class Strict(Struct, forbid_unknown_fields=True):
    """What takes no field that it does not have."""

    id: int


async def test_an_operation_whose_response_forbids_unknown_fields_sends_nothing() -> None:
    """Also where the operation is somebody's own."""
    pay = Operation(name="pay", method="POST", path="/pay", retry=RetryClass.UNKEYED, result=Strict)
    transport = MemoryTransport([Response(200, {}, b'{"id": 1}')])

    async with PaymentsClient("token", base_url="https://x", transport=transport) as client:
        with pytest.raises(RequestInvalid, match="Strict forbids unknown fields"):
            await client.call(pay)

    assert not transport.requests
