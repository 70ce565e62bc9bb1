"""The buyer: scans, pays and subscribes. Python, the control API and the pages all use this class."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, TypeVar, get_args

from msgspec import Struct

from paymentsdk import money
from paymentsdk.resources.invoices import Invoice
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.orders import Order, OrderStatus, QRMode
from paymentsdk.resources.preferences import MOST_INSTALLMENTS, Preference
from paymentsdk.sandbox import _records
from paymentsdk.sandbox._handlers import invoices, merchant_orders, orders, preferences
from paymentsdk.sandbox._handlers._sales import check_way
from paymentsdk.sandbox._noun import SellerContext
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._records import DEFAULT_PAYER, MerchantOrderRecord, Subscription, Table
from paymentsdk.sandbox._wire import Rejected

D = TypeVar("D", bound=Struct)

Outcome = Literal["approved", "rejected", "in_review"]
PaymentMethod = Literal["account_money", "credit_card", "debit_card", "prepaid_card"]


class Buyer:
    """Someone with a wallet, a camera and a browser. Every method may be called from any thread.

    Every method raises `Rejected` if the platform refuses: an expired order cannot be paid, and an unknown code cannot
    be scanned.

    Args:
        platform: The platform, such as a `Sandbox`.
        payer_id: The user id of the buyer.
        tenant: The user id of the seller whose points of sale the buyer scans. The buyer subscribes to this seller's
            plan unless another is named. By default, the first seller.
    """

    def __init__(self, platform: Platform, payer_id: int = DEFAULT_PAYER, *, tenant: int | None = None) -> None:
        self._platform = platform
        self.payer_id = payer_id
        self.tenant = tenant

    def scan(self, code: str) -> Order:
        """Return the order behind a QR code.

        Args:
            code: The ``qr_data`` of an order, its id, or the ``external_pos_id`` of a point of sale of the buyer's
                seller. A point of sale stands for its newest unpaid order.

        Raises:
            Rejected: The order does not exist, or the point of sale has no unpaid order.
        """
        name = _name_in(code)
        self._platform.run_due()
        with self._platform.store.transaction():
            record = self._platform.store.get(_records.ORDERS, name)
        if record is not None:
            return record.order
        seller = self._platform.find_tenant(self.tenant)
        if seller is not None and name in seller.external_pos_ids:
            waiting = self._platform.context(seller).find(
                _records.ORDERS,
                [("external_pos_id", "=", name), ("status", "=", OrderStatus.CREATED), ("mode", "<>", QRMode.DYNAMIC)],
                descending=True,
                limit=1,
            )
            if waiting:
                return waiting[0].order
        if self._platform.store.get(_records.PREFERENCES, name) is not None:
            raise Rejected(404, "order_not_found", "the code leads to a checkout: pay it with pay_preference")
        raise Rejected(404, "order_not_found", "no unpaid order has this code")

    def pay(
        self,
        order: str | Order,
        *,
        payment_method: PaymentMethod = "account_money",
        installments: int = 1,
        outcome: Outcome = "approved",
    ) -> Order:
        """Pay an order.

        Args:
            order: The order, its id or its code.
            payment_method: The kind of method. The order's discount for this kind applies.
            installments: The number of installments; always 1 except with a credit card.
            outcome: ``approved``; ``rejected``, which does not change the order; ``in_review``, which another call
                decides.

        Returns:
            The current order.
        """
        check_way(payment_method, installments, most=MOST_INSTALLMENTS)
        _check_outcome(outcome)
        order_id = order.id if isinstance(order, Order) else self.scan(order).id
        with self._platform.store.transaction():
            return orders.pay(
                *self._found(_records.ORDERS, order_id),
                method=payment_method,
                installments=installments,
                outcome=outcome,
                payer_id=self.payer_id,
            )

    def reject(self, order: str | Order) -> Order:
        """Try to pay an order with a rejected payment. The order stays ``created``, without a trace of the attempt."""
        return self.pay(order, outcome="rejected")

    def open_checkout(self, preference: str | Preference) -> tuple[Preference, MerchantOrderRecord]:
        """Open a checkout by preference, id or ``init_point``, and return the preference and its merchant order."""
        with self._platform.store.transaction():
            context, record = self._found(_records.PREFERENCES, _checkout_name(preference))
            return record, preferences.open_checkout(context, record)

    def pay_preference(
        self,
        preference: str | Preference,
        *,
        payment_method: PaymentMethod = "account_money",
        installments: int = 1,
        outcome: Outcome = "approved",
    ) -> MerchantOrder:
        """Pay a preference. Its merchant order becomes ``closed`` and ``paid``.

        The checkout's offer is the limit: excluded methods and more installments than allowed are rejected. After
        ``rejected`` or ``in_review``, the merchant order stays open, with a payment of this status. A preference in
        binary mode turns ``in_review`` into ``rejected``. While a payment is in review, the next call decides that
        payment and creates no other.

        Args:
            preference: The preference, its id or its ``init_point``.
            payment_method: The kind of method.
            installments: The number of installments; always 1 except with a credit card.
            outcome: ``approved``, ``rejected`` or ``in_review``.

        Returns:
            The current merchant order.
        """
        _check_outcome(outcome)
        with self._platform.store.transaction():
            context, record = self._found(_records.PREFERENCES, _checkout_name(preference))
            opened = preferences.open_checkout(context, record)
            kinds, most = preferences.offered(record), preferences.most_installments(record)
            check_way(payment_method, installments, kinds=kinds, most=most)
            reviewed = "rejected" if record.binary_mode else "in_process"
            status = reviewed if outcome == "in_review" else outcome
            return merchant_orders.pay_preference(context, opened, status, payer_id=self.payer_id)

    def refund_merchant_order(self, merchant_order: int | str, amount: Decimal | None = None) -> MerchantOrder:
        """Make the seller refund *amount* of a paid preference, or the whole rest.

        Once everything is refunded, its merchant order is ``reverted``.

        Raises:
            ValueError: *amount* has more than two decimals, or is not a number.
        """
        amount = None if amount is None else money.exact(amount)
        with self._platform.store.transaction():
            context, record = self._found(_records.MERCHANT_ORDERS, str(merchant_order))
            if record.merchant_order.preference_id is None:
                raise Rejected(404, "not_found", "a QR order is refunded through the Orders API")
            return merchant_orders.refund_preference(context, record, amount)

    def subscribe(
        self, plan: str | None = None, *, external_reference: str | None = None, rejections: int = 0
    ) -> Subscription:
        """Subscribe to a plan.

        Args:
            plan: The plan, its id or its ``init_point``; by default the plan of the buyer's seller.
            external_reference: The integrator's name for the subscription.
            rejections: The number of attempts to collect that are rejected before one is approved; -1 for all.
        """
        if plan is None:
            seller = self._platform.find_tenant(self.tenant)
            plan = seller.plan_id if seller else ""
        with self._platform.store.transaction():
            return invoices.subscribe(
                *self._found(_records.PLANS, _name_in(plan)),
                payer_id=self.payer_id,
                external_reference=external_reference,
                rejections=rejections,
            )

    def unsubscribe(self, subscription: str | Subscription) -> Subscription:
        """End a subscription. Its open invoices are ``canceled``."""
        name = subscription.id if isinstance(subscription, Subscription) else subscription
        with self._platform.store.transaction():
            return invoices.end(*self._found(_records.SUBSCRIPTIONS, name))

    def change_invoice_payment(self, invoice: int | str, status: str) -> Invoice:
        """Set the payment of an invoice to a state such as ``refunded``, ``in_mediation`` or ``charged_back``.

        The invoice's state follows. If its payment was made or canceled, the invoice is not collected again.
        """
        with self._platform.store.transaction():
            return invoices.change_payment(*self._found(_records.INVOICES, str(invoice)), status)

    def _found(self, table: Table[D], name: str) -> tuple[SellerContext, D]:
        """Return the document *name* with its seller's context, after all due jobs have run."""
        now = self._platform.clock.now()
        self._platform.run_due(now)
        owner = self._platform.store.owner(table, name)
        seller = None if owner is None else self._platform.find_tenant(owner)
        if seller is None:
            raise Rejected(404, "not_found", f"there is no {name!r}")
        context = self._platform.context(seller, now=now)
        return context, context.require(table, name)


def _checkout_name(preference: str | Preference) -> str:
    return preference.id if isinstance(preference, Preference) else _name_in(preference)


def _name_in(address: str) -> str:
    """Return the name at the end of *address*, without the query, where the page adds the last attempt's result.

    Raises:
        TypeError: *address* is not a string. Other kinds of things are paid with other methods.
    """
    if not isinstance(address, str):
        raise TypeError(f"expected a code, an id or a link as a string, got {type(address).__name__}")
    return address.strip().partition("?")[0].rstrip("/").rpartition("/")[2]


def _check_outcome(outcome: str) -> None:
    """Reject an unknown outcome, so that a mistyped word moves no money."""
    outcomes = get_args(Outcome)
    if outcome not in outcomes:
        raise Rejected(400, "bad_request", f"an outcome is one of {', '.join(outcomes)}")
