"""What is wrong with a value that somebody gave by name, in words that say what to give instead."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import get_type_hints

import msgspec
from msgspec import Struct, inspect

#: Characters of a value that are repeated to whoever gave it.
_LONGEST_SHOWN = 40


def describe_mismatch(
    form: type[Struct], values: Mapping[str, object], *, one: str, many: str, leave_out: Container[str] = ()
) -> str | None:
    """Return what is wrong with the first of *values* that *form* does not take; ``None`` if each would do by itself.

    Args:
        form: The Struct that the values are for.
        values: Values by the names of members; numbers may come as text.
        one: What a member is called (``policy``).
        many: What several are called (``policies``).
        leave_out: Members that are given in another way.
    """
    hints = get_type_hints(form, include_extras=True)
    names = {field.name: field for field in msgspec.structs.fields(form) if field.name not in leave_out}
    for name, value in values.items():
        if name not in names:
            return f"there is no {one} {_shown(name)}; the {many} are {', '.join(names)}"
        try:
            msgspec.convert(value, hints[name], strict=False)
        except msgspec.ValidationError:
            wanted = _kind(inspect.type_info(hints[name]), names[name].default)
            return f"{name} is {wanted}, not {_shown(value)}"
    return None


def _kind(info: inspect.Type, example: object) -> str:
    """Say what a value may be; one that may be left out is described as it is when it is there."""
    match info:
        case inspect.Metadata(type=inner):
            return _kind(inner, example)
        case inspect.UnionType(types=types):
            return " or ".join(_kind(one, example) for one in types if not isinstance(one, inspect.NoneType))
        case inspect.LiteralType(values=values):
            *others, last = sorted(map(str, values), key=lambda value: (value != str(example), value))
            return f"{', '.join(others)} or {last}" if others else last
        case inspect.IntType(ge=least, le=most):
            return "a whole number" + _span(least, most)
        case inspect.FloatType(ge=least, le=most):
            return "a number" + _span(least, most)
        case inspect.StrType(pattern=str()):
            return f"a string such as {example}"
        case _:
            return "a string"


def _span(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least:g} to {most:.15g}"
    return "" if least is None else f" of at least {least:g}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if text.isprintable() and 0 < len(text) <= _LONGEST_SHOWN else repr(text[:_LONGEST_SHOWN])
