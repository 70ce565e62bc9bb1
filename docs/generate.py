"""Writes the pages of docs/reference from the declarations that the code runs on.

::

    python -m docs.generate            write the pages
    python -m docs.generate --check    exit with 1, and the names of the pages, if one is not what would be written
"""

from __future__ import annotations

import inspect as python
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

from msgspec import NODEFAULT, Struct, inspect

from paymentsdk import OPERATIONS, Operation, Pager, PaymentsClient, RetryPolicy, Timeout, errors
from paymentsdk.errors import error_class

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `python -m docs.generate`. Change the declarations, not this page. -->"

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


def section(doc: str | None, title: str) -> dict[str, str]:
    """Return the entries below *title* (``Args:``, ``Attributes:``) of a docstring, by name."""
    lines = iter(python.cleandoc(doc or "").splitlines())
    entries: dict[str, list[str]] = {}
    name = ""
    if not any(line == f"{title}:" for line in lines):
        return {}
    for line in lines:
        if line and not line.startswith(" "):
            break
        if entry := re.match(r"    (\*{0,2}\w+): (.*)", line):
            name = entry[1]
            entries[name] = [entry[2]]
        elif name:
            entries[name].append(line)
    return {name: markdown(" ".join(text)) for name, text in entries.items()}


def opening(doc: str | None) -> str:
    """Return what a docstring says before its sections."""
    text = python.cleandoc(doc or "").split("\n\n")
    return "\n\n".join(markdown(part) for part in text if not re.match(r"\w+:\n| {4}|>>>", part))


# --- types ---------------------------------------------------------------------------------------------------------


def kind(info: inspect.Type) -> str:
    """Say in words what a value of a type is."""
    match info:
        case inspect.Metadata(type=inner, extra=extra):
            return kind(inner) + (f" above {extra['above']}" if extra and "above" in extra else "")
        case inspect.UnionType(types=types):
            return " or ".join(kind(one) for one in types if not isinstance(one, inspect.NoneType))
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            return joined("text", span(least, most, "character"), pattern and f"like {code(pattern)}")
        case inspect.IntType(ge=least, le=most):
            return joined("whole number", span(least, most))
        case inspect.LiteralType(values=values):
            return " or ".join(code(value) for value in values)
        case inspect.EnumType(cls=cls):
            return ", ".join(code(value) for value in cls)
        case inspect.ListType(item_type=item, min_length=least, max_length=most):
            return joined(listed(item), span(least, most, "entry"))
        case inspect.VarTupleType(item_type=item):
            return listed(item)
        case inspect.StructType():
            return "object"
        case _:
            return _PLAIN[type(info)]


_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.DateTimeType: "moment",
    inspect.DecimalType: "amount",
    inspect.DictType: "any object",
}


def joined(*parts: str | None) -> str:
    """Return those of the parts that say something, in one line."""
    return ", ".join(filter(None, parts))


def listed(item: inspect.Type) -> str:
    """Say what a list holds; objects have rows of their own."""
    return "list" if isinstance(item, inspect.StructType) else f"list of {kind(item)}"


def span(least: int | None, most: int | None, unit: str = "") -> str:
    """Say how many there may be."""
    if least is None and most is None:
        return ""
    if least == most:
        text = f"exactly {most}"
    elif most is None:
        text = f"{least} or more"
    else:
        text = f"{least} to {most}" if least is not None else f"at most {most}"
    plural = {"entry": "entries"}.get(unit, f"{unit}s")
    return f"{text} {unit if most == 1 else plural}".rstrip() if unit else text


def below(info: inspect.Type) -> tuple[str, inspect.StructType | inspect.TypedDictType] | None:
    """Return the object that a value is or holds, and what stands between a member and its own."""
    match info:
        case inspect.StructType() | inspect.TypedDictType():
            return ".", info
        case inspect.Metadata(type=inner):
            return below(inner)
        case inspect.UnionType(types=types):
            return next(filter(None, map(below, types)), None)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            held = below(item)
            return held and ("[]" + held[0], held[1])
        case _:
            return None


def members(of: type, place: str = "") -> Iterator[list[str]]:
    """Yield a row for each member of a type, and of the objects in it: place, kind, whether required, and meaning."""
    held = below(inspect.type_info(of))
    if held is None:
        raise TypeError(f"{of} has no members")
    meanings = section(of.__doc__, "Attributes")
    for member in held[1].fields:
        row = [code(place + member.encode_name), kind(member.type), meanings.get(member.name, "")]
        yield [row[0], row[1], "yes" if member.required else "", row[2]]
        if inner := below(member.type):
            yield from members(inner[1].cls, f"{place}{member.encode_name}{inner[0]}")


# --- pages ---------------------------------------------------------------------------------------------------------

ABOUT_OPERATIONS = """\
Every operation of the platform, as `paymentsdk.OPERATIONS` declares it; the numbers are the sections of the contract.
What comes back is in [Answers](answers.md), what is refused in [Errors and codes](errors.md), what is sent again in
[Why a failed write has three outcomes](../explanation/why-three-outcomes.md)."""

ABOUT_ANSWERS = """\
Every member can be `None`, except where a value has no meaning without its `id`. Members that the platform adds later
are ignored; values that it adds to a list of values are kept as they come. Amounts are exact `Decimal`s, moments are
`datetime`s with a zone."""

ABOUT_CODES = """\
`error.code` is the text in the second column, and `error.meaning` that in the third. A code that is not listed here is
kept as it came. A 5xx raises `ServerError` after a read; after a write the outcome is unknown."""


def operations() -> str:
    """Write what can be asked, and what goes out."""
    rows = (
        [f"[{code(o.name)}](#{o.name.replace('.', '')})", code(f"{o.method} {o.path}"), o.summary, o.retry.value]
        for o in OPERATIONS.values()
    )
    parts = ["# Operations", ABOUT_OPERATIONS, table(["Operation", "Request", "", "Sent again as"], rows)]
    for operation in OPERATIONS.values():
        parts += [f"## {operation.name}", described(operation), *tables(operation)]
    return "\n\n".join(parts)


def described(operation: Operation[object, object]) -> str:
    """Say in a few lines how an operation is called and answered."""
    answer = operation.page.item if operation.page else operation.result
    link = f"[{code(answer.__name__)}](answers.md#{answer.__name__.lower()})"
    lines = [
        f"{operation.summary} ({operation.section}).",
        "",
        f"- Request: {code(f'{operation.method} {operation.path}')}",
        f"- Answer: {operation.status}, {'pages of ' if operation.page else ''}{link}",
    ]
    if operation.keyed:
        lines.append("- Takes `idempotency_key`")
    if not operation.authenticated:
        lines.append("- Carries no token")
    return "\n".join(lines)


def tables(operation: Operation[object, object]) -> Iterator[str]:
    """Yield the tables of the members that go into the body and the query of an operation."""
    if operation.body is not None:
        optional = "" if operation.body_required else "; can be left out"
        yield f"Body: {code(operation.body.__name__)}{optional}."
        yield table(["Member", "Kind", "Required", "Meaning"], members(operation.body))
    if operation.query is not None:
        yield "Filters, beside those of [every walk](settings.md#a-walk):"
        position = [code("offset"), code("limit")]
        yield table(["Filter", "Kind"], (row[:2] for row in members(operation.query) if row[0] not in position))


def answers() -> str:
    """Write what comes back."""
    parts = ["# Answers", ABOUT_ANSWERS]
    results = dict.fromkeys(o.page.item if o.page else o.result for o in OPERATIONS.values())
    for result in results:
        parts += [f"## {result.__name__}", f"`{result.__module__}.{result.__name__}`: {opening(result.__doc__)}"]
        parts.append(table(["Member", "Kind", "Meaning"], ([row[0], row[1], row[3]] for row in members(result))))
    return "\n\n".join(parts)


def errors_and_codes() -> str:
    """Write what can be raised, and every documented code."""
    tree = python.cleandoc(errors.__doc__ or "").split("::\n\n")[1].split("\n\nA failed")[0]
    known: dict[tuple[int, str, str], list[Operation[object, object]]] = {}
    for operation in OPERATIONS.values():
        for error in operation.errors:
            known.setdefault((error.status, error.code, error.meaning), []).append(operation)
    rows = (
        [str(status), code(name), meaning, ", ".join(code(o.name) for o in raised), raised_as(status, name, raised)]
        for (status, name, meaning), raised in known.items()
    )
    attributes = (
        [code(name), code(cls.__name__), text]
        for cls in (errors.PaymentsError, errors.RequestInvalid, errors.NoAnswer, errors.APIError, errors.ErrorDetail)
        for name, text in section(cls.__doc__, "Attributes").items()
    )
    return "\n\n".join([
        "# Errors and codes",
        "```text\n" + python.cleandoc(tree) + "\n```",
        "## What an error holds",
        "An attribute is on the class that it stands beside, and on those below it.",
        table(["Attribute", "Of", "Meaning"], attributes),
        "## Documented codes",
        ABOUT_CODES,
        table(["Status", "Code", "Meaning", "Operation", "Raised as"], rows),
    ])  # fmt: skip


def raised_as(status: int, name: str, operations: Iterable[Operation[object, object]]) -> str:
    """Name the classes that a code is raised as."""
    usual = code(error_class(status, name).__name__)
    if status < 500:  # noqa: PLR2004
        return usual
    unknown = code(errors.OutcomeUnknown.__name__)
    return " or ".join(dict.fromkeys(unknown if one.writes else usual for one in operations))


def settings() -> str:
    """Write what a client can be set up with."""
    variables = re.findall(r"``(PAYMENTSDK_\w+)``", PaymentsClient.from_env.__doc__ or "")
    parts = ["# Settings", "## PaymentsClient", parameters(PaymentsClient)]
    for cls in (RetryPolicy, Timeout):
        parts += [f"## {cls.__name__}", opening(cls.__doc__), fields(cls)]
    parts += [
        "## Environment",
        "`PaymentsClient.from_env()` reads these; `paymentsdk sandbox pay` and its siblings read the first.",
        "\n".join(f"- `{name}`" for name in variables),
        "## One call",
        "`client.with_options(...)` returns a copy with other options on the same connections:",
        parameters(PaymentsClient.with_options),
        "## A walk",
        "Every `search(...)` takes these, beside its filters:",
        parameters(Pager, leave_out=("caller", "operation", "filters")),
    ]
    return "\n\n".join(parts)


def parameters(of: Callable[..., object], leave_out: Container[str] = ()) -> str:
    """Return the table of the keyword arguments of a callable."""
    meanings = section(of.__doc__, "Args")
    rows = []
    for name, parameter in python.signature(of).parameters.items():
        if name != "self" and name not in leave_out:
            default = "required" if parameter.default is parameter.empty else shown(parameter.default)
            rows.append([code(name), default, meanings[name]])
    return table(["Argument", "Default", "Meaning"], rows)


def fields(of: type[Struct]) -> str:
    """Return the table of the members of a setting."""
    meanings = section(of.__doc__, "Attributes")
    info = inspect.type_info(of)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{of} is not a Struct")
    rows = ([code(field.name), shown(field.default), meanings[field.name]] for field in info.fields)
    return table(["Member", "Default", "Meaning"], rows)


def shown(default: object) -> str:
    """Return a default as it is written."""
    if isinstance(default, timedelta):
        return f"{default / timedelta(hours=1):g} hours"
    return "" if default is NODEFAULT or default is None else code(default)


PAGES: dict[str, Callable[[], str]] = {
    "operations.md": operations,
    "answers.md": answers,
    "errors.md": errors_and_codes,
    "settings.md": settings,
}


def main(arguments: list[str]) -> None:
    """Write the pages, or check them."""
    stale = []
    for name, page in PAGES.items():
        path = REFERENCE / name
        title, _, rest = page().partition("\n\n")
        text = f"{title}\n\n{NOTE}\n\n{rest}\n"
        if arguments != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        sys.exit(f"not up to date, run `python -m docs.generate`: {', '.join(stale)}")


if __name__ == "__main__":
    main(sys.argv[1:])
