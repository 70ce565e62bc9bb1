"""Values as the Python expressions that make them, broken over lines where they are long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from paymentsdk._secrets import MASK

#: Columns of a line.
WIDTH = 100


class Group(NamedTuple):
    """A call or a list: what opens it, its parts with the names that stand before them, what closes it."""

    opening: str
    parts: list[tuple[str, Expression]]
    closing: str


Expression: TypeAlias = "str | Group"


class Writer:
    """Writes values as expressions."""

    def __init__(self) -> None:
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        """What the expressions need: names by the module to import them from."""

    def write(self, value: object) -> Expression:
        """Return the expression that makes *value*, with a mask in place of each credential."""
        match value:
            case Struct():
                self.names[type(value).__module__].add(type(value).__name__)
                parts = [(f"{name}=", self.write(member)) for name, member in _given(value)]
                return Group(f"{type(value).__name__}(", parts, ")")
            case list() | tuple():
                return Group("[", [("", self.write(member)) for member in value], "]")
            case Decimal():
                self.names["decimal"].add("Decimal")
                return f'Decimal("{value}")'
            case datetime():
                self.names["datetime"].add("datetime")
                return f'datetime.fromisoformat("{value.isoformat()}")'
            case date():
                self.names["datetime"].add("date")
                return f'date.fromisoformat("{value.isoformat()}")'
            case str():
                return quoted(value)
            case _:
                return repr(value)


def _given(value: Struct) -> Iterator[tuple[str, object]]:
    """Yield the members that differ from what they are when they are not given."""
    hidden: frozenset[str] = getattr(value, "__secrets__", frozenset())
    for field in msgspec.structs.fields(value):
        member = getattr(value, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if member != default:
            yield field.name, MASK if field.name in hidden else member


def quoted(text: str) -> str:
    """Return *text* as a literal, in double quotes unless it holds some itself."""
    literal = repr(text)
    return literal if '"' in literal else f'"{literal[1:-1]}"'


def laid_out(expression: Expression, indent: int) -> str:
    """Return *expression* as text whose first line begins at the column *indent*."""
    flat = _flat(expression)
    if isinstance(expression, str) or indent + len(flat) <= WIDTH:
        return flat
    deeper = indent + 4
    rows = (f"{' ' * deeper}{name}{laid_out(part, deeper)},\n" for name, part in expression.parts)
    return f"{expression.opening}\n{''.join(rows)}{' ' * indent}{expression.closing}"


def _flat(expression: Expression) -> str:
    if isinstance(expression, str):
        return expression
    return expression.opening + ", ".join(name + _flat(part) for name, part in expression.parts) + expression.closing
