"""Tasks of a run: many at a time, the first error ends the others, and none outlives what has begun it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import TypeVar

from paymentsdk.errors import PaymentsError

R = TypeVar("R")
T = TypeVar("T")


async def together(work: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all of *work* at a time and return what it returns; the first error ends the rest and is raised."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def for_each(
    accounts: Iterable[str], work: Callable[[str], Coroutine[None, None, T]], failed: dict[str, PaymentsError]
) -> dict[str, T]:
    """Do *work* for all *accounts* at a time and return the results; an account whose calls fail goes to *failed*."""
    results: dict[str, T] = {}

    async def work_for(account: str) -> None:
        try:
            results[account] = await work(account)
        except PaymentsError as error:
            error.account = account or None
            failed[account] = error.with_traceback(None)

    await together(map(work_for, accounts))
    return results


async def cancel(tasks: Collection[asyncio.Task[T]]) -> None:
    """Cancel *tasks*, and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def work_off(
    todo: list[T],
    do: Callable[[T], Coroutine[None, None, R]],
    take: Callable[[R], Coroutine[None, None, None]],
    at_once: int,
) -> None:
    """Do what is *todo*, the last first and so many at a time; *take* each result. The first error ends the rest.

    What *take* adds to *todo* is done, too. As long as it takes one, nothing else is begun: results wait in memory.
    """
    running: set[asyncio.Task[R]] = set()
    ended: set[asyncio.Task[R]] = set()
    try:
        while todo or running:
            while todo and len(running) < at_once:
                running.add(asyncio.create_task(do(todo.pop())))
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                await take(task.result())
    finally:
        await cancel(running | ended)
