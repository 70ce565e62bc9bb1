"""Counts the Python functions of the package in one journaled create: `python -m benchmarks.journal_calls [--list]`.

`sys.setprofile` counts, so the number does not depend on the load of the machine. A coroutine counts again each time it
resumes. The transport is in memory. The journal is an SQLite file; its thread does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from types import FrameType

import msgspec

import paymentsdk
from paymentsdk import PaymentsClient, Request, Response
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.testing import MemoryTransport

PACKAGE = str(Path(paymentsdk.__file__).parent)
TOKEN = "APP_USR-1-1-0123456789abcdef-77"  # noqa: S105 - of nobody
HEADERS = {"Date": "Tue, 14 Nov 2023 22:13:20 GMT", "Content-Type": "application/json"}


def respond(request: Request) -> Response:
    """Return a created order with the fields of the request, as the platform does."""
    order = msgspec.json.decode(request.body)
    repeated = {name: order[name] for name in ("type", "total_amount", "external_reference")}
    payments = [{"id": "PAY1", **payment} for payment in order["transactions"]["payments"]]
    created = {"id": "ORD1", "status": "created", **repeated, "transactions": {"payments": payments}}
    return Response(201, HEADERS, msgspec.json.encode(created))


def order() -> OrderRequest:
    """Return the order to create."""
    amount = Decimal("24.90")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    return OrderRequest(external_reference="t-1", total_amount=amount, transactions=payments)


async def functions() -> list[str]:
    """Return the functions of a journaled create, in order. The first calls only fill caches."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and "testing" not in path:
            names.append(f"{path.removeprefix(PACKAGE)} {frame.f_code.co_qualname}")

    with tempfile.TemporaryDirectory() as folder:
        journal = SQLiteJournal(Path(folder) / "payments.db")
        transport = MemoryTransport(respond)
        async with PaymentsClient(TOKEN, base_url="http://127.0.0.1", transport=transport, journal=journal) as client:
            for number in range(3):
                await client.orders.create(order(), once=f"warm-{number}")
            new = order()
            sys.setprofile(note)
            try:
                await client.orders.create(new, once="counted")
            finally:
                sys.setprofile(None)
    return names


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the functions in order")
    options = parser.parse_args()
    run = asyncio.run(functions())
    print(*(run if options.list else ()), f"{len(run)} functions for one journaled create", sep="\n")
