"""What a book says about an order, and what a reconciliation does."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import TypedDict

from msgspec import Struct


class Outcome(Enum):
    """What a reconciliation says about an order of the book, or of the platform."""

    MATCH = "match"
    """Both say the same."""
    PAID_AMOUNT = "paid_amount"
    """Another amount was paid; nothing, if the platform shows an order that nobody has paid."""
    REFUNDED_AMOUNT = "refunded_amount"
    """Another amount was refunded."""
    TOTAL_AMOUNT = "total_amount"
    """The order is about another amount; what was paid and refunded is the same."""
    CURRENCY = "currency"
    """The amounts are in another currency."""
    STATUS = "status"
    """The amounts are the same, and the status is another."""
    DOUBLE = "double"
    """The reference was paid more often than the book has it, by orders of the time that was asked for."""
    MISSING = "missing"
    """The platform has no order of the id that the book has (404), or one of another reference."""
    NOT_PAID_OR_MISSING = "not_paid_or_missing"
    """The book expects money and has no id, and no order of the reference was ever paid: unpaid, expired and canceled
    orders do not enter the search."""
    EXTRA = "extra"
    """The book does not have it."""
    TOO_RECENT = "too_recent"
    """Only one side has it yet, and it is younger than the lag of the search: the next run tells."""
    UNKNOWN = "unknown"
    """The sides differ, and a write of it is open in the journal: `client.recover()` finishes it, then run again."""
    TOO_OLD = "too_old"
    """The search does not show orders of that age, and the book has no id to look it up by."""
    NOT_WHOLE = "not_whole"
    """It was not found, and where it should be, not all orders could be seen: nothing is claimed."""

    @property
    def is_difference(self) -> bool:
        """Whether somebody has to look at it: all but a match and what is too recent."""
        return self not in (Outcome.MATCH, Outcome.TOO_RECENT)


class BookRow(TypedDict, total=False):
    """An order of a book. `reference` is needed; what is absent or `None` is not compared."""

    account: str | None
    """Its seller, as `client.account` takes it; absent for a client of one seller."""
    reference: str | int
    """Its external reference: by this it is found."""
    order_id: str | None
    """The id that `orders.create` has returned: an order that the search does not show is looked up by it."""
    currency: str | None
    """The currency of its amounts."""
    total: Decimal | int | str | None
    """What it is about."""
    paid: Decimal | int | str | None
    """What was paid; 0 if nothing."""
    refunded: Decimal | int | str | None
    """What was refunded; 0 if nothing."""
    status: str | None
    """Its state: `created`, `processed`, `refunded`, `canceled` or `expired`, or as merchant orders call it."""
    created: datetime | str | None
    """When it was made, with a time zone. Without one it belongs to every time."""


class Difference(Struct, frozen=True, kw_only=True):
    """An order about which the book and the platform differ, or cannot be compared.

    What a side does not say is `None`.
    """

    outcome: Outcome
    """What is wrong; of several things the first of: double, currency, paid, refunded, total, status."""
    account: str
    """Its seller; empty for a client of one seller."""
    reference: str | None
    """Its external reference."""
    order_id: str | None
    """Its id in the book."""
    merchant_order_ids: str | None
    """The merchant orders that were found for it, separated by spaces, or the order that was looked up by its id."""
    book_currency: str | None
    """Its currency in the book, such as `ARS`."""
    currency: str | None
    """Its currency on the platform."""
    book_total: Decimal | None
    """What it costs, as the book says."""
    total: Decimal | None
    """What it costs, as the platform says."""
    book_paid: Decimal | None
    """What was paid of it, as the book says."""
    paid: Decimal | None
    """What was paid, in sum over all orders of a double."""
    book_refunded: Decimal | None
    """What was given back of it, as the book says."""
    refunded: Decimal | None
    """What was given back of it, as the platform says; in sum over all orders of a double."""
    book_status: str | None
    """Its state in the book, in the words of `status`."""
    status: str | None
    """Its state: `open`, `created`, `paid`, `refunded`, `expired` or `canceled`."""
    book_created: datetime | None
    """When it was made, as the book says."""
    created: datetime | None
    """When it was made, as the platform says."""
    read_at: datetime | None
    """When it was read: the rest is as of then."""


#: What books, orders and merchant orders call their states, and the state that is compared.
STATES = {
    "created": "created",
    "pending": "created",
    "processing": "created",
    "action_required": "created",
    "failed": "created",
    "opened": "open",
    "payment_required": "open",
    "processed": "paid",
    "closed": "paid",
    "paid": "paid",
    "approved": "paid",
    "partially_refunded": "paid",
    "refunded": "refunded",
    "reverted": "refunded",
    "expired": "expired",
    "canceled": "canceled",
    "cancelled": "canceled",
}
