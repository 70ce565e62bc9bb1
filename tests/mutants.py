"""Mutates the functions that a change touches, and compares the mutants that survive with those that are accepted.

`nox -s mutants` looks at what differs from the base of `main` (from the last commit, on `main` itself);
`nox -s mutants -- BASE` at what differs from BASE; `nox -s mutants -- --all` at all of what pyproject.toml mutates.

It fails for a survivor that mutants.txt does not list, and for one that is listed there and does not survive any more.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ACCEPTED = Path(__file__).with_name("mutants.txt")
#: What `mutmut results` calls a mutant that no test has found out.
UNNOTICED = {"survived", "no tests", "suspicious"}
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_NUMBER = re.compile(r"__mutmut_\d+\Z")


class Mutant(NamedTuple):
    """A mutant: the function as mutmut names it, and its changed lines before and after, without their indent."""

    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.function}\n- {self.before}\n+ {self.after}"


# --- which functions --------------------------------------------------------------------------------------------------


def changed_lines(diff: str) -> dict[str, set[int]]:
    """Read which lines of which files are new in *diff*, which has no context; a deletion touches the line before it.

    Args:
        diff: The output of `git diff -U0`.
    """
    lines: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif hunk := _HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + max(count, 1)))
    return lines


def functions(source: str, module: str, lines: set[int]) -> Iterator[str]:
    """Yield the patterns of the mutants of each function of *module* that has one of *lines*."""
    for node in ast.parse(source).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for function in inner:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
                if lines & set(range(first, (function.end_lineno or first) + 1)):
                    prefix = f"xǁ{node.name}ǁ" if isinstance(node, ast.ClassDef) else "x_"
                    yield f"{module}.{prefix}{function.name}__mutmut_*"


def patterns(diff: str) -> list[str]:
    """Return the patterns of the mutants of all functions that *diff* touches and that still exist."""
    found: list[str] = []
    for path, lines in changed_lines(diff).items():
        if path.startswith("paymentsdk/") and path.endswith(".py") and Path(path).exists():
            module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            found += functions(Path(path).read_text(encoding="utf-8"), module, lines)
    return found


# --- which mutants ----------------------------------------------------------------------------------------------------


def mutant(name: str, diff: str) -> Mutant:
    """Read the mutant *name* from its diff."""
    before, after = (
        " ".join(line[1:].strip() for line in diff.splitlines() if line.startswith(sign) and line[:3] != sign * 3)
        for sign in "-+"
    )
    return Mutant(_NUMBER.sub("", name), before, after)


def accepted(text: str) -> set[Mutant]:
    """Read the list: a function, the line before and after, the reason in any number of lines, an empty line.

    Raises:
        ValueError: An entry lacks one of them.
    """
    found = set()
    for entry in re.split(r"\n\n+", "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip()):
        match entry.split("\n"):
            case [function, before, after, reason, *_] if before[:2] == "- " and after[:2] == "+ " and reason.strip():
                found.add(Mutant(function, before[2:], after[2:]))
            case [""]:
                continue
            case _:
                raise ValueError(f"an entry is a function, its line before and after, and a reason: {entry!r}")
    return found


def differences(survivors: set[Mutant], listed: set[Mutant], run: Sequence[str]) -> list[str]:
    """Say which survivors are not listed, and which listed mutants of the functions that were *run* do not survive."""
    gone = {one for one in listed if any(fnmatch(f"{one.function}__mutmut_1", pattern) for pattern in run)} - survivors
    return [f"a mutant survives:\n{one}" for one in sorted(survivors - listed)] + [
        f"it is listed, and does not survive any more:\n{one}" for one in sorted(gone)
    ]


# --- what is run ------------------------------------------------------------------------------------------------------


def output(*command: str) -> str:
    """Run *command*, and return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def base() -> str:
    """Return the commit that a change is compared with."""
    common = output("git", "merge-base", "HEAD", "main").strip()
    return common if common != output("git", "rev-parse", "HEAD").strip() else "HEAD~1"


def unnoticed(run: Sequence[str]) -> Iterator[Mutant]:
    """Yield the mutants of *run* that no test has noticed."""
    for line in output("mutmut", "results").splitlines():
        name, _, status = line.strip().rpartition(": ")
        if status in UNNOTICED and any(fnmatch(name, pattern) for pattern in run):
            yield mutant(name, output("mutmut", "show", name))


def main(arguments: Iterable[str]) -> int:
    """Mutate what *arguments* ask for; return the exit status."""
    wanted = [*arguments]
    if wanted == ["--all"]:
        run = ["paymentsdk.*"]
    elif wanted and all("__mutmut_" in one or one.endswith("*") for one in wanted):
        run = wanted
    else:
        run = patterns(output("git", "diff", "-U0", wanted[0] if wanted else base(), "--", "paymentsdk"))
    if not run:
        sys.stdout.write("no function of the package has changed\n")
        return 0
    subprocess.run(["mutmut", "run", *run], check=True)
    found = differences({*unnoticed(run)}, accepted(ACCEPTED.read_text(encoding="utf-8")), run)
    sys.stdout.write("\n\n".join(found or ["no mutant survives that is not accepted"]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
