"""Payments from a buyer's wallet (4.4), also called advanced payments.

A part that has the same members in the request and in the response is one Struct, without ``Request`` in its name.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Unpack

from msgspec import Meta
from msgspec.structs import replace

from paymentsdk._engine.settings import SESSION_HEADER
from paymentsdk._operation.identity import Echo
from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import ErrorCode, RetryClass
from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources.common import (
    INTERNAL_ERROR,
    KEY_IN_FLIGHT,
    KEY_USED,
    UNAUTHORIZED,
    Amount,
    Id,
    KeyedWriteOptions,
    Metadata,
    Moment,
    PositiveAmount,
    RequestStruct,
    RequiredId,
    Resource,
    ResponseStruct,
    same_reference,
)

__all__ = [
    "CREATE",
    "Disbursement",
    "ForwardData",
    "SubMerchant",
    "WalletCharge",
    "WalletChargeRequest",
    "WalletDiscount",
    "WalletDiscountDetail",
    "WalletPayer",
    "WalletPayerRequest",
    "WalletPayment",
    "WalletPaymentPart",
    "WalletPaymentRequest",
    "WalletPayments",
]


class SubMerchant(RequestStruct):
    """The merchant that a payment is forwarded for. The members of ``phone`` are not part of the contract."""

    sub_merchant_id: Id | None = None
    """The merchant, as the seller names it."""
    mcc: Id | None = None
    """Its merchant category code (ISO 18245)."""
    country: str | None = None
    """The country."""
    address_door_number: Id | None = None
    """The number of the house."""
    zip: Id | None = None
    """The postcode."""
    document_number: Id | None = None
    """The number of its identity document."""
    city: str | None = None
    """The city."""
    address_street: str | None = None
    """The street."""
    legal_name: str | None = None
    """Its name in law."""
    region_code_iso: str | None = None
    """The region, by its ISO 3166-2 code."""
    region_code: Id | None = None
    """The region, as the acquirer numbers it."""
    document_type: str | None = None
    """The kind of its identity document."""
    phone: Metadata | None = None
    """Its phone number."""
    url: str | None = None
    """Its site."""


class ForwardData(RequestStruct):
    """What is handed on to the acquirer."""

    sub_merchant: SubMerchant | None = None
    """The merchant that the payment is for."""


class WalletDiscountDetail(RequestStruct):
    """How a discount was worked out."""

    cap: Amount | None = None
    """The most that it takes off, zero or more; two decimals or none."""
    type: str | None = None
    """What `value` counts."""
    value: Amount | None = None
    """How much it takes off, zero or more; two decimals or none."""


class WalletDiscount(RequestStruct):
    """A discount, which must exist as a discount promise before it is used."""

    amount: Amount | None = None
    """How much is taken off, zero or more; two decimals or none."""
    description: str | None = None
    """What the buyer is told."""
    code: str | None = None
    """The code of the discount promise."""
    detail: WalletDiscountDetail | None = None
    """How it was worked out."""


class WalletChargeRequest(RequestStruct):
    """What is charged to the wallet."""

    transaction_amount: PositiveAmount | None = None
    """How much, above zero; two decimals or none."""
    description: str | None = None
    """What for."""
    external_reference: str | None = None
    """The integrator's own name for the payment."""
    statement_descriptor: str | None = None
    """What the buyer's statement says."""
    forward_data: ForwardData | None = None
    """What is handed on to the acquirer."""
    discount: WalletDiscount | None = None
    """What is taken off."""


class WalletPayerRequest(MaskedRepr, RequestStruct):
    """Who pays. ``repr`` hides the token."""

    token: Annotated[str, Meta(min_length=1)]
    """The token of their wallet; not empty."""
    type_token: Annotated[str, Meta(min_length=1)]
    """Its type; not empty."""
    __secrets__: ClassVar[frozenset[str]] = frozenset({"token"})


class WalletPaymentRequest(RequestStruct):
    """A payment to create (4.4)."""

    wallet_payment: WalletChargeRequest
    """What is charged."""
    payer: WalletPayerRequest
    """Who pays."""
    binary_mode: bool | None = None
    """The payment ends approved or rejected, and is never pending."""
    capture: bool | None = None
    """`False` reserves the amount, to be captured later."""


class WalletPaymentPart(ResponseStruct):
    """One of the payments that a wallet payment consists of."""

    id: Id | None = None
    """The payment."""
    status_detail: str | None = None
    """How it ended, such as `accredited`."""
    payment_method_id: str | None = None
    """The method that it was paid with."""
    transaction_amount: Decimal | None = None
    """Its amount."""
    installments: int | None = None
    """In how many parts."""
    description: str | None = None
    """What for."""
    capture: bool | None = None
    """Whether it was captured; `False` if the amount is only reserved."""
    external_reference: str | None = None
    """The integrator's own name for it."""


class WalletCharge(ResponseStruct):
    """What was charged, as it was asked for."""

    transaction_amount: Decimal | None = None
    """How much; the platform may give it with the discount or without."""
    description: str | None = None
    """What for."""
    external_reference: str | None = None
    """The integrator's own name for the payment."""
    statement_descriptor: str | None = None
    """What the buyer's statement says."""
    forward_data: ForwardData | None = None
    """What is handed on to the acquirer."""
    discount: WalletDiscount | None = None
    """What is taken off."""


class Disbursement(ResponseStruct):
    """A receiver of the money."""

    collector_id: Id | None = None
    """Who is paid."""


class WalletPayer(ResponseStruct):
    """Who paid."""

    id: Id | None = None
    """Their user id."""


class WalletPayment(ResponseStruct):
    """A wallet payment as the platform has it."""

    id: int | RequiredId
    """The wallet payment."""
    payments: tuple[WalletPaymentPart, ...] | None = None
    """What it consists of."""
    wallet_payment: WalletCharge | None = None
    """What was asked for."""
    disbursements: tuple[Disbursement, ...] | None = None
    """Who is paid."""
    payer: WalletPayer | None = None
    """Who paid."""
    site_id: str | None = None
    """The platform's site."""
    binary_mode: bool | None = None
    """Whether it can only be approved or rejected."""
    date_created: Moment | None = None
    """When it was made."""
    date_last_updated: Moment | None = None
    """When it was last changed."""


def _is_charged(charge: WalletChargeRequest, amount: Decimal) -> bool | None:
    """Compare an amount: with a discount, the platform may repeat either."""
    asked, discount = charge.transaction_amount, charge.discount
    if asked is None or amount == asked:
        return None if asked is None else True
    return discount is not None and (discount.amount is None or amount == asked - discount.amount)


def _is_charged_in_parts(charge: WalletChargeRequest, amounts: list[Decimal | None]) -> bool | None:
    """Compare the sum of the payments, unless it is not known."""
    return _is_charged(charge, sum((one for one in amounts if one is not None), Decimal(0)))


CREATE: Operation[WalletPaymentRequest, WalletPayment] = Operation(
    name="wallet_payments.create",
    method="POST",
    path="/v1/advanced_payments",
    section="4.4",
    summary="Create a payment from a wallet",
    retry=RetryClass.KEYED,
    body=WalletPaymentRequest,
    headers={SESSION_HEADER: "The id of the buyer's device; it improves the rate of approvals."},
    example={
        "wallet_payment": {"transaction_amount": 80, "description": "Taxi", "external_reference": "ride-7"},
        "payer": {"token": "the-token-of-the-wallet", "type_token": "wallet"},
        "binary_mode": True,
        "capture": True,
    },
    result=WalletPayment,
    status=201,
    echoes=(
        Echo("wallet_payment.external_reference", agrees=same_reference),
        Echo("payments[].external_reference", of="wallet_payment.external_reference", agrees=same_reference),
        Echo("wallet_payment.transaction_amount", of="wallet_payment", agrees=_is_charged),
        Echo("payments[].transaction_amount", of="wallet_payment", agrees=_is_charged_in_parts, whole=True),
    ),
    errors=(
        # The contract names these two by their status alone; the first code is the one that the Orders API has for it.
        ErrorCode(400, "empty_required_header", "the X-Idempotency-Key header is missing"),
        ErrorCode(400, "bad_request", "a member is missing or breaks a rule"),
        UNAUTHORIZED,
        # Not named by the contract: what a key can meet, as the Orders API says it.
        KEY_USED,
        KEY_IN_FLIGHT,
        replace(INTERNAL_ERROR, meaning="internal error; send it again with the same key"),
    ),
)


class WalletPayments(Resource):
    """``client.wallet_payments``: payments from a buyer's wallet."""

    async def create(
        self,
        payment: WalletPaymentRequest,
        *,
        session_id: str | None = None,
        **options: Unpack[KeyedWriteOptions],
    ) -> WalletPayment:
        """Charge a buyer's wallet (4.4).

        A payment that is rejected, or stays pending, is a response and raises nothing: look at the ``status_detail`` of
        its ``payments``.

        Args:
            payment: What to charge, and to whom.
            session_id: The id of the buyer's device; it improves the rate of approvals. It travels in the header that
                the client's setting ``session_header`` names.
            **options: `idempotency_key`, `first_sent_at`, `once`, `not_after`, `defer`: see `KeyedWriteOptions`.

        Raises:
            RequestInvalid: The payment breaks a rule; nothing was sent.
            BadRequest: The platform rejected it.
            Conflict: The key went with another request.
            OutcomeUnknown: The money may have moved. Send it again with the error's ``idempotency_key``.
        """
        headers = None if session_id is None else {self._engine.session_header: session_id}
        return await self._write(CREATE, payment, options, headers=headers)
