"""The two commands of README.md, and the place where one of them is run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands(page: str) -> list[str]:
    """Return the commands that *page* shows and that start from nothing."""
    return re.findall(r"^(?:\$ )?(python3 -m venv .*)$", page, re.MULTILINE)


def test_the_command_that_passes_the_tests_is_what_ci_runs() -> None:
    """README.md and .ci/run have the same line, so that what a reader copies is what was tried."""
    readme = ROOT.joinpath("README.md").read_text(encoding="utf-8")
    test_commands = [command for command in commands(readme) if "pytest" in command]

    assert 1 == len(test_commands)
    assert test_commands[0] in ROOT.joinpath(".ci/run").read_text(encoding="utf-8").splitlines()


def test_what_contributors_are_told_to_run_is_there() -> None:
    """Each path in the tables of CONTRIBUTING.md and SECURITY.md exists."""
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        codes = re.findall(r"`([^`\n]+)`", ROOT.joinpath(name).read_text(encoding="utf-8"))
        paths = {path for code in codes for path in re.findall(r"(?:tests|paymentsdk|docs)/[\w./-]+", code)}

        assert paths
        assert [] == [path for path in sorted(paths) if not ROOT.joinpath(path).exists()]
