"""openai-python with its aiohttp extra; requests a chat completion."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import aiohttp
from openai import DefaultAioHttpClient

from benchmarks.contestants import Calls, Target
from benchmarks.contestants.openai_default import calls

NAME = "openai, aiohttp"
NOTES = ""


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, DefaultAioHttpClient)


__all__ = ["NAME", "NOTES", "aiohttp", "connect"]
