"""What becomes of records whose process died: recovery takes them over and sends them, as long as that is allowed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from paymentsdk._engine import events
from paymentsdk._engine.once import LEASE, Attempts
from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import InProgress, JournalUnavailable, PaymentsError, RequestInvalid, describe
from paymentsdk.journal._call import Journaling, Moment, WithinContract
from paymentsdk.journal._journal import RecordsOpen, RecoverySummary
from paymentsdk.journal._states import NO_LIMIT, OPEN, Record, RecordState, Resolution, Timing, timing

if TYPE_CHECKING:
    from paymentsdk._engine.call import Call
    from paymentsdk._operation.operation import Operation
    from paymentsdk.events import Observer

B = TypeVar("B")
R = TypeVar("R")

logger = logging.getLogger("paymentsdk")

#: Records that are carried out at once: as many requests are in flight.
BATCH = 16
#: Seconds between two tries at a record that may be sent, at most, and at one that can only be looked up.
_LONGEST, _LONGEST_AFTER = 60.0, 3600.0


class Sender(Struct, frozen=True):
    """What recovery needs of one seller."""

    seller: Callable[[], Awaitable[str]]
    """Returns the user id on the platform."""
    prepare: Callable[[Record], Call[object, object]]
    """Returns the call that sends a record again."""
    look: Callable[[Record], Awaitable[Resolution | None]]
    """Finds out by reading what became of a record that may not be sent any more."""


class Backoff(Struct, eq=False):
    """When background recovery tries a record again that stayed open: each time twice as long after the last.

    At first at the next turn; at most a minute apart while it may be sent, and an hour once it can only be looked up.
    """

    now: Callable[[], float]
    every: float
    pauses: dict[str, tuple[float, float]] = {}
    """By key: from when on, and how long the pause before that was."""

    def due(self, rows: Sequence[Record]) -> list[Record]:
        """Return those *rows* that are to be tried now; forget the records that are closed."""
        now, open_ = self.now(), {row.key for row in rows}
        self.pauses = {key: pause for key, pause in self.pauses.items() if key in open_}
        return [row for row in rows if self.pauses.get(row.key, (0.0, 0.0))[0] <= now]

    def stayed_open(self, record: Record, platform_time: float | None) -> None:
        """Note that *record* was tried, and is still open."""
        is_over = timing(record, platform_time) is Timing.TOO_LATE
        _, before = self.pauses.get(record.key, (0.0, self.every / 2))
        pause = min(2 * before, _LONGEST_AFTER if is_over else _LONGEST)
        self.pauses[record.key] = self.now() + pause, pause


class Recovery(HiddenRepr, Struct, eq=False):
    """Takes over open records and carries them out."""

    journaling: Journaling
    """What the journaled calls of the client share."""
    sender_of: Callable[[str | None], Sender]
    """Returns what sends for an account, by its name; `None` for the client itself."""
    observers: tuple[Observer, ...]
    """Who is told what stays open."""
    backoff: Backoff | None = None
    """Which of the records are tried; all of them by default."""
    senders: dict[str, Sender] = {}
    """By the user id on the platform."""
    told: set[str] = set()
    """The keys of the records that were carried out."""
    resolved: dict[RecordState, int] = field(default_factory=Counter)
    problems: list[str] = []
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, progress: Callable[[RecoverySummary], None] | None = None) -> RecoverySummary:
        """Carry out what is open, batch by batch, and return what has become of it.

        Raises:
            JournalUnavailable: The journal does not respond.
        """
        known = await self._open()
        rows = known if self.backoff is None else self.backoff.due(known)
        await self._find_sellers(rows)
        taken, since = await self._claim(rows, known)
        for batch in (taken[start : start + BATCH] for start in range(0, len(taken), BATCH)):
            await asyncio.gather(*(self._finish(record, since) for record in batch))
            if progress is not None:
                progress(self._summary())
        still_open = await self._open()
        self._notify_open(still_open)
        summary = self._summary(tuple(row for row in still_open if row.key not in self.told))
        if progress is not None:
            progress(summary)
        return summary

    def _summary(self, left: tuple[Record, ...] = ()) -> RecoverySummary:
        return RecoverySummary(resolved=dict(self.resolved), left=left, problems=tuple(self.problems))

    async def _find_sellers(self, rows: Iterable[Record]) -> None:
        """Learn the user ids of the accounts that *rows* belong to."""
        for name in sorted({row.account for row in rows}, key=str):
            try:
                sender = self.sender_of(name)
                self.senders[await sender.seller()] = sender
            except PaymentsError as error:
                self._add_problem(f"{name or 'the client'}: {describe(error)}")

    def _can_send(self, record: Record) -> bool:
        """Whether this client can make the request of *record*: what it cannot is left to another, and not held."""
        sender = self.senders.get(record.seller)
        if sender is not None and record.recoverable:
            try:
                sender.prepare(record)
            except ValueError as error:  # A `RequestInvalid`, or bytes that are no JSON.
                why = describe(error) if isinstance(error, RequestInvalid) else str(error)
                self._add_problem(f"{record.name}: {why}")
            else:
                return True
        self._put_off(record)
        return False

    def _put_off(self, record: Record) -> None:
        """Note that *record* was tried, and is still open."""
        if self.backoff is not None:
            self.backoff.stayed_open(record, self.journaling.platform_clock.now())

    def _knows_time(self, rows: Iterable[Record], known: Iterable[Record]) -> bool:
        """Whether the time of the platform of *rows* is behind none of its records, of any seller, that are *known*.

        Else nobody knows how old *rows* are.
        """
        now, platforms = self.journaling.platform_clock.now(), {row.base_url for row in rows}
        behind = any(timing(row, now) is Timing.CLOCK_BEHIND for row in known if row.base_url in platforms)
        if behind:
            self._add_problem(f"nothing was sent: {Timing.CLOCK_BEHIND.value}")
        return not behind

    async def _claim(self, rows: Sequence[Record], known: Sequence[Record]) -> tuple[list[Record], Moment]:
        """Take over what has no living owner: all of it at once, or the oldest that stay open would hide the others."""
        since, owner = self.journaling.platform_clock.moment(), self.journaling.owner()
        if not rows or not self._knows_time(rows, known):
            return [], since
        keys, sellers = set[str](), tuple(self.senders)
        for i, row in enumerate(rows):
            if i % BATCH == 0:
                await asyncio.sleep(0)  # There may be thousands.
            if self._can_send(row):
                keys.add(row.key)
        with WithinContract():
            rows = await self.journaling.journal.claim(sellers, owner=owner, lease=LEASE, limit=NO_LIMIT, keys=keys)
        return rows, since

    async def _open(self) -> list[Record]:
        with WithinContract():
            return await self.journaling.journal.records(OPEN, limit=NO_LIMIT)

    def _notify_open(self, rows: Sequence[Record]) -> None:
        """Tell the observers what is open."""
        now = self.journaling.platform_clock.now()
        oldest = max(0.0, now - min(row.begun for row in rows)) if rows and now is not None else None
        events.notify(
            RecordsOpen(account=None, count=Counter(row.state for row in rows), oldest=oldest), self.observers
        )

    async def _finish(self, record: Record, since: Moment) -> None:
        sender = self.senders[record.seller]
        try:
            attempts = Attempts(sender.prepare(record), self.journaling)
            # What could not be sent this time is sent by the next recovery.
            told = await attempts.make(record, defer=True, since=since, look=partial(self._look, sender))
        except (InProgress, JournalUnavailable, RequestInvalid) as error:
            self._add_problem(f"{record.name}: {describe(error)}")
            return
        self.told.add(record.key)
        if told.state in OPEN:
            self._put_off(record)
        logger.info("recovery: %s %s is %s", record.operation, record.name, told.state.value)
        self.resolved[told.state] += 1

    async def _look(self, sender: Sender, record: Record) -> Resolution | None:
        """Look up one record at a time: that may take the whole journal into memory."""
        async with self.looking:
            return await sender.look(record)

    def _add_problem(self, problem: str) -> None:
        logger.warning("recovery: %s", problem)
        self.problems.append(problem)


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
            except Exception:
                logger.exception("recovery failed, and goes on")  # Else it would end without a word.
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
