"""Groups of tasks: the first error cancels the others, and no task outlives the function that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import TypeVar

from paymentsdk.errors import PaymentsError

R = TypeVar("R")
T = TypeVar("T")


async def together(work: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all of *work* concurrently, and return the results. The first error cancels the rest and is raised."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def for_each(
    accounts: Iterable[str], work: Callable[[str], Coroutine[None, None, T]], failed: dict[str, PaymentsError]
) -> dict[str, T]:
    """Do *work* for all *accounts* concurrently, and return the results. Accounts whose calls fail go to *failed*."""
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
    """Cancel *tasks*, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def work_off(
    todo: list[T],
    do: Callable[[T], Coroutine[None, None, R]],
    take: Callable[[R], Coroutine[None, None, None]],
    at_once: int,
) -> None:
    """Do the items of *todo*, the last first, *at_once* concurrently, and pass each result to *take*.

    Items that *take* adds to *todo* are done, too. No item starts while *take* runs, because results wait in memory.
    The first error cancels the rest.
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
