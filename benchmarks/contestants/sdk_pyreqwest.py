"""paymentsdk over its other transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from benchmarks.contestants.sdk import calls
from paymentsdk import PaymentsClient
from paymentsdk.transports.pyreqwest import PyreqwestTransport

NAME = "paymentsdk, pyreqwest"
NOTES = "paymentsdk, pyreqwest: the CPU time of the threads that pyreqwest runs in is counted with it"


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set the client up."""
    authority = Path(target.authority).read_bytes() if target.authority else None  # noqa: ASYNC240 - before the race
    transport = PyreqwestTransport(ca=authority, limit=1_000)
    async with PaymentsClient(payloads.TOKEN, base_url=target.base_url, transport=transport) as client:
        yield calls(client)
