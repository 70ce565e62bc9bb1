"""Futures that nobody waits for any more, and those that are waited for whoever loses patience."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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


async def in_thread(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Call *function* in a thread; a cancellation waits for it: nothing ends a thread.

    What it works with, such as a file, is not to be closed under it.
    """
    working = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **keywords))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def wait_for_end(tasks: list[asyncio.Task[T]]) -> None:
    """Wait until *tasks*, which are cancelled, have ended."""
    if tasks:
        await asyncio.wait(tasks)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; `None` if none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
