"""Compares the public names with those of the last version. The page about the upgrade must name every break.

::

    python -m tests.compatibility

`tests/surfaces` keeps the names and signatures of each version; a release adds its own file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import griffe

from paymentsdk._version import __version__

SURFACES = Path(__file__).with_name("surfaces")
#: The names of this version.
SURFACE = Path(__file__).with_name("public_names.txt")
PAGES = Path(__file__).parents[1] / "docs" / "how-to"
#: A line of a surface: a path, the rest of a class or a member, and how a method is called.
LINE = re.compile(r"(?P<path>[\w.]+)(?P<rest>.*?)(?P<mark> \[.*\])?$")


def numbers(version: str) -> list[int]:
    """Return the three numbers of a version such as `0.3.0` or `0.3.0.dev0`, for comparisons."""
    return [int(number) for number in version.split(".")[:3]]


def last_version() -> str:
    """Return the newest version before this one."""
    versions = [file.stem for file in SURFACES.glob("*.txt")]
    return max((version for version in versions if numbers(version) < numbers(__version__)), key=numbers)


def upgrade_page() -> Path:
    """Return the page about the upgrade from the last version to this one."""
    return PAGES / f"upgrade-to-{__version__.rpartition('.')[0].removesuffix('.0') or __version__}.md"


def module(lines: Iterable[str]) -> griffe.Module:
    """Return a surface as one module; the dots in the paths of its classes and functions become two underscores."""
    parsed = [LINE.fullmatch(line).group("path", "rest", "mark") for line in lines]
    classes = {path: mark for path, _, mark in parsed if mark and mark.startswith(" [class")}
    bases = {path: mark[8:-1].removeprefix("of ").split(", ") for path, mark in classes.items()}
    names = {path.rpartition(".")[2]: path.replace(".", "__") for path in bases}
    source = ["from dataclasses import dataclass"]
    for path, rest, mark in parsed:
        owner, _, name = path.rpartition(".")
        if path in bases:
            parents = ", ".join(names[base] for base in bases[path] if base in names)
            source += ["@dataclass(kw_only=True)", f"class {path.replace('.', '__')}({parents}):", "    'A class.'"]
        elif owner in bases:
            source += [f"    {text}" for text in statement(name, rest, mark or "")]
        else:
            source += statement(path.replace(".", "__"), rest, mark or "")
    modules = griffe.ModulesCollection()
    modules["paymentsdk"] = griffe.visit("paymentsdk", None, "\n".join(source), modules_collection=modules)
    return modules["paymentsdk"]


def statement(name: str, rest: str, mark: str) -> Iterator[str]:
    """Yield the source of a function, a method or a variable."""
    rest = re.sub(r"(?<== )[\w.]*<(?:[^<>']|'[^']*')*>[\w.]*", "'an object'", rest.removesuffix(" (by name)"))
    if rest.startswith("("):
        if mark.strip(" []") in {"property", "classmethod", "staticmethod"}:
            yield f"@{mark.strip(' []')}"
        yield f"def {name}{rest}: ..."
    else:
        yield f"{name}{rest}" if rest else f"{name} = ..."


def breaks(before: Iterable[str], now: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the breaks between two surfaces, by public path and name of the argument, which is empty for others."""
    breaking = {}
    for breakage in griffe.find_breaking_changes(module(before), module(now)):
        path = breakage.obj.path.removeprefix("paymentsdk.").replace("__", ".").replace(".init.", "__init__")
        parameter = breakage.old_value if isinstance(breakage.old_value, griffe.Parameter) else breakage.new_value
        name = parameter.name if isinstance(parameter, griffe.Parameter) else ""
        if not is_name_of_rest(breakage):
            breaking[path, name] = f"{breakage.kind.value}: {name}".removesuffix(": ")
    return breaking


def is_name_of_rest(breakage: griffe.Breakage) -> bool:
    """Return whether the only change is the name of `*rest`, which no caller passes by name."""
    variadic = griffe.ParameterKind.var_positional
    old, obj = breakage.old_value, breakage.obj
    gone = isinstance(old, griffe.Parameter) and old.kind is variadic
    return gone and isinstance(obj, griffe.Function) and any(parameter.kind is variadic for parameter in obj.parameters)


def untold() -> dict[str, str]:
    """Return the breaks for which no code on the page names the class, the member or the argument."""
    page = upgrade_page().read_text(encoding="utf-8")
    told = re.findall(r"`([^`\n]+)`", page)
    before = SURFACES.joinpath(f"{last_version()}.txt").read_text(encoding="utf-8").splitlines()
    now = SURFACE.read_text(encoding="utf-8").splitlines()

    def is_told(path: str, parameter: str) -> bool:
        owner, name = path.split(".")[-2:]
        place = re.compile(rf"\b{owner}\b" if owner[0].isupper() else rf"\b{name}\b")
        return any(place.search(code) or code == name or f"{parameter or name}=" in code for code in told)

    return {path: text for (path, parameter), text in breaks(before, now).items() if not is_told(path, parameter)}


if __name__ == "__main__":
    if told_nowhere := untold():
        sys.exit("\n".join(f"{path}: {text}" for path, text in told_nowhere.items()))
    sys.stdout.write(f"No break since {last_version()} that {upgrade_page().name} does not tell.\n")
