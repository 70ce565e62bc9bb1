"""What the control API can do: one function per command, each ``(platform, request) -> plain data or Structs``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import _policies
from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._codes import ways
from paymentsdk.sandbox._control_bodies import (
    AdvanceRequest,
    ControlRequest,
    DiscountRequest,
    FreezeRequest,
    NewPlanRequest,
    PayRequest,
    RefundRequest,
    RevokeRequest,
    ScanRequest,
    SnapshotRequest,
    StatusRequest,
    SubscribeRequest,
    number_of,
)
from paymentsdk.sandbox._faults import AddedFault, FaultRule
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._provision import ProvisionRequest
from paymentsdk.sandbox._records import INVOICES, MERCHANT_ORDERS, ORDERS, PLANS, SUBSCRIPTIONS, Tenant
from paymentsdk.sandbox._responses import Rejected
from paymentsdk.sandbox._table import Table
from paymentsdk.sandbox._tenants import TenantRequest

S = TypeVar("S", bound=Struct)

#: Rows that a list holds unless `limit` asks for others, newest first.
_LISTED = 100


Command = Callable[[Platform, ControlRequest], object]


def state(platform: Platform, request: ControlRequest) -> object:
    """Say where it is, who sells, what time it is and which policies hold."""
    return {
        "sandbox": platform.describe(),
        "clock": clock(platform, request),
        "policies": msgspec.structs.asdict(platform.policies),
        "orders": platform.store.count(ORDERS, None),
        "faults": len(platform.faults.list()),
    }


def pay_order(platform: Platform, request: ControlRequest) -> object:
    """Have the buyer pay an order."""
    how = request.read(PayRequest)
    return Buyer(platform, how.payer_id).pay(
        request.path["id"], payment_method=how.payment_method, installments=how.installments, outcome=how.decided
    )


def scan(platform: Platform, request: ControlRequest) -> object:
    """Return the order behind a code."""
    asked = request.read(ScanRequest)
    return Buyer(platform).scan(asked.code, tenant=asked.tenant)


def open_checkout(platform: Platform, request: ControlRequest) -> object:
    """Open the checkout of a preference."""
    return Buyer(platform).open_checkout(request.path["id"])[1].merchant_order


def pay_preference(platform: Platform, request: ControlRequest) -> object:
    """Have the buyer pay a preference."""
    how = request.read(PayRequest)
    return Buyer(platform, how.payer_id).pay_preference(
        request.path["id"], payment_method=how.payment_method, installments=how.installments, outcome=how.decided
    )


def refund_merchant_order(platform: Platform, request: ControlRequest) -> object:
    """Refund what a preference was paid."""
    return Buyer(platform).refund_merchant_order(request.path["id"], request.read(RefundRequest).amount)


def listing(table: Table[S]) -> Command:
    """Return a command that lists the newest documents of *table*, of one tenant or of all."""

    def documents(platform: Platform, request: ControlRequest) -> object:
        limit = request.number("limit")
        return platform.store.find(
            table, request.number("tenant"), descending=True, limit=_LISTED if limit is None else limit
        )

    return documents


def create_tenant(platform: Platform, request: ControlRequest) -> object:
    """Make a seller."""
    return _shown_tenant(platform, platform.create_tenant(request.read(TenantRequest)))


def tenants(platform: Platform, request: ControlRequest) -> object:
    """List the sellers, with credentials that can be used."""
    return [_shown_tenant(platform, platform.with_valid_grants(tenant)) for tenant in platform.tenants()]


def _shown_tenant(platform: Platform, tenant: Tenant) -> object:
    return {**msgspec.structs.asdict(tenant), "base_url": platform.base_url}


def authorize(platform: Platform, request: ControlRequest) -> object:
    """Have a seller consent, and return the new authorization code."""
    return {"code": platform.authorize(_tenant(platform, number_of(request.path["id"])))}


def promise_discount(platform: Platform, request: ControlRequest) -> object:
    """Promise a discount of a seller, so that wallet payments may use its code."""
    tenant = _tenant(platform, number_of(request.path["id"]))
    return {
        "discount_promises": platform.promise_discount(tenant, request.read(DiscountRequest).code).discount_promises
    }


def revoke(platform: Platform, request: ControlRequest) -> object:
    """End a token at once."""
    return {"revoked": platform.revoke(request.read(RevokeRequest).token)}


def create_plan(platform: Platform, request: ControlRequest) -> object:
    """Make a plan."""
    asked = request.read(NewPlanRequest)
    tenant = platform.default_tenant() if asked.tenant is None else _tenant(platform, asked.tenant)
    return platform.create_plan(tenant, asked)


async def provision(platform: Platform, request: ControlRequest) -> object:
    """Make many paid orders of the past at once, each with its merchant order and its lines of the ledger."""
    asked = request.read(ProvisionRequest)
    try:
        for _ in platform.provision(asked):
            await asyncio.sleep(0)
    except LookupError as error:
        raise Rejected(404, "not_found", str(error)) from None
    return {"orders": asked.orders}


def subscribe(platform: Platform, request: ControlRequest) -> object:
    """Subscribe a buyer to a plan."""
    asked = request.read(SubscribeRequest)
    return Buyer(platform, asked.payer_id).subscribe(
        asked.plan_id, external_reference=asked.external_reference, rejections=asked.rejections
    )


def unsubscribe(platform: Platform, request: ControlRequest) -> object:
    """End a subscription."""
    return Buyer(platform).unsubscribe(request.path["id"])


def change_invoice_payment(platform: Platform, request: ControlRequest) -> object:
    """Bring the payment of an invoice into a state."""
    return Buyer(platform).change_invoice_payment(request.path["id"], request.read(StatusRequest).status)


def clock(platform: Platform, request: ControlRequest) -> dict[str, object]:
    """Say what time it is."""
    return {"now": platform.clock.now(), "frozen": platform.clock.frozen}


async def freeze(platform: Platform, request: ControlRequest) -> object:
    """Stop the clock, and say what fell due up to then."""
    platform.clock.set(platform.clock.state_frozen(request.read(FreezeRequest).at))
    return await _moved(platform, request)


def resume(platform: Platform, request: ControlRequest) -> object:
    """Let the clock go on."""
    platform.clock.resume()
    return clock(platform, request)


async def advance(platform: Platform, request: ControlRequest) -> object:
    """Move the clock, and say what happened meanwhile."""
    platform.clock.set(platform.clock.state_advanced(request.read(AdvanceRequest).duration))
    return await _moved(platform, request)


async def _moved(platform: Platform, request: ControlRequest) -> object:
    happened = await platform.catch_up()
    return {**clock(platform, request), "happened": happened}


def add_fault(platform: Platform, request: ControlRequest) -> object:
    """Put a rule in force."""
    rule = request.read(FaultRule)
    try:
        return _shown_fault(platform.faults.add(rule))
    except ValueError as error:
        raise Rejected(400, "bad_request", str(error)) from None


def faults(platform: Platform, request: ControlRequest) -> object:
    """List the rules in force."""
    return [_shown_fault(added) for added in platform.faults.list()]


def clear_faults(platform: Platform, request: ControlRequest) -> object:
    """Take out every rule, of one tenant or of all."""
    platform.faults.clear(request.number("tenant"))
    return []


def remove_fault(platform: Platform, request: ControlRequest) -> object:
    """Take one rule out."""
    for added in platform.faults.list():
        if str(added.id) == request.path["id"]:
            added.remove()
            return _shown_fault(added)
    raise Rejected(404, "not_found", "no fault has this number")


def _shown_fault(added: AddedFault) -> object:
    return {"id": added.id, "seen": added.seen, "hits": added.hits, "rule": added.rule}


def list_policies(platform: Platform, request: ControlRequest) -> object:
    """List the policies: what each may be, and what it is."""
    values = msgspec.structs.asdict(platform.policies)
    return [
        {**msgspec.structs.asdict(one), "default": one.value, "value": values[one.name]} for one in _policies.describe()
    ]


def change_policies(platform: Platform, request: ControlRequest) -> object:
    """Set policies: the body is an object of names and values."""
    try:
        changes = msgspec.json.decode(request.body or b"{}", type=dict[str, object])
    except (ValueError, RecursionError):
        raise Rejected(400, "bad_request", "the body is not a JSON object") from None
    return msgspec.structs.asdict(platform.change_policies(changes))


async def snapshot(platform: Platform, request: ControlRequest) -> object:
    """Remember everything as it is: documents, ledger, keys, clock, policies and faults."""
    name = request.read(SnapshotRequest).name
    await asyncio.to_thread(platform.snapshot, name)
    return {"name": name}


async def restore(platform: Platform, request: ControlRequest) -> object:
    """Make everything as it was at a snapshot; faults that were cleared since are in force again."""
    name = request.read(SnapshotRequest).name
    try:
        await asyncio.to_thread(platform.restore, name)
    except KeyError:
        raise Rejected(404, "not_found", "there is no such snapshot") from None
    except OSError as error:
        raise Rejected(409, "snapshot_unusable", str(error)) from None
    return {"name": name, **clock(platform, request)}


def requests(platform: Platform, request: ControlRequest) -> object:
    """List the last requests, newest first, without credentials."""
    return list(reversed(platform.feed.requests))


def codes(platform: Platform, request: ControlRequest) -> object:
    """List every documented code, and the ways to be rejected with it."""
    return [
        {"operation": operation.name, "status": error.status, "code": error.code, "ways": ways(operation, error)}
        for operation in OPERATIONS.values()
        for error in operation.errors
    ]


def _tenant(platform: Platform, user_id: int | None) -> Tenant:
    tenant = None if user_id is None else platform.tenant(user_id)
    if tenant is None:
        raise Rejected(404, "not_found", "there is no such seller")
    return tenant


Method = Literal["GET", "POST", "PATCH", "DELETE"]

_LISTS: Mapping[tuple[Method, str], Command] = {
    ("GET", "orders"): listing(ORDERS),
    ("GET", "merchant_orders"): listing(MERCHANT_ORDERS),
    ("GET", "plans"): listing(PLANS),
    ("GET", "subscriptions"): listing(SUBSCRIPTIONS),
    ("GET", "invoices"): listing(INVOICES),
}
COMMANDS: Mapping[tuple[Method, str], Command] = {
    **_LISTS,
    ("GET", "state"): state,
    ("POST", "orders/{id}/pay"): pay_order,
    ("POST", "provision"): provision,
    ("POST", "scan"): scan,
    ("POST", "preferences/{id}/open"): open_checkout,
    ("POST", "preferences/{id}/pay"): pay_preference,
    ("POST", "merchant_orders/{id}/refund"): refund_merchant_order,
    ("GET", "tenants"): tenants,
    ("POST", "tenants"): create_tenant,
    ("POST", "tenants/{id}/authorize"): authorize,
    ("POST", "tenants/{id}/discounts"): promise_discount,
    ("POST", "tokens/revoke"): revoke,
    ("POST", "plans"): create_plan,
    ("POST", "subscriptions"): subscribe,
    ("POST", "subscriptions/{id}/cancel"): unsubscribe,
    ("POST", "invoices/{id}/payment"): change_invoice_payment,
    ("GET", "clock"): clock,
    ("POST", "clock/freeze"): freeze,
    ("POST", "clock/resume"): resume,
    ("POST", "clock/advance"): advance,
    ("GET", "faults"): faults,
    ("POST", "faults"): add_fault,
    ("DELETE", "faults"): clear_faults,
    ("DELETE", "faults/{id}"): remove_fault,
    ("GET", "policies"): list_policies,
    ("PATCH", "policies"): change_policies,
    ("POST", "snapshot"): snapshot,
    ("POST", "restore"): restore,
    ("GET", "requests"): requests,
    ("GET", "codes"): codes,
}
#: What can be asked behind a question mark. Nothing else is taken there: a misspelt ``tenant`` would stand for all.
PARAMETERS: Mapping[tuple[Method, str], tuple[str, ...]] = {
    **dict.fromkeys(_LISTS, ("tenant", "limit")),
    ("DELETE", "faults"): ("tenant",),
    ("GET", "ledger"): ("tenant",),
}
