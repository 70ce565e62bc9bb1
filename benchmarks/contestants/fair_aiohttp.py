"""aiohttp without its timer: the fairest baseline, since the engine has the cost of the deadline."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial

from aiohttp import ClientSession, ClientTimeout

from benchmarks.contestants import Calls, Target
from benchmarks.contestants.bare_aiohttp import calls

NAME = "aiohttp, no timer"
NOTES = "aiohttp, no timer: bare aiohttp without its timeout; the best fair baseline, with no bound of time at all"


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, partial(ClientSession, timeout=ClientTimeout(total=None)))
