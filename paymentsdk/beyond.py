"""Reads that platforms of this kind usually offer, but that the contract does not have.

The SDK does not use them by itself. Find out whether your platform has a read before you rely on it. Call these
operations with `client.call`, and walk the searches with a `Pager`. Their responses are Structs of the contract.
``paymentsdk sandbox --beyond reads`` serves them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Required, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from paymentsdk._call.engine import Caller, engine_of
from paymentsdk._contract.identity import Echo
from paymentsdk._contract.operation import MIB, Operation, PageShape
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._paging.cursor import Position
from paymentsdk.resources.common import INTERNAL_ERROR, RESULTS, UNAUTHORIZED, Moment, Paging, ResponseStruct, same_id
from paymentsdk.resources.customers import Customer
from paymentsdk.resources.merchant_orders import MerchantOrder, MerchantOrderPayment
from paymentsdk.resources.orders import Order, OrderRequest
from paymentsdk.resources.preferences import Preference

if TYPE_CHECKING:
    from paymentsdk.journal import Record

__all__ = [
    "GET_CUSTOMER",
    "GET_MERCHANT_ORDER",
    "GET_PAYMENT",
    "GET_PREFERENCE",
    "OPERATIONS",
    "SEARCH_ORDERS",
    "SEARCH_PAYMENTS",
    "OrderPage",
    "OrderQuery",
    "PaymentPage",
    "PaymentQuery",
    "find_order",
]

R = TypeVar("R")

_READ_ERRORS = (UNAUTHORIZED, INTERNAL_ERROR)
_GET_ERRORS = (*_READ_ERRORS, ErrorCode(404, "not_found", "nothing of this seller has the id"))
_SEARCH_ERRORS = (*_READ_ERRORS, ErrorCode(400, "bad_request", "a filter is invalid"))


class PaymentPage(ResponseStruct):
    """A page of payments."""

    paging: Paging = Paging()
    """The position of the page in the search, in rows."""
    results: tuple[MerchantOrderPayment, ...] | None = None
    """The payments of this page; `None` or empty for none."""


class PaymentQuery(Position, total=False):
    """The filters of a search for payments, and the position of a page."""

    external_reference: str
    """The integrator's own name for the sale."""
    status: str
    """The status of the payments, such as `approved`; any by default."""


class OrderPage(ResponseStruct):
    """A page of orders."""

    paging: Paging = Paging()
    """The position of the page in the search, in rows."""
    data: tuple[Order, ...] | None = None
    """The orders of this page; `None` or empty for none."""


class OrderQuery(TypedDict, total=False):
    """The filters of a search for orders, and the number of a page."""

    begin_date: Required[Moment]
    """Created at this moment or later."""
    end_date: Required[Moment]
    """Created at this moment or earlier."""
    external_reference: str
    """The integrator's own name for the orders."""
    status: str
    """The status of the orders, such as `created`; any by default."""
    page: Annotated[int, Meta(ge=1)]
    """The number of the page, from 1 (the default)."""
    page_size: Annotated[int, Meta(ge=1)]
    """The maximum rows of a page; the platform may allow at most 100."""


def _get(name: str, path: str, summary: str, result: type[R]) -> Operation[None, R]:
    """Return the operation that reads a resource by the id at the end of *path*."""
    return Operation(
        name=name,
        method="GET",
        path=path,
        summary=summary,
        retry=RetryClass.READ,
        result=result,
        echoes=(Echo("id", of=path.rpartition("/")[2], agrees=same_id),),
        errors=_GET_ERRORS,
    )


GET_CUSTOMER: Operation[None, Customer] = _get(
    "customers.get", "/v1/customers/{customer_id}", "Get a customer", Customer
)
GET_PREFERENCE: Operation[None, Preference] = _get(
    "preferences.get", "/checkout/preferences/{preference_id}", "Get a checkout preference", Preference
)
GET_MERCHANT_ORDER: Operation[None, MerchantOrder] = _get(
    "merchant_orders.get", "/merchant_orders/{merchant_order_id}", "Get a merchant order of any age", MerchantOrder
)
GET_PAYMENT: Operation[None, MerchantOrderPayment] = _get(
    "payments.get", "/v1/payments/{payment_id}", "Get a payment", MerchantOrderPayment
)
SEARCH_PAYMENTS: Operation[None, PaymentPage] = Operation(
    name="payments.search",
    method="GET",
    path="/v1/payments/search",
    summary="Search payments",
    retry=RetryClass.READ,
    query=PaymentQuery,
    result=PaymentPage,
    page=RESULTS,
    max_response=32 * MIB,
    errors=_SEARCH_ERRORS,
)
SEARCH_ORDERS: Operation[None, OrderPage] = Operation(
    name="orders.search",
    method="GET",
    path="/v1/orders",
    summary="Search orders by the dates of their creation",
    retry=RetryClass.READ,
    query=OrderQuery,
    result=OrderPage,
    page=PageShape(items="data", total="paging.total", page="page", size="page_size"),
    decimal_strings=True,
    max_response=32 * MIB,
    errors=_SEARCH_ERRORS,
)
#: `SEARCH_PAYMENTS` comes before `GET_PAYMENT`, whose path also matches that of the search.
_IN_ORDER = (GET_CUSTOMER, GET_PREFERENCE, GET_MERCHANT_ORDER, SEARCH_PAYMENTS, GET_PAYMENT, SEARCH_ORDERS)
OPERATIONS: Mapping[str, Operation[None, object]] = MappingProxyType({read.name: read for read in _IN_ORDER})


async def find_order(
    client: Caller, record: Record, others: Callable[..., Awaitable[Sequence[Record]]]
) -> Order | None:
    """Return the order that a journaled `orders.create` has made, paid or not; ``None`` unless it is certain.

    Pass this function to `client.recover(look_up={"orders.create": find_order})`. It searches the seller's orders by
    the external reference, created since the record began. An order is certain if the search finds no other, it has the
    amount of the record, it was created while the record could be sent, and no other record of the seller has its
    reference.

    Args:
        client: The client of the seller.
        record: The record of the write.
        others: A function that returns the other records of the seller: see `Operation.look_up`.

    Raises:
        PaymentsError: The search failed; the record stays open.
    """
    from paymentsdk.journal._record import TOLERANCE  # only recovery needs it

    engine, body = engine_of(client), msgspec.json.decode(record.body or b"", type=OrderRequest)
    reference, now = body.external_reference, engine.runtime.platform_time()
    begin = datetime.fromtimestamp(record.begun - TOLERANCE, UTC)
    end = datetime.fromtimestamp(record.not_after + TOLERANCE, UTC)
    until = end if now is None else datetime.fromtimestamp(now, UTC)
    query = {"begin_date": begin, "end_date": until, "external_reference": reference}
    result = await engine.call(SEARCH_ORDERS, query=query)
    for rival in await others(path=record.path, containing=msgspec.json.encode(reference)):
        # A purged record may have had the same reference.
        if rival.body is None or msgspec.json.decode(rival.body, type=OrderRequest).external_reference == reference:
            return None
    orders = result.value.data or ()
    is_whole = result.value.paging.total in (None, 1) and not any(anomaly.dropped for anomaly in result.anomalies)
    if len(orders) != 1 or not is_whole:
        return None
    (order,) = orders
    # A platform that ignores a filter may return an order of another record.
    if order.created_date is None or not begin <= order.created_date <= end:
        return None
    is_same = (order.total_amount, order.external_reference) == (body.total_amount, reference)
    return order if is_same else None
