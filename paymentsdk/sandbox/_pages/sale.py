"""What a buyer is shown: an order or a preference, in the words of a shop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct

from paymentsdk.money import ZERO
from paymentsdk.resources.merchant_orders import MerchantOrder, MerchantOrderState, MerchantOrderStatus
from paymentsdk.resources.orders import Order, OrderStatus, PaymentStatusDetail
from paymentsdk.resources.preferences import Payer, Preference
from paymentsdk.sandbox._handlers._sales import METHODS, currency_of, full_name, total
from paymentsdk.sandbox._handlers.merchant_orders import amount_due, in_review, last_payment
from paymentsdk.sandbox._handlers.orders import discounted_total, payment_of, refundable, withdrawn
from paymentsdk.sandbox._handlers.preferences import default_installments, most_installments, offered
from paymentsdk.sandbox._records import MerchantOrderRecord, OrderRecord, PreferenceRecord

#: The colour of a state; its word says the same.
Tone: TypeAlias = Literal["good", "wait", "bad", "still"]

_USUAL_INSTALLMENTS = (1, 2, 3, 6, 9, 12, 18, 24, 36)


class Line(Struct, frozen=True):
    """Something that is sold, and what all of it costs."""

    what: str
    more: str
    amount: Decimal


class Method(Struct, frozen=True):
    """A way to pay, and what the buyer pays that way."""

    type: str
    total: Decimal

    @property
    def name(self) -> str:
        """What people call it."""
        return _name_of(self.type)


class Outcome(Struct, frozen=True, kw_only=True):
    """What it has come to."""

    tone: Tone
    """The colour."""
    word: str
    """The state."""
    text: str
    """A sentence about it."""
    again: str = ""
    """What the way back to the form is called, where the buyer can still pay."""


class Sale(Struct, frozen=True, kw_only=True):
    """A page's worth of a sale."""

    heading: str
    """What it is about."""
    seller: str
    """Who sells."""
    currency: str
    """Of all amounts."""
    total: Decimal
    """What is asked for."""
    lines: tuple[Line, ...] = ()
    """What is sold."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else there is to say: names and values."""
    methods: tuple[Method, ...] = ()
    """The ways to pay; none when nothing can be paid any more."""
    method: str | None = None
    """The one that is chosen at first."""
    installments: tuple[int, ...] = _USUAL_INSTALLMENTS
    """The numbers of installments on offer."""
    installment: int = 1
    """The number that is chosen at first."""
    until: datetime | None = None
    """When it expires, where it does."""
    outcome: Outcome | None = None
    """What it has come to; `None` while it waits for the buyer."""
    back: str | None = None
    """The shop's address for this outcome."""
    auto_return: bool = False
    """Whether the shop wants a buyer who has paid to be taken there without a click."""


def money(currency: str, amount: Decimal | None) -> str:
    """Return an amount for people: ``ARS 1,250.00``, on one line."""
    return f"{currency}\N{NO-BREAK SPACE}{amount or ZERO:,.2f}"


# --- QR orders ---------------------------------------------------------------------------------------------------


def from_order(record: OrderRecord, attempt: str = "") -> Sale:
    """Return what the buyer of a QR order is shown, after the *attempt* that they come from."""
    order = record.order
    amount = order.total_amount or ZERO
    qr = order.config.qr if order.config else None
    return Sale(
        heading=order.description or f"Order {order.external_reference}",
        seller=f"Seller {order.user_id}",
        currency=order.currency or "",
        total=amount,
        lines=tuple(_order_lines(order)),
        facts=(
            *_facts(("Reference", order.external_reference), ("Point of sale", qr.external_pos_id if qr else None)),
            *_payment_facts(order),
            ("Order", order.id),
        ),
        methods=tuple(_order_methods(order, amount)),
        until=record.expires_at if order.status == OrderStatus.CREATED else None,
        outcome=_order_outcome(order, attempt),
    )


def _order_lines(order: Order) -> Iterator[Line]:
    for item in order.items or ():
        price = money(order.currency or "", item.unit_price)
        yield Line(item.title or "", _times(item.quantity, price, item.unit_measure), total([item]))
    if cash := withdrawn(order):
        yield Line("Cash withdrawal", "", cash)


def _order_methods(order: Order, amount: Decimal) -> Iterator[Method]:
    for kind in METHODS:
        discounted = discounted_total(order, kind)
        yield Method(kind, amount if discounted is None else discounted)


def _payment_facts(order: Order) -> Iterator[tuple[str, str]]:
    payment = payment_of(order)
    if payment.paid_amount is None:
        return
    currency = order.currency or ""
    yield "Paid", money(currency, payment.paid_amount)
    if payment.payment_method:
        yield "With", _with(payment.payment_method.type, payment.payment_method.installments)
    if payment.refunded_amount:
        yield "Given back", money(currency, payment.refunded_amount)


def _order_outcome(order: Order, attempt: str) -> Outcome | None:
    if order.status == OrderStatus.CREATED:
        if payment_of(order).status_detail == PaymentStatusDetail.IN_REVIEW:
            return _REVIEWED
        return _declined("order") if attempt == "rejected" else None
    # What the order itself says of a part is a policy.
    if order.status != OrderStatus.CANCELED and payment_of(order).refunded_amount and refundable(payment_of(order)):
        return _PARTLY
    return _ORDER_OUTCOMES[OrderStatus(order.status or OrderStatus.EXPIRED)]


_PAID = Outcome(tone="good", word="Paid", text="The payment was approved. No money has moved.")
_REFUNDED = Outcome(tone="still", word="Refunded", text="The seller has given the money back.")
_PARTLY = Outcome(tone="still", word="Partly refunded", text="The seller has given a part of the money back.")
_ORDER_OUTCOMES = {
    OrderStatus.PROCESSED: _PAID,
    OrderStatus.CANCELED: Outcome(tone="still", word="Canceled", text="The seller has canceled this order."),
    OrderStatus.EXPIRED: Outcome(tone="still", word="Expired", text="Nobody paid this order in time."),
    OrderStatus.REFUNDED: _REFUNDED,
}
_REVIEWED = Outcome(tone="wait", word="In review", text="The payment is being looked at.", again="Decide it")
_NO_METHOD = Outcome(
    tone="still", word="No way to pay", text="The shop has excluded every payment method that the sandbox has."
)


def _declined(what: str) -> Outcome:
    return Outcome(
        tone="bad",
        word="Declined",
        text=f"The payment was declined. The {what} can still be paid.",
        again="Try again",
    )


# --- preferences -------------------------------------------------------------------------------------------------


def from_preference(record: PreferenceRecord, opened: MerchantOrderRecord, attempt: str = "") -> Sale:
    """Return what the buyer of a preference is shown, after the *attempt* that they come from."""
    preference, order = record.preference, opened.merchant_order
    currency = currency_of(order.items or (), "")
    lines = tuple(_preference_lines(order, currency))
    methods = tuple(Method(kind, amount_due(order)) for kind in offered(preference))
    outcome = _preference_outcome(order, attempt) or (None if methods else _NO_METHOD)
    return Sale(
        heading=_heading(lines[0], len(order.items or ())),
        seller=preference.statement_descriptor or f"Seller {preference.collector_id}",
        currency=currency,
        total=amount_due(order),
        lines=lines,
        facts=_preference_facts(preference, order, currency),
        methods=methods,
        method=_favourite(preference, methods),
        installments=_installments(preference),
        installment=_proposed(preference),
        until=preference.expiration_date_to if preference.expires else None,
        outcome=outcome,
        back=_back(preference, outcome),
        auto_return=preference.auto_return == "approved",
    )


def _heading(first: Line, items: int) -> str:
    return f"{first.what} and {items - 1} more" if items > 1 else first.what


def _preference_lines(order: MerchantOrder, currency: str) -> Iterator[Line]:
    for item in order.items or ():
        what = item.title or item.description or f"Item {item.id or ''}"
        yield Line(what, _times(item.quantity, money(currency, item.unit_price)), total([item]))
    if order.shipping_cost:
        yield Line("Shipping", "", order.shipping_cost)


def _favourite(preference: Preference, methods: Iterable[Method]) -> str | None:
    """Return the kind of payment method that the shop prefers, by itself or by its method."""
    favourite = preference.payment_methods and preference.payment_methods.default_payment_method_id
    return next((one.type for one in methods if favourite in (one.type, METHODS[one.type])), None)


def _installments(preference: Preference) -> tuple[int, ...]:
    most = most_installments(preference)
    return tuple(sorted({*(number for number in _USUAL_INSTALLMENTS if number < most), _proposed(preference), most}))


def _proposed(preference: Preference) -> int:
    # One that a database keeps from before it was checked may be above the most.
    return min(default_installments(preference), most_installments(preference))


def _preference_facts(preference: Preference, order: MerchantOrder, currency: str) -> tuple[tuple[str, str], ...]:
    payer = preference.payer or Payer()
    return _facts(
        ("Buyer", full_name(payer)),
        ("Email", payer.email),
        ("Reference", preference.external_reference),
        ("Note", preference.additional_info),
        ("Paid", money(currency, order.paid_amount) if order.paid_amount else None),
        ("Given back", money(currency, order.refunded_amount) if order.refunded_amount else None),
    )


def _preference_outcome(order: MerchantOrder, attempt: str) -> Outcome | None:
    if order.order_status == MerchantOrderState.REVERTED:
        return _REFUNDED
    if order.status == MerchantOrderStatus.CLOSED:
        return _PARTLY if order.refunded_amount else _PAID
    if in_review(order):
        return _REVIEWED
    last = last_payment(order)
    return _declined("purchase") if attempt == "rejected" and last and last.status == "rejected" else None


def _back(preference: Preference, outcome: Outcome | None) -> str | None:
    urls = preference.back_urls
    if urls is None or outcome is None:
        return None
    return shop_address({"good": urls.success, "bad": urls.failure, "wait": urls.pending}.get(outcome.tone))


# --- all of them -------------------------------------------------------------------------------------------------


def shop_address(url: str | None) -> str | None:
    """Return the address of a shop, if it is one to lead a buyer to: any other scheme, such as `javascript:`, harms."""
    return url if url and url.startswith(("http://", "https://")) else None


def _facts(*facts: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in facts if value)


def _times(quantity: int | None, price: str, unit: str | None = None) -> str:
    measure = f" {unit}" if unit and unit != "unit" else ""
    return f"{quantity or 1}{measure} \N{MULTIPLICATION SIGN} {price}" if measure or (quantity or 1) > 1 else ""


def _with(kind: str | None, installments: int | None) -> str:
    name = _name_of(kind or "")
    return f"{name}, {installments} installments" if (installments or 1) > 1 else name


def _name_of(kind: str) -> str:
    return kind.replace("_", " ").capitalize()
