"""A status may be one that nobody knows yet: type checkers demand a case for it. Nobody runs this file.

A line that a type checker has to reject says so with ``type: ignore``: an ignore that nothing needs is an error.
"""

from __future__ import annotations

from typing import assert_never, assert_type

from paymentsdk.resources.invoices import Invoice, InvoiceStatus
from paymentsdk.resources.orders import Order, OrderStatus


def a_match_over_the_names_alone_is_rejected(order: Order) -> str:
    status = order.status
    match status:
        case None:
            return "not said"
        case OrderStatus.CREATED:
            return "to be paid"
        case OrderStatus.PROCESSED | OrderStatus.REFUNDED:
            return "paid"
        case OrderStatus.CANCELED | OrderStatus.EXPIRED:
            return "over"
        case _:
            assert_never(status)  # type: ignore[arg-type]


def a_match_with_a_last_case_is_taken(order: Order) -> str:
    match order.status:
        case None:
            return "not said"
        case OrderStatus.CREATED:
            return "to be paid"
        case OrderStatus.PROCESSED | OrderStatus.REFUNDED | OrderStatus.CANCELED | OrderStatus.EXPIRED:
            return "paid, or over"
        case _:
            return "something new"


def a_last_case_may_have_the_text(order: Order) -> str:
    status = order.status
    match status:
        case None:
            return "not said"
        case OrderStatus():
            return status.value
        case str():
            return status.upper()
        case _:
            assert_never(status)


def a_value_is_compared_as_before(order: Order, invoice: Invoice) -> bool:
    assert_type(order.status, OrderStatus | str | None)
    assert_type(invoice.status, InvoiceStatus | str | None)
    return order.status in {OrderStatus.CREATED, "action_required"} and invoice.status == "processed"
