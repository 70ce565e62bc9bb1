"""Invoices (4.2): the clock creates them from subscriptions, collects them and retries."""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

from msgspec.structs import replace

from paymentsdk import money
from paymentsdk.resources import invoices
from paymentsdk.resources.common import Paging, require
from paymentsdk.resources.invoices import Invoice, InvoicePaymentStatus, InvoiceStatus, InvoiceSummary
from paymentsdk.resources.plans import AutoRecurring, Plan, PlanStatus
from paymentsdk.sandbox import _records
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext, find_page
from paymentsdk.sandbox._policies import durations
from paymentsdk.sandbox._records import INVOICES, PLANS, SUBSCRIPTIONS, Condition, InvoiceRecord, Subscription
from paymentsdk.sandbox._wire import Rejected

_FILTERS = tuple(invoices.InvoiceFilters.__annotations__)
_NUMBERS = ("id", "payment_id", "payer_id")
#: The number of rejections that stands for all attempts to collect.
ALL_REJECTED = -1
_CENT = Decimal("0.01")
#: The smallest amounts of currencies without cents. The contract has only one of these.
_WHOLE = {"CLP": Decimal(1)}
#: Days of a month in a proportional charge.
_MONTH = 30
#: States of a payment in which the seller has the money.
_PAID = (InvoicePaymentStatus.APPROVED, InvoicePaymentStatus.IN_MEDIATION)
#: The status of an invoice after its payment was set to a state by hand, and the detail of the payment. `None` leaves
#: the status unchanged. Refunded money was collected before, so that the invoice is not collected again.
_STATES: Mapping[InvoicePaymentStatus, tuple[InvoiceStatus | None, str | None]] = {
    InvoicePaymentStatus.APPROVED: (InvoiceStatus.PROCESSED, "accredited"),
    InvoicePaymentStatus.REJECTED: (None, "cc_rejected_insufficient_amount"),
    InvoicePaymentStatus.IN_MEDIATION: (InvoiceStatus.PROCESSED, None),
    InvoicePaymentStatus.REFUNDED: (InvoiceStatus.PROCESSED, "refunded"),
    InvoicePaymentStatus.CHARGED_BACK: (InvoiceStatus.PROCESSED, "settled"),
    InvoicePaymentStatus.CANCELED: (InvoiceStatus.CANCELED, None),
    InvoicePaymentStatus.CANCELLED: (InvoiceStatus.CANCELED, None),
}
_UNCHANGED = (None, None)
#: Text, since a number of OpenAPI has a maximum and an id has none.
_DIGITS = {"type": "string", "pattern": "^[0-9]+$"}


def search(context: SellerContext, request: ParsedRequest[None]) -> invoices.InvoicePage:
    """Return a page of the invoices that meet the filters."""
    filters = [name for name in _FILTERS if name in request.query]
    if not filters and context.policies.invoice_filters == "one_required":
        raise Rejected(400, "bad-request", details=(f"one of {', '.join(_FILTERS)} is required",))
    for name in _NUMBERS:
        text = str(request.query.get(name, "0"))
        require(text.isascii() and text.isdecimal(), f"$.{name}", "is not a number")
    conditions: list[Condition] = [(name, "=", request.query[name]) for name in filters]
    newest = context.policies.search_order == "newest"
    rows, total, offset, limit = find_page(context, INVOICES, request, conditions, descending=newest)
    paging = Paging(total=total, offset=offset, limit=limit)
    return invoices.InvoicePage(paging=paging, results=tuple(row.invoice for row in rows))


def subscribe(
    context: SellerContext, plan: Plan, *, payer_id: int, external_reference: str | None = None, rejections: int = 0
) -> Subscription:
    """Subscribe a buyer to a plan. The first invoice is created now and collected after the free trial.

    Args:
        context: The context of the plan's seller.
        plan: The plan.
        payer_id: The buyer.
        external_reference: The integrator's name for the subscription.
        rejections: The number of attempts to collect that are rejected before one is approved; -1 for all.

    Raises:
        Rejected: The plan is not active, or *rejections* is below -1.
    """
    if plan.status != PlanStatus.ACTIVE:
        raise Rejected(409, "plan_not_active", f"the plan is {plan.status}")
    if rejections < ALL_REJECTED:
        raise Rejected(400, "bad_request", f"rejections is 0 or more, or {ALL_REJECTED} for all")
    subscription = Subscription(
        id=context.ids.token(),
        plan_id=plan.id,
        payer_id=payer_id,
        external_reference=external_reference,
        rejections=rejections,
        started=context.now,
    )
    return _issue(context, subscription, plan)


def end(context: SellerContext, subscription: Subscription) -> Subscription:
    """Cancel a subscription and its open invoices."""
    for record in context.find(INVOICES, [("preapproval_id", "=", subscription.id)]):
        if record.invoice.summarized == InvoiceSummary.PENDING:
            _keep(context, record, status=InvoiceStatus.CANCELED)
    return context.put(SUBSCRIPTIONS, replace(subscription, status=_records.CANCELED))


def collect(context: SellerContext, invoice_id: str) -> str | None:
    """Try to collect an invoice. The first attempt also creates the next invoice."""
    record = context.require(INVOICES, invoice_id)
    if record.invoice.summarized != InvoiceSummary.PENDING:
        return None
    subscription = context.require(SUBSCRIPTIONS, record.invoice.preapproval_id or "")
    attempts = (record.invoice.retry_attempt or 0) + 1
    waits = durations(context.policies.invoice_retries)
    outcome = InvoicePaymentStatus.REJECTED if subscription.rejections else InvoicePaymentStatus.APPROVED
    status = InvoiceStatus.PROCESSED  # Also after the last failed attempt (spec: Invoice).
    if subscription.rejections and attempts <= len(waits):
        status = InvoiceStatus.RECYCLING
        context.schedule(context.now + waits[attempts - 1], "invoice.collect", invoice_id)
    if subscription.rejections > 0:
        subscription = context.put(SUBSCRIPTIONS, replace(subscription, rejections=subscription.rejections - 1))
    _keep(context, record, outcome, status=status, retry_attempt=attempts)
    if attempts == 1:
        _issue(context, subscription, context.require(PLANS, subscription.plan_id))
    return f"invoice.{status.value}"


def change_payment(context: SellerContext, record: InvoiceRecord, status: str) -> Invoice:
    """Set the payment of an invoice to a state of the contract, such as ``charged_back``.

    An invoice whose money was collected, even if it was returned since, becomes ``processed``. An invoice whose payment
    was canceled becomes ``canceled``. Neither is collected again. Other states do not change the invoice's status or
    its attempts.

    Raises:
        Rejected: The state does not exist, or the invoice has no payment yet.
    """
    if status not in set(InvoicePaymentStatus):
        raise Rejected(400, "bad-request", "the contract has no such payment status", details=("status",))
    if record.invoice.payment is None:
        words = "the invoice has no payment yet; advance the clock to its debit_date"
        raise Rejected(409, "no_payment", words)
    payment = InvoicePaymentStatus(status)
    settled, _ = _STATES.get(payment, _UNCHANGED)
    return _keep(context, record, payment, status=settled or record.invoice.status).invoice


def _issue(context: SellerContext, subscription: Subscription, plan: Plan) -> Subscription:
    """Create the next invoice of a subscription, or finish the subscription after its last invoice."""
    recurring = plan.auto_recurring or AutoRecurring()
    if recurring.repetitions is not None and subscription.invoices >= recurring.repetitions:
        return context.put(SUBSCRIPTIONS, replace(subscription, status=_records.FINISHED))
    debit_date = debited_at(recurring, subscription.started, subscription.invoices)
    invoice = Invoice(
        id=context.number(INVOICES, 10),
        type=invoices.InvoiceType.SCHEDULED,
        date_created=context.now,
        last_modified=context.now,
        preapproval_id=subscription.id,
        reason=plan.reason,
        external_reference=subscription.external_reference or plan.external_reference,
        currency_id=recurring.currency_id,
        transaction_amount=_amount(recurring, subscription),
        debit_date=debit_date.replace(hour=0, minute=0, second=0, microsecond=0),
        retry_attempt=0,
        status=InvoiceStatus.SCHEDULED,
        summarized=InvoiceSummary.PENDING,
    )
    context.put(INVOICES, InvoiceRecord(invoice=invoice, payer_id=subscription.payer_id))
    context.schedule(debit_date, "invoice.collect", str(invoice.id))
    return context.put(SUBSCRIPTIONS, replace(subscription, invoices=subscription.invoices + 1))


def debited_at(recurring: AutoRecurring, started: datetime, number: int) -> datetime:
    """Return when the invoice *number* (from 0) of a subscription is collected.

    The first is collected at the end of the free trial, moved to the plan's billing day if it has one. Later ones
    follow at the plan's frequency. In a month without that day, it is the last day.
    """
    first = _trial_end(recurring, started)
    if recurring.billing_day:
        moved = first.replace(day=recurring.billing_day)
        first = moved if moved >= first else _later(moved, 1, "months")
    return _later(first, number * (recurring.frequency or 1), recurring.frequency_type)


def _trial_end(recurring: AutoRecurring, started: datetime) -> datetime:
    trial = recurring.free_trial
    if trial is None:
        return started
    return _later(started, trial.frequency or 0, trial.frequency_type) + timedelta(days=trial.first_invoice_offset or 0)


def _later(moment: datetime, count: int, unit: str | None) -> datetime:
    if unit == "days":
        return moment + timedelta(days=count)
    years, month = divmod(moment.month - 1 + count, 12)
    year = moment.year + years
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


def _amount(recurring: AutoRecurring, subscription: Subscription) -> Decimal:
    """Return the amount of an invoice.

    A proportional first charge covers the days from the end of the free trial to the billing day, as a share of the
    days of a whole period.
    """
    amount = recurring.transaction_amount or money.ZERO
    if subscription.invoices or not (recurring.billing_day and recurring.billing_day_proportional):
        return amount
    started = subscription.started
    days = (debited_at(recurring, started, 0) - _trial_end(recurring, started)).days
    period = (recurring.frequency or 1) * (1 if recurring.frequency_type == "days" else _MONTH)
    if not 0 < days < period:
        return amount
    return (amount * days / period).quantize(_WHOLE.get(recurring.currency_id or "", _CENT), ROUND_HALF_UP)


def _keep(
    context: SellerContext, record: InvoiceRecord, payment: InvoicePaymentStatus | None = None, **changes: object
) -> InvoiceRecord:
    """Store an invoice with its *changes*, and record the money that the new state of its *payment* moves."""
    old = record.invoice
    invoice = replace(old, last_modified=context.now, **changes)
    if invoice.status in {InvoiceStatus.PROCESSED, InvoiceStatus.CANCELED}:
        invoice = replace(invoice, summarized=InvoiceSummary.DONE)
    if payment:
        number, was = (old.payment.id, old.payment.status) if old.payment else (context.ids.number(11), None)
        _, detail = _STATES.get(payment, _UNCHANGED)
        invoice_payment = invoices.InvoicePayment(id=number, status=payment, status_detail=detail)
        invoice = replace(invoice, payment=invoice_payment)
        moved = int(payment in _PAID) - int(was in _PAID)
        context.record(
            "invoice_payment",
            id=str(number),
            order_id=str(old.id),
            amount=moved * (old.transaction_amount or money.ZERO),
            currency=old.currency_id,
            external_reference=old.external_reference,
        )
    return context.put(INVOICES, replace(record, invoice=invoice))


NOUN = Noun(
    searched=INVOICES,
    handlers=[Handler(operation=invoices.SEARCH, handle=search, magic=MagicValue("preapproval_id"))],
    causes={"bad-request": "a limit below 1, an offset below 0, an id that is not a number"},
    schemas={("invoices.search", name): _DIGITS for name in _NUMBERS},
    jobs={"invoice.collect": collect},
)
