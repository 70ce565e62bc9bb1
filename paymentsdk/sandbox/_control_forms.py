"""What the control API takes and responds with, where it is nothing that the platform or the sandbox has by itself."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar

from msgspec import Struct

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources.preferences import Installments, Preference
from paymentsdk.sandbox._buyer import Outcome, PaymentMethod
from paymentsdk.sandbox._clock import ClockEvent
from paymentsdk.sandbox._handlers.plans import PlanRequest
from paymentsdk.sandbox._policies import Policies, Policy
from paymentsdk.sandbox._records import DEFAULT_PAYER, Tenant
from paymentsdk.sandbox._tenants import SandboxInfo
from paymentsdk.sandbox._wire import ControlStruct

# --- requests ----------------------------------------------------------------------------------------------------


class PayRequest(ControlStruct):
    """How to pay."""

    payment_method: PaymentMethod = "account_money"
    """What to pay with; `account_money` by default."""
    installments: Installments = 1
    """In how many parts, with a credit card; 1 by default."""
    outcome: Outcome = "approved"
    """`approved`, the default; `rejected`; or `in_review`, to be decided by another payment."""
    payer_id: int = DEFAULT_PAYER
    """Who pays; 100000001 by default."""


class ScanRequest(ControlStruct):
    """A code to scan."""

    code: str
    """The `qr_data` of an order, its id, or the `external_pos_id` of a point of sale."""
    tenant: int | None = None
    """The user id of the seller of that point of sale; the first seller by default."""


class RefundRequest(ControlStruct):
    """A refund of a merchant order."""

    amount: Decimal | None = None
    """How much; all that is left by default."""


class DiscountRequest(ControlStruct):
    """A discount to promise."""

    code: str
    """The discount code that wallet payments may use from now on."""


class RevokeRequest(ControlStruct):
    """A token to revoke."""

    token: str
    """An access token, a refresh token or an authorization code."""


class NewPlanRequest(PlanRequest):
    """A plan to make."""

    tenant: int | None = None
    """The user id of its seller; the first seller by default."""


class SubscribeRequest(ControlStruct):
    """A subscription to make."""

    plan_id: str | None = None
    """The plan; the first seller's own by default."""
    payer_id: int = DEFAULT_PAYER
    """Who subscribes; 100000001 by default."""
    external_reference: str | None = None
    """The integrator's own name for the subscription."""
    rejections: int = 0
    """How many attempts to collect are rejected before one is approved; -1 for all; 0 by default."""


class StatusRequest(ControlStruct):
    """The state to bring the payment of an invoice into."""

    status: str
    """One of those of the contract: `approved`, `refunded`, `charged_back`, `in_mediation`, ..."""


class FreezeRequest(ControlStruct):
    """The moment to freeze the clock at."""

    at: datetime | None = None
    """The moment, with its offset; now by default."""


class AdvanceRequest(ControlStruct):
    """How far to move the clock."""

    duration: str
    """An ISO 8601 duration of weeks to seconds, such as `PT15M` or `P30D`; ten years at most."""


class SnapshotRequest(ControlStruct):
    """The name of a snapshot."""

    name: str = "snapshot"
    """`snapshot` by default. A snapshot replaces an earlier one of the same name."""


# --- responses ---------------------------------------------------------------------------------------------------


class Health(Struct):
    """Whether requests are handled."""

    status: str
    """`ok`."""


class ClockTime(Struct, kw_only=True):
    """What time it is."""

    now: datetime
    """The time, in UTC."""
    frozen: bool
    """Whether the clock stands still."""


class MovedClock(ClockTime, kw_only=True):
    """The clock after a move."""

    happened: tuple[ClockEvent, ...]
    """What fell due meanwhile, in time order."""


class TenantClock(ClockTime, kw_only=True):
    """What time it is for a seller."""

    ahead: timedelta
    """How far their clock is ahead of the clock of the sandbox."""


class MovedTenantClock(TenantClock, kw_only=True):
    """The clock of a seller after a move."""

    happened: tuple[ClockEvent, ...]
    """What fell due for them meanwhile, in time order."""


class SandboxState(Struct):
    """A sandbox at a glance."""

    sandbox: SandboxInfo
    """The address, and the credentials of the first seller."""
    clock: ClockTime
    """What time it is."""
    policies: Policies
    """The policies in force."""
    orders: int
    """How many orders there are."""
    faults: int
    """How many faults are in force."""


class Seller(Tenant, frozen=True, kw_only=True):
    """A seller, with credentials that can be used."""

    base_url: str
    """Where the sandbox is."""


class Provisioned(Struct):
    """What was provisioned."""

    orders: int
    """How many orders."""


class ShownPreference(Struct):
    """A preference, and what has come of it."""

    preference: Preference
    """The preference."""
    amount: Decimal
    """What it asks for, with its shipping cost."""
    currency: str
    """The currency of the amount."""
    status: str
    """`paid`, `reverted`, or `opened` before."""


class Consent(MaskedRepr, Struct):
    """A seller's consent."""

    code: str
    """The authorization code, good for one token within 10 minutes."""

    __secrets__: ClassVar[frozenset[str]] = frozenset({"code"})


class Promises(Struct):
    """The discounts that a seller has promised."""

    discount_promises: tuple[str, ...]
    """Their codes."""


class Revoked(Struct):
    """What became of a token."""

    revoked: bool
    """Whether there was one."""


class ShownPolicy(Policy, frozen=True, kw_only=True):
    """A policy, with its value now."""

    default: object
    """The value that it has unless somebody sets it."""


class SnapshotName(Struct):
    """A snapshot."""

    name: str
    """Its name."""


class Restored(ClockTime, kw_only=True):
    """A snapshot that was restored, and the clock since."""

    name: str
    """Its name."""


class CodeWays(Struct):
    """A documented code of an operation."""

    operation: str
    """The operation."""
    status: int
    """The HTTP status."""
    code: str
    """The code."""
    ways: tuple[str, ...]
    """The ways to be rejected with it."""
