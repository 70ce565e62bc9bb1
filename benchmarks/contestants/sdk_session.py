"""paymentsdk on a program's own aiohttp session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, TCPConnector

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from benchmarks.contestants.sdk import calls
from paymentsdk import PaymentsClient

NAME = "paymentsdk, session"
NOTES = (
    "paymentsdk: over a session of its own, with its defences; paymentsdk, session: over the same `ClientSession` that "
    "bare aiohttp uses, given as `session=`"
)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    connector = TCPConnector(limit=0, ssl=target.context() or True)
    async with (
        ClientSession(connector=connector) as session,
        PaymentsClient(payloads.TOKEN, base_url=target.base_url, session=session) as client,
    ):
        yield calls(client)
