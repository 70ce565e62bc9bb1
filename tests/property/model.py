"""A small model of the platform, written from the contract alone: what is there, what is rejected, what falls due."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

ZERO = Decimal(0)
SPANS = {
    "PT30S": timedelta(seconds=30),
    "PT15M": timedelta(minutes=15),
    "PT1H": timedelta(hours=1),
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
        return "refund.processed"

    # --- time ---------------------------------------------------------------------------------------------------------

    def fall_due(self, until: datetime) -> list[tuple[datetime, str, str]]:
        """Do what is due, each thing at its moment, and say what happened."""
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
            if event:
                happened.append((self.now, event, subject))
        self.now = until
        return happened
