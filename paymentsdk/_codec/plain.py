"""Whether a body is plain: just what its own bytes would be read as. Nearly every body is.

The check is written as Python source for each type and compiled, as dataclasses are. It says yes only where every
member is of exactly its declared class and keeps all of its constraints; whatever it does not know is not plain. Then
`BodyEncoder` takes the long way, which finds the form that the wire wants, or the place and the rule that is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from typing import cast, get_origin

from msgspec import inspect

from paymentsdk import money
from paymentsdk._codec.codegen import Check, compile_function, indented

#: What the source refers to.
_NAMES: dict[str, object] = {
    "Decimal": Decimal,
    "StrEnum": StrEnum,
    "cents": Decimal("0.01"),
    "one": Decimal(1),
    "zero": money.ZERO,
    "most": Decimal(10**money.MOST_DIGITS),
}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def compile_plain(kind: type) -> Check:
    """Compile the check of bodies of *kind*. A value in which the check itself fails is not plain."""
    names = dict(_NAMES)
    found = list(_unless(inspect.type_info(kind), 0, names))
    lines = ["try:", *indented(found), "    return True", "except Exception:", "    return False"]
    return cast("Check", compile_function("v0", lines, names))


def _unless(info: inspect.Type, depth: int, names: dict[str, object]) -> Iterator[str]:
    """Yield the source that returns False unless the variable of this *depth* is a plain value of *info*.

    It looks at unions itself, and not by `alternatives`: it has to know whether null is all that there is beside.
    """
    value, below = f"v{depth}", f"v{depth + 1}"
    match info:
        case inspect.Metadata(type=inner):
            yield from _unless(inner, depth, names)
        case inspect.UnionType(types=types):
            others = [one for one in types if not isinstance(one, inspect.NoneType)]
            # Which of several types a value is, the long way finds out.
            found = _unless(others[0], depth, names) if len(others) == 1 < len(types) else iter(["return False"])
            yield f"if {value} is not None:"
            yield from indented(found)
        case inspect.StructType(cls=cls, fields=fields):
            yield from _reject(f"{value}.__class__ is not {_named(get_origin(cls) or cls, names)}")
            for field in fields:
                yield f"{below} = {value}.{field.name}"
                yield from _unless(field.type, depth + 1, names)
            if hasattr(cls, "__post_init__"):
                yield f"{value}.__post_init__()"  # The rules across its members, some of which can be changed.
        case inspect.ListType(item_type=item):
            yield from _reject(f"{value}.__class__ is not list", *_lengths(info, value))
            yield f"for {below} in {value}:"
            yield from indented(_unless(item, depth + 1, names))
        case inspect.StrType(pattern=pattern):
            other = [] if pattern is None else [f"{_named(re.compile(pattern).search, names)}({value}) is None"]
            yield from _reject(f"{value}.__class__ is not str", *_lengths(info, value), *other)
        case inspect.IntType(multiple_of=None):
            bounds = {sign: getattr(info, name) for name, sign in _BOUNDS.items()}
            broken = [f"not {value} {sign} {bound}" for sign, bound in bounds.items() if bound is not None]
            yield from _reject(f"{value}.__class__ is not int", *broken)
        case inspect.DecimalType():
            # The form on the wire: two decimals or none.
            form = f"not ({value}.same_quantum(cents) or {value}.same_quantum(one))"
            yield from _reject(f"{value}.__class__ is not Decimal", form, f"not zero < {value} < most")
        case inspect.BoolType():
            yield from _reject(f"{value}.__class__ is not bool")
        case inspect.LiteralType(values=values) if all(isinstance(one, str) for one in values):
            text = f"{value}.__class__ is not str and not isinstance({value}, StrEnum)"
            yield from _reject(text, f"{value} not in {_named(frozenset(values), names)}")
        case _:
            yield "return False"


def _reject(*broken: str) -> Iterator[str]:
    yield f"if {' or '.join(broken)}:"
    yield "    return False"


def _lengths(info: inspect.StrType | inspect.ListType, value: str) -> Iterator[str]:
    if info.min_length:
        yield f"len({value}) < {info.min_length}"
    if info.max_length is not None:
        yield f"len({value}) > {info.max_length}"


def _named(thing: object, names: dict[str, object]) -> str:
    """Give *thing* a name in the source."""
    name = f"n{len(names)}"
    names[name] = thing
    return name
