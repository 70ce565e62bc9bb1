"""The fast transport of version 0.2 without an engine: what the price of a safe call is held against."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from benchmarks.contestants import Calls, Target, http11_alone
from benchmarks.contestants.frozen_http11 import Http11Transport

NAME = "http11 of 0.2, no engine"
NOTES = ""


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set the client up."""
    return http11_alone.calls(target, Http11Transport(ssl=target.context() or True))
