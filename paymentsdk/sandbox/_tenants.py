"""Sellers with an application, tokens, a point of sale and a plan, so that a test can start immediately.

`provision` gives a seller many paid orders, as if buyers had come over the last days.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, ClassVar, TypedDict

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources.common import require
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox._clock import Ids
from paymentsdk.sandbox._handlers import orders
from paymentsdk.sandbox._handlers.plans import PlanRequest, RecurringRequest
from paymentsdk.sandbox._noun import LIFETIMES, SCOPES, ParsedRequest, SellerContext, make_grant, usable
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import (
    CURRENCIES,
    DEFAULT_PAYER,
    GRANTS,
    ORDERS,
    OTHER_CURRENCY,
    TENANTS,
    Credentials,
    Grant,
    Tenant,
)
from paymentsdk.sandbox._store import Store
from paymentsdk.sandbox._webhooks import DELIVER
from paymentsdk.sandbox._wire import ControlStruct

#: The first plan of each seller.
FIRST_PLAN = PlanRequest(
    reason="Monthly subscription", auto_recurring=RecurringRequest(transaction_amount=Decimal("99.90"))
)
_MILLISECOND = timedelta(milliseconds=1)
#: Orders that are provisioned in one transaction, which takes some milliseconds.
_PIECE = 50
_PosId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
_ClientId = Annotated[str, Meta(pattern=r"\A([0-9]{1,18}|[A-Za-z0-9_]*[A-Za-z_][A-Za-z0-9_]*)\Z", max_length=64)]
#: A secret has no character that is special in a shell or an env file.
_ClientSecret = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._~+/=-]{1,200}\Z")]
_AccessToken = Annotated[str, Meta(pattern=r"\ATEST-[A-Za-z0-9._~+-]{1,200}\Z")]
#: Most digits of a user id at the end of a pinned token.
_LONGEST_USER_ID = 15

_WORD = f"({SCOPES.replace(' ', '|')})"
_Scope = Annotated[str, Meta(pattern=rf"\A{_WORD}( {_WORD})*\Z")]


class SandboxInfo(Credentials, frozen=True, kw_only=True):
    """The address of a sandbox and one seller's credentials. ``repr`` hides the credentials."""

    base_url: str
    """The address that the sandbox listens on."""


class TenantRequest(MaskedRepr, ControlStruct):
    """A seller to create."""

    country: Annotated[str, Meta(pattern=r"\A[A-Z]{2}\Z")] = "AR"
    """Two capital letters, `AR` by default. QR orders work in `AR`, `BR`, `CL` and `UY`."""
    external_pos_ids: Annotated[tuple[_PosId, ...], Meta(min_length=1)] = ("POS001",)
    """The points of sale; `POS001` by default."""
    marketplace: str | None = "MARKET"
    """The marketplace of the application, `MARKET` by default; `None`, in JSON `null`, for none."""
    scope: _Scope = SCOPES
    """What the application may do: `offline_access`, `read`, `write`, separated by spaces. All of them by default."""
    redirect_uri: str | None = None
    """The address that codes are sent to. It is checked only if it is set."""
    compliant: bool = True
    """Whether the seller's identity is validated; true by default."""
    cash_withdrawals: bool = True
    """Whether the seller is authorized for orders with cash withdrawals; true by default."""
    discount_promises: tuple[str, ...] = ()
    """Discount codes that wallet payments may use."""
    policies: dict[str, object] = field(default_factory=dict)
    """The seller's own policies, by name."""
    client_id: _ClientId | None = None
    """The application. The id of an earlier seller's application shares it; another id also needs `client_secret`. By
    default a new application."""
    client_secret: _ClientSecret | None = None
    """The secret of the application; a new one by default."""
    access_token: _AccessToken | None = None
    """A fixed token: `TEST-` and a name, such as `TEST-ci`. It is valid for ten years. If it ends with `-` and a
    number, such as `TEST-ci-7`, the number is the seller's user id. By default a new token."""

    __secrets__: ClassVar[frozenset[str]] = frozenset({"client_secret", "access_token"})


class TenantOptions(TypedDict, total=False):
    """The fields of `TenantRequest` as keyword arguments."""

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
    client_secret: str | None
    access_token: str | None


def new_tenant(store: Store, ids: Ids, request: TenantRequest) -> Tenant:
    """Return a new seller, without grants.

    Raises:
        ValueError: A policy is unknown or has an invalid value; the application does not exist or has another secret;
            the token or its user id belongs to another seller.
    """
    Policies().merged(request.policies)
    pinned = _user_id_in(request.access_token)
    user_id = pinned or store.unused(TENANTS, lambda: ids.number(9))
    owner = store.owner(GRANTS, request.access_token or "")
    require(owner is None, "$.access_token", f"belongs to seller {owner}; give every seller a token of their own")
    taken = pinned and store.owner(TENANTS, str(pinned))
    require(not taken, "$.access_token", f"ends with the user id of another seller, {user_id}; use another number")
    members = asdict(request)
    members["client_id"], members["client_secret"] = _application(store, ids, request)
    members["access_token"] = request.access_token or ""
    return Tenant(
        **members,
        user_id=user_id,
        currency=CURRENCIES.get(request.country, OTHER_CURRENCY),
        public_key=f"TEST-{ids.uuid()}",
        authorization_code="",
        refresh_token="",
        external_pos_id=request.external_pos_ids[0],
        plan_id=ids.token(),
    )


def _user_id_in(token: str | None) -> int | None:
    """Return the user id at the end of *token*, as clients read it; `None` if there is no user id."""
    kind, _, last = (token or "").rpartition("-")
    if "-" not in kind or not last.isdecimal():
        return None
    valid = last[0] != "0" and len(last) <= _LONGEST_USER_ID
    require(
        valid, "$.access_token", f"ends with a number that is not a user id: 1 to {_LONGEST_USER_ID} digits, no 0 first"
    )
    return int(last)


def _application(store: Store, ids: Ids, request: TenantRequest) -> tuple[str, str]:
    """Return the id and the secret of a new seller's application."""
    if request.client_id is None:
        return str(ids.number(16)), request.client_secret or ids.token()
    shared = store.find(TENANTS, None, [("client_id", "=", request.client_id)], limit=1)
    secret = shared[0].client_secret if shared else request.client_secret
    unknown = f"no seller has the application {request.client_id}; give client_secret, too, to create it"
    require(secret, "$.client_id", unknown)
    differs = f"differs from the secret of the application {request.client_id}"
    require(request.client_secret in {None, secret}, "$.client_secret", differs)
    return request.client_id, secret or ""


def first_tenant(store: Store, request: TenantRequest) -> Tenant | None:
    """Return the seller with the token that *request* pins, by default the first seller; `None` if there is none."""
    if request.access_token is None:
        return next(iter(store.find(TENANTS, None, limit=1)), None)
    owner = store.owner(GRANTS, request.access_token)
    return None if owner is None else store.get(TENANTS, str(owner))


def pin(context: SellerContext, token: str) -> Tenant:
    """Give the seller the access token *token*, even if it was revoked before."""
    tenant = context.tenant
    expires_at = context.now + LIFETIMES["refresh"]
    grant = Grant(
        secret=token, kind="access", user_id=tenant.user_id, scope=tenant.scope, expires_at=expires_at, oauth=False
    )
    context.put(GRANTS, grant)
    return context.put(TENANTS, replace(tenant, access_token=token))


def with_valid_grants(context: SellerContext) -> Tenant:
    """Return the seller, with new grants for those that are spent or expired."""
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


class ProvisionRequest(ControlStruct):
    """Paid orders to create."""

    orders: Annotated[int, Meta(ge=1, le=1_000_000)]
    """The number of orders."""
    days: Annotated[int, Meta(ge=1, le=3650)] = 30
    """The age of the oldest order in days; 30 by default. The others follow evenly. A search returns the last 90 days.
    """
    tenant: int | None = None
    """The user id of the seller; the first seller by default."""


class _Past(SellerContext, frozen=True):
    """A context in the past. Orders are paid there before any of their jobs is due."""

    def schedule(self, at: datetime, kind: str, id: str) -> None:  # noqa: A002 - as in `SellerContext`
        """Schedule nothing: a paid order does not expire."""


def provision(context: SellerContext, request: ProvisionRequest) -> Iterator[None]:
    """Create the orders, oldest first, as by the API and a buyer. Each step creates some of them.

    References count from `provisioned-1`; amounts are 1.00 to 999.99. Watchers get no events of these orders.
    """
    days = timedelta(days=request.days)
    for first in range(0, request.orders, _PIECE):
        with context.store.transaction():
            for number in range(first, min(first + _PIECE, request.orders)):
                ago = (days - days * number // request.orders) // _MILLISECOND * _MILLISECOND
                quiet = {"publish": lambda *_: None, "jobs": {*context.jobs} - {DELIVER}}
                past = {**asdict(context), **quiet, "now": context.now - ago}
                _sell(_Past(**past), number)
        yield


def _sell(context: SellerContext, number: int) -> None:
    amount = Decimal(100 + number * 7919 % 99_900).scaleb(-2)
    payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    body = OrderRequest(external_reference=f"provisioned-{number + 1}", total_amount=amount, transactions=payments)
    order = orders.create(context, ParsedRequest(body=body, path={}, query={}))
    record = context.require(ORDERS, order.id)
    orders.pay(context, record, method="account_money", installments=1, outcome="approved", payer_id=DEFAULT_PAYER)
