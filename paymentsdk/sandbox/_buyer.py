"""The buyer: scans, pays, is rejected, subscribes. Python, the control API and the pages all come here."""

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

    Every method raises `Rejected` if it cannot do what it is asked to: an expired order cannot be paid, and an
    unknown code cannot be scanned.

    Args:
        platform: Where they buy.
        payer_id: Who they are.
        tenant: The user id of the seller whose points of sale they scan, and to whose plan they subscribe unless they
            name another; the first seller by default.
    """

    def __init__(self, platform: Platform, payer_id: int = DEFAULT_PAYER, *, tenant: int | None = None) -> None:
        self._platform = platform
        self.payer_id = payer_id
        self.tenant = tenant

    def scan(self, code: str) -> Order:
        """Return the order behind a QR code.

        Args:
            code: The ``qr_data`` of an order, its id, or the ``external_pos_id`` of a point of sale, which stands for
                the newest order of the buyer's seller there that waits to be paid.

        Raises:
            Rejected: There is no such order, or the point of sale has none.
        """
        name = _name_in(code)
        self._platform.run_due()
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
        raise Rejected(404, "order_not_found", "the code leads to no order that waits to be paid")

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
            payment_method: The kind of method; it picks the order's discount for it.
            installments: In how many parts; always one, except with a credit card.
            outcome: ``approved``; ``rejected``, which leaves the order as it is; ``in_review``, to be decided by
                another call.

        Returns:
            The order as it is now.
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
        """Try to pay an order, and be rejected: the order stays ``created``, and does not show the attempt."""
        return self.pay(order, outcome="rejected")

    def open_checkout(self, preference: str | Preference) -> tuple[Preference, MerchantOrderRecord]:
        """Open the checkout of a preference (itself, its id or its ``init_point``): a merchant order is ``opened``."""
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
        """Pay what a preference asks for: its merchant order is ``closed`` and ``paid``.

        The buyer can pay only as the checkout offers: not by a method that the preference excludes, nor in more
        installments than it allows. With ``rejected`` or ``in_review`` the merchant order stays open, and has a
        payment that says so; a preference in binary mode turns ``in_review`` into ``rejected``. While a payment is in
        review, the next call decides that payment and makes no other.

        Args:
            preference: The preference, its id or its ``init_point``.
            payment_method: The kind of method.
            installments: In how many parts; always one, except with a credit card.
            outcome: ``approved``, ``rejected`` or ``in_review``.

        Returns:
            The merchant order as it is now.
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
        """Have the seller refund *amount* of a paid preference, or all that is left.

        Once all of it is refunded, its merchant order is ``reverted``.

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
            external_reference: The integrator's own name for the subscription.
            rejections: How many attempts to collect are rejected before one is approved; -1 for all.
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
        """End a subscription: its open invoices are ``canceled``."""
        name = subscription.id if isinstance(subscription, Subscription) else subscription
        with self._platform.store.transaction():
            return invoices.end(*self._found(_records.SUBSCRIPTIONS, name))

    def change_invoice_payment(self, invoice: int | str, status: str) -> Invoice:
        """Bring the payment of an invoice into a state such as ``refunded``, ``in_mediation`` or ``charged_back``.

        The state of the invoice follows: if its payment was made or canceled, the invoice is not collected again.
        """
        with self._platform.store.transaction():
            return invoices.change_payment(*self._found(_records.INVOICES, str(invoice)), status)

    def _found(self, table: Table[D], name: str) -> tuple[SellerContext, D]:
        """Return the thing *name*, as it is once all that is due is done, and before it the context that it is in."""
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
    """Return the name that *address* ends with; the page there adds how the last attempt came out.

    Raises:
        TypeError: It is not a string: another kind of thing, which is paid in another way.
    """
    if not isinstance(address, str):
        raise TypeError(f"expected a code, an id or a link as a string, got {type(address).__name__}")
    return address.strip().partition("?")[0].rstrip("/").rpartition("/")[2]


def _check_outcome(outcome: str) -> None:
    """Reject what is no outcome: a word that nobody knows must not move money."""
    outcomes = get_args(Outcome)
    if outcome not in outcomes:
        raise Rejected(400, "bad_request", f"an outcome is one of {', '.join(outcomes)}")
