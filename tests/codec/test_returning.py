"""Operations that decode less than a response has."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from paymentsdk import OPERATIONS, Pager, PaymentsClient, Response
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
