"""The platform on localhost: develop, test and demonstrate with no account and no network.

The sandbox behaves as the contract says, with states, errors, limits, idempotency, expiry and a movable clock.
It is not a real service and moves no money. By default it listens on this machine only.
"""

from __future__ import annotations

from paymentsdk.sandbox.answers import Refused
from paymentsdk.sandbox.behaviours.plans import (
    FreeTrialRequest,
    PaymentMethodsAllowedRequest,
    PlanRequest,
    RecurringRequest,
)
from paymentsdk.sandbox.buyer import Buyer
from paymentsdk.sandbox.clock import Happening, SandboxClock
from paymentsdk.sandbox.faults import FaultRule, Faults
from paymentsdk.sandbox.platform import Platform, SandboxInfo
from paymentsdk.sandbox.policies import Policies, Policy
from paymentsdk.sandbox.policies import describe as describe_policies
from paymentsdk.sandbox.records import Entry, EntryKind, Subscription, Tenant
from paymentsdk.sandbox.server import Sandbox, SandboxThread
from paymentsdk.sandbox.tenants import TenantRequest

__all__ = [
    "Buyer",
    "Entry",
    "EntryKind",
    "FaultRule",
    "Faults",
    "FreeTrialRequest",
    "Happening",
    "PaymentMethodsAllowedRequest",
    "PlanRequest",
    "Platform",
    "Policies",
    "Policy",
    "RecurringRequest",
    "Refused",
    "Sandbox",
    "SandboxClock",
    "SandboxInfo",
    "SandboxThread",
    "Subscription",
    "Tenant",
    "TenantRequest",
    "describe_policies",
]
