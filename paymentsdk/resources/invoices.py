"""Invoices (authorized payments) of subscriptions (4.2)."""

from __future__ import annotations

from decimal import Decimal
from typing import TypedDict, Unpack

from paymentsdk._operation.operation import MIB, Operation
from paymentsdk._operation.rules import ErrorCode, RetryClass
from paymentsdk._paging.options import Position, WalkOptions
from paymentsdk._paging.pager import Pager
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

__all__ = [
    "SEARCH",
    "Invoice",
    "InvoiceFilters",
    "InvoicePage",
    "InvoicePayment",
    "InvoicePaymentStatus",
    "InvoiceQuery",
    "InvoiceSearch",
    "InvoiceStatus",
    "InvoiceSummary",
    "InvoiceType",
    "Invoices",
]


class InvoiceType(OpenEnum):
    """What made the invoice: the recurrence engine, under either of its names."""

    SCHEDULED = "scheduled"
    RECURRING = "recurring"


class InvoiceStatus(OpenEnum):
    """State of an invoice. ``processed``: collected, or out of attempts. The platform spells ``canceled`` both ways."""

    SCHEDULED = "scheduled"
    PROCESSED = "processed"
    RECYCLING = "recycling"
    CANCELED = "canceled"
    CANCELLED = "cancelled"


class InvoiceSummary(OpenEnum):
    """Whether the collection of an invoice has come to its end."""

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
    """The payment that an invoice led to."""

    id: Id | None = None
    """The payment."""
    status: Open[InvoicePaymentStatus] | None = None
    """Its state."""
    status_detail: str | None = None
    """What led to this state."""


class Invoice(ResponseStruct):
    """One charge of a subscription."""

    id: Id
    """The invoice."""
    type: Open[InvoiceType] | None = None
    """What made it."""
    date_created: Moment | None = None
    """When it was made."""
    last_modified: Moment | None = None
    """When it was last changed: by an attempt to collect, or by its payment."""
    preapproval_id: str | None = None
    """The subscription that it belongs to."""
    reason: str | None = None
    """What the subscriber is shown."""
    external_reference: str | None = None
    """The integrator's own name for the subscription."""
    currency_id: str | None = None
    """The currency of the amount."""
    transaction_amount: Decimal | None = None
    """What is charged."""
    debit_date: Day | None = None
    """The day on which it is charged; midnight UTC where the platform sends a date alone."""
    retry_attempt: int | None = None
    """How many attempts to collect were made."""
    status: Open[InvoiceStatus] | None = None
    """Its state."""
    summarized: Open[InvoiceSummary] | None = None
    """Whether its collection has come to an end."""
    payment: InvoicePayment | None = None
    """The payment that it led to."""


class InvoicePage(ResponseStruct):
    """A page of invoices, as the platform sends it."""

    paging: Paging = Paging()
    """Which page it is."""
    results: tuple[Invoice, ...] | None = None
    """The invoices of this page."""


class InvoiceFilters(TypedDict, total=False):
    """What invoices can be searched by (4.2). The contract does not say which go together; none is required here."""

    id: Id
    """The invoice."""
    preapproval_id: str
    """The subscription that they belong to."""
    payment_id: Id
    """The payment that one led to."""
    payer_id: Id
    """The buyer who is charged."""


class InvoiceSearch(InvoiceFilters, WalkOptions, total=False):
    """The filters, and how the search is walked."""


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
    page=RESULTS,
    max_response=32 * MIB,
    errors=(
        ErrorCode(400, "bad-request", "a filter is invalid, or one is missing"),
        UNAUTHORIZED,
        INTERNAL_ERROR,
    ),
)


class Invoices(Resource):
    """``client.invoices``: what subscriptions were charged."""

    def search(self, **search: Unpack[InvoiceSearch]) -> Pager[Invoice]:
        """Search invoices by subscription, payment or payer (4.2). Nothing is sent before the first row is asked for.

        Args:
            **search: The members of `InvoiceFilters` and of `WalkOptions`.

        Raises:
            RequestInvalid: A filter is unknown, empty or of the wrong type, or an option is out of bounds.
        """
        return Pager(self._engine, SEARCH, **search)
