"""aiohttp without its timer: the best fair baseline, since our deadline is paid for in the engine."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial

from aiohttp import ClientSession, ClientTimeout

from benchmarks.contestants import Calls, Target
from benchmarks.contestants.bare_aiohttp import calls

NAME = "aiohttp, no timer"
NOTES = "aiohttp, no timer: bare aiohttp without its timeout; the best fair baseline, with no bound of time at all"


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set the client up."""
    return calls(target, partial(ClientSession, timeout=ClientTimeout(total=None)))
