"""httpx2, which has the same names as httpx."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import httpx2

from benchmarks.contestants import Calls, Target
from benchmarks.contestants.bare_httpx import calls

NAME = "bare httpx2"
NOTES = ""


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, httpx2)
