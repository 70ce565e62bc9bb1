"""The writes of the contract, as calls with plain requests."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TypeAlias

from msgspec import convert

from paymentsdk import OPERATIONS, PaymentsClient, Response, Result

Write: TypeAlias = Callable[[PaymentsClient], Awaitable[Result[object]]]

BODIES: dict[str, dict[str, object]] = {
    "orders.create": {
        "external_reference": "shop-1",
        "total_amount": "24.90",
        "transactions": {"payments": [{"amount": "24.90"}]},
    },
    "wallet_payments.create": {
        "wallet_payment": {"transaction_amount": 24.9, "external_reference": "shop-1"},
        "payer": {"token": "payer-token-0123456789", "type_token": "wallet"},
    },
    "preferences.create": {
        "items": [{"id": "sku-1", "title": "A book", "quantity": 1, "unit_price": 24.9}],
        "external_reference": "shop-1",
    },
    "customers.create": {"email": "ann@example.com"},
    "orders.refund": {"transactions": [{"id": "PAY1", "amount": "5.00"}]},
}
PATHS = {"orders.cancel": {"order_id": "ORD1"}, "orders.refund": {"order_id": "ORD1"}}
WRITES = ["orders.create", "orders.cancel", "orders.refund", "wallet_payments.create", "preferences.create",
          "customers.create", "release_reports.disable_schedule"]  # fmt: skip


def body_of(name: str, **changes: object) -> object:
    """Return the body of the operation *name*, with *changes*; None where there is none."""
    kind = OPERATIONS[name].body if name in OPERATIONS else None
    return convert({**BODIES.get(name, {}), **changes}, kind, strict=False) if kind else None


def write(name: str, **changes: object) -> Write:
    """Return the call of the operation *name*, with *changes* in its body."""
    body = body_of(name, **changes)
    return lambda client: client.call(OPERATIONS[name], body, **PATHS.get(name, {}))


def says(body: object, status: int = 201) -> Response:
    """Return a response with *body* as JSON."""
    return Response(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def partial_refund(amount: str) -> Write:
    """Return the call that gives *amount* of PAY1 back."""
    return write("orders.refund", transactions=[{"id": "PAY1", "amount": str(Decimal(amount))}])
