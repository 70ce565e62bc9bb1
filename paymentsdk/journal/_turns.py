"""What the journaled calls of a client share: the journal, the platform's time, and who works on which record."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial

from paymentsdk._call.platform_clock import PlatformClock
from paymentsdk._clock import Clock
from paymentsdk._futures import wait_for_one
from paymentsdk.errors import JournalUnavailable, describe
from paymentsdk.journal._journal import Journal

logger = logging.getLogger("paymentsdk")


class Journaling:
    """One turn for each record: calls of this process that name one record come one after the other."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal: Journal = journal
        self.platform_clock: PlatformClock = PlatformClock(clock)
        self._clock = clock
        self._name = clock.key()[:16]
        self._count = itertools.count(1)
        #: By the key of a record: the turn of a call, or the write that a call has left behind.
        self._running: dict[str, asyncio.Future[object]] = {}
        #: By the key of a record: the owner of a begin that failed. The journal may have kept it all the same.
        self.unheard: dict[str, str] = {}

    def owner(self) -> str:
        """Return a new owner of records: this process, even if it was forked since, and a number of no other call."""
        return f"{os.getpid()}-{self._name}/{next(self._count)}"

    async def acquire(self, key: str) -> asyncio.Future[object]:
        """Wait for the calls and writes of this process on the record *key*; return the turn, for `release`."""
        while (running := self._running.get(key)) is not None:
            if running.get_loop().is_closed():
                break  # It will never end.
            await asyncio.wait((running,))
        self._running[key] = turn = asyncio.get_running_loop().create_future()
        return turn

    def release(self, key: str, turn: asyncio.Future[object]) -> None:
        """End *turn*. The next call may work on the record, unless a late write comes first."""
        if self._running.get(key) is turn:
            del self._running[key]
        turn.set_result(None)

    def write_later(self, key: str, write: Callable[[], Awaitable[object]]) -> None:
        """Make a *write* that the caller whose turn it is does not wait for. Closing the client waits for it."""
        try:
            written = asyncio.ensure_future(write())
        except Exception as error:  # noqa: BLE001 - whatever it is: the request was sent, and its outcome is known
            _warn(error)
            return
        self._running[key] = written
        written.add_done_callback(partial(self._written, key))

    def _written(self, key: str, written: asyncio.Future[object]) -> None:
        # First: the log may raise, and the next call would wait for the record for ever.
        if self._running.get(key) is written:
            del self._running[key]
        if not written.cancelled() and isinstance(error := written.exception(), Exception):
            _warn(error)

    async def drain(self, grace: float) -> None:
        """Wait up to *grace* seconds until nobody works on a record: the outcomes of all calls are then kept.

        A cancellation does not end the wait: what a cancelled call leaves to be written frees its record.
        """
        if not (running := self._under_way()):
            return
        end = asyncio.ensure_future(self._clock.sleep(grace))
        cancelled: asyncio.CancelledError | None = None
        while running and not end.done():
            ended = asyncio.gather(*running, return_exceptions=True)
            cancelled = await wait_for_one(end, ended) or cancelled
            running = self._under_way()  # A call may have left a write, or another call may have waited for it.
        end.cancel()
        if cancelled is not None:
            raise cancelled

    def _under_way(self) -> list[asyncio.Future[object]]:
        """Return the turns and writes of this event loop; another loop does not run now."""
        loop = asyncio.get_running_loop()
        return [running for running in self._running.values() if running.get_loop() is loop]


def _warn(error: Exception) -> None:
    reason = error.reason if isinstance(error, JournalUnavailable) else describe(error)
    logger.warning("a record could not be closed in the journal: %s; recovery takes it up", reason)
