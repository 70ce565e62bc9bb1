"""In-person QR orders (4.10 to 4.13): created, paid, refunded, canceled, expired."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

from msgspec.structs import replace

from paymentsdk import money
from paymentsdk._core.operation import Operation
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
    QRConfig,
    QRMode,
    Refund,
    RefundRequest,
    RefundStatus,
    Transactions,
    TypeResponse,
)
from paymentsdk.sandbox.answers import Refused, echo, errors
from paymentsdk.sandbox.behaviours import merchant_orders
from paymentsdk.sandbox.book import Book, Call
from paymentsdk.sandbox.intake import Violation, violation
from paymentsdk.sandbox.magic import Magic, demanded
from paymentsdk.sandbox.records import CURRENCIES, ORDERS, TENANTS, OrderRecord

DEFAULT_EXPIRATION = "PT15M"
_CODES: Mapping[Violation, str] = {
    "syntax": "property_type",
    "object": "property_type",
    "type": "property_type",
    "unknown": "unsupported_properties",
    "missing": "required_properties",
    "few": "minimum_items",
    "many": "maximum_items",
}
#: The kinds of payment methods that discounts know, each with a method of its kind.
METHODS = {"account_money": "account_money", "credit_card": "visa", "debit_card": "debvisa", "prepaid_card": "prepaid"}
ORDER_ID = re.compile(r"\AORD[0-9A-Za-z]{26}\Z")
B = TypeVar("B")


def create(book: Book, call: Call[OrderRequest]) -> Order:
    """Create an order that waits for its buyer."""
    body = call.body
    _check_seller(book, call)
    _check_body(book, body)
    order_id = book.ids.sortable("ORD", book.now)
    qr = body.config.qr if body.config else None
    mode = QRMode(qr.mode or "static") if qr else QRMode.STATIC
    payment = OrderPayment(
        id=book.ids.sortable("PAY", book.now),
        amount=body.transactions.payments[0].amount,
        status=PaymentStatus.CREATED,
        status_detail=PaymentStatusDetail.READY_TO_PROCESS,
    )
    order = echo(
        body,
        Order,
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
    order = replace(
        order,
        config=order.config and replace(order.config, qr=replace(order.config.qr or QRConfig(), mode=mode)),
        type_response=None if mode == QRMode.STATIC else _code(book, order_id),
        integration_data=replace(order.integration_data or IntegrationData(), application_id=book.tenant.client_id),
    )
    expires_at = book.now + parse_duration(order.expiration_time or DEFAULT_EXPIRATION)
    book.put(ORDERS, OrderRecord(order=order, expires_at=expires_at))
    book.schedule(expires_at, "order.expire", order_id)
    book.enter("order_created", id=order_id, order_id=order_id, external_reference=order.external_reference)
    return order


def _code(book: Book, order_id: str) -> TypeResponse:
    return TypeResponse(qr_data=f"{book.base_url}/qr/{order_id}")


def relink(book: Book) -> None:
    """Have the codes of orders that an earlier start made lead to where the sandbox is now."""
    for record in book.find(ORDERS, [("mode", "<>", QRMode.STATIC)]):
        book.put(ORDERS, replace(record, order=replace(record.order, type_response=_code(book, record.order.id))))


def _check_seller(book: Book, call: Call[OrderRequest]) -> None:
    if book.tenant.country not in CURRENCIES:
        raise Refused(400, "unsupported_site")
    if call.body.marketplace_fee is not None:
        if call.grant is None or not call.grant.oauth:
            raise Refused(400, "marketplace_not_valid")
        if book.tenant.marketplace is None:
            raise Refused(404, "marketplace_fee_not_allowed")


def _check_body(book: Book, body: OrderRequest) -> None:
    if body.expiration_time is not None:
        orders.check_expiration(body.expiration_time, book.policies.longest_expiration)
    data = body.integration_data
    if data and data.sponsor and not _may_sponsor(book, data.sponsor.id):
        raise Refused(400, "sponsor_id_not_valid", details=("integration_data.sponsor.id",))
    pos = body.config.qr.external_pos_id if body.config else None
    if pos is not None and pos not in book.tenant.external_pos_ids:
        raise Refused(404, "pos_not_found", details=("config.qr.external_pos_id",))


def _may_sponsor(book: Book, name: str) -> bool:
    if not (name.isascii() and name.isdigit()):
        return False
    # A sponsor is another seller, beyond the own book.
    return book.policies.sponsors == "any" or book.store.get(TENANTS, name.lstrip("0")) is not None


def get(book: Book, call: Call[None]) -> Order:
    """Return an order."""
    return _asked(book, call.path, orders.GET).order


def _asked(book: Book, path: Mapping[str, str], operation: Operation[B, object]) -> OrderRecord:
    order_id = path["order_id"]
    if not ORDER_ID.match(order_id):
        raise Refused(400, "invalid_path_param", details=("order_id",))
    record = book.get(ORDERS, order_id)
    if record is None:
        raise Refused(404, "order_not_found", details=(order_id,))
    demand = demanded(operation, record.order.external_reference, later=True)
    if demand:
        raise demand
    return record


def cancel(book: Book, call: Call[None]) -> Order:
    """Cancel an order that nobody has paid; under the policy ``cancel_from=any`` a paid one too."""
    record = _asked(book, call.path, orders.CANCEL)
    order = record.order
    if order.status == OrderStatus.CANCELED:
        raise Refused(409, "order_already_canceled")
    if order.status != OrderStatus.CREATED and book.policies.cancel_from == "created":
        raise Refused(409, "cannot_cancel_order", details=(f"the order is {order.status}",))
    if any(one.status == RefundStatus.PROCESSING for one in order.refunds):
        raise Refused(423, "resource_locked", details=("a refund is being processed",))
    payment = payment_of(order)
    left = refundable(payment)
    changed = replace(payment, status=PaymentStatus.CANCELED, status_detail=PaymentStatusDetail.CANCELED_BY_API)
    order = _moved(book, record, changed, OrderStatus.CANCELED, OrderStatusDetail.CANCELED)
    book.enter(
        "order_canceled", id=order.id, order_id=order.id, amount=-left, external_reference=order.external_reference
    )
    if left:
        merchant_orders.revert(book, order.id, left)
    return order


def expire(book: Book, order_id: str) -> str | None:
    """Let an order run out that nobody has paid or canceled."""
    record = book.known(ORDERS, order_id)
    if record.order.status != OrderStatus.CREATED:
        return None
    changed = replace(payment_of(record.order), status=PaymentStatus.EXPIRED, status_detail=PaymentStatusDetail.EXPIRED)
    order = _moved(book, record, changed, OrderStatus.EXPIRED, OrderStatusDetail.EXPIRED)
    book.enter("order_expired", id=order.id, order_id=order.id, external_reference=order.external_reference)
    return "order.expired"


def pay(book: Book, record: OrderRecord, *, method: str, installments: int, outcome: str, payer_id: int) -> Order:
    """Have the buyer try to pay: ``approved``, ``rejected`` (nothing changes) or ``in_review`` (decided later).

    Raises:
        Refused: The order cannot be paid any more.
    """
    order = record.order
    if order.status != OrderStatus.CREATED:
        raise Refused(409, "cannot_pay_order", f"the order is {order.status}")
    payment = payment_of(order)
    # A rejection leaves no trace, unless it ends a review.
    if outcome == "rejected" and payment.status_detail != PaymentStatusDetail.IN_REVIEW:
        return order
    if outcome != "approved":
        detail = PaymentStatusDetail.READY_TO_PROCESS if outcome == "rejected" else PaymentStatusDetail.IN_REVIEW
        return _moved(book, record, replace(payment, status_detail=detail))
    discounted = discounted_total(order, method)
    paid = payment.amount if discounted is None else discounted
    payment = replace(
        payment,
        status=PaymentStatus.PROCESSED,
        status_detail=PaymentStatusDetail.ACCREDITED,
        paid_amount=paid,
        reference_id=str(book.ids.number(12)),
        payment_method=PaymentMethod(
            id=METHODS[method], type=method, installments=counted_installments(method, installments)
        ),
        discounts=None if discounted is None else PaymentDiscounts(type=method),
    )
    record = replace(record, payer_id=payer_id)
    order = _moved(book, record, payment, OrderStatus.PROCESSED, OrderStatusDetail.ACCREDITED)
    book.enter(
        "payment",
        id=payment.id,
        order_id=order.id,
        amount=paid or money.ZERO,
        external_reference=order.external_reference,
    )
    merchant_orders.from_order(book, order, payer_id)
    return order


def discounted_total(order: Order, method: str) -> Decimal | None:
    """Return what a buyer pays with *method*, if the order has a total for it; the first counts, should it have two."""
    entries = (order.discounts and order.discounts.payment_methods) or ()
    return next((one.new_total_amount for one in entries if one.type == method), None)


def counted_installments(method: str, installments: int) -> int:
    """Return in how many parts *method* is paid: only a credit card has more than one."""
    return installments if method == "credit_card" else 1


def refund(book: Book, call: Call[RefundRequest]) -> Order:
    """Give back what is left of the payment, or a part of it."""
    record = _asked(book, call.path, orders.REFUND)
    order, payment = record.order, payment_of(record.order)
    earlier = order.refunds
    if any(one.status == RefundStatus.PROCESSING for one in earlier):
        raise Refused(409, "refund_in_progress")
    left = refundable(payment)
    if payment.paid_amount is None or order.status in (OrderStatus.CANCELED, OrderStatus.EXPIRED):
        raise Refused(409, "cannot_refund_order", details=(f"the order is {order.status}",))
    if not left:
        raise Refused(409, "order_already_refunded")
    amount = _asked_amount(call.body, payment, left)
    made = Refund(
        id=book.ids.sortable("REF", book.now),
        transaction_id=payment.id,
        reference_id=str(book.ids.number(12)),
        amount=amount,
        status=RefundStatus.PROCESSING,
    )
    record = replace(record, order=_with_refunds(order, (*earlier, made)), refund_key=book.key)
    if book.policies.refund_seconds:
        order = _moved(book, record, payment)
        book.schedule(book.now + timedelta(seconds=book.policies.refund_seconds), "refund.settle", order.id)
    else:
        order = _settle(book, record)
    return order if book.policies.refund_answer == "full" else _refund_answer(order, made.id)


def _asked_amount(body: RefundRequest | None, payment: OrderPayment, left: Decimal) -> Decimal:
    if body is None or not body.transactions:
        return left
    part = body.transactions[0]
    if part.id != payment.id:
        raise Refused(400, "property_value", details=("transactions[0].id: is not a payment of the order",))
    if part.amount > left:
        raise Refused(400, "refund_amount_exceeds", details=(f"transactions[0].amount: {left} is left",))
    return part.amount


def settle_refund(book: Book, order_id: str) -> str:
    """Bring the refund that is processing to its end."""
    record = book.known(ORDERS, order_id)
    # The money moves now, and for the request that asked for it.
    order = _settle(dataclasses.replace(book, key=record.refund_key), record)
    return f"refund.{order.refunds[-1].status}"


def _settle(book: Book, record: OrderRecord) -> Order:
    """End the newest refund of an order as the policy says."""
    *earlier, made = record.order.refunds
    made = replace(made, status=RefundStatus(book.policies.refund_outcome))
    record = replace(record, order=_with_refunds(record.order, (*earlier, made)), refund_key=None)
    order, payment, amount = record.order, payment_of(record.order), made.amount or money.ZERO
    failed = made.status == RefundStatus.FAILED
    book.enter(
        "refund_failed" if failed else "refund",
        id=made.id,
        order_id=order.id,
        amount=money.ZERO if failed else -amount,
        external_reference=order.external_reference,
    )
    if failed:
        return _moved(book, record, payment)
    payment = replace(payment, refunded_amount=(payment.refunded_amount or money.ZERO) + amount)
    if refundable(payment):
        status, detail = book.policies.partial_refund_status, book.policies.partial_refund_detail
    else:
        payment = replace(payment, status=PaymentStatus.REFUNDED, status_detail=PaymentStatusDetail.REFUNDED)
        status, detail = OrderStatus.REFUNDED.value, OrderStatusDetail.REFUNDED.value
    order = _moved(book, record, payment, OrderStatus(status), OrderStatusDetail(detail))
    merchant_orders.revert(book, order.id, amount)
    return order


def _refund_answer(order: Order, refund_id: str) -> Order:
    """Return the members that a refund changed (wire-facts: a refund answer is a partial order)."""
    made = tuple(one for one in order.refunds if one.id == refund_id)
    return Order(
        id=order.id, status=order.status, status_detail=order.status_detail, transactions=Transactions(refunds=made)
    )


def payment_of(order: Order) -> OrderPayment:
    """Return the one payment of an order."""
    assert order.payment is not None  # noqa: S101 - every order is made with it
    return order.payment


def refundable(payment: OrderPayment) -> Decimal:
    """Return how much of what was paid has not gone back."""
    return money.total([(1, payment.paid_amount or money.ZERO), (-1, payment.refunded_amount or money.ZERO)])


def _with_refunds(order: Order, refunds: tuple[Refund, ...]) -> Order:
    return replace(order, transactions=Transactions(payments=(payment_of(order),), refunds=refunds))


def _moved(
    book: Book,
    record: OrderRecord,
    payment: OrderPayment,
    status: OrderStatus | None = None,
    detail: OrderStatusDetail | None = None,
) -> Order:
    """Keep the order with its payment changed, in its new state where it has one."""
    order = replace(
        record.order,
        status=status or record.order.status,
        status_detail=detail or record.order.status_detail,
        last_updated_date=book.now,
        transactions=Transactions(payments=(payment,), refunds=record.order.refunds or None),
    )
    book.put(ORDERS, replace(record, order=order))
    return order


def code_of(operation: Operation[object, object], error: RequestInvalid) -> str:
    """Return the code for what is wrong (spec: Errors, Orders API; wire-facts: order codes beyond the spec)."""
    not_the_sum = error.reason.startswith("is not the sum of")
    code = "invalid_total_amount" if not_the_sum else _CODES.get(violation(error), "property_value")
    return code if code in operation.meanings else "property_value"


#: The shape of refusals.
shape = errors
BEHAVIOUR: Mapping[Operation[Any, Order], Callable[[Book, Call[Any]], Order]] = {
    orders.CREATE: create,
    orders.GET: get,
    orders.CANCEL: cancel,
    orders.REFUND: refund,
}
_OF_THE_ORDER = Magic("external_reference", later=True)
MAGIC: Mapping[Operation[Any, Order], Magic] = {
    orders.CREATE: Magic("external_reference"),
    orders.GET: _OF_THE_ORDER,
    orders.CANCEL: _OF_THE_ORDER,
    orders.REFUND: _OF_THE_ORDER,
}
NATURAL = {
    ("orders.*", "invalid_path_param"): "an order id that is not ORD and 26 letters and digits",
    ("orders.*", "order_not_found"): "an order id that is unknown, or another seller's",
    ("orders.*", "forbidden"): "a token whose scope does not have `write`, or `read` for a GET",
    ("orders.*", "unsupported_properties"): "a member that the contract does not have",
    ("orders.*", "property_value"): "a member that breaks a rule",
    ("orders.*", "property_type"): "a member of another type, an amount as a JSON number, malformed JSON",
    ("orders.*", "required_properties"): "a missing member",
    ("orders.*", "minimum_items"): "an empty list of payments",
    ("orders.create", "maximum_items"): "two payments, or five discounts",
    ("orders.create", "invalid_total_amount"): "a total_amount that is not the sum of the payments",
    ("orders.create", "unsupported_site"): "a seller of a country other than AR, BR, CL and UY",
    ("orders.create", "sponsor_id_not_valid"): "an integration_data.sponsor.id that is not a number",
    ("orders.create", "marketplace_not_valid"): "a marketplace_fee with a token that was not obtained through OAuth",
    ("orders.create", "invalid_credentials"): "an APP_USR token",
    ("orders.create", "pos_not_found"): "an external_pos_id that the seller does not have",
    ("orders.create", "marketplace_fee_not_allowed"): "a marketplace_fee of a seller without a marketplace",
    ("orders.cancel", "order_already_canceled"): "an order that was canceled",
    ("orders.cancel", "cannot_cancel_order"): "an order that was paid, refunded or has expired",
    (
        "orders.cancel",
        "resource_locked",
    ): "a key that is in flight (concurrent_twin=locked), or a refund that is processing (cancel_from=any)",
    ("orders.refund", "refund_amount_exceeds"): "an amount above what is left of the payment",
    ("orders.refund", "cannot_refund_order"): "an order that was not paid",
    ("orders.refund", "order_already_refunded"): "an order of which nothing is left",
    ("orders.refund", "refund_in_progress"): "a second refund while the first is processing (policy refund_seconds)",
}
_ID: Mapping[str, object] = {"type": "string", "pattern": ORDER_ID.pattern}
SCHEMAS: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("orders.get", "order_id"): _ID,
    ("orders.cancel", "order_id"): _ID,
    ("orders.refund", "order_id"): _ID,
    ("OrderRequest", "expiration_time"): {"type": "string", "format": "duration"},
}
