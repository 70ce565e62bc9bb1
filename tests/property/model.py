"""A small model of the platform, written from the contract alone: what is there, what is rejected, what falls due."""

from __future__ import annotations

import calendar
import heapq
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

ZERO = Decimal(0)
#: What the first seller's plan charges every month.
MONTHLY = Decimal("99.90")
SPANS = {
    "PT30S": timedelta(seconds=30),
    "PT15M": timedelta(minutes=15),
    "PT1H": timedelta(hours=1),
    "P1D": timedelta(days=1),
    "P3D": timedelta(days=3),
    "P5D": timedelta(days=5),
    "PT3600H": timedelta(hours=3600),
}
#: The switches that change what is promised, each with its default first.
POLICIES: dict[str, tuple[Any, ...]] = {
    "cancel_from": ("created", "any"),
    "partial_refund_status": ("refunded", "processed"),
    "partial_refund_detail": ("partially_refunded", "refunded", "accredited"),
    "refund_response": ("partial", "full"),
    "refund_seconds": (0, 60, 100_000),
    "refund_outcome": ("processed", "failed"),
    "error_shape": ("per_api", "cause", "errors", "flat"),
    "page_size": (30, 2),
    "max_page_size": (100, 1, 3),
    "last_next_offset": ("total", "zero", "null"),
    "empty_elements": ("list", "null"),
    "street_names": ("languages", "text"),
    "search_order": ("newest", "oldest"),
    "window_edge": ("inclusive", "exclusive"),
    "invoice_retries": ("P1D,P3D,P5D", "", "PT1H"),
    "refresh_tokens": ("rotate", "keep"),
}


@dataclass
class Refund:
    id: str
    amount: Decimal
    status: str


@dataclass
class Order:
    id: str
    body: dict[str, Any]
    payment_id: str
    made: datetime
    updated: datetime
    status: str = "created"
    detail: str = "created"
    payment: tuple[str, str] = ("created", "ready_to_process")
    paid: Decimal | None = None
    refunded: Decimal = ZERO
    method: str | None = None
    discounted: bool = False
    refunds: list[Refund] = field(default_factory=list)
    refund_key: str | None = None

    @property
    def left(self) -> Decimal:
        return (self.paid or ZERO) - self.refunded

    @property
    def in_progress(self) -> bool:
        return any(refund.status == "processing" for refund in self.refunds)


@dataclass
class Sale:
    """A merchant order, and the order or preference that it came from."""

    id: int
    source: str
    preference: str | None
    reference: str | None
    items: list[str]
    total: Decimal
    shipping: Decimal
    made: datetime
    updated: datetime
    status: str = "opened"
    state: str = "payment_required"
    payer: int | None = None
    paid: Decimal = ZERO
    refunded: Decimal = ZERO
    payments: list[str] = field(default_factory=list)


@dataclass
class Subscription:
    id: str
    started: datetime
    rejections: int
    count: int = 0


@dataclass
class Invoice:
    id: int
    subscription: str
    made: datetime
    updated: datetime
    debit: datetime
    attempts: int = 0
    status: str = "scheduled"
    summarized: str = "pending"
    payment: str | None = None


@dataclass
class Grant:
    """A code or a refresh token."""

    until: datetime
    spent: bool = False


@dataclass
class Remembered:
    """The request that went with an idempotency key, and the bytes of its response."""

    operation: str
    path: dict[str, str]
    body: Any
    at: datetime
    response: bytes

    def is_of(self, operation: str, path: dict[str, str], body: Any) -> bool:
        return (self.operation, self.path, self.body) == (operation, path, body)


@dataclass
class Model:
    now: datetime
    policies: dict[str, Any] = field(default_factory=lambda: {name: choices[0] for name, choices in POLICIES.items()})
    orders: dict[str, Order] = field(default_factory=dict)
    sales: list[Sale] = field(default_factory=list)
    preferences: dict[str, dict[str, Any]] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    invoices: list[Invoice] = field(default_factory=list)
    emails: set[str] = field(default_factory=set)
    grants: dict[str, Grant] = field(default_factory=dict)
    keys: dict[str, Remembered] = field(default_factory=dict)
    #: What will fall due: when, in which order, what, to which thing.
    due: list[tuple[datetime, int, str, str]] = field(default_factory=list)
    scheduled: int = 0
    #: One line for each effect: when, what, to which thing, how much, for which key.
    ledger: list[tuple[datetime, str, str, Decimal, str | None]] = field(default_factory=list)

    def enter(self, kind: str, subject: str, amount: Decimal = ZERO, key: str | None = None) -> None:
        self.ledger.append((self.now, kind, subject, amount, key))

    def schedule(self, at: datetime, kind: str, subject: str) -> None:
        self.scheduled += 1
        heapq.heappush(self.due, (at, self.scheduled, kind, subject))

    def remembered(self, key: str) -> Remembered | None:
        """What *key* went with in the last 24 hours."""
        call = self.keys.get(key)
        return call if call and call.at > self.now - timedelta(hours=24) else None

    # --- orders -------------------------------------------------------------------------------------------------------

    def create_order(self, body: dict[str, Any], order_id: str, payment_id: str, key: str) -> Order:
        order = self.orders[order_id] = Order(order_id, body, payment_id, self.now, self.now)
        self.schedule(self.now + SPANS[body.get("expiration_time", "PT15M")], "order.expire", order_id)
        self.enter("order_created", order_id, key=key)
        return order

    def move(self, order: Order, status: str, detail: str, *payment: str) -> None:
        order.status, order.detail, order.updated = status, detail, self.now
        order.payment = (payment[0], payment[1]) if payment else order.payment

    def pay_order(self, order: Order, method: str, outcome: str) -> None:
        """An approved payment is the discounted total of its method; a rejected one leaves no trace."""
        if outcome == "approved":
            entries = order.body.get("discounts", {}).get("payment_methods", ())
            totals = {entry["type"]: entry["new_total_amount"] for entry in entries}
            order.method, order.discounted = method, method in totals
            order.paid = Decimal(totals.get(method, order.body["total_amount"]))
            self.move(order, "processed", "accredited", "processed", "accredited")
            self.enter("payment", order.id, order.paid)
        elif outcome == "in_review":
            self.move(order, "created", "created", "created", "in_review")
        elif order.payment[1] == "in_review":
            self.move(order, "created", "created", "created", "ready_to_process")

    def cancel_refusal(self, order: Order) -> str | None:
        if order.status == "canceled":
            return "order_already_canceled"
        if order.status != "created" and self.policies["cancel_from"] == "created":
            return "cannot_cancel_order"
        return "resource_locked" if order.in_progress else None

    def cancel_order(self, order: Order, key: str) -> None:
        self.move(order, "canceled", "canceled", "canceled", "canceled_by_api")
        self.enter("order_canceled", order.id, -order.left, key)
        if order.left:
            self.revert(order.id, order.left)

    def refund_refusal(self, order: Order, part: tuple[str, Decimal] | None) -> str | None:
        if order.in_progress:
            return "refund_in_progress"
        if order.paid is None or order.status == "canceled":
            return "cannot_refund_order"
        if not order.left:
            return "order_already_refunded"
        if part and part[0] != order.payment_id:
            return "property_value"
        return "refund_amount_exceeds" if part and part[1] > order.left else None

    def refund_order(self, order: Order, amount: Decimal, refund_id: str, key: str) -> None:
        order.refunds.append(Refund(refund_id, amount, "processing"))
        order.refund_key, order.updated = key, self.now
        if seconds := self.policies["refund_seconds"]:
            self.schedule(self.now + timedelta(seconds=seconds), "refund.settle", order.id)
        else:
            self.settle_refund(order)

    def settle_refund(self, order: Order) -> str:
        refund = order.refunds[-1]
        refund.status, order.updated = self.policies["refund_outcome"], self.now
        if refund.status == "failed":
            self.enter("refund_failed", order.id, ZERO, order.refund_key)
            return "refund.failed"
        order.refunded += refund.amount
        if order.left:
            self.move(order, self.policies["partial_refund_status"], self.policies["partial_refund_detail"])
        else:
            self.move(order, "refunded", "refunded", "refunded", "refunded")
        self.enter("refund", order.id, -refund.amount, order.refund_key)
        self.revert(order.id, refund.amount)
        return "refund.processed"

    # --- merchant orders ----------------------------------------------------------------------------------------------

    def sale_of(self, source: str) -> Sale | None:
        return next((sale for sale in self.sales if sale.source == source), None)

    def preference_refusal(self, preference_id: str, method: str | None) -> str | None:
        """Why a preference cannot be opened, or be paid with *method*."""
        body, sale = self.preferences[preference_id], self.sale_of(preference_id)
        # One that was paid in time shows what it has come to, and a payment in review is decided when it is.
        waits = sale is None or (sale.status != "closed" and sale.payments[-1:] != ["in_process"])
        if waits and body.get("expires") and self.now >= body["expiration_date_to"]:
            return "preference_expired"
        if method in [
            method_type["id"] for method_type in body.get("payment_methods", {}).get("excluded_payment_types", ())
        ]:
            return "bad_request"
        return "already_paid" if method and sale and sale.status == "closed" else None

    def pay_sale(self, sale: Sale, status: str, payer: int) -> None:
        """The payment in review is decided, or another is made."""
        if sale.payments[-1:] == ["in_process"]:
            sale.payments.pop()
        sale.payments.append(status)
        sale.payer, sale.updated = payer, self.now
        if status == "approved":
            sale.status, sale.state, sale.paid = "closed", "paid", sale.total + sale.shipping

    def revert(self, source: str, amount: Decimal) -> None:
        sale = self.sale_of(source)
        assert sale, "money went back that nobody paid"
        sale.refunded += amount
        sale.updated = self.now
        if sale.refunded == sale.paid:
            sale.state, sale.payments[-1] = "reverted", "refunded"

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def issue(self, subscription: Subscription, invoice_id: int) -> None:
        debit = months_later(subscription.started, subscription.count)
        subscription.count += 1
        self.invoices.append(Invoice(invoice_id, subscription.id, self.now, self.now, debit))
        self.schedule(debit, "invoice.collect", str(invoice_id))

    def collect(self, invoice: Invoice) -> str | None:
        """An attempt succeeds once the subscription has had its rejections; after the last wait there is none."""
        if invoice.summarized == "done":
            return None
        subscription = self.subscriptions[invoice.subscription]
        waits = [SPANS[text] for text in self.policies["invoice_retries"].split(",") if text]
        invoice.attempts, invoice.updated = invoice.attempts + 1, self.now
        invoice.payment = "rejected" if subscription.rejections else "approved"
        if invoice.payment == "rejected" and invoice.attempts <= len(waits):
            invoice.status = "recycling"
            self.schedule(self.now + waits[invoice.attempts - 1], "invoice.collect", str(invoice.id))
        else:
            invoice.status, invoice.summarized = "processed", "done"
        subscription.rejections -= subscription.rejections > 0
        self.enter("invoice_payment", str(invoice.id), MONTHLY if invoice.payment == "approved" else ZERO)
        return f"invoice.{invoice.status}"

    def unsubscribe(self, subscription_id: str) -> None:
        for invoice in self.invoices:
            if invoice.subscription == subscription_id and invoice.summarized == "pending":
                invoice.status, invoice.summarized, invoice.updated = "canceled", "done", self.now

    # --- time ---------------------------------------------------------------------------------------------------------

    def fall_due(self, until: datetime, new_invoice: Any) -> list[tuple[datetime, str, str]]:
        """Do what is due, each thing at its moment, and say what happened; *new_invoice* names the next of its kind."""
        happened = []
        while self.due and self.due[0][0] <= until:
            self.now, _, kind, subject = heapq.heappop(self.due)
            event = None
            if kind == "order.expire" and self.orders[subject].status == "created":
                self.move(self.orders[subject], "expired", "expired", "expired", "expired")
                self.enter("order_expired", subject)
                event = "order.expired"
            elif kind == "refund.settle":
                event = self.settle_refund(self.orders[subject])
            elif kind == "invoice.collect":
                invoice = next(candidate for candidate in self.invoices if str(candidate.id) == subject)
                event = self.collect(invoice)
                if event and invoice.attempts == 1:
                    self.issue(self.subscriptions[invoice.subscription], new_invoice(invoice.subscription))
            if event:
                happened.append((self.now, event, subject))
        self.now = until
        return happened


def months_later(moment: datetime, months: int) -> datetime:
    """The same day of a later month, or its last."""
    years, month = divmod(moment.month - 1 + months, 12)
    year = moment.year + years
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))
