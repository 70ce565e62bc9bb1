"""A walk over the sandbox, on sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest

from paymentsdk import PaymentsClient
from paymentsdk.reconcile import walk
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import Sandbox

ORDERS = 20
#: All of it has settled.
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)


@pytest.fixture(
    params=[
        {"max_offset": 8, "beyond_max_offset": "clamp", "max_page_size": 4},
        {"date_filter_grain": "minute", "window_edge": "exclusive", "max_page_size": 6},
    ],
    ids=lambda policies: "-".join(map(str, policies.values())) or "default",
)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A platform with paid orders of two days, and the limits of some real one."""
    async with Sandbox(frozen_at=BEGIN, policies=request.param) as sandbox:
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
            for i in range(ORDERS):
                # Half of them come in bursts.
                sandbox.clock.advance(
                    timedelta(milliseconds=317) if i % 2 else timedelta(hours=2, seconds=i, milliseconds=333)
                )
                sandbox.buyer.pay(await client.orders.create(order(i)))
        yield sandbox


def order(i: int) -> OrderRequest:
    """An order over 24.90."""
    amount = Decimal("24.90")
    return OrderRequest(
        external_reference=f"order-{i}",
        total_amount=amount,
        transactions=TransactionsRequest(payments=[PaymentRequest(amount=amount)]),
    )


async def test_every_order_of_the_sandbox_is_written(sandbox: Sandbox, tmp_path: Path) -> None:
    """Whatever the platform's pages, largest offset, totals, and edges of ranges are: every order comes, and once."""
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        report = await walk(client, created=(BEGIN, BEGIN + timedelta(days=2, hours=12)), out=tmp_path, max_window=12)

    table = pyarrow.parquet.read_table([str(part) for part in report.parts])
    assert [f"order-{i}" for i in range(ORDERS)] == sorted(
        table["reference"].to_pylist(), key=lambda reference: int(reference[6:])
    )
    assert {Decimal("24.90")} == set(table["paid"].to_pylist())
    assert BEGIN < min(table["created"].to_pylist())
