"""The operations of the platform, one module per noun."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from paymentsdk._core.operation import Operation

__all__ = ["OPERATIONS"]

if TYPE_CHECKING:
    #: Every operation by its name (4.1 to 4.13).
    OPERATIONS: Mapping[str, Operation[object, object]]


#: The modules, in the order of the contract. A program imports those that it uses.
_NOUNS = (
    "oauth",
    "invoices",
    "preferences",
    "wallet_payments",
    "plans",
    "merchant_orders",
    "customers",
    "release_reports",
    "orders",
)


@cache
def _operations() -> Mapping[str, Operation[object, object]]:
    # Whatever a module declares under a public name: a new operation is known by being declared.
    declared = (
        value
        for noun in _NOUNS
        for name, value in vars(import_module(f"{__name__}.{noun}")).items()
        if isinstance(value, Operation) and not name.startswith("_")
    )
    return MappingProxyType({operation.name: operation for operation in declared})


def __getattr__(name: str) -> object:
    if name == "OPERATIONS":
        return _operations()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
