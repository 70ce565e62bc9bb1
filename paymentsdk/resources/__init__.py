"""The operations of the platform, one module per noun."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from paymentsdk._contract.operation import Operation

__all__: list[str] = []  # All names are public at the top level: import them from there.

if TYPE_CHECKING:
    #: Every operation by its name (4.1 to 4.13).
    OPERATIONS: Mapping[str, Operation[object, object]]


@cache
def _operations() -> Mapping[str, Operation[object, object]]:
    from pkgutil import iter_modules  # a program imports only the modules that it uses, usually few of them

    # Every operation that a module declares under a public name: a new operation or noun needs no registration.
    declared = (
        value
        for module in iter_modules(__path__, f"{__name__}.")
        for name, value in vars(import_module(module.name)).items()
        if isinstance(value, Operation) and not name.startswith("_")
    )
    in_order = sorted(declared, key=lambda operation: [int(part) for part in operation.section.split(".")])
    return MappingProxyType({operation.name: operation for operation in in_order})


# With `__getattr__`, type checkers would accept any name, even a misspelt one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "OPERATIONS":
            return _operations()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
