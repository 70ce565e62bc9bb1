"""Functions written as Python source and compiled, as dataclasses are.

The interpreter takes an attribute that is named in the source twice as fast as one that is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, cast

#: A compiled check of one value.
Check: TypeAlias = Callable[[object], bool]


def compile_function(signature: str, body: Iterable[str], scope: Mapping[str, object]) -> Callable[..., object]:
    """Compile the function with *signature* and the lines of *body*, in which the names of *scope* are known."""
    given = "".join(f", {name}={name}" for name in scope)  # Defaults of arguments are found faster than globals.
    found = dict(scope)
    lines = [f"def compiled({signature}{given}):", *(f"    {line}" for line in body)]
    exec("\n".join(lines), found)  # noqa: S102 - the source holds nothing but names of members
    return cast("Callable[..., object]", found["compiled"])


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines* as the body of a compound statement."""
    return (f"    {line}" for line in lines)
