"""stripe-python over aiohttp; requests a payment intent."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import aiohttp
from stripe import AIOHTTPClient

from benchmarks.contestants import Calls, Target
from benchmarks.contestants.stripe_httpx import calls

NAME = "stripe, aiohttp"
NOTES = "stripe: `v1.payment_intents` of stripe-python, its own defaults, a response of the same size as an order"


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    context = target.context()
    return calls(target, AIOHTTPClient(connector=aiohttp.TCPConnector(ssl=context)) if context else AIOHTTPClient())
