"""Many paid orders at once, as if buyers had come over the last days: to test searches, walks and reconciliation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from msgspec import Meta

from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox._context import Call, SellerContext
from paymentsdk.sandbox._handlers import orders
from paymentsdk.sandbox._parsing import ControlStruct
from paymentsdk.sandbox._records import ORDERS

_MILLISECOND = timedelta(milliseconds=1)
#: Orders that are made and committed in one piece: some milliseconds.
_PIECE = 50


class ProvisionRequest(ControlStruct):
    """Orders to make, each of them paid."""

    orders: Annotated[int, Meta(ge=1, le=1_000_000)]
    """How many."""
    days: Annotated[int, Meta(ge=1, le=3650)] = 30
    """How many days ago the first was made and paid, the others evenly since; 30 by default. A search sees 90."""
    payer_id: int = 100_000_001
    """Who paid; 100000001 by default."""
    tenant: int | None = None
    """The user id of the seller; the first seller by default."""


class _Past(SellerContext):
    """A moment of the past, in which an order is paid before anything of it falls due."""

    def schedule(self, at: datetime, kind: str, id: str) -> None:  # noqa: A002 - as in `SellerContext`
        """Leave it: a paid order does not expire, and nobody has to find that out later."""


def provision(context: SellerContext, request: ProvisionRequest) -> Iterator[int]:
    """Make the orders, oldest first, as if each had come by the API and a buyer had paid it; say at each step how many.

    Their references are `provisioned-1` and so on, their amounts 1.00 to 999.99. Nobody who watches is told of each.
    """
    days = timedelta(days=request.days)
    past = _Past(**{**vars(context), "publish": lambda *_: None})
    for first in range(0, request.orders, _PIECE):
        following = min(first + _PIECE, request.orders)
        with context.store.transaction():
            for number in range(first, following):
                ago = (days - days * number // request.orders) // _MILLISECOND * _MILLISECOND
                _sell(replace(past, now=context.now - ago), number, request.payer_id)
        yield following


def _sell(context: SellerContext, number: int, payer_id: int) -> None:
    amount = Decimal(100 + number * 7919 % 99_900).scaleb(-2)
    payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    body = OrderRequest(external_reference=f"provisioned-{number + 1}", total_amount=amount, transactions=payments)
    made = orders.create(context, Call(body=body, path={}, query={}))
    record = context.require(ORDERS, made.id)
    orders.pay(context, record, method="account_money", installments=1, outcome="approved", payer_id=payer_id)
