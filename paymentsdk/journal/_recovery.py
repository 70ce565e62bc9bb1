"""Recovery: take over the open records of dead processes, and send them with `_run.py`.

A record that may not be sent any more is looked up, if its operation declares a look-up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from paymentsdk._call import events
from paymentsdk._call.intent import make_intent
from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import InProgress, PaymentsError, RequestInvalid, describe
from paymentsdk.journal import _record as states
from paymentsdk.journal._journal import RecordsOpen, RecoverySummary
from paymentsdk.journal._record import NO_LIMIT, OPEN, TOLERANCE, Record, RecordState, Resolution
from paymentsdk.journal._run import LEASE, JournaledCall, no_seller, notify_resolved

if TYPE_CHECKING:
    from paymentsdk._call.engine import Engine
    from paymentsdk._call.intent import Intent
    from paymentsdk._contract.operation import Operation
    from paymentsdk.events import Observer
    from paymentsdk.journal._platform_clock import Moment
    from paymentsdk.journal._turns import Journaling

logger = logging.getLogger("paymentsdk")

#: Records that recovery works on at the same time, and so requests in flight.
BATCH = 16
#: The longest pause, in seconds, before a record that may be sent, and before a record that can only be looked up.
_LONGEST, _LONGEST_AFTER = 60.0, 3600.0


class Backoff(Struct, eq=False):
    """When background recovery retries a record that stayed open: the pause doubles each time.

    The first retry is at the next turn. The pause is at most a minute while the record may be sent, and at most an hour
    once it can only be looked up.
    """

    now: Callable[[], float]
    every: float
    pauses: dict[str, tuple[float, float]] = {}
    """By key: when the record is due, and the length of its last pause."""

    def due(self, rows: Sequence[Record]) -> list[Record]:
        """Return the *rows* that are due now; forget the pauses of closed records."""
        now, keys = self.now(), {row.key for row in rows}
        self.pauses = {key: pause for key, pause in self.pauses.items() if key in keys}
        return [row for row in rows if self.pauses.get(row.key, (0.0, 0.0))[0] <= now]

    def stayed_open(self, record: Record, platform_time: float | None) -> None:
        """Note that *record* is still open after a try."""
        is_over = platform_time is not None and not record.begun - TOLERANCE <= platform_time < record.not_after
        _, before = self.pauses.get(record.key, (0.0, self.every / 2))
        pause = min(2 * before, _LONGEST_AFTER if is_over else _LONGEST)
        self.pauses[record.key] = self.now() + pause, pause


class Recovery(HiddenRepr, Struct, eq=False):
    """One pass over the open records."""

    journaling: Journaling
    engine_of: Callable[[str | None], Engine]
    """Returns the engine of an account, by its name; `None` is the client itself."""
    operations: Mapping[str, Operation[object, object]]
    """The operations of the client, by name."""
    observers: tuple[Observer, ...]
    backoff: Backoff | None = None
    """Which records are due; by default all of them."""
    engines: dict[str, Engine] = {}
    """By the user id on the platform."""
    own_engines: dict[tuple[str | None, str], Engine] = {}
    """By account and user id: a seller may have several accounts, each with its own token."""
    finished: set[str] = set()
    """The keys of the records that were carried out."""
    resolved: dict[RecordState, int] = field(default_factory=Counter)
    problems: list[str] = []

    async def run(self, progress: Callable[[RecoverySummary], None] | None = None) -> RecoverySummary:
        """Carry out the open records, batch by batch, and return the results.

        Raises:
            JournalUnavailable: The journal does not respond. Records that were finished before stay finished.
        """
        journal = self.journaling.journal
        open_rows = await journal.records(OPEN, limit=NO_LIMIT)
        rows = open_rows if self.backoff is None else self.backoff.due(open_rows)
        await self._find_sellers({row.account for row in rows if states.is_readable(row)})
        for start in range(0, len(rows), BATCH):
            await self._carry_out(rows[start : start + BATCH])
            if progress is not None:
                progress(self._summary())
        still_open = await journal.records(OPEN, limit=NO_LIMIT) if self.finished else open_rows
        now = self.journaling.platform_clock.now()
        oldest = max(0.0, now - min(row.begun for row in still_open)) if still_open and now is not None else None
        count = Counter(row.state for row in still_open)
        events.notify(RecordsOpen(account=None, count=count, oldest=oldest), self.observers)
        summary = self._summary(tuple(row for row in still_open if row.key not in self.finished))
        if progress is not None:
            progress(summary)
        return summary

    def _summary(self, still_open: tuple[Record, ...] = ()) -> RecoverySummary:
        return RecoverySummary(resolved=dict(self.resolved), left=still_open, problems=tuple(self.problems))

    async def _find_sellers(self, accounts: set[str | None]) -> None:
        """Get the user ids of *accounts*, and the platform's time; in parallel, as a token may take long."""
        turns = asyncio.Semaphore(BATCH)

        async def find(account: str | None) -> None:
            try:
                async with turns:
                    engine = self.engine_of(account)
                    engine.runtime.ensure_open()
                    if (seller := await engine.seller()) is None:
                        raise no_seller()
                    await self.journaling.learn_time(engine)
                self.engines[seller] = self.own_engines[account, seller] = engine
            except PaymentsError as error:
                self._add_problem(f"{account or 'the client'}: {describe(error)}")

        await asyncio.gather(*map(find, accounts))

    async def _carry_out(self, rows: Sequence[Record]) -> None:
        """Take over the *rows* that have no living owner and that this client can send, and carry them out."""
        await asyncio.sleep(0)  # There may be thousands of rows, which must not block the event loop.
        requests = {row.key: request for row in rows if (request := self._request(row)) is not None}
        if not requests:
            return
        journaling = self.journaling
        since, owner = journaling.platform_clock.moment(), journaling.owner()
        turn = await journaling.acquire(owner)  # Closing the client waits for this turn.
        sellers, keys = tuple(self.engines), tuple(requests)
        claim = asyncio.ensure_future(journaling.journal.claim(sellers, owner=owner, lease=LEASE, keys=keys))
        try:
            claimed = await asyncio.shield(claim)
            await asyncio.gather(*(self._finish(row, *requests[row.key], since) for row in claimed))
        except asyncio.CancelledError:
            journaling.write_later(owner, partial(self._let_go, claim))
            raise
        finally:
            journaling.release(owner, turn)

    def _request(self, record: Record) -> tuple[Engine, Intent[object, object]] | None:
        """Return the request of *record* and the engine that sends it; `None` if this client cannot send it."""
        engine = self.own_engines.get((record.account, record.seller)) or self.engines.get(record.seller)
        if not states.is_readable(record):
            self._add_problem(_named(record, record.reason))
        elif engine is not None and record.recoverable:
            try:
                return engine, kept_intent(engine, self.operations, record)
            except Exception as error:  # noqa: BLE001 - a caller's operation may raise anything
                self._add_problem(_named(record, describe(error)))
        self._put_off(record)
        return None

    async def _finish(self, row: Record, engine: Engine, intent: Intent[object, object], since: Moment) -> None:
        journaling = self.journaling
        turn = await journaling.acquire(row.key)
        self.finished.add(row.key)
        try:
            # A record that could not be sent is left to the next recovery.
            outcome = await JournaledCall(journaling, engine, intent, LEASE, defer=True).carry_on(row, since)
        except InProgress as error:
            self.finished.discard(row.key)
            self._add_problem(_named(row, describe(error)))
            return
        finally:
            journaling.release(row.key, turn)
        if engine.settings.observers:
            notify_resolved(journaling, engine, outcome, recovered=True)
        if outcome.state in OPEN:
            self._put_off(row)
        logger.info("recovery: %s %s is %s", row.operation, row.name, outcome.state.value)
        self.resolved[outcome.state] += 1

    def _put_off(self, record: Record) -> None:
        if self.backoff is not None:
            self.backoff.stayed_open(record, self.journaling.platform_clock.now())

    async def _let_go(self, claim: Awaitable[Sequence[Record]]) -> None:
        """Release the claimed rows that this recovery, which was cancelled, has not begun."""
        journal = self.journaling.journal
        for row in await claim:
            if row.key not in self.finished:
                state = RecordState.DEFERRED if row.state is RecordState.PENDING else RecordState.UNKNOWN
                await journal.resolve(row.key, Resolution(state=state, reason=row.reason), owner=row.owner)

    def _add_problem(self, problem: str) -> None:
        logger.warning("recovery: %s", problem)
        self.problems.append(problem)


def _named(record: Record, problem: str) -> str:
    return ": ".join(filter(None, (record.account, record.name, problem)))


def kept_intent(
    engine: Engine, operations: Mapping[str, Operation[object, object]], record: Record
) -> Intent[object, object]:
    """Return the request of *record*, with exactly the address that was kept: its key belongs to that request alone.

    Raises:
        RequestInvalid: The record is not of this client, or its bytes do not match its digest.
        ValueError: Its bytes are not JSON.
    """
    settings, operation = engine.settings, operations.get(record.operation)
    if operation is None or operation.keyed != record.keyed or record.base_url != settings.base_url:
        raise RequestInvalid("record", f"{record.operation} of {record.base_url} does not belong to this client")
    values = _path_values(operation, record.path)
    if values is None or record.digest != states.digest(operation.method, record.path, record.body or b""):
        raise RequestInvalid("record", f"its bytes are no request of {operation.name}, or do not match its digest")
    if settings.timeout.attempt is None and settings.timeout.total is None:
        raise RequestInvalid("timeout", "must be bounded to send a record: its lease has to outlive it")
    body = operation.encoder.decode(record.body) if operation.encoder is not None and record.body else None
    clock = engine.runtime.clock
    return make_intent(operation, body, settings, clock, record.path, headers=record.headers, **values)


def _path_values(operation: Operation[object, object], path: str) -> dict[str, Any] | None:
    """Return the values of the operation's placeholders in *path*; `None` if *path* does not match the operation."""
    pattern = re.escape(operation.path)
    for name in operation.path_names:
        pattern = pattern.replace(rf"\{{{name}\}}", f"(?P<{name}>[^/]+)", 1).replace(rf"\{{{name}\}}", f"(?P={name})")
    match = re.fullmatch(pattern, path.partition("?")[0])
    return None if match is None else match.groupdict()


@asynccontextmanager
async def repeatedly(
    recover: Callable[[], Awaitable[object]], sleep: Callable[[float], Awaitable[None]], every: float
) -> AsyncIterator[None]:
    """Call *recover* now and then every *every* seconds, in a task of its own; errors are logged."""

    async def loop() -> None:
        while True:
            try:
                await recover()
            except PaymentsError as error:
                logger.warning("recovery: %s", describe(error))
            except Exception:
                logger.exception("recovery failed; it will be repeated")
            await sleep(every)

    task = asyncio.ensure_future(loop())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))  # Not `await task`: that would hide a cancellation of the caller.
