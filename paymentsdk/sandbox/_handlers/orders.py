"""In-person QR orders (4.10 to 4.13): created, paid, refunded, canceled, expired."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import TypeVar

from msgspec import Raw
from msgspec.structs import replace

from paymentsdk import money
from paymentsdk._contract.operation import Operation
from paymentsdk.resources import orders
from paymentsdk.resources.common import parse_duration, require
from paymentsdk.resources.orders import Order, OrderPayment, OrderRequest, OrderStatus, PaymentStatusDetail
from paymentsdk.sandbox._handlers import merchant_orders
from paymentsdk.sandbox._handlers._sales import METHODS, counted_installments, find_sponsor
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext, requested_error
from paymentsdk.sandbox._records import CURRENCIES, ORDERS, EntryKind, OrderRecord, order_link
from paymentsdk.sandbox._webhooks import ACTIONS, notify
from paymentsdk.sandbox._wire import Rejected, echo, errors

DEFAULT_EXPIRATION = "PT15M"
#: The details of an order and of its payment in each state that they share.
_DETAILS: Mapping[OrderStatus, tuple[orders.OrderStatusDetail, PaymentStatusDetail]] = {
    OrderStatus.PROCESSED: (orders.OrderStatusDetail.ACCREDITED, PaymentStatusDetail.ACCREDITED),
    OrderStatus.CANCELED: (orders.OrderStatusDetail.CANCELED, PaymentStatusDetail.CANCELED_BY_API),
    OrderStatus.EXPIRED: (orders.OrderStatusDetail.EXPIRED, PaymentStatusDetail.EXPIRED),
    OrderStatus.REFUNDED: (orders.OrderStatusDetail.REFUNDED, PaymentStatusDetail.REFUNDED),
}
ORDER_ID = re.compile(r"\AORD[0-9A-Za-z]{26}\Z")
B = TypeVar("B")


def create(context: SellerContext, request: ParsedRequest[OrderRequest]) -> Order:
    """Create an order that waits for its buyer."""
    body = request.body
    _check_seller(context, request)
    _check_body(context, body)
    order_id = context.ids.sortable("ORD", context.now)
    qr = body.config.qr if body.config else None
    mode = orders.QRMode((qr and qr.mode) or "static")
    payment = OrderPayment(
        id=context.ids.sortable("PAY", context.now),
        amount=body.transactions.payments[0].amount,
        status=orders.PaymentStatus.CREATED,
        status_detail=PaymentStatusDetail.READY_TO_PROCESS,
    )
    cash = body.transactions.cash_withdrawal
    link = None if mode == orders.QRMode.STATIC else orders.TypeResponse(qr_data=order_link(context.base_url, order_id))
    order = echo(
        body,
        Order,
        id=order_id,
        user_id=str(context.tenant.user_id),
        expiration_time=body.expiration_time or DEFAULT_EXPIRATION,
        processing_mode="automatic",
        status=OrderStatus.CREATED,
        status_detail=orders.OrderStatusDetail.CREATED,
        currency=context.tenant.currency,
        country_code=context.tenant.country,
        created_date=context.now,
        last_updated_date=context.now,
        config=qr and orders.OrderConfig(qr=orders.QRConfig(external_pos_id=qr.external_pos_id, mode=mode)),
        type_response=link,
        transactions=orders.Transactions(
            payments=(payment,), cash_withdrawal=orders.CashWithdrawal(amount=cash.amount) if cash else None
        ),
    )
    data = replace(order.integration_data or orders.IntegrationData(), application_id=context.tenant.client_id)
    order = replace(order, integration_data=data)
    expires_at = context.now + parse_duration(order.expiration_time or DEFAULT_EXPIRATION)
    context.put(ORDERS, OrderRecord(order=order, expires_at=expires_at))
    context.schedule(expires_at, "order.expire", order_id)
    _record(context, "order_created", order, order_id)
    return order


def _check_seller(context: SellerContext, request: ParsedRequest[OrderRequest]) -> None:
    if context.tenant.country not in CURRENCIES:
        raise Rejected(400, "unsupported_site")
    if request.body.transactions.cash_withdrawal and not context.tenant.cash_withdrawals:
        raise Rejected(400, "seller_configuration", details=("transactions.cash_withdrawal",))
    if request.body.marketplace_fee is not None:
        if request.grant is None or not request.grant.oauth:
            raise Rejected(400, "marketplace_not_valid")
        if context.tenant.marketplace is None:
            raise Rejected(404, "marketplace_fee_not_allowed")


def _check_body(context: SellerContext, body: OrderRequest) -> None:
    if body.expiration_time is not None:
        orders.check_expiration(body.expiration_time, parse_duration(context.policies.max_order_expiration))
    cash = body.transactions.cash_withdrawal
    for i, discount in enumerate((body.discounts and body.discounts.payment_methods) or ()):
        place = f"$.discounts.payment_methods[{i}].new_total_amount"
        require(not cash or discount.new_total_amount > cash.amount, place, "is not above the withdrawal")
    if body.integration_data and body.integration_data.sponsor:
        sponsor_id = body.integration_data.sponsor.id
        find_sponsor(context, sponsor_id, code="sponsor_id_not_valid", place="integration_data.sponsor.id")
    pos = body.config.qr.external_pos_id if body.config else None
    if pos is not None and pos not in context.tenant.external_pos_ids:
        raise Rejected(404, "pos_not_found", details=("config.qr.external_pos_id",))


def get(context: SellerContext, request: ParsedRequest[None]) -> Raw:
    """Return an order."""
    return _asked(context, request.path, orders.GET).body


def _asked(context: SellerContext, path: Mapping[str, str], operation: Operation[B, object]) -> OrderRecord:
    order_id = path["order_id"]
    if not ORDER_ID.match(order_id):
        raise Rejected(400, "invalid_path_param", details=("order_id",))
    record = context.get(ORDERS, order_id)
    if record is None:
        raise Rejected(404, "order_not_found", details=(order_id,))
    demand = requested_error(operation, record.order.external_reference, later=True)
    if demand:
        raise demand
    return record


def cancel(context: SellerContext, request: ParsedRequest[None]) -> Order:
    """Cancel an unpaid order; under the policy ``cancel_from=any`` also a paid order."""
    record = _asked(context, request.path, orders.CANCEL)
    order = record.order
    if order.status == OrderStatus.CANCELED:
        raise Rejected(409, "order_already_canceled")
    if order.status != OrderStatus.CREATED and context.policies.cancel_from == "created":
        raise Rejected(409, "cannot_cancel_order", details=(f"the order is {order.status}",))
    if any(refund.status == orders.RefundStatus.PROCESSING for refund in order.refunds):
        raise Rejected(423, "resource_locked", details=("a refund is being processed",))
    refundable_amount = refundable(payment_of(order))
    order = _moved(context, record, OrderStatus.CANCELED)
    _record(context, "order_canceled", order, order.id, -refundable_amount)
    if refundable_amount:
        merchant_orders.revert(context, order.id, refundable_amount)
    return order


def expire(context: SellerContext, order_id: str) -> str | None:
    """Expire an order that was neither paid nor canceled."""
    record = context.require(ORDERS, order_id)
    if record.order.status != OrderStatus.CREATED:
        return None
    order = _moved(context, record, OrderStatus.EXPIRED)
    _record(context, "order_expired", order, order.id)
    return "order.expired"


def pay(
    context: SellerContext, record: OrderRecord, *, method: str, installments: int, outcome: str, payer_id: int
) -> Order:
    """Let the buyer try to pay: ``approved``, ``rejected`` (no change), or ``in_review`` (decided later).

    Raises:
        Rejected: The order can no longer be paid.
    """
    order, payment = record.order, payment_of(record.order)
    if order.status != OrderStatus.CREATED:
        raise Rejected(409, "cannot_pay_order", f"the order is {order.status}")
    # A rejection changes nothing, unless it ends a review.
    if outcome == "rejected" and payment.status_detail != PaymentStatusDetail.IN_REVIEW:
        return order
    if outcome != "approved":
        detail = PaymentStatusDetail.READY_TO_PROCESS if outcome == "rejected" else PaymentStatusDetail.IN_REVIEW
        return _moved(context, record, status_detail=detail)
    discounted, cash = discounted_total(order, method), withdrawn(order)
    paid = payment.amount if discounted is None else money.total([(1, discounted), (-1, cash)])
    parts = counted_installments(method, installments)
    order = _moved(
        context,
        record,
        OrderStatus.PROCESSED,
        paid_amount=paid,
        reference_id=str(context.ids.number(12)),
        payment_method=orders.PaymentMethod(id=METHODS[method], type=method, installments=parts),
        discounts=None if discounted is None else orders.PaymentDiscounts(type=method),
    )
    _record(context, "payment", order, payment.id, paid or money.ZERO)
    if cash:
        _record(context, "cash_withdrawal", order, payment.id, cash)
    merchant_orders.from_order(context, order, payer_id)
    return order


def discounted_total(order: Order, method: str) -> Decimal | None:
    """Return the order's discounted total for *method*, if there is one. Of several, the first counts."""
    entries = (order.discounts and order.discounts.payment_methods) or ()
    return next((entry.new_total_amount for entry in entries if entry.type == method), None)


def withdrawn(order: Order) -> Decimal:
    """Return the cash that the buyer receives at the till and pays for with the payment."""
    cash = order.transactions and order.transactions.cash_withdrawal
    return (cash and cash.amount) or money.ZERO


def refund(context: SellerContext, request: ParsedRequest[orders.RefundRequest]) -> Order:
    """Refund the rest of the payment, or a part of it."""
    record = _asked(context, request.path, orders.REFUND)
    order, payment = record.order, payment_of(record.order)
    if any(earlier.status == orders.RefundStatus.PROCESSING for earlier in order.refunds):
        raise Rejected(409, "refund_in_progress")
    if payment.paid_amount is None or order.status in (OrderStatus.CANCELED, OrderStatus.EXPIRED):
        raise Rejected(409, "cannot_refund_order", details=(f"the order is {order.status}",))
    refundable_amount = refundable(payment)
    if not refundable_amount:
        raise Rejected(409, "order_already_refunded")
    new_refund = orders.Refund(
        id=context.ids.sortable("REF", context.now),
        transaction_id=payment.id,
        reference_id=str(context.ids.number(12)),
        amount=_asked_amount(request.body, payment, refundable_amount),
        status=orders.RefundStatus.PROCESSING,
    )
    record = replace(record, order=_with_refunds(order, (*order.refunds, new_refund)), refund_key=context.key)
    if context.policies.refund_seconds:
        order = _moved(context, record)
        context.schedule(context.now + timedelta(seconds=context.policies.refund_seconds), "refund.settle", order.id)
    else:
        order = _settle(context, record)
    if context.policies.refund_response == "full":
        return order
    # The members that a refund changed (wire-facts: a refund response is a partial order).
    changed = orders.Transactions(refunds=order.refunds[-1:])
    return Order(id=order.id, status=order.status, status_detail=order.status_detail, transactions=changed)


def _asked_amount(body: orders.RefundRequest | None, payment: OrderPayment, refundable_amount: Decimal) -> Decimal:
    if body is None or not body.transactions:
        return refundable_amount
    part = body.transactions[0]
    require(part.id == payment.id, "$.transactions[0].id", "is not a payment of the order")
    if part.amount > refundable_amount:
        raise Rejected(400, "refund_amount_exceeds", details=(f"transactions[0].amount: {refundable_amount} is left",))
    return part.amount


def settle_refund(context: SellerContext, order_id: str) -> str:
    """Settle the refund that is processing."""
    record = context.require(ORDERS, order_id)
    # The money moves now, under the key of the request for the refund.
    order = _settle(replace(context, key=record.refund_key), record)
    return f"refund.{order.refunds[-1].status}"


def _settle(context: SellerContext, record: OrderRecord) -> Order:
    """Settle the newest refund of an order according to the policy."""
    *earlier, newest = record.order.refunds
    newest = replace(newest, status=orders.RefundStatus(context.policies.refund_outcome))
    order, amount = _with_refunds(record.order, (*earlier, newest)), newest.amount or money.ZERO
    failed = newest.status == orders.RefundStatus.FAILED
    _record(context, "refund_failed" if failed else "refund", order, newest.id, money.ZERO if failed else -amount)
    record = replace(record, order=order, refund_key=None)
    if failed:
        return _moved(context, record)
    payment = payment_of(order)
    refunded = (payment.refunded_amount or money.ZERO) + amount
    if refundable(replace(payment, refunded_amount=refunded)):
        status, detail = context.policies.partial_refund_status, context.policies.partial_refund_detail
        order = replace(order, status=OrderStatus(status), status_detail=orders.OrderStatusDetail(detail))
        order = _moved(context, replace(record, order=order), refunded_amount=refunded)
    else:
        order = _moved(context, record, OrderStatus.REFUNDED, refunded_amount=refunded)
    merchant_orders.revert(context, order.id, amount)
    return order


def payment_of(order: Order) -> OrderPayment:
    """Return the only payment of an order."""
    if order.payment is None:
        raise LookupError(f"the order {order.id} has no payment")
    return order.payment


def refundable(payment: OrderPayment) -> Decimal:
    """Return the paid amount that was not refunded."""
    return money.total([(1, payment.paid_amount or money.ZERO), (-1, payment.refunded_amount or money.ZERO)])


def _with_refunds(order: Order, refunds: tuple[orders.Refund, ...]) -> Order:
    return replace(order, transactions=replace(order.transactions or orders.Transactions(), refunds=refunds))


def _record(context: SellerContext, kind: EntryKind, order: Order, name: str, amount: Decimal = money.ZERO) -> None:
    """Append a ledger line about *order* and the thing *name*, and notify the order's webhooks."""
    context.record(kind, id=name, order_id=order.id, amount=amount, external_reference=order.external_reference)
    if kind in ACTIONS:
        notify(context, "orders", ACTIONS[kind], order.id)


def _moved(context: SellerContext, record: OrderRecord, status: OrderStatus | None = None, **changes: object) -> Order:
    """Store the order with its payment's *changes*. A new *status* applies to both, with its details."""
    order = record.order
    if status:
        detail, payment_detail = _DETAILS[status]
        order = replace(order, status=status, status_detail=detail)
        changes |= {"status": orders.PaymentStatus(status.value), "status_detail": payment_detail}
    payments = (replace(payment_of(order), **changes),)
    transactions = replace(order.transactions or orders.Transactions(), payments=payments)
    order = replace(order, last_updated_date=context.now, transactions=transactions)
    context.put(ORDERS, replace(record, order=order))
    return order


_OF_THE_ORDER = MagicValue("external_reference", later=True)
_ID: Mapping[str, object] = {"type": "string", "pattern": ORDER_ID.pattern}
NOUN = Noun(
    handlers=[
        Handler(operation=orders.CREATE, handle=create, magic=MagicValue("external_reference")),
        Handler(operation=orders.GET, handle=get, magic=_OF_THE_ORDER),
        Handler(operation=orders.CANCEL, handle=cancel, magic=_OF_THE_ORDER),
        Handler(operation=orders.REFUND, handle=refund, magic=_OF_THE_ORDER),
    ],
    # Spec: Errors, Orders API; wire-facts: order codes beyond the spec.
    rule_codes={
        "syntax": "property_type",
        "object": "property_type",
        "type": "property_type",
        "unknown": "unsupported_properties",
        "required": "required_properties",
        "min_items": "minimum_items",
        "max_items": "maximum_items",
    },
    other_code="property_value",
    shape=errors,
    in_header_only=True,
    causes={
        "unsupported_properties": "a field that the contract does not have",
        "bad_request": "an access_token in the query",
        "property_type": "a field of the wrong type, an amount as a JSON number, malformed JSON",
        "required_properties": "a missing field",
        "minimum_items": "an empty list of payments",
        "maximum_items": "two payments, or five discounts",
        "unsupported_site": "a seller of a country other than AR, BR, CL and UY",
        "sponsor_id_not_valid": "an integration_data.sponsor.id that is not a number",
        "marketplace_not_valid": "a marketplace_fee with a token that was not obtained through OAuth",
        "invalid_credentials": "an APP_USR token",
        "seller_configuration": "a cash_withdrawal of a tenant made with cash_withdrawals=false",
        "pos_not_found": "an external_pos_id that the seller does not have",
        "marketplace_fee_not_allowed": "a marketplace_fee of a seller without a marketplace",
        "order_already_canceled": "an order that was canceled",
        "cannot_cancel_order": "an order that was paid, refunded or has expired",
        "refund_amount_exceeds": "an amount above the refundable balance of the payment",
        "cannot_refund_order": "an order that was not paid",
        "order_already_refunded": "an order whose whole amount was refunded",
        "resource_locked": "a key that is in flight (concurrent_twin=locked); when canceling, also a refund that is "
        "processing (cancel_from=any)",
        "refund_in_progress": "a second refund while the first is processing (policy refund_seconds)",
        "invalid_path_param": "an order id other than ORD and 26 letters and digits",
        "order_not_found": "an order id that is unknown, or another seller's",
        "forbidden": "a token whose scope does not have `write`, or `read` for a GET",
        "property_value": "a field that breaks a rule, such as a total_amount that is not the sum of payment and "
        "withdrawal",
    },
    schemas={
        **{(f"orders.{name}", "order_id"): _ID for name in ("get", "cancel", "refund")},
        ("OrderRequest", "expiration_time"): {"type": "string", "format": "duration"},
    },
    jobs={"order.expire": expire, "refund.settle": settle_refund},
)
