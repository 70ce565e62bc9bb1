"""What the journaled calls of one client share: the journal, the platform's time, and whose turn it is."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from paymentsdk.errors import describe
from paymentsdk.journal._time import PlatformClock

if TYPE_CHECKING:
    from paymentsdk._clock import Clock
    from paymentsdk.journal._call import Later
    from paymentsdk.journal._protocol import Journal

logger = logging.getLogger("paymentsdk")


class Journaling:
    """What the journaled calls of a client share."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal: Journal = journal
        self.platform_clock: PlatformClock = PlatformClock(clock)
        self._clock = clock
        self._process = f"{os.getpid()}-{clock.key()[:16]}"
        self._count = itertools.count(1)
        self._running: dict[str, asyncio.Future[None]] = {}
        self._late: set[asyncio.Task[None]] = set()

    def owner(self) -> str:
        """Return a new owner of records: this process, and a number that no other call has."""
        return f"{self._process}/{next(self._count)}"

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[Later]:
        """Wait for the calls of this process that work on the record *key*: they know best what becomes of it.

        Yields what runs writes that the caller does not wait for. The turn ends when the last of them has been made, so
        that whoever comes next finds the record closed.
        """
        while (running := self._running.get(key)) is not None:
            await asyncio.wait((running,))
        self._running[key] = over = asyncio.get_running_loop().create_future()
        writes: list[asyncio.Task[None]] = []

        def end(*_: object) -> None:
            if not over.done() and all(write.done() for write in writes):
                del self._running[key]
                over.set_result(None)

        try:
            yield lambda write: writes.append(self._later(write))
        finally:
            for write in writes:
                write.add_done_callback(end)
            end()

    def _later(self, write: Awaitable[object]) -> asyncio.Task[None]:
        """Write to the journal while the caller goes on; closing the client waits for it."""
        task = asyncio.ensure_future(_logged(write))
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return task

    async def drain(self, grace: float) -> None:
        """Wait up to *grace* seconds for what is still being written."""
        if self._late:
            end = asyncio.ensure_future(self._clock.sleep(grace))
            writes = asyncio.gather(*self._late, return_exceptions=True)
            await asyncio.wait((end, writes), return_when=asyncio.FIRST_COMPLETED)
            end.cancel()


async def _logged(write: Awaitable[object]) -> None:
    try:
        await write
    except Exception as error:  # noqa: BLE001 - the caller has gone on; what is lost is one replay
        logger.warning("a record could not be closed in the journal: %s", describe(error))
