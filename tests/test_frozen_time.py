"""The client, a reconciliation and the sandbox work although freezegun replaces `datetime` in every module.

They run in a new process, so that their first actions happen while time is frozen.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - the first import warns if time is frozen
from freezegun import freeze_time

from paymentsdk import PaymentsClient, Response
from paymentsdk.reconcile import Book, reconcile
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Sandbox
from paymentsdk.testing import MemoryTransport

ROOT = Path(__file__).parents[1]
HOUR = dt.timedelta(hours=1)


def now() -> dt.datetime:
    """Return the time of the program, which is a subclass under freezegun."""
    return dt.datetime.now(dt.UTC)


async def find_an_order_by_its_date() -> None:
    """Search by frozen moments, with and without a proof, and reconcile a frozen day."""
    price, created = Decimal("10.50"), now() - HOUR / 2
    async with (
        Sandbox(frozen_at=created) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
        payments = TransactionsRequest(payments=[PaymentRequest(amount=price)])
        request = OrderRequest(external_reference="A-1", total_amount=price, transactions=payments)
        order = await client.orders.create(request)
        sandbox.buyer.pay(order)
        window = {"date_created_from": now() - HOUR, "date_created_to": now()}
        [row] = await client.merchant_orders.search(**window).collect()
        sandbox.clock.advance(5 * HOUR)
        [again] = await client.merchant_orders.search(**window, certify=True).collect()
        book = Book.rows([{"reference": "A-1", "order_id": order.id, "paid": price, "created": created}])
        with tempfile.TemporaryDirectory() as out:
            report = await reconcile(book, client, created=(now() - HOUR, now()), out=out)

    assert row.id == again.id
    assert report.is_same
    assert 1 == sum(report.counts.values())


async def write_a_moment() -> None:
    """Send a frozen moment, and read it back."""
    item = PreferenceItemRequest(title="Coffee", quantity=1, unit_price=Decimal("10.50"))
    request = PreferenceRequest(items=[item], external_reference="A-1", expires=True, expiration_date_to=now() + HOUR)
    async with (
        Sandbox(frozen_at=now()) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
        preference = await client.preferences.create(request)

    assert now() + HOUR == preference.expiration_date_to


async def repair_a_date() -> None:
    """Read a date that has no offset as UTC: the response differs from the contract, and is repaired."""
    body = b'{"id": "ORD1", "status": "created", "created_date": "2026-01-31T10:00:00"}'
    transport = MemoryTransport([Response(200, {}, body)])
    async with PaymentsClient("TEST-token", base_url="http://127.0.0.1", transport=transport) as client:
        order = await client.orders.get("ORD1")

    assert "2026-01-31 10:00:00+00:00" == str(order.created_date)


def test_a_program_may_freeze_its_time() -> None:
    """Every use that works without freezegun also works with it."""
    command = [sys.executable, "-W", "error", "-m", "tests.test_frozen_time"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)

    assert (0, "") == (process.returncode, process.stderr)


if __name__ == "__main__":
    with freeze_time("2026-01-31T12:00:00Z", real_asyncio=True):
        for use in (repair_a_date, write_a_moment, find_an_order_by_its_date):
            asyncio.run(use())
