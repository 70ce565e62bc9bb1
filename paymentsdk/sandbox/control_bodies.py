"""What the control API takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

import msgspec
from msgspec import Struct, ValidationError

from paymentsdk._core.encode import request_invalid
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.preferences import Installments
from paymentsdk.sandbox.answers import Refused
from paymentsdk.sandbox.behaviours.plans import PlanRequest
from paymentsdk.sandbox.buyer import DEFAULT_PAYER, Outcome, PaymentMethod
from paymentsdk.sandbox.intake import ControlStruct, check_amounts

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
            Refused: It is something else.
        """
        body = self.body.strip() or b"{}"
        try:
            check_amounts(form, body)
            return msgspec.json.decode(body, type=form)
        except (ValidationError, RequestInvalid) as error:
            found = error if isinstance(error, RequestInvalid) else request_invalid(error)
            raise Refused(400, "bad_request", str(found), details=(found.path,)) from None
        except (ValueError, ArithmeticError, RecursionError):
            raise Refused(400, "bad_request", "the body is not JSON") from None

    def number(self, name: str) -> int | None:
        """Return the parameter *name*.

        Raises:
            Refused: It is no number.
        """
        text = self.query.get(name)
        if text is None:
            return None
        number = number_of(text)
        if number is None:
            raise Refused(400, "bad_request", f"{name} is no number")
        return number


def number_of(text: str) -> int | None:
    """Return the number that *text* is; ``None`` if it is none, or has more digits than any id."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


class PayRequest(ControlStruct):
    """How to pay: ``reject`` is short for the outcome ``rejected``; only a credit card is paid in installments."""

    payment_method: PaymentMethod = "account_money"
    installments: Installments = 1
    outcome: Outcome = "approved"
    reject: bool = False
    payer_id: int = DEFAULT_PAYER

    @property
    def decided(self) -> Outcome:
        """How it ends."""
        return "rejected" if self.reject else self.outcome


class ScanRequest(ControlStruct):
    """A code to scan; a till's code is looked up at *tenant*, or the first seller."""

    code: str
    tenant: int | None = None


class RefundRequest(ControlStruct):
    """How much of a merchant order goes back; all of it unless given."""

    amount: Decimal | None = None


class SubscribeRequest(ControlStruct):
    """A subscription to make; to the first seller's plan unless given."""

    plan_id: str | None = None
    payer_id: int = DEFAULT_PAYER
    external_reference: str | None = None
    rejections: int = 0


class NewPlanRequest(PlanRequest):
    """A plan to make, of the seller *tenant* or the first."""

    tenant: int | None = None


class StatusRequest(ControlStruct):
    """The state to bring the payment of an invoice into."""

    status: str


class FreezeRequest(ControlStruct):
    """The moment to freeze the clock at; now unless given."""

    at: datetime | None = None


class AdvanceRequest(ControlStruct):
    """How far to move the clock: an ISO 8601 duration."""

    duration: str


class RevokeRequest(ControlStruct):
    """The token to end."""

    token: str


class SnapshotRequest(ControlStruct):
    """The name of a snapshot."""

    name: str = "snapshot"
