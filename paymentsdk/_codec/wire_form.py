"""The form that a request has on the wire: amounts with two decimals or none, timestamps with milliseconds.

Compiled from the type of a body, when the first one is encoded.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from datetime import date, datetime
from operator import is_
from typing import get_origin

import msgspec
from msgspec import Struct, inspect

from paymentsdk import money
from paymentsdk._codec.place import below
from paymentsdk._codec.timestamps import timestamp
from paymentsdk._codec.type_walk import Marks, alternatives, entries, members_at, parts
from paymentsdk.errors import RequestInvalid

#: Takes a member; returns it as the wire wants it, the very same object if nothing changes. It raises `RequestInvalid`
#: with the place below the member; each level puts its own in front, so that a good body pays for no text.
Step = Callable[[object], object]

#: Why the type of a body is rejected: amounts would go out that nobody has looked at.
_MISPLACED = "amounts and moments of a body must be in Structs or lists, and in one type of a union only"


def compile_body(kind: type) -> Step | None:
    """Compile the wire form of a body of *kind*, or `None` where msgspec's own form is right.

    Raises:
        RequestInvalid: There are amounts or timestamps where nothing checks them.
    """
    return _step(inspect.type_info(kind))


def _step(info: inspect.Type) -> Step | None:
    """Compile the wire form of a type, or `None` where msgspec's own form is right."""
    found = [step for one in alternatives(info) if (step := _step_of(one.type, one.marks)) is not None]
    if len(found) > 1:
        raise RequestInvalid("$", _MISPLACED)
    return found[0] if found else None


def _step_of(info: inspect.Type, marks: Marks) -> Step | None:
    """Compile the wire form of a type that is no union."""
    match info:
        case inspect.NoneType():
            return None
        case _ if marks.get("day"):
            return _day
        case inspect.DecimalType():
            return _amount(above_zero="above" in marks)
        case inspect.DateTimeType():
            return timestamp
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            step = _step(item)
            return None if step is None else _list_step(step)
        case inspect.StructType(cls=cls, fields=fields):
            steps = [(f.name, f".{f.encode_name}", step) for f in fields if (step := _step(f.type)) is not None]
            return _struct_step(get_origin(cls) or cls, steps) if steps else None
        case _ if any(_step(part) is not None for _, part in parts(info)):
            raise RequestInvalid("$", _MISPLACED)
        case _:
            return None


def _amount(*, above_zero: bool) -> Step:
    least = "must be above 0" if above_zero else "an amount is not negative"

    def step(value: object) -> object:
        try:
            amount = money.exact(value)
        except ValueError as error:
            raise RequestInvalid("", str(error)) from None
        if amount.is_signed() or (above_zero and not amount):  # "-0.00" is an odd thing to send.
            raise RequestInvalid("", least)
        return amount

    return step


def _day(value: object) -> str:
    """Return a date as it is, and a moment as `timestamp` does."""
    return value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else timestamp(value)


def _list_step(step: Step) -> Step:
    def walk(value: object) -> object:
        if isinstance(value, set | frozenset):
            # It is written as a list is, so the decoder would take it.
            raise RequestInvalid("", f"expected a list, got {type(value).__name__}")
        if not isinstance(value, list | tuple):
            return value  # The decoder says what is wrong with it.
        on_wire: list[object] = []
        for i, item in enumerate(value):
            try:
                on_wire.append(item if item is None else step(item))
            except RequestInvalid as error:
                raise below(f"[{i}]", error) from None
        return value if all(map(is_, on_wire, value)) else on_wire

    return walk


def _struct_step(cls: type[Struct], steps: list[tuple[str, str, Step]]) -> Step:
    def walk(value: object) -> object:
        if not isinstance(value, cls):
            raise RequestInvalid("", f"expected {cls.__name__}, got {type(value).__name__}")
        on_wire: Struct = value
        for name, place, step in steps:
            member = getattr(value, name)
            try:
                changed = member if member is None else step(member)
            except RequestInvalid as error:
                raise below(place, error) from None
            if changed is not member:
                on_wire = copy.copy(value) if on_wire is value else on_wire
                # Past the checks of the type: a moment is text from here on.
                msgspec.structs.force_setattr(on_wire, name, changed)
        return on_wire

    return walk


def choices(body: type, path: str) -> tuple[object, ...]:
    """Return the values that may stand at *path* of a *body*, where only some may."""
    place = re.sub(r"\[[^]]*\]", "", path).removeprefix("$").removeprefix(".")
    info = inspect.type_info(body)
    found = members_at(info, place) if place else entries(info)
    return next((values for one in found if (values := getattr(one.type, "values", ()))), ())
