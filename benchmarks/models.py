"""Models of other libraries, made from the package's Structs: all decode the same members into the same types.

Each would need about three hundred lines by hand, and would drift. The smoke test checks that all models decode equal
values. The Structs with floats for amounts are here, too: they show the cost of exact amounts.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

#: Takes the name, and the type and default of each member; returns the class.
Make = Callable[[str, dict[str, tuple[Any, Any]]], type]


@functools.cache
def pydantic_model(struct: type[Struct]) -> type:
    """Return *struct* as a pydantic model."""
    import pydantic  # noqa: PLC0415 - an optional peer

    def make(name: str, members: dict[str, tuple[Any, Any]]) -> type:
        fields: dict[str, Any] = {
            member: (kind, ... if default is NODEFAULT else default) for member, (kind, default) in members.items()
        }
        model: type = pydantic.create_model(name, **fields)
        return model

    return _translate(struct, pydantic_model, make)


@functools.cache
def attrs_class(struct: type[Struct]) -> type:
    """Return *struct* as a frozen attrs class with slots."""
    import attrs  # noqa: PLC0415 - an optional peer

    def make(name: str, members: dict[str, tuple[Any, Any]]) -> type:
        fields = {
            member: attrs.field(type=kind, default=attrs.NOTHING if default is NODEFAULT else default)
            for member, (kind, default) in members.items()
        }
        return attrs.make_class(name, fields, frozen=True, slots=True, kw_only=True)

    return _translate(struct, attrs_class, make)


@functools.cache
def struct_with_floats(struct: type[Struct]) -> type:
    """Return *struct* with inexact amounts: floats for numbers, and strings for decimal strings."""

    def make(name: str, members: dict[str, tuple[Any, Any]]) -> type:
        fields = [
            (member, _inexact(kind), msgspec.field() if default is NODEFAULT else default)
            for member, (kind, default) in members.items()
        ]
        return msgspec.defstruct(name, fields, frozen=True, kw_only=True, gc=False)

    return _translate(struct, struct_with_floats, make)


def _inexact(kind: Any) -> Any:
    return float | str | None if Decimal in get_args(kind) else kind


def _translate(struct: type[Struct], nested: Callable[[type[Struct]], type], make: Make) -> type:
    hints = get_type_hints(struct)
    fields = msgspec.structs.fields(struct)
    return make(struct.__name__, {field.name: (_kind(hints[field.name], nested), field.default) for field in fields})


def _kind(hint: Any, nested: Callable[[type[Struct]], type]) -> Any:
    """Return *hint* with every Struct in it replaced."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return nested(hint)
    origin, arguments = get_origin(hint), tuple(_kind(argument, nested) for argument in get_args(hint))
    if origin in (Union, types.UnionType):
        return Union[arguments]  # noqa: UP007 - made at run time
    return origin[arguments] if origin is not None else hint
