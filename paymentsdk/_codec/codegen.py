"""A look at every value of some type within a Struct, at whatever depth: at the amounts of an answer, for example.

The way through the members is written as Python source and compiled, as dataclasses are: the interpreter takes an
attribute that is named in the source twice as fast as one that is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from inspect import isclass
from types import UnionType
from typing import Annotated, Union, cast, get_args, get_origin

from msgspec import Struct, structs

#: Says whether what is looked for is found in a value.
Search = Callable[[object], bool]


def compile_visitor(kind: type, conditions: Mapping[type, str], names: Mapping[str, object]) -> Search:
    """Compile the search through the values of *kind*, which are as their types say, since a decoder has made them.

    A value in which the search itself fails counts as found.

    Args:
        kind: A Struct.
        conditions: What is looked for, by the type of the members: a Python expression, with `{0}` for the member.
        names: What the expressions refer to.
    """
    deeper: dict[str, object] = {}

    def again(part: object) -> str:
        """Return the source of the search through *part*, which holds itself; none can be as deep as its values."""
        if part == kind:
            return "search"
        name = f"again{len(deeper)}"
        deeper[name] = cache(lambda: compile_visitor(cast("type", part), conditions, names))
        return f"{name}()"

    found = list(_search(kind, (), conditions, again))
    scope = {**names, **deeper}
    # Defaults of arguments are found faster than globals.
    given = "".join(f", {name}={name}" for name in scope)
    lines = [
        f"def search(v0{given}):",
        "    try:",
        *_indented(found, 2),
        "        return False",
        "    except Exception:",
        "        return True",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - the source holds nothing but names of members and *conditions*
    return cast("Search", scope["search"])


def _search(
    kind: object,
    above: tuple[object, ...],
    conditions: Mapping[type, str],
    again: Callable[[object], str],
) -> Iterator[str]:
    """Yield the source that searches the variable of this depth, which is not None, in what is *above* it."""
    value, below = f"v{len(above)}", f"v{len(above) + 1}"
    for part in _parts(kind):
        cls = get_origin(part) or part  # A generic Struct with its parameters is no class itself.
        kinds = get_args(part)
        if isclass(part) and part in conditions:
            yield f"if {conditions[part].format(value)}:"
            yield "    return True"
        elif isclass(cls) and part in above:
            yield f"if {again(part)}({value}):"
            yield "    return True"
        elif isclass(cls) and issubclass(cls, Struct):
            for field in structs.fields(cast("type[Struct]", part)):
                if search := list(_search(field.type, (*above, part), conditions, again)):
                    yield f"{below} = {value}.{field.name}"
                    yield f"if {below} is not None:"
                    yield from _indented(search)
        elif kinds and cls in (list, tuple) and (search := list(_search(kinds[0], (*above, None), conditions, again))):
            yield f"for {below} in {value}:"
            yield from _indented(search)


def _parts(kind: object) -> Iterator[object]:
    """Yield the types that a value of *kind* can be of."""
    if (named := getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)) is not None:
        yield from _parts(named)  # A NewType, or an alias.
    elif get_origin(kind) in (Annotated, Union, UnionType):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _indented(lines: Iterator[str] | list[str], levels: int = 1) -> Iterator[str]:
    return (levels * "    " + line for line in lines)
