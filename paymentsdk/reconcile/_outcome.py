"""The outcomes of a reconciliation."""

from enum import Enum
from typing import Self


class Outcome(Enum):
    """The result for one order of the book or of the platform."""

    _value_: str
    title: str
    """The outcome in words that need no documentation."""
    action: str
    """The recommended action, as one sentence; empty for a match."""

    def __new__(cls, value: str, title: str = "", action: str = "") -> Self:
        outcome = object.__new__(cls)
        outcome._value_, outcome.title, outcome.action = value, title, action
        return outcome

    MATCH = "match", "Agrees", ""
    """Both sides agree. Values that the book does not have are not compared. Neither is a currency or a status that the
    platform does not send, or an unknown status. A paid or refunded amount that the platform does not send is 0."""
    PAID_AMOUNT = "paid_amount", "The paid amount differs", "Find out which side is wrong, and correct it."
    """The paid amount differs, also if the platform's order was never paid."""
    REFUNDED_AMOUNT = "refunded_amount", "The refunded amount differs", "Find out which side is wrong, and correct it."
    """The refunded amount differs."""
    TOTAL_AMOUNT = "total_amount", "The total differs", "Find out which side is wrong, and correct it."
    """The total differs; the paid and refunded amounts are the same."""
    CURRENCY = "currency", "The currency differs", "Correct the currency in the book."
    """The currency differs."""
    STATUS = "status", "The status differs", "Find out which side is wrong, and correct it."
    """The status differs; the amounts are the same."""
    NOT_COMPARED = "not_compared", "An amount cannot be read", "Run again, then look at the order on the platform."
    """The book has an amount that could not be read on the platform, or a total that the platform does not send. All
    else is the same. The `reason` names the amount."""
    DOUBLE = "double", "Paid more than once", "Refund the payment that the book does not have."
    """The reference was paid more often than it is in the book. At least one of these orders, or the book's order, is
    of the period."""
    MISSING = "missing", "Not on the platform", "Check the order id in the book."
    """The platform has no order with the book's id (404), or its order has another reference. Or its order was paid,
    and other lines of the book have all payments of its reference."""
    NOT_PAID_OR_MISSING = (
        "not_paid_or_missing",
        "No payment found",
        "Ask the buyer for the payment, or add the order id to the book.",
    )
    """The book has a payment but no id, and no order of the reference was ever paid. The search does not show unpaid,
    expired and canceled orders."""
    TWICE_IN_BOOK = "twice_in_book", "Twice in the book", "Remove one of the two lines."
    """Another line of the book has the order. Both lines have the same account, the same reference or id, and the same
    amounts. Their dates do not differ, and the platform has fewer orders. The `reason` names the other line."""
    EXTRA = "extra", "Not in the book", "Add the order to the book."
    """The order is not in the book."""
    TOO_RECENT = "too_recent", "Too recent to compare", "Nothing: the next run compares it."
    """Only one side has the order yet, and it is younger than the lag of the search. The next run compares it."""
    UNKNOWN = "unknown", "A change is not finished", "Run `paymentsdk journal recover`, then run again."
    """The sides differ, and a write of the order is open in the journal. Run `client.recover()`, then run again."""
    TOO_OLD = "too_old", "Too old to find", "Add the order id to the book."
    """The order is too old for the search, and the book has no id to look it up by."""
    NOT_READ = "not_read", "Not read", "Fix the cause in the reason, then run again."
    """The order, or every order of its seller, could not be read, so nothing is claimed. The `reason` says why."""
    NOT_WHOLE = "not_whole", "Not found, but not certain", "Run again."
    """The order was not found, but not all orders of its window could be seen, so nothing is claimed."""

    @property
    def is_difference(self) -> bool:
        """Whether a person has to look at the order: true for all outcomes except `MATCH` and `TOO_RECENT`."""
        return self not in (Outcome.MATCH, Outcome.TOO_RECENT)
