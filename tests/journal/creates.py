"""A process that creates an order, and is killed meanwhile: `python -m tests.journal.creates JOURNAL URL TOKEN`."""

from __future__ import annotations

import asyncio
import sys

from paymentsdk import PaymentsClient
from paymentsdk.journal import PostgresJournal, SQLiteJournal
from tests.journal.platform import order


async def run(address: str, base_url: str, token: str) -> None:
    """Create the order."""
    journal = PostgresJournal(address) if address.startswith("postgresql:") else SQLiteJournal(address)
    async with PaymentsClient(token, base_url=base_url, journal=journal) as client:
        await client.plans.search().first()  # The record is dated by the platform.
        await client.orders.create(order("ticket-7"), once="lunch")


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:4]))
