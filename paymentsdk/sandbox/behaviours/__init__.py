"""What each operation does, as functions ``(book, call) -> answer`` that raise ``Refused``; and what falls due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from paymentsdk._core.operation import Operation
from paymentsdk.resources import customers as of_customers
from paymentsdk.resources import invoices as of_invoices
from paymentsdk.resources import merchant_orders as of_merchant_orders
from paymentsdk.resources import oauth as of_oauth
from paymentsdk.resources import orders as of_orders
from paymentsdk.resources import plans as of_plans
from paymentsdk.resources import preferences as of_preferences
from paymentsdk.resources import release_reports as of_release_reports
from paymentsdk.resources import wallet_payments as of_wallet_payments
from paymentsdk.sandbox.behaviours import (
    customers,
    invoices,
    merchant_orders,
    oauth,
    orders,
    plans,
    preferences,
    release_reports,
    wallet_payments,
)
from paymentsdk.sandbox.book import Book, Call

__all__ = ["BEHAVIOUR", "DUE", "Behaviour"]

#: The answer is a Struct, or plain data where a Struct cannot say it.
Behaviour = Callable[[Book, Call[object]], object]

_TABLE = {
    of_oauth.TOKEN: oauth.token,
    of_invoices.SEARCH: invoices.search,
    of_preferences.CREATE: preferences.create,
    of_wallet_payments.CREATE: wallet_payments.create,
    of_plans.GET: plans.get,
    of_plans.SEARCH: plans.search,
    of_merchant_orders.SEARCH: merchant_orders.search,
    of_customers.CREATE: customers.create,
    of_release_reports.DISABLE_SCHEDULE: release_reports.disable_schedule,
    of_orders.CREATE: orders.create,
    of_orders.GET: orders.get,
    of_orders.CANCEL: orders.cancel,
    of_orders.REFUND: orders.refund,
}
# Each takes a call with its own type of body; the decoder of the operation has seen to it.
BEHAVIOUR = cast(Mapping[Operation[object, object], Behaviour], _TABLE)

#: What happens to the thing of an id when its moment has come; each says what it did, or ``None`` for nothing.
DUE: Mapping[str, Callable[[Book, str], str | None]] = {
    "order.expire": orders.expire,
    "refund.settle": orders.settle_refund,
    "invoice.collect": invoices.collect,
}
