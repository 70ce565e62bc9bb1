"""Subscription plans (4.5, 4.6)."""

from __future__ import annotations

from decimal import Decimal
from typing import TypedDict, Unpack

from paymentsdk._contract.identity import Echo
from paymentsdk._contract.operation import MIB, Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._paging.cursor import Position
from paymentsdk._paging.pager import Pager, WalkOptions
from paymentsdk.resources.common import (
    INTERNAL_ERROR,
    RESULTS,
    UNAUTHORIZED,
    Id,
    Metadata,
    Moment,
    Open,
    OpenEnum,
    Paging,
    Resource,
    ResponseStruct,
    require,
)


class PlanStatus(OpenEnum):
    """State of a plan. The contract names only ``active``; the platform spells ``canceled`` both ways."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    CANCELED = "canceled"
    CANCELLED = "cancelled"


class FrequencyType(OpenEnum):
    """The unit of a frequency."""

    DAYS = "days"
    MONTHS = "months"


class FreeTrial(ResponseStruct):
    """How long a subscription is free: ``frequency`` times the unit ``frequency_type``."""

    frequency: int | None = None
    """How many units are free, 1 or more; the unit is `frequency_type`."""
    frequency_type: Open[FrequencyType] | None = None
    """The unit: `days` or `months`."""
    first_invoice_offset: int | None = None
    """Days from the end of the trial to the first invoice; `None` if not sent."""


class AutoRecurring(ResponseStruct):
    """The amount and the rhythm of the charges."""

    frequency: int | None = None
    """How many units lie between two charges, 1 or more; the unit is `frequency_type`."""
    frequency_type: Open[FrequencyType] | None = None
    """The unit of `frequency`: `days` or `months`; `None` if not sent."""
    repetitions: int | None = None
    """The number of charges in all; `None` for no end."""
    billing_day: int | None = None
    """The day of the month on which it is charged; `None` for the day of the first charge, or if not sent."""
    billing_day_proportional: bool | None = None
    """Whether the first charge is only for the days up to the billing day."""
    free_trial: FreeTrial | None = None
    """How long it is free at the beginning; `None` if not set or not sent."""
    transaction_amount: Decimal | None = None
    """The amount of each charge, in `currency_id`; `None` if not sent."""
    currency_id: str | None = None
    """The currency of `transaction_amount`, such as `ARS`; `None` if not sent."""


class PaymentMethodsAllowed(ResponseStruct):
    """The payment methods for a subscriber. The fields of the entries are not part of the contract; ``id`` is usual."""

    payment_types: tuple[Metadata, ...] | None = None
    """The kinds of methods; empty for all; `None` if not sent."""
    payment_methods: tuple[Metadata, ...] | None = None
    """The methods; empty for all; `None` if not sent."""


class Plan(ResponseStruct):
    """A plan that buyers subscribe to."""

    id: str
    """The id of the plan."""
    application_id: Id | None = None
    """The id of the application that created it; `None` if not sent."""
    collector_id: Id | None = None
    """The user id of the seller; `None` if not sent."""
    reason: str | None = None
    """The text that the subscriber sees at the checkout and in notifications; `None` if not sent."""
    auto_recurring: AutoRecurring | None = None
    """The amount and the rhythm of the charges."""
    payment_methods_allowed: PaymentMethodsAllowed | None = None
    """The payment methods for a subscriber; `None` if not sent."""
    back_url: str | None = None
    """The URL for the subscriber after the checkout; `None` if not sent."""
    external_reference: str | None = None
    """The integrator's own name for the plan; `None` if not set or not sent."""
    init_point: str | None = None
    """The URL of the checkout where a buyer subscribes; `None` if not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    last_modified: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""
    subscribed: int | None = None
    """The number of subscribers; in search results only, otherwise `None`."""
    status: Open[PlanStatus] | None = None
    """`active`, `inactive` or `canceled` (also `cancelled`); the contract names only `active`."""


class PlanPage(ResponseStruct):
    """A page of plans, as the platform sends it."""

    paging: Paging = Paging()
    """The position of the page in the search, in rows."""
    results: tuple[Plan, ...] | None = None
    """The plans of this page; `None` or empty if there are no rows."""


class PlanFilters(TypedDict, total=False):
    """The filters of a plan search (4.6)."""

    status: str
    """The status of the plan, such as `active`; by default any status."""
    q: str
    """Text to search for; the contract does not say in which fields."""
    sort: str
    """The field to sort by; the contract lists no values."""
    criteria: str
    """The sort order. The contract names no values; the sandbox takes `asc` and `desc`."""


class PlanSearch(PlanFilters, WalkOptions, total=False):
    """The filters, and the options of the walk."""


class PlanQuery(PlanFilters, Position, total=False):
    """The filters and the position of a page."""


GET: Operation[None, Plan] = Operation(
    name="plans.get",
    method="GET",
    path="/preapproval_plan/{id}",
    section="4.5",
    summary="Get a plan",
    retry=RetryClass.READ,
    result=Plan,
    echoes=(Echo("id", of="{id}"),),
    errors=(UNAUTHORIZED, ErrorCode(404, "not-found", "no plan has this id"), INTERNAL_ERROR),
)
SEARCH: Operation[None, PlanPage] = Operation(
    name="plans.search",
    method="GET",
    path="/preapproval_plan/search",
    section="4.6",
    summary="Search plans",
    retry=RetryClass.READ,
    query=PlanQuery,
    result=PlanPage,
    page=RESULTS,
    max_response=32 * MIB,
    errors=(
        # The contract gives only the status.
        ErrorCode(400, "bad-request", "a filter is invalid"),
        UNAUTHORIZED,
        INTERNAL_ERROR,
    ),
)


class Plans(Resource):
    """``client.plans``: subscription plans."""

    async def get(self, plan_id: str) -> Plan:
        """Return the plan, without ``subscribed`` (4.5).

        Args:
            plan_id: The id of the plan.

        Raises:
            RequestInvalid: *plan_id* has a character that no id has, or is ``search``; nothing was sent.
            NotFound: The seller has no plan with this id.
        """
        require(plan_id != "search", "$path.id", "'search' is not an id: it is the path of the search")
        return await self._read(GET, id=plan_id)

    def search(self, **search: Unpack[PlanSearch]) -> Pager[Plan]:
        """Search plans (4.6). Asking for the first row sends the first request.

        A walk without `certify=True` can silently miss rows that share a date.

        Args:
            **search: The fields of `PlanFilters` and of `WalkOptions`.

        Raises:
            RequestInvalid: A filter is unknown, empty or of the wrong type, or an option is out of bounds.
        """
        return Pager(self._engine, SEARCH, **search)
