"""An installation that is too old for the sandbox learns what it needs."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import aiohttp.web
{change}
aiohttp.__version__ = "3.12.1"
from paymentsdk.sandbox import Sandbox
Sandbox()
"""


def run(change: str) -> subprocess.CompletedProcess[str]:
    """Make a sandbox in a process of its own, after a *change* to aiohttp."""
    command = [sys.executable, "-c", PROGRAM.format(change=change)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def test_an_aiohttp_that_is_too_old_is_named() -> None:
    """The error says which version is needed, and which one is there; with what it needs, the sandbox is made."""
    old, new = run("del aiohttp.web.RequestKey"), run("")

    assert "ImportError: the sandbox needs aiohttp 3.14.4 or later, and 3.12.1 is installed" in old.stderr
    assert (1, 0) == (old.returncode, new.returncode)
