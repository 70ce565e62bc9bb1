"""Payments from a buyer's wallet (4.4), also called advanced payments.

A part that has the same members in the request and in the response is one Struct, without ``Request`` in its name.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, ClassVar, Unpack

from msgspec import Meta
from msgspec.structs import replace

from paymentsdk._call.settings import SESSION_HEADER
from paymentsdk._contract.identity import Echo
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._secrets import MaskedRepr
from paymentsdk.money import EXACTLY, total
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


class SubMerchant(RequestStruct):
    """The merchant that a payment is forwarded for. The fields of ``phone`` are not part of the contract."""

    sub_merchant_id: Id | None = None
    """The seller's own id for the merchant; optional."""
    mcc: Id | None = None
    """The merchant category code, four digits (ISO 18245); optional."""
    country: str | None = None
    """The country of the merchant; optional."""
    address_door_number: Id | None = None
    """The house number, as a string or a number; optional."""
    zip: Id | None = None
    """The postcode, as a string or a number; optional."""
    document_number: Id | None = None
    """The number of its identity document; optional."""
    city: str | None = None
    """The city of the merchant; optional."""
    address_street: str | None = None
    """The street without the number; optional."""
    legal_name: str | None = None
    """The registered name of the merchant; optional."""
    region_code_iso: str | None = None
    """The region, by its ISO 3166-2 code."""
    region_code: Id | None = None
    """The region, as the acquirer numbers it."""
    document_type: str | None = None
    """The kind of its identity document, such as `CNPJ`; optional."""
    phone: Metadata | None = None
    """The phone number, an object whose fields the contract does not name; optional."""
    url: str | None = None
    """The URL of the merchant's site; optional."""


class ForwardData(RequestStruct):
    """The data for the acquirer."""

    sub_merchant: SubMerchant | None = None
    """The merchant that the payment is forwarded for; optional."""


class WalletDiscountDetail(RequestStruct):
    """How a discount was calculated."""

    cap: Amount | None = None
    """The largest discount, in the payment's currency: zero or more, two decimals or none; optional."""
    type: str | None = None
    """The unit of `value`; the contract lists no values."""
    value: Amount | None = None
    """The discount, in the unit that `type` names: zero or more, two decimals or none; optional."""


class WalletDiscount(RequestStruct):
    """A discount, which must exist as a discount promise before it is used."""

    amount: Amount | None = None
    """The discount, in the payment's currency: zero or more, two decimals or none; optional."""
    description: str | None = None
    """The text that the buyer sees for it; optional."""
    code: str | None = None
    """The code of the discount promise, which must exist before; optional."""
    detail: WalletDiscountDetail | None = None
    """How the discount was calculated; optional."""


class WalletChargeRequest(RequestStruct):
    """The charge to the wallet."""

    transaction_amount: PositiveAmount | None = None
    """The amount, in the currency of the seller's account: above zero, two decimals or none; some platforms require
    it."""
    description: str | None = None
    """The purpose of the charge; optional."""
    external_reference: str | None = None
    """The integrator's own name for the payment; optional."""
    statement_descriptor: str | None = None
    """The text on the buyer's statement; optional."""
    forward_data: ForwardData | None = None
    """The data for the acquirer; optional."""
    discount: WalletDiscount | None = None
    """The discount; optional."""


class WalletPayerRequest(MaskedRepr, RequestStruct):
    """The payer. ``repr`` hides the token."""

    token: Annotated[str, Meta(min_length=1)]
    """Required: the token of the buyer's wallet; not empty."""
    type_token: Annotated[str, Meta(min_length=1)]
    """Required: the type of the token, not empty; the contract lists no values."""
    __secrets__: ClassVar[frozenset[str]] = frozenset({"token"})


class WalletPaymentRequest(RequestStruct):
    """A payment to create (4.4)."""

    wallet_payment: WalletChargeRequest
    """Required: the charge to the wallet."""
    payer: WalletPayerRequest
    """Required: the payer, with the token of their wallet."""
    binary_mode: bool | None = None
    """`True`: the payment ends approved or rejected; otherwise it may also stay pending."""
    capture: bool | None = None
    """`False` reserves the amount, to be captured later; by default the wallet is charged immediately."""


class WalletPaymentPart(ResponseStruct):
    """One of the payments of a wallet payment."""

    id: Id | None = None
    """The id of the payment; `None` if not sent."""
    status_detail: str | None = None
    """The outcome, such as `accredited`; the contract lists no values; `None` if not sent."""
    payment_method_id: str | None = None
    """The id of the payment method, such as `account_money`; `None` if not sent."""
    transaction_amount: Decimal | None = None
    """The amount of this payment, in the currency of the seller's account; `None` if not sent."""
    installments: int | None = None
    """The number of installments, 1 for a single payment; `None` if not sent."""
    description: str | None = None
    """The purpose of the charge; `None` if not set or not sent."""
    capture: bool | None = None
    """Whether it was captured; `False` if the amount is only reserved."""
    external_reference: str | None = None
    """The integrator's own name for it; `None` if not set or not sent."""


class WalletCharge(ResponseStruct):
    """The charge, as requested."""

    transaction_amount: Decimal | None = None
    """The amount, in the currency of the seller's account, with or without the discount."""
    description: str | None = None
    """The purpose of the charge; `None` if not set or not sent."""
    external_reference: str | None = None
    """The integrator's own name for the payment; `None` if not set or not sent."""
    statement_descriptor: str | None = None
    """The text on the buyer's statement; `None` if not set or not sent."""
    forward_data: ForwardData | None = None
    """The data for the acquirer; `None` if not set or not sent."""
    discount: WalletDiscount | None = None
    """The discount, by `amount` and `code`; `None` if not set or not sent."""


class Disbursement(ResponseStruct):
    """A receiver of the money."""

    collector_id: Id | None = None
    """The user id of the seller who is paid; `None` if not sent."""


class WalletPayer(ResponseStruct):
    """Who paid."""

    id: Id | None = None
    """The user id of the buyer; `None` if not sent."""


class WalletPayment(ResponseStruct):
    """A wallet payment as the platform has it."""

    id: int | RequiredId
    """The id of the wallet payment."""
    payments: tuple[WalletPaymentPart, ...] | None = None
    """The payments that it consists of; look at their `status_detail`."""
    wallet_payment: WalletCharge | None = None
    """The charge, as requested; `None` if not sent."""
    disbursements: tuple[Disbursement, ...] | None = None
    """The sellers who are paid; `None` if not sent."""
    payer: WalletPayer | None = None
    """The buyer who paid; `None` if not sent."""
    site_id: str | None = None
    """The platform's site for the seller's country; `None` if not sent."""
    binary_mode: bool | None = None
    """Whether it can only be approved or rejected; `None` if not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    date_last_updated: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""


def _is_charged(charge: WalletChargeRequest, amount: Decimal) -> bool | None:
    """Compare an amount: with a discount, the platform may repeat either amount."""
    requested, discount = charge.transaction_amount, charge.discount
    if requested is None or amount == requested:
        return None if requested is None else True
    return discount is not None and (discount.amount is None or amount == EXACTLY.subtract(requested, discount.amount))


def _is_charged_in_parts(charge: WalletChargeRequest, amounts: list[Decimal | None]) -> bool | None:
    """Compare the sum of the payments; a payment without an amount may explain a difference."""
    paid = total((1, amount) for amount in amounts if amount is not None)
    agrees = _is_charged(charge, paid)
    return None if None in amounts and not agrees and paid < (charge.transaction_amount or 0) else agrees


CREATE: Operation[WalletPaymentRequest, WalletPayment] = Operation(
    name="wallet_payments.create",
    method="POST",
    path="/v1/advanced_payments",
    section="4.4",
    summary="Create a payment from a wallet",
    retry=RetryClass.KEYED,
    resend_window=timedelta(minutes=15),
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
        # The contract gives only the status of these two; the first code comes from the Orders API.
        ErrorCode(400, "empty_required_header", "the X-Idempotency-Key header is missing"),
        ErrorCode(400, "bad_request", "a field is missing or breaks a rule"),
        UNAUTHORIZED,
        # Not in the contract: the conflicts of a key, with the codes of the Orders API.
        KEY_USED,
        KEY_IN_FLIGHT,
        replace(INTERNAL_ERROR, meaning="internal error; send it again with the same key"),
    ),
)


class WalletPayments(Resource):
    """``client.wallet_payments``: payments from a buyer's wallet."""

    async def create(
        self, payment: WalletPaymentRequest, *, session_id: str | None = None, **options: Unpack[KeyedWriteOptions]
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
        headers = None if session_id is None else {self._engine.settings.session_header: session_id}
        return await self._write(CREATE, payment, options, headers=headers)
