"""Wallet payments (4.4), charged to the wallet of the payer's token.

The token is a magic value. A token that begins with ``reject`` is rejected. A token that begins with ``pending`` stays
pending, or is rejected in binary mode. Any other token is approved.
"""

from __future__ import annotations

from paymentsdk import money
from paymentsdk.resources import wallet_payments
from paymentsdk.resources.wallet_payments import WalletPayment, WalletPaymentRequest
from paymentsdk.sandbox._handlers._sales import DETAILS
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext
from paymentsdk.sandbox._wire import Rejected, echo


def create(context: SellerContext, request: ParsedRequest[WalletPaymentRequest]) -> WalletPayment:
    """Charge a wallet, or only reserve the amount if ``capture`` is false."""
    body, charge = request.body, request.body.wallet_payment
    discount = charge.discount
    if charge.transaction_amount is None and context.policies.wallet_amount == "required":
        raise Rejected(400, "bad_request", details=("wallet_payment.transaction_amount: is required",))
    unchecked = context.policies.discount_promise == "unchecked"
    if discount and not unchecked and discount.code not in context.tenant.discount_promises:
        raise Rejected(400, "bad_request", "the discount was not promised", details=("wallet_payment.discount.code",))
    amount = (charge.transaction_amount or money.ZERO) - ((discount and discount.amount) or money.ZERO)
    if amount < 0:
        raise Rejected(400, "bad_request", "the discount is above the amount", details=("wallet_payment.discount",))
    status = _outcome(body)
    part = echo(
        charge,
        wallet_payments.WalletPaymentPart,
        id=context.ids.number(11),
        status_detail=DETAILS[status],
        payment_method_id="account_money",
        transaction_amount=amount,
        installments=1,
        capture=body.capture is not False,
    )
    payment = WalletPayment(
        id=context.ids.number(10),
        payments=(part,),
        # The response shows only the amount and the code of a discount (spec: Wallet payment).
        wallet_payment=echo(
            charge,
            wallet_payments.WalletCharge,
            discount=discount and wallet_payments.WalletDiscount(amount=discount.amount, code=discount.code),
        ),
        disbursements=(wallet_payments.Disbursement(collector_id=context.tenant.user_id),),
        payer=wallet_payments.WalletPayer(id=context.ids.number(9)),
        site_id=context.tenant.country,
        binary_mode=bool(body.binary_mode),
        date_created=context.now,
        date_last_updated=context.now,
    )
    context.record(
        "wallet_payment" if status == "approved" else f"wallet_payment_{status}",
        id=str(part.id),
        order_id=str(payment.id),
        amount=amount if status == "approved" else money.ZERO,
        external_reference=charge.external_reference,
    )
    return payment


def _outcome(body: WalletPaymentRequest) -> str:
    """Return the final status of the payment."""
    token = body.payer.token
    if token.startswith("reject") or (token.startswith("pending") and body.binary_mode):
        return "rejected"
    if token.startswith("pending"):
        return "pending"
    return "authorized" if body.capture is False else "approved"


NOUN = Noun(
    handlers=[Handler(operation=wallet_payments.CREATE, handle=create, magic=MagicValue("payer.token"))],
    causes={"bad_request": "no transaction_amount, or a field that breaks a rule"},
    required=lambda policies: {
        wallet_payments.WalletChargeRequest.__name__: ["transaction_amount"]
        if policies.wallet_amount == "required"
        else []
    },
)
