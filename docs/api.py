"""Writes the pages below docs/api, which list the public names. mkdocstrings adds the docstrings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import paymentsdk
from docs.describe import names_of
from paymentsdk import Operation

#: The top-level names by the module or package below `paymentsdk` that defines them.
GROUPS = {
    "client": "The client",
    "_call": "Calls, timeouts and rates",
    "errors": "Errors",
    "_auth": "Credentials and tokens",
    "_paging": "Pagination",
    "_contract": "Operations",
    "transports": "Transports",
    "_headers": "Transports",
}
OTHERS = "Other names"

#: Options for the docstring of a module: no name, since it is the title, and no members.
ABOUT_MODULE = "members: false, show_root_heading: false, show_root_toc_entry: false"

#: Excludes the index of names from the search: the search leads to the names themselves.
NOT_FOUND = "---\nsearch: {exclude: true}\n---\n\n"

ABOUT = """\
Every public name, with its docstring. All other names are private, and may change in any version."""


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
            file = (
                title.lower().removeprefix("paymentsdk.").replace(",", "").replace(" ", "-").replace(".", "-") + ".md"
            )
            nav.append(f"- [{title.removeprefix('paymentsdk.')}]({file})")
            index.append(f"## {title}\n")
            index += [f"- [`{name}`][{module.__name__}.{name}]" for name in names]
            index.append("")
            about = "" if module is paymentsdk else f"::: {module.__name__}\n    options: {{{ABOUT_MODULE}}}\n\n"
            import_line = f"`from {module.__name__} import ...`\n\n"
            yield file, f"# {title}\n\n{about}{import_line}" + "\n\n".join(entry(module, name) for name in names)
    yield "README.md", f"{NOT_FOUND}# All public names\n\n{ABOUT}\n\n" + "\n".join(index).rstrip()
    yield "NAV.md", "\n\n" + "\n".join(nav)


def grouped(module: ModuleType) -> dict[str, list[str]]:
    """Return the names of a module, grouped by their page."""
    if module is not paymentsdk:
        names = sorted(names_of(module), key=lambda name: (not inspect.isclass(getattr(module, name)), name))
        return {module.__name__: names} if names else {}
    groups: dict[str, list[str]] = {title: [] for title in [*GROUPS.values(), OTHERS]}
    for name in names_of(module):
        home = f"{getattr(getattr(module, name), '__module__', '')}..".split(".")
        groups[GROUPS.get(home[1], OTHERS) if home[0] == "paymentsdk" else OTHERS].append(name)
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
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("paymentsdk") and not is_public(base)]
    return sorted({name for base in bases for name in vars(base) if not name.startswith("_")} - vars(cls).keys())


def is_public(cls: type) -> bool:
    """Return whether a public module lists a class."""
    return any(
        getattr(module, cls.__name__, None) is cls for module in public_modules() if cls.__name__ in names_of(module)
    )
