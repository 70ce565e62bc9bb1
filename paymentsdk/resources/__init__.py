"""The operations of the platform, one module per noun."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from paymentsdk._core.operation import Operation

__all__ = ["OPERATIONS"]

if TYPE_CHECKING:
    #: Every operation by its name (4.1 to 4.13).
    OPERATIONS: Mapping[str, Operation[object, object]]


@cache
def _operations() -> Mapping[str, Operation[object, object]]:
    from paymentsdk.resources import (  # noqa: PLC0415 - a program imports the resources that it uses
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

    nouns = (
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
    # Whatever a module declares under a public name: a new operation is known by being declared.
    declared = (
        value
        for noun in nouns
        for name, value in vars(noun).items()
        if isinstance(value, Operation) and not name.startswith("_")
    )
    return MappingProxyType({operation.name: operation for operation in declared})


def __getattr__(name: str) -> object:
    if name == "OPERATIONS":
        return _operations()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
