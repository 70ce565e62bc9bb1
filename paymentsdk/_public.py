"""Where public names live: in the module that lists them, whichever file they are written in."""

from collections.abc import Mapping
from importlib import import_module
from inspect import isclass, isfunction, unwrap
from typing import Any

_WRITTEN_IN: dict[type, str] = {}


def publish(package: str, names: Mapping[str, Any]) -> None:
    """Say of the classes and functions among *names* that *package* lists: that is where they are from.

    So messages, `help()` and pickles have the name that programs import, and pickles outlive a move to another file.
    It is called at the end of a private module with public names, or of the package that lists them. The price is
    `inspect.getsource`, which looks for a class in the file of that module; ours is found by `written_in`.

    Annotations that are text are read among the names of the module that a class is from. So a module with public
    classes that have fields does without `from __future__ import annotations`.
    """
    for name in import_module(package).__all__:
        value = names.get(name)
        if isclass(value) and _is_private(value.__module__):
            _WRITTEN_IN[value] = value.__module__
            value.__module__ = package
        elif callable(value) and isfunction(unwrap(value)):
            value.__module__ = package


def written_in(cls: type) -> str:
    """Return the module whose source has a class."""
    return _WRITTEN_IN.get(cls, cls.__module__)


def _is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))
