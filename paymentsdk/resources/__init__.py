"""The operations of the platform, one module per noun."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from paymentsdk._contract.operation import Operation

__all__: list[str] = []  # Public at the top level, which is where to import it from.

if TYPE_CHECKING:
    #: Every operation by its name (4.1 to 4.13).
    OPERATIONS: Mapping[str, Operation[object, object]]


@cache
def _operations() -> Mapping[str, Operation[object, object]]:
    from pkgutil import iter_modules  # a program imports the modules that it uses, and few use all

    # Whatever a module declares under a public name: a new operation is known by being declared, and so is a noun.
    declared = (
        value
        for module in iter_modules(__path__, f"{__name__}.")
        for name, value in vars(import_module(module.name)).items()
        if isinstance(value, Operation) and not name.startswith("_")
    )
    in_order = sorted(declared, key=lambda operation: [int(part) for part in operation.section.split(".")])
    return MappingProxyType({operation.name: operation for operation in in_order})


# Type checkers would take every name that is asked for, also one that is misspelt, for one that is here.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "OPERATIONS":
            return _operations()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
