"""Describes the docstrings, types and members of the code in Markdown."""

from __future__ import annotations

import inspect as python
import re
from collections.abc import Iterable, Iterator
from functools import cache
from symtable import symtable
from types import ModuleType

from msgspec import inspect

from paymentsdk._codec.encode import rule_of
from paymentsdk._codec.type_walk import walk
from paymentsdk._texts import texts

# --- Markdown ------------------------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def code(text: object) -> str:
    """Return *text* in code style."""
    fence = "``" if "`" in str(text) else "`"
    return f"{fence}{text}{fence}"


def markdown(text: str) -> str:
    """Return a paragraph of a docstring in one line, as Markdown."""
    return " ".join(text.split()).replace("``", "`")


def opening(doc: str | None) -> str:
    """Return the part of a docstring before its sections."""
    text = python.cleandoc(doc or "").split("\n\n")
    return "\n\n".join(markdown(part) for part in text if not re.match(r"\w+:\n| {4}|>>>", part))


# --- types ---------------------------------------------------------------------------------------------------------

_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "boolean",
    inspect.CustomType: "date or date-time",
    inspect.DateTimeType: "date-time",
    inspect.DecimalType: "amount",
    inspect.DictType: "any object",
    inspect.FloatType: "number",
    inspect.IntType: "integer",
    inspect.StrType: "string",
}


def kind(info: inspect.Type) -> str:
    """Describe a type in words. Members of objects have separate rows."""
    match info:
        case inspect.Metadata(type=inner, extra=extra):
            return kind(inner) + (f" above {extra['above']}" if extra and "above" in extra else "")
        case inspect.UnionType(types=types):
            return " or ".join(kind(of) for of in types if not isinstance(of, inspect.NoneType))
        case inspect.LiteralType(values=values) | inspect.EnumType(cls=values):
            return ", ".join(map(code, values))
        case inspect.StructType(cls=cls):
            return f"object {code(cls.__name__)}"
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            words, unit = f"list of {kind(item).removeprefix('object ')}", " entries"
        case _:
            words, unit = _WORDS[type(info)], " characters" if isinstance(info, inspect.StrType) else ""
    for lowest, highest in (("min_length", "max_length"), ("ge", "le")):
        least, most = getattr(info, lowest, None), getattr(info, highest, None)
        if most is not None:
            words += f", {least or 0:g} to {most:.15g}{unit}"
        elif least is not None:
            words += f", {least:g} or more{unit}"
    rule = rule_of(getattr(info, "pattern", None) or "")
    return f"{words}, {rule}" if rule else words


def members(of: type) -> Iterator[list[str]]:
    """Yield a row for each member of a type and of its objects: path, kind, required, meaning."""
    rows: dict[str, list[str]] = {}
    for position in walk(inspect.type_info(of)):
        if row := rows.pop(position.path, None):
            yield row
        if isinstance(position.type, inspect.StructType | inspect.TypedDictType):
            meanings = meanings_of(position.type.cls)
            for field in position.type.fields:
                path, required = f"{position.path}.{field.encode_name}", "yes" if field.required else ""
                rows[path] = [code(path[1:]), kind(field.type), required, meanings.get(field.name, "")]


def meanings_of(cls: type) -> dict[str, str]:
    """Return the texts below the members of *cls*. The class that defines an inherited member has its text."""
    # Python does not keep the bases of a TypedDict, so the documented class is found by its name.
    names = [(base.__module__, base.__name__.replace("Query", "Filters")) for base in reversed(cls.__mro__)]
    documented = [texts(module).get(name, {}) for module, name in names if module.startswith("paymentsdk")]
    return {member: markdown(text) for members in documented for member, text in members.items()}


# --- public names -----------------------------------------------------------------------------------------------------


@cache
def names_of(module: ModuleType) -> tuple[str, ...]:
    """Return the public names of a module: the names in `__all__`, or else all names that it defines."""
    if (listed := getattr(module, "__all__", None)) is not None:
        return tuple(listed)
    symbols = symtable(python.getsource(module), module.__name__, "exec").get_symbols()
    names = [symbol.get_name() for symbol in symbols if symbol.is_assigned() and not symbol.is_imported()]
    return tuple(sorted(name for name in names if not name.startswith("_")))
