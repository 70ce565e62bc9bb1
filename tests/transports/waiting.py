"""Ways to wait for a place in a pool that are not as careful as ours."""

from __future__ import annotations

import asyncio

from paymentsdk import SendFailed
from paymentsdk.transports._pool import Pool
from tests.transports.http11 import turns


async def wait_for_a_turn(pool: Pool, within: float | None) -> float | None:
    """Look again in each turn of the loop, as if there were no queue."""
    while not pool.enter():
        await turns(1)
    return within


async def wait_and_forget(pool: Pool, within: float | None) -> float | None:
    """Wait for a place, and lose it with whoever is cancelled as it comes."""
    place = pool.loop.create_future()
    pool._waiting[place] = None
    try:
        async with asyncio.timeout(within):
            await place
    except TimeoutError:
        raise SendFailed("no connection in time", sent=False) from None
    return within


async def wait_for_ever(pool: Pool, within: float | None, wait=Pool.wait) -> float | None:
    """Wait for a place as long as it takes."""
    return await wait(pool, None)
