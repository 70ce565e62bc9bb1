"""The measured clients. Each module has a tuple `CONTESTANTS`, and imports its library at the top.

The contestants of a missing library are left out, and the result says so.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, cast

from msgspec import Struct


class Target(Struct, frozen=True):
    """Where to connect.

    Attributes:
        base_url: Scheme, host and port.
        authority: The file of the certificate authority to trust; empty without TLS.
    """

    base_url: str
    authority: str = ""

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or ``None`` without TLS."""
        return ssl.create_default_context(cafile=self.authority) if self.authority else None


class Calls(NamedTuple):
    """One call of each kind. Each returns the typed response."""

    get: Callable[[], Awaitable[object]]
    post: Callable[[], Awaitable[object]]


class Contestant(NamedTuple):
    """A measured client.

    Attributes:
        name: The name in results.
        connect: Opens the client, yields its calls, and closes it.
        note: What a reader must know about the comparison; may be empty.
    """

    name: str
    connect: Callable[[Target], AbstractAsyncContextManager[Calls]]
    note: str = ""


BASELINE = "bare aiohttp"
_MODULES = ("by_hand", "ours", "stripe_sdk", "openai_sdk", "bare_httpx")


def _contestants(module: str) -> tuple[Contestant, ...]:
    """Import *module*, and return its contestants."""
    return cast(tuple[Contestant, ...], importlib.import_module(f"{__name__}.{module}").CONTESTANTS)


def contestants() -> tuple[list[Contestant], list[str]]:
    """Return the contestants that can run here, and a note for each missing library."""
    available: list[Contestant] = []
    missing: list[str] = []
    for module in _MODULES:
        try:
            available += _contestants(module)
        except ImportError as error:
            missing.append(f"{module} was left out: {error}")
    return available, missing


def named(name: str) -> Contestant:
    """Return the contestant *name*, and import no module after its own."""
    every: Iterator[Contestant] = (contestant for module in _MODULES for contestant in _contestants(module))
    return next(contestant for contestant in every if contestant.name == name)
