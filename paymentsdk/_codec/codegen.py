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


def compile_visitor(
    kind: type, conditions: Mapping[type, str], names: Mapping[str, object], *, trusting: bool = True
) -> Search:
    """Compile the search through the values of *kind*.

    A value in which the search itself fails counts as found.

    Args:
        kind: A Struct.
        conditions: What is looked for, by the type of the members: a Python expression, with `{0}` for the member.
        names: What the expressions refer to.
        trusting: The values are as their types say, since a decoder has made them. Otherwise, a value of another class
            counts as found.
    """
    classes: dict[str, object] | None = None if trusting else {}
    deeper: dict[str, object] = {}

    def again(part: object) -> str:
        """Return the source of the search through *part*, which holds itself; none can be as deep as its values."""
        if part == kind:
            return "search"
        name = f"again{len(deeper)}"
        deeper[name] = cache(lambda: compile_visitor(cast("type", part), conditions, names, trusting=trusting))
        return f"{name}()"

    found = list(_search(kind, (), conditions, classes, again))
    scope = {**names, **(classes or {}), **deeper}
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
    classes: dict[str, object] | None,
    again: Callable[[object], str],
) -> Iterator[str]:
    """Yield the source that searches the variable of this depth, which is not None, in what is *above* it.

    With *classes*, to which each is added under a name, the source also checks the class of every Struct and list.
    """
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
            inner = []
            for field in structs.fields(cast("type[Struct]", part)):
                if search := list(_search(field.type, (*above, part), conditions, classes, again)):
                    inner += [f"{below} = {value}.{field.name}", f"if {below} is not None:", *_indented(search)]
            yield from _guarded(value, cls, inner, classes)
        elif (
            kinds
            and cls in (list, tuple)
            and (search := list(_search(kinds[0], (*above, None), conditions, classes, again)))
        ):
            yield from _guarded(value, cls, [f"for {below} in {value}:", *_indented(search)], classes)
        elif classes is not None and any(
            # Free-form data may be anything.
            object not in _parts(inner) and list(_search(inner, above, conditions, classes, again))
            for inner in kinds
        ):
            yield "return True"  # In a Sequence, a dict and the like: whoever asks has to look more closely.


def _parts(kind: object) -> Iterator[object]:
    """Yield the types that a value of *kind* can be of."""
    if (named := getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)) is not None:
        yield from _parts(named)  # A NewType, or an alias.
    elif get_origin(kind) in (Annotated, Union, UnionType):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _guarded(value: str, cls: object, search: list[str], classes: dict[str, object] | None) -> Iterator[str]:
    if search and classes is not None:
        name = f"class{len(classes)}"
        classes[name] = cls
        yield f"if {value}.__class__ is not {name}:"
        yield "    return True"
    yield from search


def _indented(lines: Iterator[str] | list[str], levels: int = 1) -> Iterator[str]:
    return (levels * "    " + line for line in lines)
