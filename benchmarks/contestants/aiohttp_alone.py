"""The default transport without the engine: its share of a call."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from benchmarks.contestants import Calls, Target
from benchmarks.contestants.http11_alone import calls
from paymentsdk import AiohttpTransport

NAME = "aiohttp, no engine"
NOTES = "aiohttp, no engine and http11, no engine: the transports with the same decoder; no check, retry or deadline"


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, AiohttpTransport(ssl=target.context() or True))
