"""The mutation tool finds survivors, and reports tests that it could not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import ACCEPTED, mutants_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("test", "code", "message"),
    [
        ("def test_it(): assert True", 1, "tests notice 0.0 %"),
        ("import os\ndef test_it(): os._exit(0)", 3, "ended with 0 at "),
    ],
    ids=["survivors", "not run"],
)
def test_a_run_without_a_score_or_with_survivors_fails(tmp_path: Path, test: str, code: int, message: str):
    """Tests that always pass notice nothing; a fork that dies while learning the lines of its tests is reported."""
    file = tmp_path / "test_it.py"
    file.write_text(test)
    command = [sys.executable, "tests/mutants.py", "paymentsdk/_resume_point.py", "--tests", str(file), "--jobs", "1"]

    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (code, True) == (process.returncode, message in process.stdout + process.stderr)


def test_each_accepted_mutant_can_still_be_made():
    """The reason for an accepted survivor expires when its line changes."""
    accepted = {line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")}
    paths = {ROOT / line.partition(" ")[0] for line in accepted}

    assert accepted <= {mutant.name for path in paths for mutant in mutants_of(path, None)}
