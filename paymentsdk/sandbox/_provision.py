"""Many paid orders at once, as if buyers had come over the last days: to test searches, walks and reconciliation.

One order is drafted by the handlers. The others are its rows with values of their own: a quarter of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox._context import Call, SellerContext
from paymentsdk.sandbox._handlers import merchant_orders, orders
from paymentsdk.sandbox._parsing import ControlStruct
from paymentsdk.sandbox._records import MERCHANT_ORDERS, ORDERS
from paymentsdk.sandbox._responses import wire_form
from paymentsdk.sandbox._table import as_column

_MILLISECOND = timedelta(milliseconds=1)
#: Orders that are made and committed in one piece: some milliseconds.
_PIECE = 100


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


class _Sale(NamedTuple):
    """What differs from one order to the next."""

    reference: str
    amount: Decimal
    order_id: str
    payment_id: str
    reference_id: str
    merchant_order: int
    paid_at: datetime
    expires_at: datetime


def provision(context: SellerContext, request: ProvisionRequest) -> Iterator[int]:
    """Make the orders, oldest first, as if each had come by the API and a buyer had paid it; say at each step how many.

    Their references are `provisioned-1` and so on, their amounts 1.00 to 999.99.
    """
    drafts: list[_Sale] = []
    rows = context.store.draft(lambda: drafts.append(_sell(context, request.payer_id)))
    [draft] = drafts
    columns, texts = _forms(draft)
    days = timedelta(days=request.days)
    for first in range(0, request.orders, _PIECE):
        following = min(first + _PIECE, request.orders)
        with context.store.transaction():
            for number in range(first, following):
                ago = (days - days * number // request.orders) // _MILLISECOND * _MILLISECOND
                sale = _another(draft, context, number, context.now - ago)
                new_columns, new_texts = _forms(sale)
                changed = dict(zip(columns, new_columns, strict=True))
                context.store.write(rows, changed, zip(texts, new_texts, strict=True))
        yield following


def _sell(context: SellerContext, payer_id: int) -> _Sale:
    """Create an order with values that nothing else in its rows can have by chance, and have it paid."""
    reference, amount = f"draft-{context.ids.uuid()}", Decimal("987654.32")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    body = OrderRequest(external_reference=reference, total_amount=amount, transactions=payments)
    made = orders.create(context, Call(body=body, path={}, query={}))
    record = context.require(ORDERS, made.id)
    paid = orders.pay(context, record, method="account_money", installments=1, outcome="approved", payer_id=payer_id)
    payment, sold = orders.payment_of(paid), merchant_orders.of_source(context, made.id)
    if sold is None or payment.id is None or payment.reference_id is None:
        raise LookupError(made.id)
    number = int(sold.merchant_order.id or 0)
    return _Sale(reference, amount, made.id, payment.id, payment.reference_id, number, context.now, record.expires_at)


def _another(draft: _Sale, context: SellerContext, number: int, moment: datetime) -> _Sale:
    return _Sale(
        reference=f"provisioned-{number + 1}",
        amount=Decimal(100 + number * 7919 % 99_900).scaleb(-2),
        order_id=context.ids.sortable("ORD", moment),
        payment_id=context.ids.sortable("PAY", moment),
        reference_id=str(context.ids.number(12)),
        merchant_order=context.number(MERCHANT_ORDERS, 11),
        paid_at=moment,
        expires_at=moment + (draft.expires_at - draft.paid_at),
    )


def _forms(sale: _Sale) -> tuple[list[object], list[bytes]]:
    """Return the values of *sale* as columns have them, and as they stand in JSON."""
    moments = (sale.paid_at, sale.expires_at)
    written = [str(value).encode() for value in sale[: -len(moments)]]
    # Documents and the ledger write moments differently.
    written += [msgspec.json.encode(form(moment)) for moment in moments for form in (wire_form, msgspec.to_builtins)]
    return [as_column(value) for value in sale], written
