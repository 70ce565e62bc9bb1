"""Tasks that run together and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all of *work* at a time and return what it returns; the first error ends the rest and is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def cancel(tasks: Collection[asyncio.Task[T]]) -> None:
    """Cancel *tasks*, and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
