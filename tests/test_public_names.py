"""The public names of the package, held by a snapshot.

After a change that is meant, and with a line in CHANGELOG.md::

    python tests/test_public_names.py > tests/public_names.txt
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from types import ModuleType

import pytest

import paymentsdk
from paymentsdk.resources.common import RequestStruct, ResponseStruct
from paymentsdk.resources.orders import TransactionsRequest
from paymentsdk.sandbox._parsing import ControlStruct

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def public_modules() -> Iterator[ModuleType]:
    """Yield the package and every module below it whose path has no underscore in front of a part."""
    yield paymentsdk
    for info in pkgutil.walk_packages(paymentsdk.__path__, "paymentsdk."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            yield importlib.import_module(info.name)


def names_of(module: ModuleType) -> list[str]:
    """Return what *module* offers: its ``__all__``, or else what it defines itself, as type checkers read it."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    names = set()
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=[*targets]):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return sorted(name for name in names if not name.startswith("_"))


def snapshot() -> str:
    """Return every public name, one in a line."""
    return "".join(f"{module.__name__}.{name}\n" for module in public_modules() for name in names_of(module))


def signatures(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what a caller of *value* reads annotations of: itself, and the public members of a class of ours."""
    if inspect.isclass(value) and value.__module__.startswith("paymentsdk"):
        yield name, value
        for member, inner in vars(value).items():
            function = getattr(inner, "__func__", None) or getattr(inner, "fget", None) or getattr(inner, "func", inner)
            if inspect.isfunction(function) and (not member.startswith("_") or member in {"__init__", "__call__"}):
                yield f"{name}.{member}", function
    elif inspect.isfunction(value):
        yield name, value


def mentions_any(hint: object, seen: set[int]) -> bool:
    """Whether ``Any`` is *hint*, or stands somewhere inside it."""
    if hint is typing.Any:
        return True
    if id(hint) in seen:
        return False
    seen.add(id(hint))
    inner = hint if isinstance(hint, list | tuple) else typing.get_args(hint)
    return any(mentions_any(part, seen) for part in inner)


def untyped(signature: object) -> list[str]:
    """Return the annotated names of *signature* whose type is ``Any``, in whole or in part."""
    own = inspect.get_annotations(signature)
    module = importlib.import_module(signature.__module__)
    found = []
    for name, annotation in own.items():
        try:
            hint = eval(annotation, vars(module)) if isinstance(annotation, str) else annotation
        except NameError:  # Imported for type checkers only: its text has to do.
            hint = typing.Any if "Any" in annotation.replace("[", " ").replace("]", " ").split() else None
        if mentions_any(hint, set()):
            found.append(name)
    return found


def test_public_names_are_those_of_the_snapshot() -> None:
    """No public name appears, moves or vanishes without somebody meaning it."""
    expected = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    difference = list(unified_diff(expected, snapshot().splitlines(), "snapshot", "package", lineterm="", n=0))

    assert [] == difference


def test_the_public_names_are_sorted() -> None:
    """A reader finds a name where it belongs."""
    assert paymentsdk.__all__ == sorted(paymentsdk.__all__)
    assert paymentsdk.__all__ == list(paymentsdk._HOMES)


def test_every_public_name_resolves() -> None:
    """Whatever a module lists can be imported from it, and is listed once."""
    for module in public_modules():
        names = names_of(module)
        assert len(names) == len(set(names)), module.__name__
        assert [] == [name for name in names if not hasattr(module, name)], module.__name__


def test_no_public_signature_says_any() -> None:
    """Every parameter, result and attribute that a user meets has a type; none is ``Any``."""
    found = {
        f"{module.__name__}.{place}: {name}"
        for module in public_modules()
        for public in names_of(module)
        for place, signature in signatures(public, getattr(module, public))
        for name in untyped(signature)
    }

    assert set() == found


def test_members_of_requests_and_answers_have_no_place() -> None:
    """They are given by their names alone: an amount does not become a reference, nor by a member that is added."""
    bases = (RequestStruct, ResponseStruct, ControlStruct)
    values = [value for module in public_modules() for value in vars(module).values()]
    structs = {value for value in values if inspect.isclass(value) and issubclass(value, bases)}

    assert len(structs) > 100
    assert set() == {struct.__name__ for struct in structs if struct.__match_args__}
    with pytest.raises(TypeError, match="positional"):
        TransactionsRequest(())


def parts(hint: object) -> Iterator[object]:
    """Yield what *hint* is made of."""
    yield hint
    for part in hint if isinstance(hint, list) else typing.get_args(hint):
        yield from parts(part)


def test_what_a_declaration_is_made_of_is_public() -> None:
    """Whoever declares an operation of their own imports nothing that is private."""
    hints = typing.get_type_hints(paymentsdk.Operation).values()
    ours = {part for hint in hints for part in parts(hint) if getattr(part, "__module__", "").startswith("paymentsdk")}
    needed = {part.__name__ for part in ours if inspect.isclass(part)}

    assert needed >= {"ErrorCode", "RetryClass"}
    assert set() == needed - set(paymentsdk.__all__)


class Loose:
    """What the test above is there to find."""

    member: dict[str, typing.Any]

    def method(self, argument: list[typing.Any] | None) -> int:
        """Take anything."""
        raise NotImplementedError

    @property
    def value(self) -> typing.Any:
        """Give anything."""
        raise NotImplementedError


def test_any_is_found_wherever_it_hides(monkeypatch) -> None:
    """In an attribute, in an argument below a list and a union, and in a property."""
    monkeypatch.setattr(Loose, "__module__", "paymentsdk")
    monkeypatch.setattr(paymentsdk, "typing", typing, raising=False)
    for function in (Loose.method, Loose.value.fget):
        monkeypatch.setattr(function, "__module__", "paymentsdk")

    found = {place: untyped(signature) for place, signature in signatures("Loose", Loose)}

    assert {"Loose": ["member"], "Loose.method": ["argument"], "Loose.value": ["return"]} == found


if __name__ == "__main__":
    print(snapshot(), end="")  # noqa: T201 - it goes into the file
