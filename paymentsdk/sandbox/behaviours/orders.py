"""In-person QR orders (4.10 to 4.13): created, paid, refunded, canceled, expired."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import orders
from paymentsdk.resources.common import parse_duration
from paymentsdk.resources.orders import (
    IntegrationData,
    Order,
    OrderPayment,
    OrderRequest,
    OrderStatus,
    OrderStatusDetail,
    PaymentDiscounts,
    PaymentMethod,
    PaymentStatus,
    PaymentStatusDetail,
    QRMode,
    Refund,
    RefundRequest,
    RefundStatus,
    Transactions,
    TypeResponse,
)
from paymentsdk.sandbox import magic
from paymentsdk.sandbox.answers import Refused
from paymentsdk.sandbox.behaviours import merchant_orders
from paymentsdk.sandbox.book import Book, Call
from paymentsdk.sandbox.intake import refuse
from paymentsdk.sandbox.records import CURRENCIES, ORDERS, OrderRecord

DEFAULT_EXPIRATION = "PT15M"
_ORDER_ID = re.compile(r"ORD[0-9A-Za-z]{26}\Z")
_NOTHING = Decimal(0)


def create(book: Book, call: Call[OrderRequest]) -> Order:
    """Create an order that waits for its buyer."""
    body = call.body
    _check_seller(book, call)
    _check_body(book, body)
    order_id = book.ids.sortable("ORD", book.now)
    payment = OrderPayment(
        id=book.ids.sortable("PAY", book.now),
        amount=body.transactions.payments[0].amount,
        status=PaymentStatus.CREATED,
        status_detail=PaymentStatusDetail.READY_TO_PROCESS,
    )
    # The request's members have the names and the forms of the answer's.
    asked = msgspec.convert(body, Order, from_attributes=True, strict=False) if False else _echo(body)
    order = replace(
        asked,
        id=order_id,
        user_id=str(book.tenant.user_id),
        expiration_time=body.expiration_time or DEFAULT_EXPIRATION,
        processing_mode="automatic",
        status=OrderStatus.CREATED,
        status_detail=OrderStatusDetail.CREATED,
        currency=book.tenant.currency,
        country_code=book.tenant.country,
        created_date=book.now,
        last_updated_date=book.now,
        transactions=Transactions(payments=(payment,)),
    )
    return order
