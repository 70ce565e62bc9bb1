"""Amounts that decode and cannot be used: NaN, infinities, and numbers of a monstrous size.

They decode like any other, and each is a trap: the first comparison with NaN raises, and the first rounding of
`1e999999999` fills the memory. So every amount of every response is looked at, thousands of them in a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from typing import cast

from msgspec import inspect

from paymentsdk._codec.type_walk import alternatives

#: Says whether a value holds an unusable amount.
Check = Callable[[object], bool]

#: An amount with more digits before or behind the point is a memory bomb for the first who rounds or prints it.
MOST_PLACES = 99


def is_sound(amount: Decimal) -> bool:
    """Return whether *amount* can be used: finite, and with no more than `MOST_PLACES` before or behind the point."""
    return amount.is_finite() and -MOST_PLACES <= amount.adjusted() < MOST_PLACES


def compile_check(kind: type) -> Check:
    """Return what says whether a decoded value of *kind* holds an unusable amount: `is_sound`, but fast.

    The way through the members is written as Python source and compiled, as dataclasses are: the interpreter takes an
    attribute that is named in the source twice as fast as one that is looked up by its name. A value in which the
    check itself fails counts as unusable.
    """
    deeper: dict[str, object] = {}

    def again(part: type) -> str:
        """Return the source of the check of *part*, which holds itself; none can be as deep as its values."""
        if part == kind:
            return "check"
        name = f"again{len(deeper)}"
        deeper[name] = cache(lambda: compile_check(part))
        return f"{name}()"

    found = list(_source(inspect.type_info(kind), (), again))
    scope = {"suspect": _suspects(MOST_PLACES), **deeper}
    # Defaults of arguments are found faster than globals.
    given = "".join(f", {name}={name}" for name in scope)
    lines = [
        f"def check(v0{given}):",
        "    try:",
        *_indented(found, 2),
        "        return False",
        "    except Exception:",
        "        return True",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - the source holds nothing but names of members
    return cast("Check", scope["check"])


def _source(info: inspect.Type, above: tuple[type | None, ...], again: Callable[[type], str]) -> Iterator[str]:
    """Yield the source that checks the variable of this depth, which is not None, in what is *above* it."""
    value, below = f"v{len(above)}", f"v{len(above) + 1}"
    for found in alternatives(info):
        match found.type:
            case inspect.DecimalType():
                yield f"if suspect[{value}.adjusted()] and not {value}.is_finite():"
                yield "    return True"
            case inspect.StructType(cls=cls) if cls in above:
                yield f"if {again(cls)}({value}):"
                yield "    return True"
            case inspect.StructType(cls=cls, fields=fields):
                for field in fields:
                    if inner := list(_source(field.type, (*above, cls), again)):
                        yield f"{below} = {value}.{field.name}"
                        yield f"if {below} is not None:"
                        yield from _indented(inner)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                if inner := list(_source(item, (*above, None), again)):
                    yield f"for {below} in {value}:"
                    yield from _indented(inner)


def _indented(lines: list[str], levels: int = 1) -> Iterator[str]:
    return (levels * "    " + line for line in lines)


def _suspects(most: int) -> list[bool]:
    """Return what to think of an amount, by the place of its first digit (`Decimal.adjusted`).

    At 0 it must be looked at more closely: NaN and the infinities give 0 as well. At all other places up to *most* it
    is sound, before the point and behind it (a list is read from its end as well); beyond there is no entry, and the
    check ends. A look into a list costs a third of two comparisons.
    """
    return [True] + [False] * (most - 1)
