"""What becomes of records whose process died: recovery takes them over, and sends them as long as that is allowed.

Of one that may not be sent any more it reads what has become of it, as far as that shows.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from paymentsdk._call import events
from paymentsdk._call.events import observed
from paymentsdk._call.once import LEASE, OnceCall
from paymentsdk._contract.operation import Operation
from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import ClientClosed, InProgress, JournalUnavailable, PaymentsError, RequestInvalid, describe
from paymentsdk.journal import StoredResponse
from paymentsdk.journal import _states as states
from paymentsdk.journal._call import Journaling, Learn, Moment, WithinContract
from paymentsdk.journal._journal import RecordsOpen, RecoverySummary
from paymentsdk.journal._states import NO_LIMIT, OPEN, TOLERANCE, Record, RecordState, Resolution

if TYPE_CHECKING:
    from paymentsdk._call.call import Call
    from paymentsdk._call.deadline import Timeout
    from paymentsdk._call.intent import Intent
    from paymentsdk.events import Observer

logger = logging.getLogger("paymentsdk")

#: Records that are carried out at once: as many requests are in flight.
BATCH = 16
#: Seconds between two tries at a record that may be sent, at most, and at one that can only be looked up.
_LONGEST, _LONGEST_AFTER = 60.0, 3600.0


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
        is_over = platform_time is not None and not record.begun - TOLERANCE <= platform_time < record.not_after
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
    own: dict[tuple[str | None, str], Sender] = {}
    """By the account and that user id: a seller may have several accounts, each with a token of its own."""
    begun: set[str] = set()
    """The keys of those that it has begun to carry out."""
    finished: set[str] = set()
    """The keys of the records that were carried out."""
    resolved: dict[RecordState, int] = field(default_factory=Counter)
    problems: list[str] = []

    async def run(self, progress: Callable[[RecoverySummary], None] | None = None) -> RecoverySummary:
        """Carry out what is open, batch by batch, and return what has become of it.

        Raises:
            JournalUnavailable: The journal does not respond; what was finished before stays so.
        """
        known = await self._open()
        rows = known if self.backoff is None else self.backoff.due(known)
        await self._find_sellers(rows)
        keys = await self._sendable(rows)
        for start in range(0, len(keys), BATCH):
            await self._carry_out(keys[start : start + BATCH])
            if progress is not None:
                progress(self._summary())
        still_open = await self._open() if keys else known
        self._notify_open(still_open)
        summary = self._summary(tuple(row for row in still_open if row.key not in self.finished))
        if progress is not None:
            progress(summary)
        return summary

    def _summary(self, left: tuple[Record, ...] = ()) -> RecoverySummary:
        return RecoverySummary(resolved=dict(self.resolved), left=left, problems=tuple(self.problems))

    async def _find_sellers(self, rows: Iterable[Record]) -> None:
        """Learn the user ids of the accounts that *rows* belong to, several at once: a token may be long in coming."""
        turns = asyncio.Semaphore(BATCH)

        async def find(name: str | None) -> None:
            try:
                async with turns:
                    sender = self.sender_of(name)
                    seller = await sender.seller()
                    late = await sender.learn_time(self.journaling.platform_clock)
                if late is None:
                    self.senders[seller] = self.own[name, seller] = sender
                else:
                    self._add_problem(f"{name or 'the client'}: the platform's time could not be read: {late}")
            except PaymentsError as error:
                self._add_problem(f"{name or 'the client'}: {describe(error)}")

        await asyncio.gather(*(find(name) for name in {row.account for row in rows if states.is_readable(row)}))

    def _can_send(self, record: Record) -> bool:
        """Whether this client can make the request of *record*: what it cannot is left to another, and not held."""
        if record.seller in self.senders and record.recoverable:
            try:
                self._sender(record).intent(record)
            except ValueError as error:  # A `RequestInvalid`, or bytes that are no JSON.
                why = describe(error) if isinstance(error, RequestInvalid) else str(error)
                self._add_problem(f"{record.name}: {why}")
            else:
                return True
        elif not states.is_readable(record):
            self._add_problem(f"{record.name}: {record.reason}")
        self._put_off(record)
        return False

    def _sender(self, record: Record) -> Sender:
        """Return that of the account of *record*, or of another one of its seller."""
        return self.own.get((record.account, record.seller)) or self.senders[record.seller]

    def _put_off(self, record: Record) -> None:
        """Note that *record* was tried, and is still open."""
        if self.backoff is not None:
            self.backoff.stayed_open(record, self.journaling.platform_clock.now())

    async def _sendable(self, rows: Sequence[Record]) -> list[str]:
        """Return the keys of what this client can make the requests of."""
        keys: list[str] = []
        for number, row in enumerate(rows):
            if number % BATCH == 0:
                await asyncio.sleep(0)  # There may be thousands.
            if self._can_send(row):
                keys.append(row.key)
        return keys

    async def _carry_out(self, keys: Sequence[str]) -> None:
        """Take over what has no living owner, right before it is sent, and carry it out.

        Whoever dies leaves in doubt what it had taken over: no more than it had under way.
        """
        since, owner = self.journaling.platform_clock.moment(), self.journaling.owner()
        mine = await self.journaling.acquire(owner)  # To close the client waits for it.
        claim = asyncio.ensure_future(self._claim(keys, owner))
        try:
            await asyncio.gather(*(self._finish(record, since) for record in await asyncio.shield(claim)))
        except (asyncio.CancelledError, ClientClosed):
            # What it takes over all the same, nobody would know of.
            self.journaling.write_later(owner, partial(self._let_go, claim))
            raise
        finally:
            self.journaling.release(owner, mine)

    async def _claim(self, keys: Sequence[str], owner: str) -> list[Record]:
        with WithinContract():
            return await self.journaling.journal.claim(tuple(self.senders), owner=owner, lease=LEASE, keys=keys)

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
        sender = self._sender(record)
        try:
            call = OnceCall(sender.call_for(sender.intent(record)), self.journaling)
            self.begun.add(record.key)
            # What could not be sent this time is sent by the next recovery.
            outcome = await call.run(record, sender.learn_time, defer=True, since=since, look=sender.look)
        except (InProgress, JournalUnavailable, RequestInvalid) as error:
            self._add_problem(f"{record.name}: {describe(error)}")
            return
        self.finished.add(record.key)
        if outcome.state in OPEN:
            self._put_off(record)
        logger.info("recovery: %s %s is %s", record.operation, record.name, outcome.state.value)
        self.resolved[outcome.state] += 1

    async def _let_go(self, claim: Awaitable[Sequence[Record]]) -> None:
        """Leave to the next recovery what this one, which ends early, has claimed and not begun."""
        journaling = self.journaling
        for record in await claim:
            if record.key not in self.begun:
                state = RecordState.DEFERRED if record.state is RecordState.PENDING else RecordState.UNKNOWN
                left = Resolution(state=state, reason=record.reason)
                resolve = partial(journaling.journal.resolve, record.key, left, owner=record.owner)
                journaling.write_later(record.key, resolve)

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
        await asyncio.wait((task,))  # And not for what it raises: whoever is cancelled meanwhile stays so.


# --- one seller -----------------------------------------------------------------------------------------------------


class Sender(HiddenRepr, Struct, frozen=True):
    """What recovery needs of one seller: it sends a record again, or reads what became of it."""

    base_url: str
    operations: Mapping[str, Operation[object, object]]
    seller: Callable[[], Awaitable[str]]
    """Returns the user id on the platform."""
    learn_time: Learn
    """Reads the platform's time, unless it is known, and returns why it cannot be had."""
    prepare: Callable[..., Intent[object, object]]
    """Makes the intent of an operation, a body, the values of its path, header fields and its target."""
    call_for: Callable[[Intent[object, object]], Call[object, object]]
    """Makes the call that carries out an intent."""
    timeout: Timeout
    """The time that a call may take."""

    def intent(self, record: Record) -> Intent[object, object]:
        """Return the request of *record*, to its very address: its key stands for that request alone.

        Raises:
            RequestInvalid: It is not of this client, or its bytes are not those that its digest was made of.
            msgspec.DecodeError: Its bytes are no JSON.
        """
        operation = self.operations.get(record.operation)
        if operation is None or operation.keyed != record.keyed or record.base_url != self.base_url:
            raise RequestInvalid("record", f"{record.operation} of {record.base_url} is not of this client")
        values = _path_values(operation, record.path)
        if values is None or record.digest != states.digest(operation.method, record.path, record.body or b""):
            raise RequestInvalid("record", f"what was kept is no request of {operation.name}, or not what was sent")
        try:
            body = operation.encoder.decode(record.body) if operation.encoder is not None and record.body else None
            intent = self.prepare(operation, body, values, record.headers, target=record.path)
        except (PaymentsError, ValueError):
            raise
        except Exception as error:  # Rules of somebody else's operation may raise anything.
            raise RequestInvalid("record", describe(error)) from error
        if self.timeout.attempt is None and self.timeout.total is None:
            raise RequestInvalid("timeout", "must be bounded to send a record: its lease has to outlive it")
        return intent

    async def look(self, record: Record) -> Resolution | None:
        """Read whether *record* took effect, and return that it is done; `None` if that does not show."""
        operation = self.operations[record.operation]
        if operation.look_up is None or operation.took_effect is None:
            return None
        try:
            values = _path_values(operation, record.path)
            call = self.call_for(self.prepare(operation.look_up, None, values, {}))
            result = await (observed(call, call.run()) if call.settings.observers else call.run())
            body = operation.encoder.decode(record.body) if operation.encoder is not None and record.body else None
            if not operation.took_effect(body, result.value):
                return None
        except Exception as error:  # noqa: BLE001 - also of `took_effect` of somebody else's operation
            logger.warning("recovery: %s could not be looked up: %s", record.name, describe(error))
            return None
        response = StoredResponse(result.status, {}, result.raw)
        return Resolution(state=RecordState.DONE, reason="seen by a read", response=response)


def _path_values(operation: Operation[object, object], path: str) -> dict[str, str] | None:
    """Return the values that *path* has in the places of the operation's placeholders; `None` if it is another path."""
    pattern = re.escape(operation.path)
    for name in operation.path_names:
        pattern = pattern.replace(rf"\{{{name}\}}", f"(?P<{name}>[^/]+)", 1).replace(rf"\{{{name}\}}", f"(?P={name})")
    found = re.fullmatch(pattern, path.partition("?")[0])
    return None if found is None else found.groupdict()
