"""What becomes of records whose process died: recovery takes them over and sends them, as long as that is allowed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field, structs

from paymentsdk._engine.once import LEASE, Attempts, driver
from paymentsdk.errors import InProgress, JournalUnavailable, PaymentsError, RequestInvalid, describe
from paymentsdk.journal._states import OPEN, Record, RecordState, Resolution, StoredResponse
from paymentsdk.journal._time import Moment

if TYPE_CHECKING:
    from paymentsdk._engine.call import Call
    from paymentsdk._engine.journaling import Journaling
    from paymentsdk._operation.operation import Operation

B = TypeVar("B")
R = TypeVar("R")

logger = logging.getLogger("paymentsdk")

#: Records that are taken over at once: as many requests are in flight.
BATCH = 16


class RecoverySummary(Struct, frozen=True, kw_only=True):
    """What a recovery has come to so far."""

    resolved: Mapping[RecordState, int] = {}
    """How many records it has taken over, by the state that they are in now."""
    left: tuple[Record, ...] = ()
    """Open records that it cannot send, such as those of sellers without credentials: for a person."""
    problems: tuple[str, ...] = field(default_factory=tuple)
    """Why accounts were left out."""

    @property
    def is_complete(self) -> bool:
        """Whether no record is open any more."""
        return not self.left and not any(self.resolved.get(state) for state in OPEN)


class Sender(Struct, frozen=True):
    """What recovery needs of one seller."""

    seller: Callable[[], Awaitable[str]]
    """Returns the user id on the platform."""
    prepare: Callable[[Record], Call[object, object]]
    """Returns the call that sends a record again."""
    look: Callable[[Record], Awaitable[Resolution | None]]
    """Finds out by reading what became of a record that may not be sent any more."""


class Recovery:
    """Takes over open records and carries them out.

    Args:
        journaling: What the journaled calls of the client share.
        sender_of: Returns what sends for an account, by its name; `None` for the client itself.
    """

    def __init__(self, journaling: Journaling, sender_of: Callable[[str | None], Sender]) -> None:
        self._journaling = journaling
        self._sender_of = sender_of
        self._senders: dict[str, Sender] = {}
        self._summary = RecoverySummary()

    async def run(self, progress: Callable[[RecoverySummary], None] | None = None) -> RecoverySummary:
        """Carry out what is open, batch by batch, and return what has become of it.

        Raises:
            JournalUnavailable: The journal does not answer.
        """
        await self._find_sellers()
        tried: set[str] = set()
        while taken := await self._claim(tried):
            tried.update(record.key for record, _ in taken)
            await asyncio.gather(*(self._finish(record, since) for record, since in taken))
            if progress is not None:
                progress(self._summary)
        left = [row for row in await self._journaling.journal.records(OPEN) if row.key not in tried]
        self._summary = structs.replace(self._summary, left=tuple(left))
        if progress is not None:
            progress(self._summary)
        return self._summary

    async def _find_sellers(self) -> None:
        """Learn the user ids of the accounts that have open records."""
        names = {row.account for row in await self._journaling.journal.records(OPEN)}
        for name in sorted(names, key=str):
            try:
                sender = self._sender_of(name)
                self._senders[await sender.seller()] = sender
            except PaymentsError as error:
                self._add_problem(f"{name or 'the client'}: {describe(error)}")

    async def _claim(self, tried: set[str]) -> list[tuple[Record, Moment]]:
        since = self._journaling.platform_clock.moment()
        owner = self._journaling.owner()
        rows = await self._journaling.journal.claim(tuple(self._senders), owner=owner, lease=LEASE, limit=BATCH)
        # A record that stays open is not taken over again by the same run: it would be for ever.
        return [(row, since) for row in rows if row.key not in tried]

    async def _finish(self, record: Record, since: Moment) -> None:
        sender = self._senders[record.seller]
        try:
            call = sender.prepare(record)
            attempts: Attempts[object, object] = Attempts(call)
            async with self._journaling.turn(record.key) as later:
                drive = driver(call, self._journaling, later, look=sender.look)
                told = await drive.carry_on(record, attempts.send, since=since)
        except (InProgress, JournalUnavailable, RequestInvalid) as error:
            self._add_problem(f"{record.name}: {describe(error)}")
            return
        logger.info("recovery: %s %s is %s", record.operation, record.name, told.state.value)
        resolved = dict(self._summary.resolved)
        resolved[told.state] = resolved.get(told.state, 0) + 1
        self._summary = structs.replace(self._summary, resolved=resolved)

    def _add_problem(self, problem: str) -> None:
        logger.warning("recovery: %s", problem)
        self._summary = structs.replace(self._summary, problems=(*self._summary.problems, problem))


@asynccontextmanager
async def repeatedly(
    recover: Callable[[], Awaitable[object]], sleep: Callable[[float], Awaitable[None]], every: float
) -> AsyncIterator[None]:
    """Call *recover* now and *every* so many seconds, in a task of its own; what it raises is logged."""

    async def loop() -> None:
        while True:
            try:
                await recover()
            except PaymentsError as error:
                logger.warning("recovery: %s", describe(error))
            await sleep(every)

    task = asyncio.ensure_future(loop())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def path_values(operation: Operation[B, R], path: str) -> dict[str, str]:
    """Return the values that *path* has in the places of the operation's placeholders."""
    pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/?]+)", re.escape(operation.path))
    found = re.match(pattern + r"\Z", path)
    return {} if found is None else found.groupdict()


def stored(status: int, body: bytes) -> Resolution:
    """Return that a record is done, as a read has shown."""
    return Resolution(state=RecordState.DONE, reason="seen by a read", response=StoredResponse(status, {}, body))
