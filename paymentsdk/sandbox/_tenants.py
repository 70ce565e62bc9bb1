"""Sellers, each with an application, tokens, a point of sale and a plan, so that a test can begin at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, TypedDict

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from paymentsdk.sandbox._context import SellerContext
from paymentsdk.sandbox._grants import SCOPES, make_grant, usable
from paymentsdk.sandbox._handlers.plans import PlanRequest, RecurringRequest, make
from paymentsdk.sandbox._ids import Ids
from paymentsdk.sandbox._parsing import ControlStruct
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import CURRENCIES, OTHER_CURRENCY, TENANTS, Tenant

_FIRST_PLAN = PlanRequest(
    reason="Monthly subscription", auto_recurring=RecurringRequest(transaction_amount=Decimal("99.90"))
)
_PosId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]

_WORD = f"({SCOPES.replace(' ', '|')})"
_Scope = Annotated[str, Meta(pattern=rf"\A{_WORD}( {_WORD})*\Z")]


class TenantRequest(ControlStruct):
    """A seller to make."""

    country: Annotated[str, Meta(pattern=r"\A[A-Z]{2}\Z")] = "AR"
    """Two capitals, `AR` by default; QR orders work in `AR`, `BR`, `CL` and `UY`."""
    external_pos_ids: Annotated[tuple[_PosId, ...], Meta(min_length=1)] = ("POS001",)
    """The points of sale; `POS001` by default."""
    marketplace: str | None = "MARKET"
    """The marketplace of the application, `MARKET` by default; `None`, in JSON `null`, for none."""
    scope: _Scope = SCOPES
    """What the application may do: `offline_access`, `read`, `write`, separated by spaces; all of them by default."""
    redirect_uri: str | None = None
    """Where codes are sent; checked only if given."""
    compliant: bool = True
    """Whether the seller's identity is validated; it is by default."""
    cash_withdrawals: bool = True
    """Whether the seller is authorized for orders with cash withdrawals, as by default."""
    discount_promises: tuple[str, ...] = ()
    """Discount codes that wallet payments may use."""
    policies: dict[str, object] = field(default_factory=dict)
    """The seller's own, by name."""
    client_id: str | None = None
    """The application of an earlier seller, to share it; by default a new application."""


class TenantOptions(TypedDict, total=False):
    """The fields of `TenantRequest`, as keywords."""

    country: str
    external_pos_ids: Sequence[str]
    marketplace: str | None
    scope: str
    redirect_uri: str | None
    compliant: bool
    cash_withdrawals: bool
    discount_promises: Sequence[str]
    policies: Mapping[str, object]
    client_id: str | None


def new_tenant(ids: Ids, user_id: int, request: TenantRequest, shared: Tenant | None) -> Tenant:
    """Return the new seller *user_id*, without grants yet: with the application of *shared*, or one of their own.

    Raises:
        ValueError: A policy is unknown or has a value that it may not have.
    """
    Policies().merged(request.policies)
    members = asdict(request)
    members["client_id"] = shared.client_id if shared else str(ids.number(16))
    members["client_secret"] = shared.client_secret if shared else ids.token()
    return Tenant(
        **members,
        user_id=user_id,
        currency=CURRENCIES.get(request.country, OTHER_CURRENCY),
        public_key=f"TEST-{ids.uuid()}",
        access_token="",
        authorization_code="",
        refresh_token="",
        external_pos_id=request.external_pos_ids[0],
        plan_id=ids.token(),
    )


def with_first_plan(context: SellerContext) -> Tenant:
    """Give the new seller of *context* their first plan and their grants, and keep them."""
    make(context, _FIRST_PLAN, context.tenant.plan_id)
    return with_valid_grants(context)


def with_valid_grants(context: SellerContext) -> Tenant:
    """Return the seller with new grants in place of those that are spent or have expired."""
    tenant = context.tenant
    if not usable(context, tenant.access_token):
        tenant = replace(tenant, access_token=make_grant(context, "access", tenant.scope, oauth=False).secret)
    if not usable(context, tenant.refresh_token):
        tenant = replace(
            tenant, refresh_token=make_grant(context, "refresh", tenant.scope, access_token=tenant.access_token).secret
        )
    if not usable(context, tenant.authorization_code):
        tenant = replace(tenant, authorization_code=make_grant(context, "code", tenant.scope).secret)
    return tenant if tenant == context.tenant else context.put(TENANTS, tenant)
