"""The public names of the package, their signatures and their members are compared with a snapshot.

After an intended change with a line in CHANGELOG.md::

    python tests/test_public_names.py > tests/public_names.txt
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from difflib import unified_diff
from enum import Enum
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from types import UnionType

import pytest
from msgspec import Struct

import paymentsdk
from docs.api import public_modules
from docs.describe import names_of
from paymentsdk import OPERATIONS
from paymentsdk.resources.common import RequestStruct, ResponseStruct
from paymentsdk.resources.orders import TransactionsRequest

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def shown(value: object) -> str:
    """Return the text of a default, which is the same on each machine and in each run."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__qualname__
    if isinstance(value, frozenset):  # Its order differs from run to run.
        return f"frozenset({{{', '.join(sorted(map(str, value)))}}})"
    text = repr(value)
    return f"<{type(value).__name__}>" if " at 0x" in text else text


def written(parameter: inspect.Parameter) -> str:
    """Return a parameter as in a signature, with its type as in the source."""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = marks.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {annotation(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {shown(parameter.default)}"


def annotation(value: object) -> str:
    """Return a type as in a source, which is the same in each version of Python."""
    origin, arguments = typing.get_origin(value), typing.get_args(value)
    if isinstance(value, str | typing.ForwardRef):
        return getattr(value, "__forward_arg__", value)
    if isinstance(value, list):
        return f"[{', '.join(map(annotation, value))}]"
    if origin in (typing.Union, UnionType):
        return " | ".join(map(annotation, arguments))
    if origin in (typing.Literal, typing.Annotated):
        types = [annotation(arguments[0]) if origin is typing.Annotated else repr(arguments[0])]
        return f"{origin.__name__}[{', '.join(types + [repr(argument) for argument in arguments[1:]])}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(annotation, arguments))}]"
    return {None: "None", type(None): "None", ...: "..."}.get(value) or getattr(value, "__name__", repr(value))


def signature_of(function: Callable[..., object]) -> str:
    """Return the arguments and the result of a function, in one line."""
    signature = inspect.signature(function)
    parts, last = [], None
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and last not in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}:
            parts.append("*")
        if last is parameter.POSITIONAL_ONLY and parameter.kind is not last:
            parts.append("/")
        parts.append(written(parameter))
        last = parameter.kind
    if last is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    result = signature.return_annotation
    after = "" if result is signature.empty else f" -> {annotation(result)}"
    return f"({', '.join(parts)}){after}{' [async]' if inspect.iscoroutinefunction(function) else ''}"


def fields_of(value: type) -> Iterator[str]:
    """Yield the members of a Struct, a dataclass, a TypedDict or an enum, with their types, defaults and values."""
    if issubclass(value, Enum):
        yield from (f".{member.name} = {member.value!r}" for member in value)
    elif issubclass(value, Struct) or is_dataclass(value):
        hints = {name: hint for base in reversed(value.__mro__) for name, hint in inspect.get_annotations(base).items()}
        for parameter in inspect.signature(value).parameters.values():
            as_written = parameter.replace(
                annotation=hints[parameter.name]
            )  # Versions of Python resolve it differently.
            yield f".{written(as_written)}{' (by name)' if parameter.kind is parameter.KEYWORD_ONLY else ''}"
    else:
        hints = inspect.get_annotations(value)
        if typing.is_typeddict(value):
            hints = {name: getattr(hint, "__forward_arg__", hint) for name, hint in value.__annotations__.items()}
        yield from (f".{name}: {annotation(hint)}" for name, hint in hints.items() if not name.startswith("_"))


@cache
def public_classes() -> list[object]:
    """Return the values of all public names."""
    return [getattr(module, name) for module in public_modules() for name in names_of(module)]


def methods_of(value: type) -> Iterator[str]:
    """Yield the public methods and properties that *value* or a private base defines, and its constructor."""
    plain = not (issubclass(value, Struct | Enum) or is_dataclass(value) or typing.is_typeddict(value))
    private = [base for base in value.__mro__[:0:-1] if base.__module__.startswith("paymentsdk.")]
    owners = [base for base in private if base not in public_classes()]
    members = dict(chain.from_iterable(vars(owner).items() for owner in (*owners, value)))
    for name, member in members.items():
        kind = "property" if isinstance(member, property | cached_property) else type(member).__name__
        function = getattr(member, "__func__", None) or getattr(member, "fget", None) or getattr(member, "func", member)
        is_constructor = name == "__init__" and plain and not getattr(value, "_is_protocol", False)
        if inspect.isfunction(function) and (is_constructor or not name.startswith("_")):
            mark = "" if kind == "function" else f" [{kind}]"
            yield f".{name}{signature_of(function)}{mark}"


def described(value: object) -> Iterator[str]:
    """Yield the parts of *value* that its callers depend on."""
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base not in {object, typing.Generic}]
        yield f" [class{'' if not bases else ' of ' + ', '.join(bases)}]"
        yield from fields_of(value)
        yield from methods_of(value)
    elif inspect.isfunction(value) and value.__module__ != "paymentsdk.pytest_plugin":
        yield signature_of(value)
    else:  # A constant, a type alias, or a fixture, which is a function to some versions of pytest.
        yield ""


def snapshot() -> str:
    """Return every public name with its signature, or its members and methods, one per line."""
    return "".join(
        f"{module.__name__}.{name}{line}\n"
        for module in public_modules()
        for name in sorted(names_of(module))
        for line in described(getattr(module, name))
    )


def test_public_names_match_the_snapshot() -> None:
    """No public name, argument, member or default appears, changes or vanishes unintentionally."""
    expected = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    lines = sorted(expected), sorted(snapshot().splitlines())  # Versions of Python order the members differently.
    difference = list(unified_diff(*lines, "snapshot", "package", lineterm="", n=0))

    assert [] == difference, "if intended, run `python tests/test_public_names.py > tests/public_names.txt`"


def test_each_object_is_public_once() -> None:
    """Each name has a single place to import it from."""
    places: dict[int, list[str]] = {}
    for module in public_modules():
        for name in names_of(module):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value) or value is OPERATIONS:
                places.setdefault(id(value), []).append(f"{module.__name__}.{name}")

    assert [] == [names for names in places.values() if len(names) > 1]


def test_every_public_name_resolves() -> None:
    """Every name that a module lists can be imported from it, and is listed once."""
    for module in public_modules():
        names = names_of(module)
        assert len(names) == len(set(names)), module.__name__
        assert [] == [name for name in names if not hasattr(module, name)], module.__name__


def test_no_public_signature_says_any() -> None:
    """Every public parameter, result and attribute has a type without ``Any``."""
    lines = re.sub(r"'[^'\n]*'", "", snapshot()).splitlines()  # Without texts.

    assert [] == [line for line in lines if re.search(r"\bAny\b", line)]


def test_members_of_requests_and_responses_have_no_place() -> None:
    """They take their fields only by name: a new member never turns an amount into a reference."""
    bases = (RequestStruct, ResponseStruct)
    values = [value for module in public_modules() for value in vars(module).values()]
    structs = {value for value in values if inspect.isclass(value) and issubclass(value, bases)}

    assert len(structs) > 100
    assert set() == {struct.__name__ for struct in structs if struct.__match_args__}
    with pytest.raises(TypeError, match="positional"):
        TransactionsRequest(())


def parts(hint: object) -> Iterator[object]:
    """Yield *hint* and its parts."""
    yield hint
    for part in hint if isinstance(hint, list) else typing.get_args(hint):
        yield from parts(part)


def test_what_a_declaration_is_made_of_is_public() -> None:
    """A user can declare an operation without private imports."""
    hints = typing.get_type_hints(paymentsdk.Operation).values()
    ours = {part for hint in hints for part in parts(hint) if getattr(part, "__module__", "").startswith("paymentsdk")}
    needed = {part.__name__ for part in ours if inspect.isclass(part)}

    assert needed >= {"ErrorCode", "RetryClass"}
    assert set() == needed - set(paymentsdk.__all__)


if __name__ == "__main__":
    print(snapshot(), end="")  # noqa: T201 - it goes into the file
