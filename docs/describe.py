"""Describes the docstrings, types and members of the code in Markdown."""

from __future__ import annotations

import ast
import inspect as python
import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain, pairwise
from types import ModuleType

from msgspec import inspect

from paymentsdk._codec.encode import rule_of
from paymentsdk._codec.type_walk import walk

Rows = Iterable[Iterable[str]]


# --- Markdown ------------------------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Rows) -> str:
    """Return a table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def code(text: object) -> str:
    """Return *text* in code style."""
    fence = "``" if "`" in str(text) else "`"
    return f"{fence}{text}{fence}"


def markdown(text: str) -> str:
    """Return the reStructuredText of a docstring, in one paragraph, as Markdown."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def attributes(cls: type) -> dict[str, str]:
    """Return the texts below the attributes of *cls*, in the class or in its `__init__`."""
    if cls.__module__.partition(".")[0] != "paymentsdk":  # Its source may be missing.
        return {}
    tree = _classes(cls.__module__)[cls.__name__]
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    texts = {}
    for statement, below in chain.from_iterable(map(pairwise, bodies)):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name))
                | ast.Assign(targets=[ast.Attribute(attr=name)]),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                texts[name] = markdown(text)
    return texts


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes that *module* defines, by name. The names in a module are unique."""
    tree = ast.parse(python.getsource(import_module(module)))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def opening(doc: str | None) -> str:
    """Return the part of a docstring before its sections."""
    text = python.cleandoc(doc or "").split("\n\n")
    return "\n\n".join(markdown(part) for part in text if not re.match(r"\w+:\n| {4}|>>>", part))


# --- types ---------------------------------------------------------------------------------------------------------


def kind(info: inspect.Type) -> str:
    """Describe a type in words."""
    match info:
        case inspect.Metadata(type=inner, extra=extra):
            return kind(inner) + (f" above {extra['above']}" if extra and "above" in extra else "")
        case inspect.UnionType(types=types):
            return " or ".join(
                kind(member_type) for member_type in types if not isinstance(member_type, inspect.NoneType)
            )
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            return joined("string", span(least, most, "characters"), pattern and rule_of(pattern))
        case inspect.IntType(ge=least, le=most):
            return joined("integer", span(least, most))
        case inspect.FloatType(ge=least, le=most):
            return joined("number", span(least, most))
        case inspect.LiteralType(values=values):
            return ", ".join(map(code, values))
        case inspect.EnumType(cls=cls):
            return ", ".join(map(code, cls))
        case inspect.ListType(item_type=item, min_length=least, max_length=most):
            return joined(listed(item), span(least, most, "entries"))
        case inspect.VarTupleType(item_type=item):
            return listed(item)
        case inspect.StructType(cls=cls):
            return f"object {code(cls.__name__)}"
        case _:
            return _PLAIN[type(info)]


_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "boolean",
    inspect.CustomType: "date or date-time",
    inspect.DateTimeType: "date-time",
    inspect.DecimalType: "amount",
    inspect.DictType: "any object",
}


def joined(*parts: str | None) -> str:
    """Return the non-empty parts in one line."""
    return ", ".join(filter(None, parts))


def listed(item: inspect.Type) -> str:
    """Describe a list by its items. Members of objects have separate rows."""
    return f"list of {code(item.cls.__name__) if isinstance(item, inspect.StructType) else kind(item)}"


def span(least: float | None, most: float | None, unit: str = "") -> str:
    """Describe a range of numbers or lengths."""
    if least is None and most is None:
        return ""
    bounds = f"{least or 0:g} or more" if most is None else f"{least or 0:g} to {most:.15g}"
    return f"{bounds} {unit}".rstrip()


def below(info: inspect.Type) -> tuple[str, inspect.StructType | inspect.TypedDictType] | None:
    """Return the first object in a value, and the path from the value to its members."""
    held = ((f"{position.path}.", position.type) for position in walk(info))
    return next(((place, of) for place, of in held if isinstance(of, inspect.StructType | inspect.TypedDictType)), None)


def members(of: type, place: str = "") -> Iterator[list[str]]:
    """Yield a row for each member of a type and of its objects: path, kind, required, meaning."""
    held = below(inspect.type_info(of))
    if held is None:
        raise TypeError(f"{of} has no members")
    # The class that defines an inherited member has its text.
    meanings = {name: text for cls in reversed(of.__mro__) for name, text in attributes(cls).items()}
    for member in held[1].fields:
        row = [code(place + member.encode_name), kind(member.type), meanings.get(member.name, "")]
        yield [row[0], row[1], "yes" if member.required else "", row[2]]
        if nested := below(member.type):
            yield from members(nested[1].cls, f"{place}{member.encode_name}{nested[0]}")


# --- public names -----------------------------------------------------------------------------------------------------


@cache
def names_of(module: ModuleType) -> tuple[str, ...]:
    """Return the public names of a module: the names in `__all__`, or else all names that it defines."""
    if (listed := getattr(module, "__all__", None)) is not None:
        return tuple(listed)
    names: list[str] = []
    todo = deque(ast.parse(python.getsource(module)).body)
    while todo:
        match todo.popleft():
            case ast.If(body=body):
                todo.extend(body)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.append(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
    return tuple(sorted(name for name in names if not name.startswith("_")))
