"""paymentsdk over its fast transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from benchmarks.contestants.sdk import calls
from paymentsdk import Http11Transport, PaymentsClient

NAME = "paymentsdk, http11"
NOTES = ""


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    transport = Http11Transport(ssl=target.context() or True)
    async with PaymentsClient(payloads.TOKEN, base_url=target.base_url, transport=transport) as client:
        yield calls(client)
