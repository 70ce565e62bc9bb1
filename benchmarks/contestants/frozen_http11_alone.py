"""The fast transport of version 0.2 without an engine: the comparison for the cost of a safe call."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from benchmarks.contestants import Calls, Target, http11_alone
from benchmarks.contestants.frozen_http11 import Http11Transport

NAME = "http11 of 0.2, no engine"
NOTES = ""


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return http11_alone.calls(target, Http11Transport(ssl=target.context() or True))
