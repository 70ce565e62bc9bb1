"""SIGKILL at any moment, a restart, and nothing is half done or done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no SIGKILL")
WORKER = Path(__file__).parent / "crash_worker.py"


def killed_at_every_moment(directory: Path, *options: str) -> dict:
    """Run the worker; return what it found."""
    command = [sys.executable, str(WORKER), str(directory), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == process.returncode, process.stderr
    return json.loads(process.stdout)


def test_a_kill_at_any_statement_leaves_nothing_half_done(tmp_path):
    """Claim of the key, effect, ledger and saved response are one: all of it or none, at each of the statements."""
    result = killed_at_every_moment(tmp_path)

    assert result["kills"] > 40
    assert {} == result["wrong"]


def test_without_transactions_a_kill_is_seen(tmp_path):
    """The negative control: statements that commit by themselves leave halves, and the check finds them."""
    result = killed_at_every_moment(tmp_path, "--without-transactions", "--every-third")

    assert len(result["wrong"]) > 3


def killed_under_load(path: Path, kills: int, *options: str) -> dict:
    """Run the load; return what it found."""
    command = [sys.executable, str(WORKER.with_name("crash_load.py")), str(path), str(kills), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == process.returncode, process.stderr
    return json.loads(process.stdout)


def test_kills_under_load_lose_nothing_that_was_acknowledged(tmp_path):
    """20 kills amid 16 requests in flight, which share commits: responses were true, and keys took effect once.

    Each order has its notification, and no other has one.
    """
    result = killed_under_load(tmp_path / "sandbox.db", 20)

    assert result["acknowledged"] > 200
    assert ([], 0, []) == (result["lost"], result["doubled"], result["notified otherwise"])


def test_responses_before_their_commit_are_seen(tmp_path):
    """The negative control: a sandbox that responds first and commits later loses what it has acknowledged."""
    result = killed_under_load(tmp_path / "sandbox.db", 3, "--answer-first")

    assert result["lost"]
