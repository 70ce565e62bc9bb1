"""Tasks that run together and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable
from typing import TypeVar

A = TypeVar("A")
Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


async def together(work: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all of *work* at a time and return what it returns; the first error ends the rest and is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def answered(steps: Generator[Q, A, T], answer: Callable[[Q], Awaitable[A]]) -> T:
    """Give *steps* an answer to each of its questions, and return what it returns."""
    try:
        question = next(steps)
        while True:
            question = steps.send(await answer(question))
    except StopIteration as stop:
        result: T = stop.value
        return result


async def work_off(
    todo: list[T],
    do: Callable[[T], Coroutine[None, None, R]],
    take: Callable[[R], Awaitable[None]],
    at_once: Callable[[], int],
) -> None:
    """Do what is *todo*, the last first and so many at a time; *take* each result. The first error ends the rest.

    What *take* adds to *todo* is done, too.
    """
    running: set[asyncio.Task[R]] = set()
    done: set[asyncio.Task[R]] = set()
    try:
        while todo or running:
            while todo and len(running) < at_once():
                running.add(asyncio.create_task(do(todo.pop())))
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await take(task.result())
    finally:
        await cancel(running | done)


async def cancel(tasks: Collection[asyncio.Task[T]]) -> None:
    """Cancel *tasks*, and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
