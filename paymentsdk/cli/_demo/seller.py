"""The seller's program: it does its business through the client, and keeps a book of what it was told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from paymentsdk import PaymentsClient
from paymentsdk.cli._demo.books import Entry
from paymentsdk.resources.customers import Customer, CustomerRequest
from paymentsdk.resources.invoices import Invoice, InvoicePaymentStatus
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.oauth import Token
from paymentsdk.resources.orders import (
    Order,
    OrderConfigRequest,
    OrderPayment,
    OrderRequest,
    OrderStatus,
    PaymentRequest,
    QRConfigRequest,
    TransactionsRequest,
)
from paymentsdk.resources.plans import Plan
from paymentsdk.resources.preferences import Preference, PreferenceItemRequest, PreferenceRequest
from paymentsdk.resources.release_reports import ReleaseReport
from paymentsdk.resources.wallet_payments import (
    WalletChargeRequest,
    WalletPayerRequest,
    WalletPayment,
    WalletPaymentRequest,
)

NOTHING = Decimal(0)
_CENT = Decimal("0.01")
#: What kind of token it is that a wallet is charged with.
_TOKENIZED = "wallet-tokenized"


class Seller:
    """One seller, who works with the platform and trusts nothing but its responses.

    Args:
        client: Calls the platform.
        external_pos_id: The point of sale that orders are paid at.
    """

    def __init__(self, client: PaymentsClient, external_pos_id: str) -> None:
        self.believed: list[Entry] = []
        """What happened, as far as the responses say; each entry as the platform's ledger should have it."""
        self.sold: list[Entry] = []
        """What each sale came to: what a search of merchant orders should show."""
        self.access_token: str = ""
        """What it works with, once it has signed in."""
        self._client = client
        self._external_pos_id = external_pos_id

    async def sign_in(self, code: str) -> Token:
        """Exchange *code* for a token, and work with it from now on."""
        return self._signed_in(await self._client.oauth.exchange_code(code))

    async def renew(self, token: Token) -> Token:
        """Exchange *token* for a new one before it ends, and work with that from now on."""
        return self._signed_in(await self._client.oauth.refresh(token.refresh_token or ""))

    def _signed_in(self, token: Token) -> Token:
        self.access_token = token.access_token
        self._client = self._client.with_options(access_token=token.access_token)
        self._note("token_created", token.user_id)
        return token

    async def create_order(self, number: int) -> Order:
        """Create the order *number*."""
        return await self._create_order(number, once=None)

    async def sell_once(self, number: int) -> Order:
        """Create the order *number* under a name: once, also if the process that does so is killed."""
        return await self._create_order(number, once=f"demo/{number}")

    async def _create_order(self, number: int, *, once: str | None) -> Order:
        amount = _price(number)
        order = await self._client.orders.create(
            OrderRequest(
                external_reference=f"demo-{number:05}",
                total_amount=amount,
                description="A sale of the demonstration",
                config=OrderConfigRequest(qr=QRConfigRequest(external_pos_id=self._external_pos_id, mode="dynamic")),
                transactions=TransactionsRequest(payments=[PaymentRequest(amount=amount)]),
            ),
            once=once,
        )
        self._note("order_created", order.id)
        return order

    async def see_paid(self, order: Order) -> Order:
        """Ask whether *order* was paid, and how much."""
        order = await self._client.orders.get(order.id)
        for payment in _payments(order):
            self._note("payment", payment.id, payment.paid_amount)
            self._sold("paid", order.external_reference, payment.paid_amount)
        return order

    async def see_expired(self, order: Order) -> Order:
        """Ask whether nobody has paid *order* in time."""
        order = await self._client.orders.get(order.id)
        if order.status == OrderStatus.EXPIRED:
            self._note("order_expired", order.id)
        return order

    async def refund(self, order: Order) -> Order:
        """Give back all of *order*."""
        return self._refunded(order, await self._client.orders.refund(order.id))

    async def refund_half(self, order: Order) -> Order:
        """Give back a half of *order*, rounded to a cent."""
        [payment] = _payments(order)
        half = ((payment.paid_amount or NOTHING) / 2).quantize(_CENT)
        return self._refunded(order, await self._client.orders.refund(order.id, payment_id=payment.id, amount=half))

    def _refunded(self, order: Order, answer: Order) -> Order:
        for refund in answer.refunds:
            self._note("refund", refund.id, -(refund.amount or NOTHING))
            self._sold("refunded", order.external_reference, refund.amount)
        return answer

    async def cancel(self, order: Order) -> Order:
        """Cancel *order*, which nobody has paid."""
        answer = await self._client.orders.cancel(order.id)
        self._note("order_canceled", answer.id)
        return answer

    async def create_preference(self) -> Preference:
        """Create a preference, which a buyer pays in a browser."""
        item = PreferenceItemRequest(id="book", title="A book", quantity=2, unit_price=Decimal("12.50"))
        preference = await self._client.preferences.create(
            PreferenceRequest(items=[item], external_reference="demo-preference")
        )
        self._note("preference_created", preference.id)
        return preference

    async def see_preference_paid(self, preference: Preference) -> MerchantOrder | None:
        """Ask what *preference* has come to."""
        order = await self._client.merchant_orders.search(preference_id=preference.id).first()
        for payment in (order and order.payments) or ():
            self._note("payment", payment.id, payment.total_paid_amount)
            self._sold("paid", preference.external_reference, payment.total_paid_amount)
        return order

    async def create_customer(self) -> Customer:
        """Create a customer."""
        customer = await self._client.customers.create(CustomerRequest(email="ana@example.com", first_name="Ana"))
        self._note("customer_created", customer.id)
        return customer

    async def charge_wallet(self, number: int) -> WalletPayment:
        """Charge the wallet of the buyer *number*."""
        payment = await self._client.wallet_payments.create(
            WalletPaymentRequest(
                wallet_payment=WalletChargeRequest(
                    transaction_amount=_price(number), external_reference=f"demo-wallet-{number:05}"
                ),
                payer=WalletPayerRequest(token=f"wallet-of-buyer-{number}", type_token=_TOKENIZED),
            )
        )
        for part in payment.payments or ():
            self._note("wallet_payment", part.id, part.transaction_amount)
        return payment

    async def end_reports(self) -> ReleaseReport:
        """Have the platform make no more release reports."""
        report = await self._client.release_reports.disable_schedule()
        self._note("schedule_disabled", report.id)
        return report

    async def offer_plans(self) -> list[Plan]:
        """Return every plan that buyers can subscribe to."""
        return [await self._client.plans.get(plan.id) async for plan in self._client.plans.search(status="active")]

    async def walk_invoices(self, subscription_ids: Iterable[str]) -> list[Invoice]:
        """Return every invoice of the subscriptions."""
        found: list[Invoice] = []
        for subscription_id in subscription_ids:
            found += await self._client.invoices.search(
                preapproval_id=subscription_id, page_size=2, prefetch=4
            ).collect()
        for invoice in found:
            if invoice.payment and invoice.payment.status == InvoicePaymentStatus.APPROVED:
                self._note("invoice_payment", invoice.payment.id, invoice.transaction_amount)
        return found

    async def walk_merchant_orders(self) -> list[MerchantOrder]:
        """Return what all sales have come to, as a search shows it."""
        return await self._client.merchant_orders.search(page_size=50, prefetch=4).collect()

    def _note(self, what: str, of: object, amount: Decimal | None = None) -> None:
        self.believed.append(Entry(what, str(of), amount or NOTHING))

    def _sold(self, what: str, reference: str | None, amount: Decimal | None) -> None:
        self.sold.append(Entry(what, str(reference), amount or NOTHING))


def shown(orders: Iterable[MerchantOrder]) -> Iterator[Entry]:
    """Yield what a search shows of *orders*, as a seller keeps it in ``sold``."""
    for order in orders:
        reference = str(order.external_reference)
        yield Entry("paid", reference, order.paid_amount or NOTHING)
        if order.refunded_amount:
            yield Entry("refunded", reference, order.refunded_amount)


def _payments(order: Order) -> tuple[OrderPayment, ...]:
    return (order.transactions and order.transactions.payments) or ()


def _price(number: int) -> Decimal:
    """Return a price for the sale *number*: from 10.00 up to 99.99, and rarely a round one."""
    return Decimal(1_000 + number * 137 % 9_000) * _CENT
