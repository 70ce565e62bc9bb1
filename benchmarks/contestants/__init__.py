"""The measured clients: one module each, all with the same three names.

- ``NAME``: the name in results.
- ``connect(target)``: an asynchronous context manager that sets the client up, yields its :class:`Calls`, closes it.
- ``NOTES``: what a reader must know about the comparison; may be empty.

A module imports its library at the top. A module without its library is left out, and the result says so.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import NamedTuple, Protocol, cast

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


class Contestant(Protocol):
    """The three names of a module."""

    NAME: str
    NOTES: str

    def connect(self, target: Target) -> AbstractAsyncContextManager[Calls]:
        """Set up the client."""
        ...


BASELINE = "bare aiohttp"
#: From the lowest possible cost of a call to the whole call, on the fast and on the default transport.
PARTS = ("floor", "http11, no engine", "paymentsdk, http11", "aiohttp by hand", "aiohttp, no engine", "paymentsdk")
_MODULES = (
    "bare_aiohttp",
    "fair_aiohttp",
    "sdk",
    "sdk_http11",
    "aiohttp_alone",
    "http11_alone",
    "frozen_http11_alone",
    "aiohttp_by_hand",
    "bare_wreq",
    "bare_pyreqwest",
    "sdk_session",
    "naive",
    "stripe_aiohttp",
    "stripe_httpx",
    "openai_aiohttp",
    "openai_default",
    "bare_httpx",
    "bare_httpx2",
    "floor",
)


def contestants() -> tuple[list[Contestant], list[str]]:
    """Return the contestants that can run here, and a note for each of the others."""
    available: list[Contestant] = []
    missing: list[str] = []
    for name in _MODULES:
        try:
            available.append(_checked(importlib.import_module(f"{__name__}.{name}")))
        except ImportError as error:
            missing.append(f"{name} was left out: {error}")
    return available, missing


def _checked(module: ModuleType) -> Contestant:
    for name in Contestant.__annotations__:
        if not hasattr(module, name):
            raise TypeError(f"{module.__name__} has no {name}")
    return cast(Contestant, module)
