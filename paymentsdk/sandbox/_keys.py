"""What the parts of the web application share: what each finds in it, and where the control API is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import aiohttp
from aiohttp import web

from paymentsdk.sandbox._platform import Platform

if not hasattr(web, "RequestKey"):  # The client alone may run with an older one.
    raise ImportError(f"the sandbox needs aiohttp 3.14.4 or later, and {aiohttp.__version__} is installed")

Route: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

PLATFORM = web.AppKey("platform", Platform)
#: Names besides those of this machine that a browser may know the control API by.
ALLOWED_HOSTS = web.AppKey("allowed_hosts", frozenset[str])
#: Set when the server stops: hangs, drips and event streams end.
STOPPING = web.AppKey("stopping", asyncio.Event)
#: Where the control API is, which has one shape of rejections whatever the interfaces have.
PREFIX = "/_sandbox/"
