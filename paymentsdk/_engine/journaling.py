"""What the journaled calls of one client share: the journal, the platform's time, and whose turn it is."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from paymentsdk.errors import JournalUnavailable, PaymentsError, describe
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
        self._running: dict[str, Turn] = {}
        self._late: set[asyncio.Future[object]] = set()

    def owner(self) -> str:
        """Return a new owner of records: this process, and a number that no other call has."""
        return f"{self._process}/{next(self._count)}"

    def turn(self, key: str) -> Turn:
        """Return what waits for the calls of this process that work on the record *key*."""
        return Turn(key, self._running, self._late)

    async def drain(self, grace: float) -> None:
        """Wait up to *grace* seconds for what is still being written."""
        if self._late:
            end = asyncio.ensure_future(self._clock.sleep(grace))
            writes = asyncio.gather(*self._late, return_exceptions=True)
            await asyncio.wait((end, writes), return_when=asyncio.FIRST_COMPLETED)
            end.cancel()


class Turn:
    """The turn of one call at the record *key*: calls before it in this process know best what becomes of it.

    Entered, it gives what runs writes that the caller does not wait for. It is over when the last of them has been
    made, so that whoever comes next finds the record closed.
    """

    __slots__ = ("_key", "_late", "_left", "_over", "_running")

    def __init__(self, key: str, running: dict[str, Turn], late: set[asyncio.Future[object]]) -> None:
        self._key = key
        self._running = running
        self._late = late
        self._left = 1
        self._over: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Later:
        while (before := self._running.get(self._key)) is not None:
            await before.over()
        self._running[self._key] = self
        return self._write

    async def __aexit__(self, *_: object) -> None:
        self._end()

    async def over(self) -> None:
        """Wait for its end."""
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._over,))

    def _write(self, write: Callable[[], Awaitable[object]]) -> None:
        try:
            written = asyncio.ensure_future(write())
        except PaymentsError as error:
            _warn(error)
            return
        except Exception:
            # Of a journal of one's own that is no coroutine: what is done is done.
            logger.exception("a record could not be closed in the journal")
            return
        self._left += 1
        self._late.add(written)
        written.add_done_callback(self._written)

    def _written(self, written: asyncio.Future[object]) -> None:
        self._late.discard(written)
        if not written.cancelled() and isinstance(error := written.exception(), Exception):
            _warn(error)
        self._end()

    def _end(self) -> None:
        self._left -= 1
        if not self._left:
            del self._running[self._key]
            if self._over is not None:
                self._over.set_result(None)


def _warn(error: Exception) -> None:
    # What is lost is one replay; "nothing was sent" would be wrong of it.
    why = error.reason if isinstance(error, JournalUnavailable) else describe(error)
    logger.warning("a record could not be closed in the journal: %s; recovery takes it up", why)
