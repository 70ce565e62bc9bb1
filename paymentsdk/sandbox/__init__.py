"""The platform on localhost, to develop, test and demonstrate without an account or a network.

The sandbox follows the contract, with states, errors, limits, idempotency, expiry and a movable clock.
It is not a real service and moves no money. By default it listens on this machine only.
"""

from __future__ import annotations

from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._clock import Clock, ClockEvent
from paymentsdk.sandbox._faults import FaultRule, Faults
from paymentsdk.sandbox._handlers.plans import (
    FreeTrialRequest,
    PaymentMethodsAllowedRequest,
    PlanRequest,
    RecurringRequest,
)
from paymentsdk.sandbox._noun import ParsedRequest, Rows, SellerContext, page_of
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._policies import Policies, Policy, describe_policies
from paymentsdk.sandbox._records import Documents, Entry, EntryKind, Subscription, Tenant
from paymentsdk.sandbox._server import Sandbox
from paymentsdk.sandbox._signers import ManifestSigner, Template, Webhook, WebhookRequest
from paymentsdk.sandbox._tenants import SandboxInfo, TenantRequest
from paymentsdk.sandbox._webhooks import Delivery, Webhooks
from paymentsdk.sandbox._wire import Rejected

__all__ = [
    "Buyer",
    "Clock",
    "ClockEvent",
    "Delivery",
    "Documents",
    "Entry",
    "EntryKind",
    "FaultRule",
    "Faults",
    "FreeTrialRequest",
    "ManifestSigner",
    "ParsedRequest",
    "PaymentMethodsAllowedRequest",
    "PlanRequest",
    "Platform",
    "Policies",
    "Policy",
    "RecurringRequest",
    "Rejected",
    "Rows",
    "Sandbox",
    "SandboxInfo",
    "SellerContext",
    "Subscription",
    "Template",
    "Tenant",
    "TenantRequest",
    "Webhook",
    "WebhookRequest",
    "Webhooks",
    "describe_policies",
    "page_of",
]
