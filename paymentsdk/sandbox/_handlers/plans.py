"""Plans (4.5, 4.6); they are made through the control API, since the contract has no operation for it."""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from paymentsdk import money
from paymentsdk.resources import plans
from paymentsdk.resources.common import Metadata, Paging, PositiveAmount, require
from paymentsdk.resources.plans import AutoRecurring, Plan, PlanPage, PlanStatus
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext, cut_page
from paymentsdk.sandbox._records import AUTHORIZED, PLANS, SUBSCRIPTIONS, Condition, plan_link
from paymentsdk.sandbox._wire import ControlStruct, Rejected, echo, wire_form

Frequency = Annotated[int, Meta(ge=1, le=1000)]
Unit = Literal["days", "months"]
SORTABLE = frozenset(Plan.__struct_fields__) - {"auto_recurring", "payment_methods_allowed"}


class FreeTrialRequest(ControlStruct):
    """How long a subscription is free."""

    frequency: Frequency = 1
    """For how many units; 1 by default."""
    frequency_type: Unit = "months"
    """The unit; `months` by default."""
    first_invoice_offset: Annotated[int, Meta(ge=0, le=1000)] = 0
    """How many days more; 0 by default."""


class RecurringRequest(ControlStruct):
    """What is charged how often."""

    transaction_amount: PositiveAmount
    """What is charged each time."""
    frequency: Frequency = 1
    """How many units lie between two charges; 1 by default."""
    frequency_type: Unit = "months"
    """The unit; `months` by default."""
    repetitions: Frequency | None = None
    """How many charges there are in all; no end by default."""
    billing_day: Annotated[int, Meta(ge=1, le=28)] | None = None
    """The day of the month to which the first charge is moved."""
    billing_day_proportional: bool | None = None
    """Whether the first charge is only for the days up to the billing day, out of the 30 of each month (or of the
    days) that a whole one is for."""
    free_trial: FreeTrialRequest | None = None
    """What is free at the beginning."""
    currency_id: str | None = None
    """The seller's currency by default."""

    def __post_init__(self) -> None:
        require(money.exact(self.transaction_amount) > 0, "$.transaction_amount", "must be above 0")


class PaymentMethodsAllowedRequest(ControlStruct):
    """What a subscriber may pay with."""

    payment_types: list[Metadata] | None = None
    """The kinds of methods; empty for all."""
    payment_methods: list[Metadata] | None = None
    """The methods; empty for all."""


class PlanRequest(ControlStruct):
    """A plan to make."""

    reason: str
    """What the subscriber is shown."""
    auto_recurring: RecurringRequest
    """What is charged how often."""
    payment_methods_allowed: PaymentMethodsAllowedRequest | None = None
    """What a subscriber may pay with; the sandbox keeps it and does not look at it."""
    back_url: str | None = None
    """Where the subscriber goes after the checkout."""
    external_reference: str | None = None
    """The integrator's own name for the plan."""
    status: str = "active"
    """`active` by default; nobody can subscribe to a plan of another status."""


def make(context: SellerContext, request: PlanRequest, plan_id: str | None = None) -> Plan:
    """Make a plan of the seller."""
    plan_id = plan_id or context.ids.token()
    currency = request.auto_recurring.currency_id or context.tenant.currency
    plan = echo(
        request,
        Plan,
        id=plan_id,
        application_id=context.tenant.application_number,
        collector_id=context.tenant.user_id,
        auto_recurring=echo(request.auto_recurring, AutoRecurring, currency_id=currency),
        init_point=plan_link(context.base_url, plan_id),
        date_created=context.now,
        last_modified=context.now,
        status=PlanStatus(request.status),
    )
    return context.put(PLANS, plan)


def get(context: SellerContext, request: ParsedRequest[None]) -> Plan:
    """Return a plan."""
    plan = context.get(PLANS, request.path["id"])
    if plan is None:
        raise Rejected(404, "not-found")
    return plan


def search(context: SellerContext, request: ParsedRequest[None]) -> PlanPage:
    """Return a page of the plans that meet the filters, oldest first unless asked otherwise."""
    status, words = request.query.get("status"), str(request.query.get("q", "")).lower()
    conditions: list[Condition] = [("status", "=", status)] if status else []
    plans = [
        replace(plan, subscribed=_subscribed(context, plan.id))
        for plan in context.find(PLANS, conditions)
        if words in "\n".join((plan.id, plan.reason or "", plan.external_reference or "")).lower()
    ]
    plans = _sorted(plans, request.query.get("sort"), str(request.query.get("criteria", "asc")).lower())
    rows, total, offset, limit = cut_page(
        context.policies, request, len(plans), lambda start, most: plans[start : start + most]
    )
    return PlanPage(paging=Paging(total=total, offset=offset, limit=limit), results=tuple(rows))


def _subscribed(context: SellerContext, plan_id: str) -> int:
    """Return how many subscriptions to a plan go on."""
    return context.count(SUBSCRIPTIONS, [("plan_id", "=", plan_id), ("status", "=", AUTHORIZED)])


def _sorted(plans: list[Plan], member: object, criteria: str) -> list[Plan]:
    require(criteria in {"asc", "desc"}, "$.criteria", "is asc or desc")
    require(member is None or member in SORTABLE, "$.sort", "names no field of a plan")
    if member is not None:
        # In a pair, as `None` compares with neither the numbers nor the texts of others.
        plans = sorted(plans, key=lambda plan: ((value := getattr(plan, str(member))) is None, wire_form(value)))
    if criteria == "desc":
        plans = plans[::-1]
    # What has no such member comes last, both ways.
    return sorted(plans, key=lambda plan: member is not None and getattr(plan, str(member)) is None)


NOUN = Noun(
    searched=PLANS,
    other_filters=("q", "sort", "criteria"),
    handlers=[
        Handler(operation=plans.GET, handle=get, magic=MagicValue("id")),
        Handler(operation=plans.SEARCH, handle=search, magic=MagicValue("q")),
    ],
    causes={
        "not-found": "an id that is unknown, or another seller's",
        "bad-request": "a limit below 1, an offset below 0, a sort that names no field",
    },
    schemas={
        ("plans.search", "sort"): {"enum": sorted(SORTABLE)},
        ("plans.search", "criteria"): {"enum": ["asc", "desc"]},
    },
)
