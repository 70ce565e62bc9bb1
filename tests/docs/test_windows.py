"""The windows of the page about reconciling."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import Sandbox

PAGE = Path(__file__).parents[2] / "docs/how-to/reconcile-orders.md"
MIDNIGHT = datetime(2026, 3, 10, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the first block of the page makes windows with."""
    program = ModuleType("reconcile")
    monkeypatch.setitem(sys.modules, "reconcile", program)  # Dataclasses look there.
    exec(PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], vars(program))
    return program.Window.before


def lunch(reference: str) -> OrderRequest:
    """Return an order of one payment."""
    price = Decimal("10.00")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=price)])
    return OrderRequest(external_reference=reference, total_amount=price, transactions=payments)


@pytest.mark.parametrize("edge", ["inclusive", "exclusive"])
async def test_no_row_falls_between_two_windows(before: Any, edge: str):
    """Whether or not the platform counts the ends of a range in, what changes at midnight is in one of the windows."""
    begin = MIDNIGHT - timedelta(hours=1)
    async with (
        Sandbox(frozen_at=begin, policies={"window_edge": edge}) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
        made = set()
        for moment in (MIDNIGHT - MILLISECOND, MIDNIGHT, MIDNIGHT + MILLISECOND):
            sandbox.clock.freeze(moment)
            order = await client.orders.create(lunch(f"row-{len(made)}"))
            sandbox.buyer.pay(order)
            made.add(order.external_reference)
        sandbox.clock.freeze(MIDNIGHT + timedelta(days=1))

        found = set()
        for day in (MIDNIGHT, MIDNIGHT + timedelta(days=1)):
            window = before(day)
            walk = client.merchant_orders.search(last_updated_from=window.begin, last_updated_to=window.end)
            found |= {row.external_reference async for row in walk}

    assert made == found


def test_two_windows_overlap(before: Any):
    """A moment that is finer than the platform's milliseconds is in a window, too."""
    assert before(MIDNIGHT + timedelta(days=1)).begin < before(MIDNIGHT).end
