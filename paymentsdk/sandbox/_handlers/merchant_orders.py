"""Merchant orders (4.7): the state and the payments of preferences and paid orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk import money
from paymentsdk.resources import merchant_orders
from paymentsdk.resources.merchant_orders import MerchantOrder, MerchantOrderItem, MerchantOrderPayment, Party
from paymentsdk.resources.merchant_orders import MerchantOrderState as State
from paymentsdk.resources.merchant_orders import MerchantOrderStatus as Status
from paymentsdk.resources.orders import Order, OrderPayment
from paymentsdk.resources.preferences import Preference
from paymentsdk.sandbox import _records
from paymentsdk.sandbox._clock import EARLIEST
from paymentsdk.sandbox._handlers._sales import DETAILS, currency_of, shipments_of, shipping_cost, total
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext, find_page
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import EPOCH, MERCHANT_ORDERS, Comparison, Condition, EntryKind, MerchantOrderRecord
from paymentsdk.sandbox._webhooks import notify
from paymentsdk.sandbox._wire import Rejected, echo

#: The days that a search covers (spec: Limits).
SEARCH_DAYS = 90
#: The grains of date filters. A millisecond is the clock's unit and needs no rounding.
_GRAINS = {"second": timedelta(seconds=1), "minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
#: The comparisons of a date with the begin and the end of a range.
_EDGES: Mapping[str, tuple[Comparison, Comparison]] = {
    "inclusive": (">=", "<="),
    "exclusive": (">", "<"),
    "half_open": (">=", "<"),
}


class _Page(Struct, frozen=True, kw_only=True):
    """A page of the search. Its fields have no defaults, so that ``None`` is sent as null."""

    elements: list[MerchantOrder] | None
    next_offset: int | None
    total: int


def search(context: SellerContext, request: ParsedRequest[None]) -> _Page:
    """Return a page of the orders of the last 90 days that meet the filters."""
    for effect in request.effects:
        _inject_row_fault(context, effect)
    # A deleted row has no date, so that no search finds it.
    edge, days = _EDGES[context.policies.window_edge][0], timedelta(days=SEARCH_DAYS)
    since: Condition = ("date_created", edge, context.now - days)
    rows, total, offset, _ = find_page(
        context,
        MERCHANT_ORDERS,
        request,
        [*_conditions(context, request.query), since],
        order=context.policies.search_sort,
        descending=context.policies.search_order == "newest",
        shuffle=context.ids.number() if context.policies.equal_moments == "shuffled" else None,
    )
    elements = None if not rows and context.policies.empty_elements == "null" else [row.merchant_order for row in rows]
    following = offset + len(rows)
    last = {"total": total, "zero": 0, "null": None}[context.policies.last_next_offset]
    return _Page(elements=elements, next_offset=following if rows and following < total else last, total=total)


def _inject_row_fault(context: SellerContext, effect: str) -> None:
    """Insert, hide or change one of the seller's rows, at random, if *effect* is a fault of rows."""
    visible: list[Condition] = [("date_created", ">=", EARLIEST)]
    rows = context.count(MERCHANT_ORDERS, visible)
    if not rows:
        return
    [record] = context.find(MERCHANT_ORDERS, visible, limit=1, offset=context.ids.number() % rows)
    order = record.merchant_order
    match effect:
        case "row_inserted":
            order = replace(order, id=context.number(MERCHANT_ORDERS, 11), date_created=context.now)
            _keep(context, replace(record, source=f"{record.source}/{order.id}"), order)
        case "row_deleted":
            context.put(MERCHANT_ORDERS, replace(record, deleted=True))
        case "row_changed":
            _keep(context, record, replace(order, additional_info=f"changed at {context.now.isoformat()}"))
        case _:
            pass


def _conditions(context: SellerContext, query: Mapping[str, object]) -> list[Condition]:
    equal = (MERCHANT_ORDERS.columns.keys() & query.keys()) - {"items"}
    conditions: list[Condition] = [(name, "=", query[name]) for name in sorted(equal)]
    for date in MERCHANT_ORDERS.dates:
        conditions.extend(_range(context.policies, date, query.get(f"{date}_from"), query.get(f"{date}_to")))
    if "items" in query:
        conditions.append(("items", "holds", f"\n{query['items']}\n"))
    return conditions


def _range(policies: Policies, column: str, *ends: object) -> Iterator[Condition]:
    """Yield the conditions for *column* between two *ends*, with the edges and the grain of the policies."""
    grain = _GRAINS.get(policies.date_filter_grain)
    for end, edge in zip(ends, _EDGES[policies.window_edge], strict=True):
        if not isinstance(end, datetime):
            continue
        # In UTC, since the end of the grain could be beyond the calendar at another offset.
        bound = end.astimezone(UTC) - ((end - EPOCH) % grain if grain else timedelta())
        if grain and policies.date_filter_compares == "grains" and edge in {">", "<="}:
            bound += grain - timedelta.resolution  # The last moment of the grain.
        yield column, edge, bound


def from_order(context: SellerContext, order: Order, payer_id: int) -> None:
    """Create the merchant order of a paid QR order."""
    payment, data = order.payment or OrderPayment(id=""), order.integration_data
    items = tuple(
        echo(item, MerchantOrderItem, id=item.external_code, currency_id=order.currency) for item in order.items or ()
    )
    opened = replace(
        _opened(context, items, payment.amount or money.ZERO),
        external_reference=order.external_reference,
        additional_info=order.description,
    )
    sponsor_id = data.sponsor.id if data and data.sponsor else None
    record = MerchantOrderRecord(merchant_order=opened, source=order.id, sponsor_id=sponsor_id)
    # The order's `reference_id` is the number of this payment, so that either leads to the other.
    number = int(payment.reference_id) if payment.reference_id else None
    _pay(context, record, payment.paid_amount or money.ZERO, "approved", payer_id=payer_id, payment_id=number)


def open_preference(context: SellerContext, preference: Preference) -> MerchantOrderRecord:
    """Create the merchant order of *preference*, when its checkout is first opened."""
    currency = currency_of(preference.items or (), context.tenant.currency)
    items = tuple(echo(item, MerchantOrderItem, id=item.id, currency_id=currency) for item in preference.items or ())
    opened = replace(
        _opened(context, items, total(items)),
        shipping_cost=shipping_cost(preference),
        shipments=shipments_of(context, preference, items),
        preference_id=preference.id,
        external_reference=preference.external_reference,
        marketplace=preference.marketplace,
        additional_info=preference.additional_info,
    )
    record = MerchantOrderRecord(merchant_order=opened, source=preference.id, sponsor_id=preference.sponsor_id)
    _notify(context, "created", opened)
    return context.put(MERCHANT_ORDERS, record)


def of_source(context: SellerContext, source: str) -> MerchantOrderRecord | None:
    """Return the merchant order of the order or preference *source*."""
    return next(iter(context.find(MERCHANT_ORDERS, [("source", "=", source)], limit=1)), None)


def pay_preference(context: SellerContext, record: MerchantOrderRecord, status: str, *, payer_id: int) -> MerchantOrder:
    """Record a payment of the whole amount of a preference. It decides a payment in review, if there is one.

    The order stays open unless *status* is ``approved``.

    Raises:
        Rejected: The order is already paid.
    """
    order = record.merchant_order
    if order.status != Status.OPENED:
        raise Rejected(409, "already_paid", f"the merchant order is {order.status}")
    amount = amount_due(order)
    order = _pay(context, record, amount, status, payer_id=payer_id)
    if status == "approved" and order.payments:
        _record(context, "payment", record, str(order.payments[-1].id), amount)
        _notify(context, "paid", order)
    return order


def amount_due(order: MerchantOrder) -> Decimal:
    """Return the amount that the buyer has to pay."""
    return money.total([(1, order.total_amount or money.ZERO), (1, order.shipping_cost or money.ZERO)])


def refund_preference(context: SellerContext, record: MerchantOrderRecord, amount: Decimal | None) -> MerchantOrder:
    """Refund *amount* of a paid preference, or the whole rest.

    Raises:
        Rejected: *amount* is above the rest, or not above 0.
    """
    if amount is not None and amount <= 0:
        raise Rejected(400, "bad_request", "$.amount: must be above 0", details=("$.amount",))
    order = record.merchant_order
    rest_amount = (order.paid_amount or money.ZERO) - (order.refunded_amount or money.ZERO)
    amount = rest_amount if amount is None else amount
    if not money.ZERO < amount <= rest_amount:
        raise Rejected(409, "refund_amount_exceeds", f"{rest_amount} is left")
    _record(context, "refund", record, context.ids.sortable("REF", context.now), -amount)
    order = revert(context, record.source, amount)
    _notify(context, "refunded", order)
    return order


def _notify(context: SellerContext, action: str, order: MerchantOrder) -> None:
    """Notify the seller's webhooks of the order and its payment, and the preference's URL if a policy says so."""
    url = None
    if context.policies.notification_url == "deliver" and order.preference_id:
        preference = context.get(_records.PREFERENCES, order.preference_id)
        url = preference.notification_url if preference else None
    if payment := last_payment(order):
        notify(context, "payments", action, str(payment.id), url)
    notify(context, "merchant_orders", action, str(order.id), url)


def _record(context: SellerContext, kind: EntryKind, record: MerchantOrderRecord, name: str, amount: Decimal) -> None:
    """Append a ledger line about a preference, for the payment or refund *name* of *amount*."""
    order = record.merchant_order
    context.record(
        kind,
        id=name,
        order_id=record.source,
        amount=amount,
        currency=_currency(context, order),
        external_reference=order.external_reference,
    )


def revert(context: SellerContext, source: str, amount: Decimal) -> MerchantOrder:
    """Record that *amount* of the payment of *source* was returned. A full refund makes the order ``reverted``."""
    [record] = context.find(MERCHANT_ORDERS, [("source", "=", source)])
    order = record.merchant_order
    refunded = (order.refunded_amount or money.ZERO) + amount
    whole = refunded >= (order.paid_amount or money.ZERO)
    *earlier, payment = order.payments or (MerchantOrderPayment(),)
    payment = replace(payment, amount_refunded=refunded, last_modified=context.now)
    if whole:
        payment = replace(payment, status="refunded", status_detail=DETAILS["refunded"])
        order = replace(order, order_status=State.REVERTED)
    return _keep(context, record, replace(order, refunded_amount=refunded, payments=(*earlier, payment)))


def _opened(context: SellerContext, items: tuple[MerchantOrderItem, ...], amount: Decimal) -> MerchantOrder:
    return MerchantOrder(
        id=context.number(MERCHANT_ORDERS, 11),
        status=Status.OPENED,
        order_status=State.PAYMENT_REQUIRED,
        application_id=context.tenant.client_id,
        site_id=context.tenant.country,
        marketplace=context.tenant.marketplace or "NONE",
        date_created=context.now,
        last_updated=context.now,
        shipping_cost=money.ZERO,
        total_amount=amount,
        paid_amount=money.ZERO,
        refunded_amount=money.ZERO,
        collector=Party(id=context.tenant.user_id),
        items=items,
        payments=(),
        shipments=(),
    )


def _currency(context: SellerContext, order: MerchantOrder) -> str:
    return currency_of(order.items or (), context.tenant.currency)


def in_review(order: MerchantOrder) -> MerchantOrderPayment | None:
    """Return the payment in review, if there is one. No other payment is created meanwhile."""
    last = last_payment(order)
    return last if last and last.status == "in_process" else None


def last_payment(order: MerchantOrder) -> MerchantOrderPayment | None:
    """Return the newest payment of an order."""
    return order.payments[-1] if order.payments else None


def _pay(
    context: SellerContext,
    record: MerchantOrderRecord,
    amount: Decimal,
    status: str,
    *,
    payer_id: int,
    payment_id: int | None = None,
) -> MerchantOrder:
    """Record a payment of *amount*, or decide the payment in review. An approved payment closes the order."""
    order = record.merchant_order
    waiting, payments = in_review(order), order.payments or ()
    shipping = order.shipping_cost or money.ZERO
    payment = waiting or MerchantOrderPayment(
        id=payment_id or context.ids.number(11),
        transaction_amount=amount - shipping,
        total_paid_amount=amount,
        shipping_cost=shipping,
        currency_id=_currency(context, order),
        date_created=context.now,
        amount_refunded=money.ZERO,
    )
    payment = replace(payment, status=status, status_detail=DETAILS[status], last_modified=context.now)
    if status == "approved":
        payment = replace(payment, date_approved=context.now)
        order = replace(order, status=Status.CLOSED, order_status=State.PAID, paid_amount=amount)
    order = replace(order, payer=Party(id=payer_id), payments=(*(payments[:-1] if waiting else payments), payment))
    return _keep(context, record, order)


def _keep(context: SellerContext, record: MerchantOrderRecord, order: MerchantOrder) -> MerchantOrder:
    order = replace(order, last_updated=context.now)
    context.put(MERCHANT_ORDERS, replace(record, merchant_order=order))
    return order


NOUN = Noun(
    searched=MERCHANT_ORDERS,
    handlers=[Handler(operation=merchant_orders.SEARCH, handle=search, magic=MagicValue("external_reference"))],
    causes={"ds_search_query": "a timestamp without an offset, a limit below 1, an offset below 0"},
)
