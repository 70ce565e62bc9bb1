"""Amounts that decode and are none: NaN, infinities, and numbers of a monstrous size.

They decode like any other, and each is a trap: the first comparison with NaN raises, and the first rounding of
``1e999999999`` fills the memory. So every amount of every answer is looked at, thousands of them in a page.

The search through a type is written as Python source and compiled, as dataclasses are: the interpreter makes an
attribute that is named in the source twice as fast as one that is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from inspect import isclass
from typing import cast, get_args

from msgspec import Struct, structs

#: An amount with more digits before or behind the point is a memory bomb for the first who rounds or prints it.
MOST_DIGITS = 99

#: Says whether a decoded value holds an amount that is none.
Check = Callable[[object], bool]


def compile_check(kind: type) -> Check:
    """Compile the search through the values of *kind*."""
    lines = ["def check(v0):", *_indented(_search(kind, 0)), "    return False"]
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)  # noqa: S102 - the source holds nothing but the names of members
    return cast("Check", scope["check"])


def _search(kind: object, depth: int) -> Iterator[str]:
    """Yield the source that searches the variable of this *depth*, which is not None."""
    value, below = f"v{depth}", f"v{depth + 1}"
    for part in get_args(kind) or (kind,):
        if part is Decimal:
            yield f"if not ({value}.is_finite() and -{MOST_DIGITS} < {value}.adjusted() < {MOST_DIGITS}):"
            yield "    return True"
        elif isclass(part) and issubclass(part, Struct):
            for field in structs.fields(part):
                if search := list(_search(field.type, depth + 1)):
                    yield f"{below} = {value}.{field.name}"
                    yield f"if {below} is not None:"
                    yield from _indented(search)
        elif search := list(_search(part, depth + 1)) if get_args(part) else []:
            yield f"for {below} in {value}:"
            yield from _indented(search)


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
