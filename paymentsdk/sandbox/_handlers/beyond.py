"""The reads of `paymentsdk.beyond`, which are not in the contract. The sandbox serves them only on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk import beyond
from paymentsdk._contract.operation import Operation
from paymentsdk.resources.common import Paging
from paymentsdk.resources.merchant_orders import MerchantOrder, MerchantOrderPayment
from paymentsdk.sandbox._noun import ParsedRequest, SellerContext, cut_page
from paymentsdk.sandbox._records import CUSTOMERS, MERCHANT_ORDERS, ORDERS, PREFERENCES, Condition, Table
from paymentsdk.sandbox._wire import Rejected

D = TypeVar("D", bound=Struct)


def _found(document: D | None) -> D:
    if document is None:
        raise Rejected(404, "not_found")
    return document


def _get(table: Table[D]) -> Callable[[SellerContext, ParsedRequest[None]], D]:
    """Return the handler that returns the document of *table* with the id in the path."""
    return lambda context, request: _found(context.get(table, *request.path.values()))


def _get_merchant_order(context: SellerContext, request: ParsedRequest[None]) -> MerchantOrder:
    return _get(MERCHANT_ORDERS)(context, request).merchant_order


def _payments(context: SellerContext, conditions: list[Condition]) -> Iterator[MerchantOrderPayment]:
    for record in context.find(MERCHANT_ORDERS, conditions):
        yield from record.merchant_order.payments or ()


def _get_payment(context: SellerContext, request: ParsedRequest[None]) -> MerchantOrderPayment:
    payment_id = request.path["payment_id"]
    return _found(next((payment for payment in _payments(context, []) if str(payment.id) == payment_id), None))


def _search_payments(context: SellerContext, request: ParsedRequest[None]) -> beyond.PaymentPage:
    status, conditions = request.query.get("status"), _equal(request, "external_reference")
    payments = [payment for payment in _payments(context, conditions) if status in (None, payment.status)]
    paging, results = _page(context, request, payments)
    return beyond.PaymentPage(paging=paging, results=results)


def _search_orders(context: SellerContext, request: ParsedRequest[None]) -> beyond.OrderPage:
    query, policies = cast("beyond.OrderQuery", request.query), context.policies
    begin, end = query["begin_date"], query["end_date"]
    orders = [record.order for record in context.find(ORDERS, _equal(request, "external_reference", "status"))]
    orders = [order for order in orders if order.created_date and begin <= order.created_date <= end]
    size = min(query.get("page_size", policies.page_size), policies.max_page_size)
    position = {"offset": (query.get("page", 1) - 1) * size, "limit": size}
    paging, data = _page(context, replace(request, query=position), orders)
    return beyond.OrderPage(paging=paging, data=data)


def _equal(request: ParsedRequest[None], *columns: str) -> list[Condition]:
    return [(column, "=", request.query[column]) for column in columns if column in request.query]


def _page(context: SellerContext, request: ParsedRequest[None], rows: Sequence[D]) -> tuple[Paging, tuple[D, ...]]:
    """Return the page that *request* asks for: its position and its rows."""
    if context.policies.search_order == "newest":
        rows = rows[::-1]
    page = cut_page(context.policies, request, len(rows), lambda start, most: [*rows[start : start + most]])
    return Paging(offset=page.offset, limit=page.limit, total=page.total), tuple(page.items)


#: The handlers of `Sandbox(beyond="reads")`, by operation.
READS: Mapping[Operation[Any, Any], Callable[[SellerContext, ParsedRequest[Any]], object]] = {
    beyond.GET_CUSTOMER: _get(CUSTOMERS),
    beyond.GET_PREFERENCE: _get(PREFERENCES),
    beyond.GET_MERCHANT_ORDER: _get_merchant_order,
    beyond.SEARCH_PAYMENTS: _search_payments,  # First, since the get's path matches it, too.
    beyond.GET_PAYMENT: _get_payment,
    beyond.SEARCH_ORDERS: _search_orders,
}
