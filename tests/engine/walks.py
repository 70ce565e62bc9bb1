"""Walks over searches, and how they end."""

from __future__ import annotations

from typing import TypedDict

import pytest

from paymentsdk import Pager, PaymentsClient, PaymentsError, RetryPolicy
from paymentsdk.testing import FakeClock, MemoryTransport

SHAPES = pytest.mark.parametrize("elements", [False, True], ids=["results", "elements"])


class Position(TypedDict, total=False):
    """The filters of a search of one's own: where a page begins, and how many rows it has."""

    offset: int
    limit: int


def over(table: object) -> PaymentsClient:
    """A client that finds *table*."""
    return PaymentsClient(
        "token",
        base_url="https://x",
        transport=MemoryTransport(table),
        clock=FakeClock(),
        retry=RetryPolicy(attempts=1),
    )


async def ids(pager: Pager) -> list[int]:
    """Walk *pager* to its end."""
    return [row.id async for row in pager]


async def ids_until_it_fails(pager: Pager) -> tuple[list[int], PaymentsError]:
    """Walk *pager* to the error that ends it."""
    walked: list[int] = []
    try:
        async for row in pager:
            walked.append(row.id)  # noqa: PERF401 - the rows before the error are what it is about
    except PaymentsError as error:
        return walked, error
    pytest.fail("it did not fail")
