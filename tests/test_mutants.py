"""The mutation tool reports tests that it could not run: no score relies on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import ACCEPTED, Mutant, Trial, mutants_of

TOOL = Path(__file__).with_name("mutants.py")
MUTATED = TOOL.parents[1] / "paymentsdk" / "_resume_point.py"


def mutate(tests: Path) -> subprocess.CompletedProcess[str]:
    """Mutate a small file with these tests."""
    command = [sys.executable, str(TOOL), str(MUTATED), "--tests", str(tests), "--jobs", "1"]
    return subprocess.run(command, cwd=TOOL.parents[1], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)", "ended with -9 at "),
        ("import os\ndef test_it(): os._exit(0)", "ended with 0 at "),
        ("import pytest\ndef test_it(): pytest.exit('enough')", "test_it.py::test_it: Exit('enough')"),
        ("import nothing_of_this_name", "could not be run"),
    ],
    ids=["killed", "ended", "interrupted", "not collected"],
)
def test_tests_that_could_not_be_run_give_no_score(tmp_path: Path, test: str, message: str):
    """A fork that dies while learning the lines of its tests is reported: all its mutants would survive."""
    file = tmp_path / "test_it.py"
    file.write_text(test)

    process = mutate(file)

    assert process.returncode == 3
    assert message in process.stdout + process.stderr
    assert "the goal is" not in process.stdout


def test_a_mutant_that_no_test_notices_fails_the_run(tmp_path: Path):
    """The tool names the survivors of tests that always pass."""
    file = tmp_path / "test_it.py"
    file.write_text("def test_it(): assert True")

    process = mutate(file)

    assert process.returncode == 1
    assert "survives:" in process.stdout
    assert "tests notice 0.0 %" in process.stdout


def test_a_mutant_is_tried_with_what_runs_its_line_and_then_with_what_runs_its_function():
    """Some versions of Python stop tracing a coroutine after an error was thrown into it: later lines seem not run."""
    trial = Trial([], 1)
    trial.runners = {"call.py": {10: ["a::enters", "b::unknown", ""], 12: ["c::runs"], 30: ["d::elsewhere"]}}
    trial.seconds = {"a::enters": 1.0, "c::runs": 2.0}
    mutant = Mutant("call.py", 0, 12, 12, ("run", 10), range(10, 15), "")

    assert ["c::runs", "a::enters"] == trial.chosen(mutant, trial.seconds)


def test_each_accepted_mutant_can_still_be_made():
    """The reason for an accepted survivor expires when its line changes."""
    accepted = {line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")}
    paths = {TOOL.parents[1] / line.partition(" ")[0] for line in accepted}

    assert accepted <= {mutant.name for path in paths for mutant in mutants_of(path, None)}
