"""What a reconciliation says about an order."""

from enum import Enum


class Outcome(Enum):
    """What a reconciliation says about an order of the book, or of the platform."""

    MATCH = "match"
    """They agree in all that both of them say. What the book does not say is not compared, and neither is a currency or
    a status that the platform does not send, nor a status in no known word. A paid or refunded amount that it does not
    send is 0."""
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
    NOT_COMPARED = "not_compared"
    """The book has an amount that could not be read on the platform, or a total that the platform does not send; all
    else is the same. The `reason` names the amount."""
    DOUBLE = "double"
    """The reference was paid more often than the book has it. At least one of these orders, or the one of the book, is
    of the time that was asked for."""
    MISSING = "missing"
    """The platform has no order of the id that the book has (404), or one of another reference; or it was paid, and
    other lines of the book have all payments of its reference."""
    NOT_PAID_OR_MISSING = "not_paid_or_missing"
    """The book expects money and has no id, and no order of the reference was ever paid: unpaid, expired and canceled
    orders do not enter the search."""
    TWICE_IN_BOOK = "twice_in_book"
    """Another line of the book has the order: both have the same account, reference or id, and amounts, their dates do
    not differ, and the platform has fewer orders. The `reason` names the other line."""
    EXTRA = "extra"
    """The book does not have it."""
    TOO_RECENT = "too_recent"
    """Only one side has it yet, and it is younger than the lag of the search: the next run tells."""
    UNKNOWN = "unknown"
    """The sides differ, and a write of it is open in the journal: `client.recover()` finishes it, then run again."""
    TOO_OLD = "too_old"
    """The search does not show orders of that age, and the book has no id to look it up by."""
    NOT_READ = "not_read"
    """The order, or all orders of its seller, could not be read: nothing is claimed. The `reason` says why."""
    NOT_WHOLE = "not_whole"
    """It was not found, and where it should be, not all orders could be seen: nothing is claimed."""

    @property
    def title(self) -> str:
        """The outcome in words that need no documentation."""
        return _WORDS[self.value][0]

    @property
    def action(self) -> str:
        """What to do about it, as one sentence; empty for a match."""
        return _WORDS[self.value][1]

    @property
    def is_difference(self) -> bool:
        """Whether somebody has to look at it: all but a match and what is too recent."""
        return self not in (Outcome.MATCH, Outcome.TOO_RECENT)


#: For each outcome, its title and what to do.
_WORDS = {
    "match": ("Agrees", ""),
    "paid_amount": ("Another amount was paid", "Find out which side is wrong, and correct it."),
    "refunded_amount": ("Another amount was refunded", "Find out which side is wrong, and correct it."),
    "total_amount": ("Another total", "Find out which side is wrong, and correct it."),
    "currency": ("Another currency", "Correct the currency in the book."),
    "status": ("Another status", "Find out which side is wrong, and correct it."),
    "not_compared": ("An amount cannot be read", "Run again, then look at the order on the platform."),
    "double": ("Paid more than once", "Refund the payment that the book does not have."),
    "missing": ("Not on the platform", "Check where the book has the order id from."),
    "not_paid_or_missing": ("No payment found", "Ask the buyer for the payment, or add the order id to the book."),
    "twice_in_book": ("Twice in the book", "Remove one of the two lines."),
    "extra": ("Not in the book", "Add the order to the book."),
    "too_recent": ("Too recent to compare", "Nothing: the next run compares it."),
    "unknown": ("A change is not finished", "Run `paymentsdk journal recover`, then run again."),
    "too_old": ("Too old to find", "Add the order id to the book."),
    "not_read": ("Not read", "Remove the cause that is given, then run again."),
    "not_whole": ("Not found, and not certain", "Run again."),
}
