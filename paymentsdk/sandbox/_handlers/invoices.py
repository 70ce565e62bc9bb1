"""Invoices (4.2): made from subscriptions by the clock, collected, tried again, given up."""

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
from paymentsdk.sandbox._records import INVOICES, PLANS, SUBSCRIPTIONS, Condition, InvoiceRecord, Subscription
from paymentsdk.sandbox._wire import Rejected

_FILTERS = tuple(invoices.InvoiceFilters.__annotations__)
_NUMBERS = ("id", "payment_id", "payer_id")
#: Instead of a number of rejections: every attempt to collect is rejected.
ALL_REJECTED = -1
_CENT = Decimal("0.01")
#: The smallest amount of a currency that has no cents; of the contract's only this one has none.
_WHOLE = {"CLP": Decimal(1)}
#: Days of a month, as shares of a charge count them.
_MONTH = 30
#: States of a payment in which the seller has the money.
_PAID = (InvoicePaymentStatus.APPROVED, InvoicePaymentStatus.IN_MEDIATION)
#: What an invoice is once its payment was brought into a state by hand, and the detail of the payment. Without a status
#: it is what it was. Money that went back was collected before: nobody tries to collect it again.
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
#: As text: a number of OpenAPI has a largest one, and an id has none.
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
    """Subscribe a buyer to a plan; the first invoice is made at once and collected when the free trial is over.

    Args:
        context: The context of the plan's seller.
        plan: The plan.
        payer_id: The buyer.
        external_reference: The integrator's own name for the subscription.
        rejections: How many attempts to collect are rejected before one is approved; -1 for all.

    Raises:
        Rejected: The plan is not active; the rejections are neither a number of attempts nor -1.
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
    """Cancel a subscription, and every invoice of it that is not done."""
    for record in context.find(INVOICES, [("preapproval_id", "=", subscription.id)]):
        if record.invoice.summarized == InvoiceSummary.PENDING:
            _keep(context, record, status=InvoiceStatus.CANCELED)
    return context.put(SUBSCRIPTIONS, replace(subscription, status=_records.CANCELED))


def collect(context: SellerContext, invoice_id: str) -> str | None:
    """Try to collect an invoice; the first attempt also makes the invoice after it."""
    record = context.require(INVOICES, invoice_id)
    if record.invoice.summarized != InvoiceSummary.PENDING:
        return None
    subscription = context.require(SUBSCRIPTIONS, record.invoice.preapproval_id or "")
    attempts = (record.invoice.retry_attempt or 0) + 1
    waits = context.policies.retry_waits
    outcome = InvoicePaymentStatus.REJECTED if subscription.rejections else InvoicePaymentStatus.APPROVED
    status = InvoiceStatus.PROCESSED  # Also once all attempts have failed (spec: Invoice).
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
    """Bring the payment of an invoice into any state of the contract, such as ``charged_back``.

    An invoice that was paid, also one whose money went back since, is ``processed``, and one whose payment was canceled
    is ``canceled``: neither is collected again. In any other state it stays as it is, and so do its attempts.

    Raises:
        Rejected: There is no such state, or the invoice has no payment yet.
    """
    if status not in set(InvoicePaymentStatus):
        raise Rejected(400, "bad-request", "the contract has no such payment status", details=("status",))
    if record.invoice.payment is None:
        words = "nobody has tried to collect the invoice yet: advance the clock to its debit_date"
        raise Rejected(409, "no_payment", words)
    payment = InvoicePaymentStatus(status)
    settled, _ = _STATES.get(payment, _UNCHANGED)
    return _keep(context, record, payment, status=settled or record.invoice.status).invoice


def _issue(context: SellerContext, subscription: Subscription, plan: Plan) -> Subscription:
    """Make the next invoice of a subscription, which is finished if it has had all of them."""
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

    The first is when the free trial is over, moved to the billing day where the plan has one; each later one is the
    plan's frequency after the first. A month that lacks the day takes its last.
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
    """Return what an invoice charges.

    Where the plan says so, the first is only for the days from the end of the free trial up to the billing day, out of
    those that a whole charge is for.
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
    """Keep an invoice with its *changes*, and the money that moved with the state of its *payment*."""
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
