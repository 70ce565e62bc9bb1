"""Futures that nobody waits for any more, and those that are waited for whoever loses patience."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_exception(ended: asyncio.Future[Any]) -> None:
    """Look how *ended* has ended: else asyncio would log, perhaps much later, that nobody did."""
    if not ended.cancelled():
        ended.exception()


async def wait_for_one(*futures: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until one of *futures* has ended, also when that is cancelled, and return the cancellation to raise then.

    It lets the event loop run, also where one has ended before: what follows that end comes first.
    A cancel scope of anyio cancels again at every wait, so that whoever leaves it could wait for nothing.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancelled = error
        if any(future.done() for future in futures):
            return cancelled
