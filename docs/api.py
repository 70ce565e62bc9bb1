"""Writes the pages below docs/api, which list the public names. mkdocstrings adds the docstrings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import paymentsdk
from docs.describe import names_of
from paymentsdk import Operation

#: The top-level names by the module or package below `paymentsdk` that defines them.
GROUPS = {
    "paymentsdk.client": "The client",
    "paymentsdk._call": "Calls, timeouts and rates",
    "paymentsdk.errors": "Errors",
    "paymentsdk._auth": "Credentials and tokens",
    "paymentsdk._paging": "Pagination",
    "paymentsdk._contract": "Operations",
    "paymentsdk.transports": "Transports",
    "paymentsdk._headers": "Transports",
}
OTHERS = "Other names"

#: Options for the docstring of a module: no name, since it is the title, and no members.
ABOUT_MODULE = "members: false, show_root_heading: false, show_root_toc_entry: false"

#: Excludes the index of names from the search: the search leads to the names themselves.
NOT_FOUND = "---\nsearch: {exclude: true}\n---\n\n"

ABOUT = "Every public name, with its docstring. All other names are private, and may change in any version."


@cache
def public_modules() -> tuple[ModuleType, ...]:
    """Return the package and its public modules: no part of their path begins with an underscore."""
    names = [info.name for info in pkgutil.walk_packages(paymentsdk.__path__, "paymentsdk.")]
    return paymentsdk, *(importlib.import_module(name) for name in names if "._" not in name)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each page, and its text."""
    index, nav = [], ["- [All public names](README.md)"]
    for module in public_modules():
        for title, names in grouped(module).items():
            shown = title.removeprefix("paymentsdk.")
            file = re.sub(r"\W+", "-", shown.lower()) + ".md"
            nav.append(f"- [{shown}]({file})")
            listed = "\n".join(f"- [`{name}`][{module.__name__}.{name}]" for name in names)
            index.append(f"## {title}\n\n{listed}")
            about = "" if module is paymentsdk else f"::: {module.__name__}\n    options: {{{ABOUT_MODULE}}}\n\n"
            import_line = f"`from {module.__name__} import ...`\n\n"
            yield file, f"# {title}\n\n{about}{import_line}" + "\n\n".join(entry(module, name) for name in names)
    yield "README.md", f"{NOT_FOUND}# All public names\n\n{ABOUT}\n\n" + "\n\n".join(index)
    yield "NAV.md", "\n\n" + "\n".join(nav)


def grouped(module: ModuleType) -> dict[str, list[str]]:
    """Return the names of a module, grouped by their page; classes come first."""
    groups: dict[str, list[str]] = {title: [] for title in [*GROUPS.values(), OTHERS]}
    for name in sorted(names_of(module), key=lambda name: (not inspect.isclass(getattr(module, name)), name)):
        home = ".".join(getattr(getattr(module, name), "__module__", "").split(".")[:2])
        title = GROUPS.get(home, OTHERS) if module is paymentsdk else module.__name__
        groups.setdefault(title, []).append(name)
    return {title: names for title, names in groups.items() if names}


def entry(module: ModuleType, name: str) -> str:
    """Return the directive for a name, with the methods from private bases."""
    text = f"::: {module.__name__}.{name}"
    value = getattr(module, name)
    if isinstance(value, Operation):  # The page of operations describes it.
        return f"{text}\n    options: {{show_attribute_values: false}}\n\nSee `{value.name}`."
    if inspect.isclass(value) and (inherited := inherited_members(value)):
        text += f"\n    options: {{inherited_members: [{', '.join(inherited)}]}}"
    return text


def inherited_members(cls: type) -> list[str]:
    """Return the public members that a class inherits from private bases in this package."""
    ours = [base for base in cls.__mro__[1:] if base.__module__.startswith("paymentsdk")]
    names = {name for base in ours if id(base) not in public_values() for name in vars(base) if name[0] != "_"}
    return sorted(names - vars(cls).keys())


@cache
def public_values() -> frozenset[int]:
    """Return the identities of the values of all public names."""
    return frozenset(id(getattr(module, name)) for module in public_modules() for name in names_of(module))
