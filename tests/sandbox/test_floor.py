"""An installation that is too old for the sandbox learns what it needs."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import aiohttp.web
del aiohttp.web.RequestKey
aiohttp.__version__ = "3.12.1"
from paymentsdk.sandbox import Sandbox
Sandbox()
"""


def test_an_aiohttp_that_is_too_old_is_named() -> None:
    """The error says which version is needed, and which one is there."""
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)

    assert "ImportError: the sandbox needs aiohttp 3.14.4 or later, and 3.12.1 is installed" in process.stderr
    assert 1 == process.returncode
