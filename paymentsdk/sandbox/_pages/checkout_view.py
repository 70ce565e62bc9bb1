"""The buyer's view of an order or a preference."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct

from paymentsdk.money import ZERO
from paymentsdk.resources.common import parse_duration
from paymentsdk.resources.merchant_orders import MerchantOrder, MerchantOrderState, MerchantOrderStatus
from paymentsdk.resources.orders import Order, OrderItem, OrderStatus, PaymentMethod, PaymentStatusDetail
from paymentsdk.resources.preferences import Payer, Preference
from paymentsdk.sandbox._handlers._sales import METHODS, Valued, currency_of, full_name, total
from paymentsdk.sandbox._handlers.merchant_orders import amount_due, in_review, last_payment
from paymentsdk.sandbox._handlers.orders import discounted_total, payment_of, refundable, withdrawn
from paymentsdk.sandbox._handlers.preferences import default_installments, most_installments, offered
from paymentsdk.sandbox._records import MerchantOrderRecord

#: The color of a state. The state's word says the same.
Tone: TypeAlias = Literal["good", "wait", "bad", "still"]
#: A line of the sale: title, quantity and price, and the total.
Line: TypeAlias = tuple[str, str, Decimal]

_USUAL_INSTALLMENTS = (1, 2, 3, 6, 9, 12, 18, 24, 36)


class ViewState(Struct, frozen=True):
    """The state of a purchase."""

    tone: Tone
    """The color."""
    word: str
    """The state."""
    text: str
    """One sentence about the state."""
    again: str = ""
    """The label of the link back to the form; empty if the buyer can no longer pay."""


_PAID = ViewState("good", "Paid", "The payment was approved. No money has moved.")
_REFUNDED = ViewState("still", "Refunded", "The seller has refunded the payment.")
_PARTLY = ViewState("still", "Partly refunded", "The seller has refunded a part of the payment.")
_REVIEWED = ViewState("wait", "In review", "The payment is being looked at.", "Decide it")
_DECLINED = ViewState("bad", "Declined", "The payment was declined. The purchase can still be paid.", "Try again")
_NO_METHOD = ViewState("still", "No way to pay", "The shop has excluded every payment method that the sandbox has.")
_ORDER_OUTCOMES = {
    OrderStatus.PROCESSED: _PAID,
    OrderStatus.CANCELED: ViewState("still", "Canceled", "The seller has canceled this order."),
    OrderStatus.EXPIRED: ViewState("still", "Expired", "Nobody paid this order in time."),
    OrderStatus.REFUNDED: _REFUNDED,
}


class CheckoutView(Struct, frozen=True, kw_only=True):
    """The content of the page of an order or a preference."""

    heading: str
    """The title."""
    seller: str
    """The name of the seller."""
    currency: str
    """The currency of all amounts."""
    total: Decimal
    """The amount to pay."""
    lines: tuple[Line, ...]
    """The lines of the sale."""
    facts: tuple[tuple[str, str], ...]
    """Other facts: names and values."""
    methods: Mapping[str, Decimal]
    """The payment methods, each with its total; empty if nothing can be paid any more."""
    method: str | None = None
    """The method that is selected first."""
    installments: tuple[int, ...] = _USUAL_INSTALLMENTS
    """The offered numbers of installments."""
    installment: int = 1
    """The number of installments that is selected first."""
    until: datetime | None = None
    """When it expires, if it does."""
    outcome: ViewState | None = None
    """The state; `None` while it waits for the buyer."""
    back: str | None = None
    """The shop's address for this state."""
    go_back: bool = False
    """Whether the buyer is redirected there: they have just paid, and the shop asks for it."""


def money(currency: str | None, amount: Decimal | None) -> str:
    """Return an amount for people: ``ARS 1,250.00``, on one line."""
    return f"{_printed(currency)}\N{NO-BREAK SPACE}{amount or ZERO:,.2f}"


def _printed(text: str | None) -> str:
    """Return the printable characters of *text*. Others could reverse the direction of the amount after them."""
    return "".join(filter(str.isprintable, text or ""))


def method_name(kind: str) -> str:
    """Return a kind of payment methods as people write it."""
    return kind.replace("_", " ").capitalize()


def shop_address(url: str | None) -> str | None:
    """Return *url* if it is safe as a link to a shop. Other schemes, such as `javascript:`, are not."""
    return url if url and url.startswith(("http://", "https://")) else None


def from_order(order: Order, attempt: str = "") -> CheckoutView:
    """Return the buyer's view of a QR order, after *attempt*."""
    payment, currency = payment_of(order), order.currency or ""
    amount, cash = order.total_amount or ZERO, withdrawn(order)
    qr = order.config.qr if order.config else None
    lines = [_line(item.title or "", item, currency, item.unit_measure) for item in order.items or ()]
    totals = {kind: discounted_total(order, kind) for kind in METHODS}
    waits = order.status == OrderStatus.CREATED and order.created_date
    return CheckoutView(
        heading=order.description or f"Order {order.external_reference}",
        seller=f"Seller {order.user_id}",
        currency=currency,
        total=amount,
        lines=(*lines, *([("Cash withdrawal", "", cash)] if cash else [])),
        facts=_facts(
            ("Reference", order.external_reference),
            ("Point of sale", qr.external_pos_id if qr else None),
            ("Paid", payment.paid_amount and money(currency, payment.paid_amount)),
            ("With", _paid_with(payment.payment_method)),
            ("Refunded", payment.refunded_amount and money(currency, payment.refunded_amount)),
            ("Order", order.id),
        ),
        methods={kind: amount if discounted is None else discounted for kind, discounted in totals.items()},
        until=waits + parse_duration(order.expiration_time or "") if waits else None,
        outcome=_order_outcome(order, attempt),
    )


def _order_outcome(order: Order, attempt: str) -> ViewState | None:
    payment = payment_of(order)
    if order.status == OrderStatus.CREATED:
        if payment.status_detail == PaymentStatusDetail.IN_REVIEW:
            return _REVIEWED
        return _DECLINED if attempt == "rejected" else None
    # The order's own status after a partial refund depends on a policy.
    if order.status != OrderStatus.CANCELED and payment.refunded_amount and refundable(payment):
        return _PARTLY
    return _ORDER_OUTCOMES[OrderStatus(order.status or OrderStatus.EXPIRED)]


def from_preference(preference: Preference, opened: MerchantOrderRecord, attempt: str = "") -> CheckoutView:
    """Return the buyer's view of a preference, after *attempt*."""
    order, payer = opened.merchant_order, preference.payer or Payer()
    items = order.items or ()
    currency, due = currency_of(items, ""), amount_due(order)
    names = [_name_of(item) for item in items]
    lines = [_line(name, item, currency) for name, item in zip(names, items, strict=True)]
    kinds, most, proposed = offered(preference), most_installments(preference), default_installments(preference)
    favourite = preference.payment_methods and preference.payment_methods.default_payment_method_id
    outcome = _preference_outcome(order, attempt) or (None if kinds else _NO_METHOD)
    back = _back(preference, outcome)
    return CheckoutView(
        heading=f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0],
        seller=preference.statement_descriptor or f"Seller {preference.collector_id}",
        currency=currency,
        total=due,
        lines=(*lines, *([("Shipping", "", order.shipping_cost)] if order.shipping_cost else [])),
        facts=_facts(
            ("Buyer", full_name(payer)),
            ("Email", payer.email),
            ("Reference", preference.external_reference),
            ("Note", preference.additional_info),
            ("Paid", order.paid_amount and money(currency, order.paid_amount)),
            ("Refunded", order.refunded_amount and money(currency, order.refunded_amount)),
        ),
        methods=dict.fromkeys(kinds, due),
        # The shop's favorite is a kind or a method of that kind.
        method=next((kind for kind in kinds if favourite in (kind, METHODS[kind])), None),
        installments=tuple(sorted({*(count for count in _USUAL_INSTALLMENTS if count < most), proposed, most})),
        installment=proposed,
        until=preference.expiration_date_to if preference.expires else None,
        outcome=outcome,
        back=back,
        go_back=back is not None and preference.auto_return == attempt == "approved",
    )


def _name_of(item: Valued) -> str:
    texts = (text for text in (item.title, item.description) if text and not text.isspace())
    return next(texts, f"Item {item.id or ''}")


def _preference_outcome(order: MerchantOrder, attempt: str) -> ViewState | None:
    if order.order_status == MerchantOrderState.REVERTED:
        return _REFUNDED
    if order.status == MerchantOrderStatus.CLOSED:
        return _PARTLY if order.refunded_amount else _PAID
    if in_review(order):
        return _REVIEWED
    last = last_payment(order)
    # In binary mode, a payment in review is declined instead.
    declined = attempt in {"rejected", "in_review"} and last and last.status == "rejected"
    return _DECLINED if declined else None


def _back(preference: Preference, outcome: ViewState | None) -> str | None:
    urls = preference.back_urls
    if urls is None or outcome is None:
        return None
    return shop_address({"good": urls.success, "bad": urls.failure, "wait": urls.pending}.get(outcome.tone))


def _paid_with(method: PaymentMethod | None) -> str | None:
    if method is None:
        return None
    name = method_name(method.type or "")
    return f"{name}, {method.installments} installments" if (method.installments or 1) > 1 else name


def _facts(*facts: tuple[str, str | Decimal | None]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in facts if value)


def _line(name: str, item: Valued | OrderItem, currency: str, unit: str | None = None) -> Line:
    quantity, unit = item.quantity or 1, _printed(unit)
    measure = f" {unit}" if unit and unit != "unit" else ""
    price = f"{quantity}{measure} \N{MULTIPLICATION SIGN} {money(currency, item.unit_price)}"
    return name, price if measure or quantity > 1 else "", total([item])
