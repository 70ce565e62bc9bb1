"""Requests and responses of the control API that no other part of the sandbox defines."""

from datetime import timedelta
from decimal import Decimal
from typing import ClassVar

from msgspec import Struct

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources.common import Moment
from paymentsdk.resources.preferences import Installments, Preference
from paymentsdk.sandbox._buyer import Outcome, PaymentMethod
from paymentsdk.sandbox._clock import ClockEvent
from paymentsdk.sandbox._handlers.plans import PlanRequest
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import DEFAULT_PAYER, Tenant
from paymentsdk.sandbox._tenants import SandboxInfo
from paymentsdk.sandbox._wire import ControlStruct

# --- requests ----------------------------------------------------------------------------------------------------


class PayRequest(ControlStruct):
    """How to pay."""

    payment_method: PaymentMethod = "account_money"
    """The payment method; `account_money` by default."""
    installments: Installments = 1
    """The number of installments with a credit card; 1 by default."""
    outcome: Outcome = "approved"
    """`approved` by default; `rejected`; or `in_review`, which the next payment decides."""
    payer_id: int = DEFAULT_PAYER
    """The payer; 100000001 by default."""


class ScanRequest(ControlStruct):
    """A code to scan."""

    code: str
    """The `qr_data` of an order, its id, or the `external_pos_id` of a point of sale."""
    tenant: int | None = None
    """The user id of the seller of that point of sale; the first seller by default."""


class RefundRequest(ControlStruct):
    """A refund of a merchant order."""

    amount: Decimal | None = None
    """The amount; the whole rest by default."""


class RevokeRequest(ControlStruct):
    """A token to revoke."""

    token: str
    """An access token, a refresh token or an authorization code."""


class NewPlanRequest(PlanRequest):
    """A plan to create."""

    tenant: int | None = None
    """The user id of the seller; the first seller by default."""


class SubscribeRequest(ControlStruct):
    """A subscription to create."""

    plan_id: str | None = None
    """The plan; the plan of the first seller by default."""
    payer_id: int = DEFAULT_PAYER
    """The subscriber; 100000001 by default."""
    external_reference: str | None = None
    """The integrator's name for the subscription."""
    rejections: int = 0
    """The number of attempts to collect that are rejected before one is approved; -1 for all; 0 by default."""


class StatusRequest(ControlStruct):
    """The new state of the payment of an invoice."""

    status: str
    """A state from the contract: `approved`, `refunded`, `charged_back`, `in_mediation`, ..."""


class FreezeRequest(ControlStruct):
    """The moment to freeze the clock at."""

    at: Moment | None = None
    """The moment, with its offset; the current moment by default."""


class AdvanceRequest(ControlStruct):
    """How far to move the clock."""

    duration: str
    """An ISO 8601 duration of weeks to seconds, such as `PT15M` or `P30D`; ten years at most."""


class SnapshotRequest(ControlStruct):
    """The name of a snapshot."""

    name: str = "snapshot"
    """The name; `snapshot` by default. It replaces an earlier snapshot with this name."""


# --- responses ---------------------------------------------------------------------------------------------------


class Rejection(Struct):
    """Why a request was not carried out."""

    code: str
    """What a program looks at."""
    message: str
    """What is wrong, and what to do."""


class Health(Struct):
    """The state of the server."""

    status: str
    """`ok`."""


class ClockTime(Struct, kw_only=True):
    """The current time of the sandbox or of a seller."""

    now: Moment
    """The time, in UTC."""
    frozen: bool
    """Whether the clock stands still."""
    ahead: timedelta
    """How far the clock of a seller is ahead of the clock of the sandbox."""


class MovedClock(ClockTime, kw_only=True):
    """The time after a move of the clock."""

    happened: tuple[ClockEvent, ...]
    """What became due meanwhile, in time order; for the clock of a seller, only what became due for the seller."""


class SandboxState(Struct):
    """A summary of a sandbox."""

    sandbox: SandboxInfo
    """The address, and the credentials of the first seller."""
    clock: ClockTime
    """The current time."""
    policies: Policies
    """The policies in force."""
    orders: int
    """The number of orders."""
    faults: int
    """The number of faults in force."""


class Seller(Tenant, frozen=True, kw_only=True):
    """A seller with valid credentials."""

    base_url: str
    """The address of the sandbox."""


class Provisioned(Struct):
    """The result of provisioning."""

    orders: int
    """The number of orders."""


class ShownPreference(Struct):
    """A preference and its state."""

    preference: Preference
    """The preference."""
    amount: Decimal
    """The amount that it asks for, with its shipping cost."""
    currency: str
    """The currency of the amount."""
    status: str
    """`opened`, `paid` or `reverted`."""


class Consent(MaskedRepr, Struct):
    """A seller's consent."""

    code: str
    """The authorization code, valid for one token within 10 minutes."""

    __secrets__: ClassVar[frozenset[str]] = frozenset({"code"})


class Revoked(Struct):
    """The result of a revocation."""

    revoked: bool
    """Whether the token existed."""


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
