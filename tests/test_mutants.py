"""The tool that mutates the package says when it could not look: no score stands on tests that were not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("mutants.py")
MUTATED = TOOL.parents[1] / "paymentsdk" / "_resume_point.py"


def mutate(tests: Path) -> subprocess.CompletedProcess[str]:
    """Mutate a small file, with these tests."""
    command = [sys.executable, str(TOOL), str(MUTATED), "--tests", str(tests), "--jobs", "1"]
    return subprocess.run(command, cwd=TOOL.parents[1], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)", "ended with -9 at "),
        ("import os\ndef test_it(): os._exit(0)", "ended with 0 at "),
        ("import nothing_of_this_name", "could not be run"),
    ],
    ids=["killed", "ended", "not collected"],
)
def test_tests_that_could_not_be_run_give_no_score(tmp_path: Path, test: str, told: str):
    """A fork that dies while it learns which test runs which line takes its tests along: all mutants would survive."""
    file = tmp_path / "test_it.py"
    file.write_text(test)

    done = mutate(file)

    assert done.returncode == 3
    assert told in done.stdout + done.stderr
    assert "the goal is" not in done.stdout


def test_a_mutant_that_no_test_notices_fails_the_run(tmp_path: Path):
    """Tests that pass whatever the package does are told by name of what survives."""
    file = tmp_path / "test_it.py"
    file.write_text("def test_it(): assert True")

    done = mutate(file)

    assert done.returncode == 1
    assert "survives:" in done.stdout
    assert "tests notice 0.0 %" in done.stdout
