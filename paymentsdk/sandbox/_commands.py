"""The commands of the control API: one function each, whose signature declares the body and the parameters."""

import asyncio
from collections.abc import Callable, Mapping
from inspect import signature
from types import GenericAlias
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import asdict, replace

from paymentsdk import money
from paymentsdk.resources.invoices import Invoice
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.orders import Order
from paymentsdk.resources.plans import Plan
from paymentsdk.resources.preferences import Preference
from paymentsdk.sandbox import _control_forms as forms
from paymentsdk.sandbox import _records
from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._faults import FaultRule, FaultState
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._handlers import ways
from paymentsdk.sandbox._handlers._sales import currency_of, shipping_cost, total
from paymentsdk.sandbox._har import archive
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._policies import Policies, Policy, describe_policies
from paymentsdk.sandbox._records import Table
from paymentsdk.sandbox._signers import Webhook, WebhookRequest
from paymentsdk.sandbox._tenants import ProvisionRequest, TenantRequest
from paymentsdk.sandbox._tenants import provision as make_orders
from paymentsdk.sandbox._webhooks import DELIVERIES, WEBHOOKS, Delivery
from paymentsdk.sandbox._wire import Rejected

#: Rows of a list, newest first, without a `limit`.
_LISTED = 100

Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]
#: Returns plain data or Structs, or bytes that are sent as they are.
Run: TypeAlias = Callable[..., object]
C = TypeVar("C", bound=Run)
T = TypeVar("T")


class Command(NamedTuple):
    """A command of the control API."""

    name: str
    """The name in the document and on the command line."""
    summary: str
    """What the command does, in one sentence."""
    run: Run
    """The function. It takes the platform, the value in the path, the body and the parameters."""
    body: type[Any] | None
    """The type of `body`; `None` if the command takes no body."""
    result: Any
    """The type of the result; bytes are JSON lines."""
    parameters: tuple[str, ...]
    """The numbers that the query may have. Others are rejected: a misspelled ``tenant`` would mean all sellers."""
    media: str = "application/json"
    """The media type of the response."""


COMMANDS: dict[tuple[Method, str], Command] = {}


def command(method: Method, path: str, media: str = "application/json") -> Callable[[C], C]:
    """Return a decorator that makes a function the command at *path*.

    The function takes the platform, the value in the path and the ``body``. Its keyword-only parameters are those of
    the query.
    """

    def add(function: C) -> C:
        declaration = signature(function, eval_str=True)
        parameters_of = declaration.parameters
        body = parameters_of["body"].annotation if "body" in parameters_of else None
        parameters = tuple(
            parameter.name for parameter in parameters_of.values() if parameter.kind is parameter.KEYWORD_ONLY
        )
        summary = " ".join((function.__doc__ or "").split())
        result = declaration.return_annotation
        COMMANDS[method, path] = Command(function.__name__, summary, function, body, result, parameters, media)
        return function

    return add


def _add_listing(table: Table[Any]) -> None:
    """Add the command that lists the newest documents of *table*, of one seller or of all."""

    def documents(platform: Platform, *, tenant: int | None = None, limit: int = _LISTED) -> object:
        return platform.store.find(table, tenant, descending=True, limit=limit)

    documents.__name__, documents.__doc__ = table.name, f"List the {table.name.replace('_', ' ')}, newest first."
    rows: object = GenericAlias(list, (table.form,))
    documents.__annotations__["return"] = rows
    command("GET", table.name)(documents)


_LISTS = (_records.ORDERS, _records.MERCHANT_ORDERS, _records.PLANS, _records.SUBSCRIPTIONS, _records.INVOICES)
for _table in (*_LISTS, WEBHOOKS, DELIVERIES):
    _add_listing(_table)


@command("GET", "health")
def health(platform: Platform) -> forms.Health:
    """Check that requests are handled and the data can be read."""
    platform.store.count(_records.TENANTS, None)
    return forms.Health("ok")


@command("GET", "state")
def state(platform: Platform) -> forms.SandboxState:
    """Return the address, sellers, clock and policies."""
    return forms.SandboxState(
        sandbox=platform.describe(),
        clock=_time(platform),
        policies=platform.policies,
        orders=platform.store.count(_records.ORDERS, None),
        faults=len(platform.faults.list()),
    )


def pay(platform: Platform, how: forms.PayRequest, pay_by: Callable[..., T], name: str) -> T:
    """Make the buyer pay *name* with *pay_by*, a method of `Buyer`."""
    buyer = Buyer(platform, how.payer_id)
    return pay_by(buyer, name, payment_method=how.payment_method, installments=how.installments, outcome=how.outcome)


@command("POST", "orders/{id}/pay")
def pay_order(platform: Platform, order_id: str, body: forms.PayRequest) -> Order:
    """Make the buyer pay an order."""
    return pay(platform, body, Buyer.pay, order_id)


@command("POST", "provision")
async def provision(platform: Platform, body: ProvisionRequest) -> forms.Provisioned:
    """Create many paid orders of the past in one step, each with its merchant order and its ledger lines."""
    for _ in make_orders(platform.context(tenant_of(platform, body.tenant)), body):
        await asyncio.sleep(0)
    return forms.Provisioned(body.orders)


@command("POST", "scan")
def scan(platform: Platform, body: forms.ScanRequest) -> Order:
    """Return the order of a QR code."""
    return Buyer(platform, tenant=body.tenant).scan(body.code)


@command("POST", "preferences/{id}/open")
def open_checkout(platform: Platform, preference_id: str) -> MerchantOrder:
    """Open the checkout of a preference."""
    return Buyer(platform).open_checkout(preference_id)[1].merchant_order


@command("POST", "preferences/{id}/pay")
def pay_preference(platform: Platform, preference_id: str, body: forms.PayRequest) -> MerchantOrder:
    """Make the buyer pay a preference."""
    return pay(platform, body, Buyer.pay_preference, preference_id)


@command("GET", "preferences")
def preferences(platform: Platform, *, tenant: int | None = None, limit: int = 20) -> list[forms.ShownPreference]:
    """List the 20 newest preferences, each with its amount and its state."""
    newest = platform.store.find(_records.PREFERENCES, tenant, descending=True, limit=limit)
    return [_shown_preference(platform, preference) for preference in newest]


def _shown_preference(platform: Platform, preference: Preference) -> forms.ShownPreference:
    seller = tenant_of(platform, preference.collector_id)
    opened = platform.store.find(_records.MERCHANT_ORDERS, None, [("source", "=", preference.id)], limit=1)
    come_to = opened[0].merchant_order.order_status if opened else None
    return forms.ShownPreference(
        preference=preference,
        amount=money.total([(1, total(preference.items or ())), (1, shipping_cost(preference))]),
        currency=currency_of(preference.items or (), seller.currency),
        status=come_to if come_to in {"paid", "reverted"} else "opened",
    )


@command("POST", "merchant_orders/{id}/refund")
def refund_merchant_order(platform: Platform, merchant_order_id: str, body: forms.RefundRequest) -> MerchantOrder:
    """Refund a paid preference."""
    return Buyer(platform).refund_merchant_order(merchant_order_id, body.amount)


@command("GET", "tenants")
def tenants(platform: Platform) -> list[forms.Seller]:
    """List the sellers, with valid credentials."""
    sellers = platform.store.find(_records.TENANTS, None)
    return [_shown_tenant(platform, platform.with_valid_grants(tenant)) for tenant in sellers]


@command("POST", "tenants")
def create_tenant(platform: Platform, body: TenantRequest) -> forms.Seller:
    """Create a seller."""
    return _shown_tenant(platform, platform.create_tenant(**asdict(body)))


def _shown_tenant(platform: Platform, tenant: _records.Tenant) -> forms.Seller:
    return forms.Seller(**asdict(tenant), base_url=platform.base_url)


@command("POST", "tenants/{id}/authorize")
def authorize(platform: Platform, user_id: str) -> forms.Consent:
    """Make a seller consent, and return the new authorization code."""
    return forms.Consent(platform.authorize(tenant_of(platform, user_id)))


def tenant_of(platform: Platform, user_id: int | str | None) -> _records.Tenant:
    """Return a seller; by default, the first."""
    tenant = platform.find_tenant(user_id)
    if tenant is None:
        raise Rejected(404, "not_found", "there is no such seller")
    return tenant


@command("POST", "tokens/revoke")
def revoke(platform: Platform, body: forms.RevokeRequest) -> forms.Revoked:
    """Revoke a token immediately."""
    return forms.Revoked(platform.revoke(body.token))


@command("POST", "plans")
def create_plan(platform: Platform, body: forms.NewPlanRequest) -> Plan:
    """Create a plan."""
    return platform.create_plan(body, tenant_of(platform, body.tenant))


@command("POST", "subscriptions")
def subscribe(platform: Platform, body: forms.SubscribeRequest) -> _records.Subscription:
    """Subscribe a buyer to a plan."""
    return Buyer(platform, body.payer_id).subscribe(
        body.plan_id, external_reference=body.external_reference, rejections=body.rejections
    )


@command("POST", "subscriptions/{id}/cancel")
def unsubscribe(platform: Platform, subscription_id: str) -> _records.Subscription:
    """End a subscription."""
    return Buyer(platform).unsubscribe(subscription_id)


@command("POST", "invoices/{id}/payment")
def change_invoice_payment(platform: Platform, invoice_id: str, body: forms.StatusRequest) -> Invoice:
    """Set the payment of an invoice to a state."""
    return Buyer(platform).change_invoice_payment(invoice_id, body.status)


@command("GET", "clock")
def clock(platform: Platform) -> forms.ClockTime:
    """Return the current time."""
    return _time(platform)


def _time(platform: Platform, tenant: _records.Tenant | None = None) -> forms.ClockTime:
    return forms.ClockTime(now=platform.now(tenant), frozen=platform.clock.frozen, ahead=platform.ahead(tenant))


@command("POST", "clock/freeze")
async def freeze(platform: Platform, body: forms.FreezeRequest) -> forms.MovedClock:
    """Stop the clock, and return what became due up to then."""
    platform.set_clock(lambda: platform.clock.state_frozen(body.at))
    return await _moved(platform)


@command("POST", "clock/resume")
def resume(platform: Platform) -> forms.ClockTime:
    """Let the clock run again."""
    platform.clock.resume()
    return _time(platform)


@command("POST", "clock/advance")
async def advance(platform: Platform, body: forms.AdvanceRequest) -> forms.MovedClock:
    """Move the clock forward, and return what became due meanwhile."""
    platform.set_clock(lambda: platform.clock.state_advanced(body.duration))
    return await _moved(platform)


async def _moved(platform: Platform, tenant: _records.Tenant | None = None) -> forms.MovedClock:
    happened = tuple(event for event in await platform.catch_up() if tenant is None or event.tenant == tenant.user_id)
    return forms.MovedClock(**asdict(_time(platform, tenant)), happened=happened)


@command("GET", "tenants/{id}/clock")
def tenant_clock(platform: Platform, user_id: str) -> forms.ClockTime:
    """Return the current time of a seller, and how far their clock is ahead of the clock of the sandbox."""
    return _time(platform, tenant_of(platform, user_id))


@command("POST", "tenants/{id}/clock/advance")
async def advance_tenant(platform: Platform, user_id: str, body: forms.AdvanceRequest) -> forms.MovedClock:
    """Move the clock of one seller forward, and return what became due for them meanwhile."""
    tenant = tenant_of(platform, user_id)
    platform.set_ahead(tenant, body.duration)
    return await _moved(platform, tenant)


@command("GET", "faults")
def faults(platform: Platform) -> tuple[FaultState, ...]:
    """List the rules in force."""
    return platform.faults.standing()


@command("POST", "faults")
def add_fault(platform: Platform, body: FaultRule) -> FaultState:
    """Add a rule."""
    return platform.faults.add(body).state


@command("DELETE", "faults")
def clear_faults(platform: Platform, *, tenant: int | None = None) -> list[FaultState]:
    """Remove all rules, of one seller or of all."""
    platform.faults.clear(tenant)
    return []


@command("DELETE", "faults/{id}")
def remove_fault(platform: Platform, number: str) -> FaultState:
    """Remove a rule."""
    for added in platform.faults.list():
        if str(added.id) == number:
            added.remove()
            return added.state
    raise Rejected(404, "not_found", "no fault has this number")


@command("POST", "tenants/{id}/webhooks")
def add_webhook(platform: Platform, user_id: str, body: WebhookRequest) -> Webhook:
    """Register a webhook of a seller (`x-beyond-contract`). The response has its secret."""
    return platform.webhooks.add(body, tenant_of(platform, user_id))


@command("DELETE", "webhooks/{id}")
def remove_webhook(platform: Platform, webhook_id: str) -> Webhook:
    """Remove a webhook."""
    webhook = platform.store.get(WEBHOOKS, webhook_id)
    if webhook is None:
        raise Rejected(404, "not_found", "there is no such webhook")
    platform.webhooks.remove(webhook)
    return webhook


@command("POST", "deliveries/{id}/redeliver")
def redeliver(platform: Platform, delivery_id: str) -> Delivery:
    """Send a notification again, also to a webhook that a 410 has disabled."""
    return platform.webhooks.redeliver(delivery_id)


@command("GET", "policies")
def policies(platform: Platform) -> list[Policy]:
    """List the policies, with their allowed and current values."""
    return [replace(policy, value=getattr(platform.policies, policy.name)) for policy in describe_policies()]


@command("PATCH", "policies")
def change_policies(platform: Platform, body: dict[str, object]) -> Policies:
    """Set policies. The body is an object of names and values."""
    return platform.change_policies(body)


@command("GET", "codes")
def codes(platform: Platform) -> list[forms.CodeWays]:
    """List all documented codes, also of your own operations, and the ways to be rejected with them."""
    return [
        forms.CodeWays(name, error.status, error.code, ways(handler, error))
        for name, handler in platform.handlers.items()
        for error in handler.operation.errors
    ]


@command("GET", "ledger", "application/x-ndjson")
def ledger(platform: Platform, *, tenant: int | None = None, limit: int | None = None) -> bytes:
    """Export the ledger as JSON lines, oldest first: all entries, or the newest `limit` entries."""
    return b"".join(line + b"\n" for line in platform.store.ledger(tenant, limit))


@command("POST", "snapshot")
async def snapshot(platform: Platform, body: forms.SnapshotRequest) -> forms.SnapshotRequest:
    """Save the current state in memory: documents, ledger, keys, clock, policies and faults."""
    await asyncio.to_thread(platform.snapshot, body.name)
    return body


@command("POST", "restore")
async def restore(platform: Platform, body: forms.SnapshotRequest) -> forms.ClockTime:
    """Restore the state of a snapshot. Faults that were cleared since are in force again."""
    try:
        await asyncio.to_thread(platform.restore, body.name)
    except KeyError:
        raise Rejected(404, "not_found", "there is no such snapshot") from None
    return _time(platform)


@command("GET", "snapshot/file", "application/octet-stream")
async def save_snapshot(platform: Platform) -> bytes:
    """Return the current state, with all credentials, as a file for `POST snapshot/file`."""
    return await asyncio.to_thread(platform.save)


@command("POST", "snapshot/file")
async def load_snapshot(platform: Platform, body: bytes) -> forms.ClockTime:
    """Restore the state from a file of `GET snapshot/file`. After an error, nothing has changed."""
    await asyncio.to_thread(platform.load, body)
    return _time(platform)


@command("GET", "requests")
def requests(platform: Platform) -> list[RequestLine]:
    """List the last requests, newest first, without credentials."""
    return platform.feed.requests[::-1]


@command("GET", "requests.har")
def requests_har(platform: Platform) -> Mapping[str, object]:
    """Export the last requests as an HTTP archive (HAR 1.2), oldest first, without credentials."""
    return archive(platform.feed.requests, platform.base_url)
