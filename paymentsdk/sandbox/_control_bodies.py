"""What the control API takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

import msgspec
from msgspec import Struct, ValidationError

from paymentsdk._codec.encode import request_invalid
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.preferences import Installments
from paymentsdk.sandbox._buyer import DEFAULT_PAYER, Outcome, PaymentMethod
from paymentsdk.sandbox._handlers.plans import PlanRequest
from paymentsdk.sandbox._parsing import ControlStruct, check_amounts
from paymentsdk.sandbox._responses import Rejected

S = TypeVar("S", bound=Struct)
_MOST_DIGITS = 15


@dataclass(frozen=True, kw_only=True)
class ControlRequest:
    """A request to the control API: the values in the path, the parameters, and the body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes

    def read(self, form: type[S]) -> S:
        """Return the body as *form*; no body is an empty object.

        Raises:
            Rejected: It is something else.
        """
        body = self.body.strip() or b"{}"
        try:
            check_amounts(form, body)
            return msgspec.json.decode(body, type=form)
        except (ValidationError, RequestInvalid) as error:
            found = error if isinstance(error, RequestInvalid) else request_invalid(error)
            raise Rejected(400, "bad_request", str(found), details=(found.path,)) from None
        except (ValueError, ArithmeticError, RecursionError):
            raise Rejected(400, "bad_request", "the body is not JSON") from None

    def number(self, name: str) -> int | None:
        """Return the parameter *name*.

        Raises:
            Rejected: It is no number.
        """
        text = self.query.get(name)
        if text is None:
            return None
        number = number_of(text)
        if number is None:
            raise Rejected(400, "bad_request", f"{name} is not a number")
        return number


def number_of(text: str) -> int | None:
    """Return the number that *text* is; ``None`` if it is none, or has more digits than any id."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


class PayRequest(ControlStruct):
    """How to pay."""

    payment_method: PaymentMethod = "account_money"
    """What to pay with; `account_money` by default."""
    installments: Installments = 1
    """In how many parts, with a credit card; 1 by default."""
    outcome: Outcome = "approved"
    """`approved`, the default; `rejected`; or `in_review`, to be decided by another payment."""
    reject: bool = False
    """`true` is short for the outcome `rejected`."""
    payer_id: int = DEFAULT_PAYER
    """Who pays; 100000001 by default."""

    @property
    def decided(self) -> Outcome:
        """How it ends."""
        return "rejected" if self.reject else self.outcome


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


class NewPlanRequest(PlanRequest):
    """A plan to make."""

    tenant: int | None = None
    """The user id of its seller; the first seller by default."""


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


class DiscountRequest(ControlStruct):
    """A discount to promise."""

    code: str
    """The discount code that wallet payments may use from now on."""


class RevokeRequest(ControlStruct):
    """A token to revoke."""

    token: str
    """An access token, a refresh token or an authorization code."""


class SnapshotRequest(ControlStruct):
    """The name of a snapshot."""

    name: str = "snapshot"
    """`snapshot` by default. A snapshot replaces an earlier one of the same name."""
