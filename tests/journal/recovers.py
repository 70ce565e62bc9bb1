"""A process that recovers, and is killed meanwhile: `python -m tests.journal.recovers FILE URL TOKEN AHEAD`."""

from __future__ import annotations

import asyncio
import sys
import time

from paymentsdk import PaymentsClient
from paymentsdk.journal import SQLiteJournal


async def run(file: str, base_url: str, token: str, ahead: float) -> None:
    """Recover on a clock of the leases that is *ahead*, and end."""
    journal = SQLiteJournal(file, now=lambda: time.time() + ahead)
    async with PaymentsClient(token, base_url=base_url, journal=journal) as client:
        await client.recover()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:4], float(sys.argv[4])))
