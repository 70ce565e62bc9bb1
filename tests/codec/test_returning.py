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


class Wrapped(Struct):
    """A page of these."""

    elements: list[Strict]
    total: int
    next_offset: int


def test_a_response_must_not_forbid_unknown_fields() -> None:
    """The platform may add a field at any time: such a type is rejected as it is declared, and not after a write."""
    with pytest.raises(RequestInvalid, match="result: Strict forbids unknown fields"):
        OPERATIONS["merchant_orders.search"].returning(Wrapped)


async def test_an_operation_whose_response_forbids_unknown_fields_sends_nothing() -> None:
    """Also where the operation is somebody's own."""
    pay = Operation(name="pay", method="POST", path="/pay", retry=RetryClass.UNKEYED, result=Strict)
    transport = MemoryTransport([Response(200, {}, b'{"id": 1}')])

    async with PaymentsClient("token", base_url="https://x", transport=transport) as client:
        with pytest.raises(RequestInvalid, match="Strict forbids unknown fields"):
            await client.call(pay)

    assert not transport.requests


class Pair(Struct, array_like=True):
    """A row that stands as a list of its fields."""

    id: int
    amount: Decimal | None = None
    note: str | None = "none"


class Pairs(Struct):
    """A page of them."""

    elements: list[Pair] | None
    total: int
    next_offset: int


def test_rows_that_are_lists_are_read_as_they_are() -> None:
    """A row whose fields stand in a list is dropped and reported where one is malformed, and costs no other."""
    body = b'{"elements": [[1, 2.5, "a", 9], ["2"], [3], {"id": 4}, [5, "NaN"]], "total": "5", "next_offset": 0}'

    page, anomalies = OPERATIONS["merchant_orders.search"].returning(Pairs).decode(body)

    assert [Pair(1, Decimal("2.5"), "a"), Pair(3)] == page.elements
    assert [
        ("$.elements[1]", "expected Pair, got a list; dropped"),
        ("$.elements[3]", "expected Pair, got an object; dropped"),
        ("$.elements[4]", "expected Pair, got a list; dropped"),
        ("$.total", "expected int, got a string; repaired"),
    ] == [(anomaly.path, anomaly.reason) for anomaly in anomalies]
