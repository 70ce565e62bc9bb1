"""Futures that no task awaits any more, and futures that are awaited despite cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def retrieve_exception(ended: asyncio.Future[Any]) -> None:
    """Retrieve the exception of *ended*; otherwise asyncio would log later that it was never retrieved."""
    if not ended.cancelled():
        ended.exception()


async def wait_for_one(*futures: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until one of *futures* has ended, despite cancellations, and return the cancellation to raise then.

    The event loop always gets a turn, even if a future has ended before, so that its callbacks run first. It catches
    repeated cancellations: a cancel scope of anyio cancels again at every wait.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancelled = error
        if any(future.done() for future in futures):
            return cancelled


async def in_thread(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Call *function* in a thread. A cancellation waits for it, since a thread cannot be stopped.

    So the resources of the function, such as a file, are not closed while it runs.
    """
    working = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **keywords))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def wait_for_end(tasks: list[asyncio.Task[T]]) -> None:
    """Wait until the cancelled *tasks* have ended."""
    if tasks:
        await asyncio.wait(tasks)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; `None` without a loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
