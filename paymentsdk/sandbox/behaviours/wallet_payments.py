"""Wallet payments (4.4): charged to the wallet that the payer's token stands for.

The token decides, as a magic value: one that begins with ``reject`` is rejected, with ``pending`` stays pending (in
binary mode: is rejected), and any other is approved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paymentsdk import money
from paymentsdk.resources import wallet_payments
from paymentsdk.resources.wallet_payments import (
    Disbursement,
    WalletCharge,
    WalletChargeRequest,
    WalletDiscount,
    WalletPayer,
    WalletPayment,
    WalletPaymentPart,
    WalletPaymentRequest,
)
from paymentsdk.sandbox.answers import Refused, echo
from paymentsdk.sandbox.behaviours.details import DETAILS
from paymentsdk.sandbox.book import Book, Call
from paymentsdk.sandbox.magic import Magic
from paymentsdk.sandbox.policies import Policies
from paymentsdk.sandbox.records import EntryKind

#: What the ledger says of a payment, by the state that it ends in.
_KINDS: Mapping[str, EntryKind] = {
    "approved": "wallet_payment",
    "authorized": "wallet_payment_authorized",
    "pending": "wallet_payment_pending",
    "rejected": "wallet_payment_rejected",
}


def create(book: Book, call: Call[WalletPaymentRequest]) -> WalletPayment:
    """Charge a wallet, or reserve the amount where ``capture`` is false."""
    body, asked = call.body, call.body.wallet_payment
    discount = asked.discount
    if asked.transaction_amount is None and book.policies.wallet_amount == "required":
        raise Refused(400, "bad_request", details=("wallet_payment.transaction_amount: is required",))
    if discount and book.policies.discount_promise == "required" and discount.code not in book.tenant.discount_promises:
        raise Refused(400, "bad_request", "the discount was not promised", details=("wallet_payment.discount.code",))
    amount = (asked.transaction_amount or money.ZERO) - ((discount and discount.amount) or money.ZERO)
    if amount < 0:
        raise Refused(400, "bad_request", "the discount is above the amount", details=("wallet_payment.discount",))
    status = _outcome(body)
    part = WalletPaymentPart(
        id=book.ids.number(11),
        status_detail=DETAILS[status],
        payment_method_id="account_money",
        transaction_amount=amount,
        installments=1,
        description=asked.description,
        capture=body.capture is not False,
        external_reference=asked.external_reference,
    )
    payment = WalletPayment(
        id=book.ids.number(10),
        payments=(part,),
        # Of a discount the answer shows what it was and no more (spec: Wallet payment).
        wallet_payment=echo(
            asked, WalletCharge, discount=discount and WalletDiscount(amount=discount.amount, code=discount.code)
        ),
        disbursements=(Disbursement(collector_id=book.tenant.user_id),),
        payer=WalletPayer(id=book.ids.number(9)),
        site_id=book.tenant.country,
        binary_mode=bool(body.binary_mode),
        date_created=book.now,
        date_last_updated=book.now,
    )
    book.enter(
        _KINDS[status],
        id=str(part.id),
        order_id=str(payment.id),
        amount=amount if status == "approved" else money.ZERO,
        external_reference=asked.external_reference,
    )
    return payment


def _outcome(body: WalletPaymentRequest) -> str:
    """Return the state that the payment ends in."""
    token = body.payer.token
    if token.startswith("reject") or (token.startswith("pending") and body.binary_mode):
        return "rejected"
    if token.startswith("pending"):
        return "pending"
    return "authorized" if body.capture is False else "approved"


def required(policies: Policies) -> Mapping[str, Sequence[str]]:
    """Return the members that a policy asks for."""
    return {WalletChargeRequest.__name__: ["transaction_amount"] if policies.wallet_amount == "required" else []}


BEHAVIOUR = {wallet_payments.CREATE: create}
MAGIC = {wallet_payments.CREATE: Magic("payer.token")}
NATURAL = {
    ("wallet_payments.create", "bad_request"): "no transaction_amount, or a member that breaks a rule",
}
