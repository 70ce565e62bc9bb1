"""Amounts that decode and cannot be used: NaN, infinities, and numbers of a monstrous size.

They decode like any other, and each is a trap: the first comparison with NaN raises, and the first rounding of
`1e999999999` fills the memory. So every amount of every response is looked at, thousands of them in a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import TypeAlias, cast

import msgspec
from msgspec import UNSET, inspect

from paymentsdk._codec.type_walk import allows_null, alternatives, compile_function, indented

#: A compiled check of one value: names what is wrong in it.
Check: TypeAlias = Callable[[object], str | None]
#: An amount with more digits before or behind the point is a memory bomb for the first who rounds or prints it.
MOST_PLACES = 99


def read_number(text: str) -> Decimal | float:
    """Read a number with a point or an exponent, so that nothing of an amount is lost."""
    try:
        amount = Decimal(text)
    except InvalidOperation:  # An exponent of twenty digits.
        return float(text)
    # A hostile exponent stays a float: as a Decimal it would be a memory bomb for the first who rounds it.
    return amount if is_sound(amount) else float(text)


#: Reads JSON of any shape: a number that no amount can be does not make it malformed.
read_untyped = msgspec.json.Decoder(float_hook=read_number).decode


def is_sound(amount: Decimal) -> bool:
    """Return whether *amount* can be used: finite, and with no more than `MOST_PLACES` before or behind the point."""
    return amount.is_finite() and -MOST_PLACES <= amount.adjusted() < MOST_PLACES


def compile_check(kind: type) -> Check:
    """Return what names the member of a decoded value of *kind* that holds an unusable amount: `is_sound`, but fast.

    It names no member that there is, but something, where the value is no Struct or the check itself fails in it.
    """
    deeper: dict[str, object] = {}

    def again(part: type) -> str:
        """Return the source of the check of *part*, which holds itself; none can be as deep as its values."""
        if part == kind:
            return "compiled"
        name = f"again{len(deeper)}"
        deeper[name] = cache(lambda: compile_check(part))
        return f"{name}()"

    found = list(_source(inspect.type_info(kind), (), again, "*"))
    lines = ["try:", *indented(found), "    return None", "except Exception:", "    return '*'"]
    return cast("Check", compile_function("v0", lines, {"suspect": _suspects(MOST_PLACES), "UNSET": UNSET, **deeper}))


def _source(
    info: inspect.Type, above: tuple[type | None, ...], again: Callable[[type], str], member: str
) -> Iterator[str]:
    """Yield the source that checks the variable of this depth, which is not None, in what is *above* it."""
    value, below, kinds = f"v{len(above)}", f"v{len(above) + 1}", [found.type for found in alternatives(info)]
    tagged = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    for kind in kinds:
        match kind:
            case inspect.StructType(tag=tag) if len(tagged) > 1:
                # Which of them it is, its tag says, and no other has the same.
                if inner := list(_source(kind, above, again, member)):
                    yield f"if {value}.__struct_config__.tag == {tag!r}:"
                    yield from indented(inner)
            case inspect.DecimalType():
                yield f"if suspect[{value}.adjusted()] and not {value}.is_finite():"
                yield f"    return {member!r}"
            case inspect.StructType(cls=cls) if cls in above:
                yield f"if {again(cls)}({value}) is not None:"
                yield f"    return {member!r}"
            case inspect.StructType(cls=cls, fields=fields):
                for field in fields:
                    named = member if above else field.encode_name
                    if inner := list(_source(field.type, (*above, cls), again, named)):
                        yield f"{below} = {value}.{field.name}"
                        # What may be left unset is `UNSET` then, of which `inspect` says no default.
                        may_be_unset = not field.required and field.default is field.default_factory
                        yield f"if {below} is not None" + f" and {below} is not UNSET" * may_be_unset + ":"
                        yield from indented(inner)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                if inner := list(_source(item, (*above, None), again, member)):
                    yield f"for {below} in {value}:"
                    if allows_null(item):
                        yield f"    if {below} is None:"
                        yield "        continue"
                    yield from indented(inner)


def _suspects(most: int) -> list[bool]:
    """Return what to think of an amount, by the place of its first digit (`Decimal.adjusted`).

    At 0 it must be looked at more closely: NaN and the infinities give 0 as well. At all other places up to *most* it
    is sound, before the point and behind it (a list is read from its end as well); beyond there is no entry, and the
    check ends. A look into a list costs a third of two comparisons.
    """
    return [True] + [False] * (most - 1)
