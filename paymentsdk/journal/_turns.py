"""The state that the journaled calls of a client share: journal, platform time, and turns."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from paymentsdk._clock import Clock
from paymentsdk._futures import wait_for_one
from paymentsdk.errors import JournalUnavailable, NotSent, RefreshFailed, describe
from paymentsdk.journal._journal import Journal
from paymentsdk.journal._platform_clock import PlatformClock

if TYPE_CHECKING:
    from paymentsdk._call.engine import Engine

logger = logging.getLogger("paymentsdk")


class Journaling:
    """The journal, with one turn for each record: calls of this process with the same record run one by one."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal: Journal = journal
        self.platform_clock: PlatformClock = PlatformClock(clock)
        self._clock = clock
        self._name = clock.key()[:16]
        self._count = itertools.count(1)
        #: By the key of a record: the turn of a call, or the late write of a call that has ended.
        self._running: dict[str, asyncio.Future[object]] = {}
        #: By the key of a record: the owner of a begin that failed, although the journal may have kept the record.
        self.unheard: dict[str, str] = {}

    def owner(self) -> str:
        """Return a new owner of records: unique for this process, also after a fork, and for this call."""
        return f"{os.getpid()}-{self._name}/{next(self._count)}"

    async def learn_time(self, engine: Engine) -> None:
        """Learn the platform's time with a read, unless a response has told it in the last 5 minutes.

        Raises:
            NotSent: The time could not be read.
            PaymentsError: There is no token.
        """
        clock = self.platform_clock
        if clock.is_fresh(clock.moment()):
            return
        try:
            await engine.runtime.read(engine)
        except (NotSent, RefreshFailed) as error:
            raise NotSent(f"the platform's time could not be read: {error}") from None
        if not clock.is_fresh(clock.moment()):
            raise NotSent("the platform's time could not be read: no response has a Date")

    async def acquire(self, key: str) -> asyncio.Future[object]:
        """Wait for the calls and writes of this process for the record *key*; return the turn, for `release`."""
        while (running := self._running.get(key)) is not None:
            if running.get_loop().is_closed():
                break  # A turn of a closed loop never ends.
            await asyncio.wait((running,))
        self._running[key] = turn = asyncio.get_running_loop().create_future()
        return turn

    def release(self, key: str, turn: asyncio.Future[object]) -> None:
        """End *turn*. The next call may work on the record, unless a late write goes first."""
        if self._running.get(key) is turn:
            del self._running[key]
        turn.set_result(None)

    def write_later(self, key: str, write: Callable[[], Awaitable[object]]) -> None:
        """Start a *write* that the caller does not wait for. Closing the client waits for it."""
        try:
            written = asyncio.ensure_future(write())
        except Exception as error:  # noqa: BLE001 - the request was sent, and its outcome is known
            _warn(error)
            return
        self._running[key] = written
        written.add_done_callback(partial(self._written, key))

    def _written(self, key: str, written: asyncio.Future[object]) -> None:
        # First, as the log may raise: the next call would then wait for ever.
        if self._running.get(key) is written:
            del self._running[key]
        if not written.cancelled() and isinstance(error := written.exception(), Exception):
            _warn(error)

    async def drain(self, grace: float) -> None:
        """Wait up to *grace* seconds until all calls have ended and their outcomes are kept.

        A cancellation does not end the wait: the last write of a cancelled call releases its record.
        """
        if not (running := self._under_way()):
            return
        end = asyncio.ensure_future(self._clock.sleep(grace))
        cancelled: asyncio.CancelledError | None = None
        while running and not end.done():
            ended = asyncio.gather(*running, return_exceptions=True)
            cancelled = await wait_for_one(end, ended) or cancelled
            running = self._under_way()  # A call may have left a late write, and a waiting call may have started.
        end.cancel()
        if cancelled is not None:
            raise cancelled

    def _under_way(self) -> list[asyncio.Future[object]]:
        """Return the turns and writes of this event loop; other loops do not run now."""
        loop = asyncio.get_running_loop()
        return [running for running in self._running.values() if running.get_loop() is loop]


def _warn(error: Exception) -> None:
    reason = error.reason if isinstance(error, JournalUnavailable) else describe(error)
    logger.warning("a record could not be closed in the journal: %s; recovery will finish it", reason)
