"""Invoices (authorized payments) of subscriptions (4.2)."""

from __future__ import annotations

from decimal import Decimal
from typing import TypedDict, Unpack

from msgspec.structs import replace

from paymentsdk._contract.operation import MIB, Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._paging.cursor import Position
from paymentsdk._paging.pager import Pager, WalkOptions
from paymentsdk.resources.common import (
    INTERNAL_ERROR,
    RESULTS,
    UNAUTHORIZED,
    Day,
    Id,
    Moment,
    Open,
    OpenEnum,
    Paging,
    Resource,
    ResponseStruct,
)


class InvoiceType(OpenEnum):
    """The origin of the invoice: the recurrence engine, under either of its names."""

    SCHEDULED = "scheduled"
    RECURRING = "recurring"


class InvoiceStatus(OpenEnum):
    """State of an invoice. ``processed``: collected, or out of attempts. ``canceled`` has two spellings."""

    SCHEDULED = "scheduled"
    PROCESSED = "processed"
    RECYCLING = "recycling"
    CANCELED = "canceled"
    CANCELLED = "cancelled"


class InvoiceSummary(OpenEnum):
    """Whether the collection of an invoice has ended."""

    PENDING = "pending"
    DONE = "done"


class InvoicePaymentStatus(OpenEnum):
    """State of the payment of an invoice. The platform spells ``canceled`` both ways."""

    PENDING = "pending"
    APPROVED = "approved"
    AUTHORIZED = "authorized"
    IN_PROCESS = "in_process"
    IN_MEDIATION = "in_mediation"
    REJECTED = "rejected"
    CANCELED = "canceled"
    CANCELLED = "cancelled"
    REFUNDED = "refunded"
    CHARGED_BACK = "charged_back"


class InvoicePayment(ResponseStruct):
    """The payment of an invoice."""

    id: Id | None = None
    """The id of the payment; `None` if not sent."""
    status: Open[InvoicePaymentStatus] | None = None
    """Such as `approved`, `rejected` or `refunded`: see `InvoicePaymentStatus`; `None` if not sent."""
    status_detail: str | None = None
    """The reason for this status; the contract lists no values; `None` if not sent."""


class Invoice(ResponseStruct):
    """One charge of a subscription."""

    id: Id
    """The id of the invoice."""
    type: Open[InvoiceType] | None = None
    """The origin: `scheduled` or `recurring`, both the recurrence engine; `None` if not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    last_modified: Moment | None = None
    """Timestamp of the last change, by an attempt to collect or by its payment, with its offset."""
    preapproval_id: str | None = None
    """The id of its subscription; `None` if not sent."""
    reason: str | None = None
    """The text that the subscriber sees at the checkout and in notifications; `None` if not sent."""
    external_reference: str | None = None
    """The integrator's own name for the subscription; `None` if not set or not sent."""
    currency_id: str | None = None
    """The currency of `transaction_amount`, such as `ARS`; `None` if not sent."""
    transaction_amount: Decimal | None = None
    """The amount that is charged, in `currency_id`; `None` if not sent."""
    debit_date: Day | None = None
    """The day on which it is charged; midnight UTC if the platform sends only a date."""
    retry_attempt: int | None = None
    """How many attempts to collect were made, from 0; `None` if not sent."""
    status: Open[InvoiceStatus] | None = None
    """`scheduled`, `recycling` (under collection), `processed` (collected, or out of attempts) or `canceled` (also
    `cancelled`)."""
    summarized: Open[InvoiceSummary] | None = None
    """Whether its collection has ended: `pending` until then, `done` after; `None` if not sent."""
    payment: InvoicePayment | None = None
    """The payment of the invoice; `None` before the first attempt to collect, or if not sent."""


class InvoicePage(ResponseStruct):
    """A page of invoices, as the platform sends it."""

    paging: Paging = Paging()
    """The position of the page in the search, in rows."""
    results: tuple[Invoice, ...] | None = None
    """The invoices of this page; `None` or empty if there are no rows."""


class InvoiceFilters(TypedDict, total=False):
    """The filters of an invoice search (4.2). The contract does not say which can be combined; none is required."""

    id: Id
    """The id of the invoice."""
    preapproval_id: str
    """The id of the subscription."""
    payment_id: Id
    """The id of the payment of an invoice."""
    payer_id: Id
    """The user id of the buyer who is charged."""


class InvoiceSearch(InvoiceFilters, WalkOptions, total=False):
    """The filters, and the options of the walk."""


class InvoiceQuery(InvoiceFilters, Position, total=False):
    """The filters and the position of a page."""


SEARCH: Operation[None, InvoicePage] = Operation(
    name="invoices.search",
    method="GET",
    path="/authorized_payments/search",
    section="4.2",
    summary="Search invoices",
    retry=RetryClass.READ,
    query=InvoiceQuery,
    result=InvoicePage,
    page=replace(RESULTS, immutable=frozenset({"id", "preapproval_id", "payer_id"})),
    max_response=32 * MIB,
    errors=(ErrorCode(400, "bad-request", "a filter is invalid, or one is missing"), UNAUTHORIZED, INTERNAL_ERROR),
)


class Invoices(Resource):
    """``client.invoices``: the charges of subscriptions."""

    def search(self, **search: Unpack[InvoiceSearch]) -> Pager[Invoice]:
        """Search invoices by subscription, payment or payer (4.2). Asking for the first row sends the first request.

        A walk without `certify=True` can silently miss rows that share a date.

        Args:
            **search: The fields of `InvoiceFilters` and of `WalkOptions`.

        Raises:
            RequestInvalid: A filter is unknown, empty or of the wrong type, or an option is out of bounds.
        """
        return Pager(self._engine, SEARCH, **search)
