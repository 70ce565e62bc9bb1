"""Plans (4.5, 4.6). The control API creates them, since the contract has no operation for it."""

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
    """The free trial of a subscription."""

    frequency: Frequency = 1
    """The number of units; 1 by default."""
    frequency_type: Unit = "months"
    """The unit; `months` by default."""
    first_invoice_offset: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Additional days; 0 by default."""


class RecurringRequest(ControlStruct):
    """The amount and the frequency of charges."""

    transaction_amount: PositiveAmount
    """The amount of each charge."""
    frequency: Frequency = 1
    """The number of units between two charges; 1 by default."""
    frequency_type: Unit = "months"
    """The unit; `months` by default."""
    repetitions: Frequency | None = None
    """The total number of charges; unlimited by default."""
    billing_day: Annotated[int, Meta(ge=1, le=28)] | None = None
    """The day of the month to which the first charge is moved."""
    billing_day_proportional: bool | None = None
    """Whether the first charge covers only the days up to the billing day, as a share of a whole period (months count
    30 days)."""
    free_trial: FreeTrialRequest | None = None
    """The free trial at the beginning."""
    currency_id: str | None = None
    """The currency; by default the seller's."""

    def __post_init__(self) -> None:
        require(money.exact(self.transaction_amount) > 0, "$.transaction_amount", "must be above 0")


class PaymentMethodsAllowedRequest(ControlStruct):
    """The payment methods for subscribers."""

    payment_types: list[Metadata] | None = None
    """The kinds of methods; empty for all."""
    payment_methods: list[Metadata] | None = None
    """The methods; empty for all."""


class PlanRequest(ControlStruct):
    """A plan to create."""

    reason: str
    """The title that subscribers see."""
    auto_recurring: RecurringRequest
    """The amount and the frequency of charges."""
    payment_methods_allowed: PaymentMethodsAllowedRequest | None = None
    """The payment methods for subscribers. The sandbox stores them, but does not check them."""
    back_url: str | None = None
    """The address that subscribers go to after the checkout."""
    external_reference: str | None = None
    """The integrator's name for the plan."""
    status: str = "active"
    """The status; `active` by default. Other plans accept no subscriptions."""


def make(context: SellerContext, request: PlanRequest, plan_id: str | None = None) -> Plan:
    """Create a plan of the seller."""
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
    """Return a page of the plans that meet the filters, by default the oldest first."""
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
    """Return how many subscriptions to a plan are active."""
    return context.count(SUBSCRIPTIONS, [("plan_id", "=", plan_id), ("status", "=", AUTHORIZED)])


def _sorted(plans: list[Plan], member: object, criteria: str) -> list[Plan]:
    require(criteria in {"asc", "desc"}, "$.criteria", "is asc or desc")
    require(member is None or member in SORTABLE, "$.sort", "is not a field of a plan")
    if member is not None:
        # Pairs, since `None` cannot be compared with numbers or texts.
        plans = sorted(plans, key=lambda plan: ((value := getattr(plan, str(member))) is None, wire_form(value)))
    if criteria == "desc":
        plans = plans[::-1]
    # Plans without the member come last in both directions.
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
