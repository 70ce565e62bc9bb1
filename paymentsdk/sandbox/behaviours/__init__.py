"""What each operation does, as functions ``(book, call) -> answer`` that raise ``Refused``; and what falls due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from paymentsdk._core.operation import Operation
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

__all__ = ["BEHAVIOUR", "DUE", "RELINK", "Behaviour"]

#: The answer is a Struct, or plain data where a Struct cannot say it.
Behaviour = Callable[[Book, Call[object]], object]

_NOUNS = (
    oauth,
    invoices,
    preferences,
    wallet_payments,
    plans,
    merchant_orders,
    customers,
    release_reports,
    orders,
)
# Each takes a call with its own type of body; the decoder of the operation has seen to it.
BEHAVIOUR = cast(
    Mapping[Operation[object, object], Behaviour],
    {operation: behaviour for noun in _NOUNS for operation, behaviour in noun.BEHAVIOUR.items()},
)

#: What happens to the thing of an id when its moment has come; each says what it did, or ``None`` for nothing.
DUE: Mapping[str, Callable[[Book, str], str | None]] = {
    "order.expire": orders.expire,
    "refund.settle": orders.settle_refund,
    "invoice.collect": invoices.collect,
}
#: What brings the links of a seller's documents to where the sandbox is now.
RELINK: Sequence[Callable[[Book], None]] = (orders.relink, preferences.relink, plans.relink)
