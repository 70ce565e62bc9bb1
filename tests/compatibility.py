"""Compares public signatures with the last version. The page about the upgrade must name every break.

::

    python -m tests.compatibility

It reads the last version from the history of the repository.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import griffe

#: The last commit of the last version, and the page about the changes since.
LAST = "b9ffe9973136"
PAGE = Path("docs/how-to/upgrade-to-0.2.md")


def breaks() -> dict[str, str]:
    """Return the breaks for programs that use the last version, by public path."""
    if subprocess.run(["git", "cat-file", "-e", f"{LAST}^{{commit}}"], capture_output=True, check=False).returncode:
        sys.exit(f"The last version, commit {LAST}, is not in this copy: fetch the history, `git fetch --unshallow`.")
    # griffe cannot resolve names of other packages and private names. They do not matter here.
    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    before = griffe.load_git("paymentsdk", ref=LAST, resolve_aliases=True, resolve_external=False)
    now = griffe.load("paymentsdk", search_paths=["."], resolve_aliases=True, resolve_external=False)
    breaking = {}
    for breakage in griffe.find_breaking_changes(before, now):
        public = not any(part.startswith("_") for part in breakage.obj.path.split("."))
        if public and not is_name_of_rest(breakage):
            breaking[breakage.obj.path] = breakage.explain(griffe.ExplanationStyle.VERBOSE)
    return breaking


def is_name_of_rest(breakage: griffe.Breakage) -> bool:
    """Return whether the only change is the name of `*rest`, which no caller passes by name."""
    variadic = griffe.ParameterKind.var_positional
    old, obj = breakage.old_value, breakage.obj
    gone = isinstance(old, griffe.Parameter) and old.kind is variadic
    return gone and isinstance(obj, griffe.Function) and any(parameter.kind is variadic for parameter in obj.parameters)


def untold() -> dict[str, str]:
    """Return the breaks that the page does not name, neither themselves nor their class or module."""
    page = PAGE.read_text(encoding="utf-8")

    def in_table(path: str) -> bool:
        module, _, name = path.rpartition(".")
        return any(f"| `{module}` |" in line and f"`{name}`" in line for line in page.splitlines())

    def is_told(path: str) -> bool:
        above = path.rpartition(".")[0]
        full = any(text in page for text in (f"`{path}`", f"`{path}.", f"| `{above}` | `paymentsdk."))
        return full or in_table(path) or in_table(above)

    return {path: text for path, text in breaks().items() if not is_told(path)}


if __name__ == "__main__":
    found = untold()
    if found:
        sys.exit("\n".join(f"{path}:\n{text}" for path, text in found.items()))
    sys.stdout.write(f"No break since {LAST} that {PAGE} does not tell.\n")
