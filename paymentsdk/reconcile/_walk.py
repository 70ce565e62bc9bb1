"""The walk over all windows of all accounts: calls in flight, rows into files, files into the ledger."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk.errors import BadRequest, NotWhole
from paymentsdk.reconcile._certificate import Doubtful, Sight, Split, Verdict, Whole, examine
from paymentsdk.reconcile._ledger import Entry, Ledger
from paymentsdk.reconcile._proof import GRAINS, Question, Sample, prove
from paymentsdk.reconcile._rows import SEARCH_ORDERS, Order, Part, Row, write
from paymentsdk.reconcile._windows import NO_DATE, Rules, Window, milliseconds, moment_of, remaining

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

T = TypeVar("T")

#: Calls in flight, of all accounts together.
MOST_IN_FLIGHT = 64
#: Seconds between two commits: what a killed process has to do again. More often, the files would be small.
COMMIT_EVERY = 0.25
#: Rows that wait to be written, at most.
MOST_PENDING = 20_000
_ENTRY = re.compile(r"\$\.elements\[\d+\]\Z")


class Progress(Struct, frozen=True, kw_only=True):
    """How far a walk is."""

    share: float
    """The part of the windows that is done, 0 to 1, by the time that they span."""

    windows: int
    """Windows that are done, of this run and those that it goes on with."""

    rows: int
    """Rows in them."""

    calls: int
    """Calls that this run has made."""


class WalkReport(Struct, frozen=True, kw_only=True):
    """What a walk has found."""

    parts: tuple[Path, ...]
    """The Parquet files with the rows, each row once. Other files in their directory are not part of the walk."""

    rows: int
    """How many rows they have."""

    undated: int
    """How many of them have no ``date_created``, or one of the year 1. Such a row comes once for each window that
    showed it."""

    windows: int
    """How many windows there were."""

    not_whole: tuple[NotWhole, ...]
    """The windows that could not be certified. Rows that were seen in them are among the rows."""

    calls: int
    """Calls that this run has made; those of earlier runs do not count."""

    grain: timedelta
    """How exactly the platform's date filter works, as it was proved on live rows."""


class Plan(Struct, frozen=True, kw_only=True):
    """What to walk, and how."""

    created: Window
    accounts: Mapping[str, PaymentsClient]
    rules: Rules
    in_flight: int

    @property
    def question(self) -> str:
        """What a resumed run has to have in common with the run that it goes on with."""
        begin, end = (moment_of(one).isoformat() for one in (self.created.begin, self.created.end))
        rules = {"lag": self.rules.lag, "max_window": self.rules.max_window}
        return json.dumps({"created": [begin, end], "accounts": sorted(self.accounts), **rules})


class Finished(Struct, frozen=True):
    """A window that is done and not yet committed, with its rows."""

    entry: Entry
    rows: Sequence[Row]


class Walk:
    """A run: it asks, writes and commits until every window is done.

    Args:
        plan: What to walk.
        ledger: What is done.
        progress: Called after each commit.
    """

    def __init__(self, plan: Plan, ledger: Ledger, progress: Callable[[Progress], None] | None) -> None:
        self._plan = plan
        self._rules = plan.rules
        self._ledger = ledger
        self._progress = progress
        self._calls = 0
        #: Rows to ask for per page; ``None`` where the platform takes no such number.
        self._limit: int | None = plan.rules.max_window
        self._pending: list[Finished] = []
        self._turn = asyncio.Lock()
        self._committed_at = 0.0
        self._numbers = count(1 + max((int(name.partition(".")[0]) for name in ledger.names()), default=0))

    async def run(self) -> WalkReport:
        """Walk whatever is left."""
        if self._ledger.grain is None:
            self._ledger.grain = await self._prove()
        self._rules = replace(self._rules, grain=self._ledger.grain)
        at_once = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self._plan.in_flight))
        accounts = [asyncio.create_task(self._account(name, at_once)) for name in self._plan.accounts]
        try:
            await asyncio.gather(*accounts)
        finally:
            await _cancel(accounts)
            # Also if a call has failed: what is done need not be done again.
            await self._commit()
        return self._report()

    async def _account(self, name: str, at_once: asyncio.Semaphore) -> None:
        """Walk the windows of one account, some at a time, the latest first: they split into the most pieces."""
        windows = remaining(self._plan.created, self._ledger.done(name))
        running: set[asyncio.Task[tuple[Window, Verdict[Row]]]] = set()
        async with at_once:
            try:
                while windows or running:
                    while windows and len(running) < self._plan.in_flight:
                        running.add(asyncio.create_task(self._window(name, windows.pop())))
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        window, verdict = task.result()
                        if isinstance(verdict, Split):
                            windows.extend(verdict.pieces)
                        else:
                            await self._finish(name, window, verdict)
            finally:
                await _cancel(running)

    async def _window(self, name: str, window: Window) -> tuple[Window, Verdict[Row]]:
        begin, end = window.asked(self._rules.grain)
        steps: Generator[int, Sight[Row] | None, Verdict[Row]] = examine(window, self._rules)
        try:
            offset = next(steps)
            while True:
                offset = steps.send(await self._page(name, begin, end, offset))
        except StopIteration as stop:
            return window, stop.value

    async def _page(self, name: str, begin: int | None, end: int | None, offset: int) -> Sight[Row] | None:
        """Fetch a page; ``None`` if the platform refuses its offset."""
        query: dict[str, object] = {"offset": offset, "limit": self._limit}
        if begin is not None and end is not None:
            query |= {"date_created_from": moment_of(begin), "date_created_to": moment_of(end)}
        self._calls += 1
        try:
            result = await self._plan.accounts[name].call(SEARCH_ORDERS, query=query)
        except BadRequest:
            if offset:
                return None
            if self._limit is None:
                raise
            # It may take no number as large as that; then it has one of its own.
            self._limit = None
            return await self._page(name, begin, end, offset)
        orders = result.value.elements or ()
        now = _date(result.headers)
        dropped = sum(one.dropped and _ENTRY.match(one.path) is not None for one in result.anomalies)
        return Sight(
            ids=_ids(orders),
            rows=list(zip(orders, repeat(now))),
            total=result.value.total,
            now=now,
            received=len(orders) + dropped,
        )

    async def _prove(self) -> int:
        """Prove the date filter on live rows of the first account that has some.

        Raises:
            NotWhole: No row is found by its date: no window would prove anything.
        """
        for name in self._plan.accounts:
            samples, total = await self._samples(name)
            if not samples:
                continue
            steps = prove(samples)
            try:
                question = next(steps)
                while True:
                    question = steps.send(await self._finds(name, question))
            except StopIteration as stop:
                if isinstance(stop.value, int):
                    return stop.value
                raise self._not_whole(
                    name, self._plan.created, 0, total, "the date filter finds no row by the date that it shows"
                ) from None
        # Nothing to prove it on. The rows that appear later are few, so the coarsest grain costs nothing.
        return GRAINS[-1]

    async def _samples(self, name: str) -> tuple[list[Sample], int | None]:
        """Return rows that are found without the date filter: the first, and some from the middle."""
        first = await self._page(name, None, None, 0)
        if first is None or not first.rows:
            return [], 0
        middle = (first.total or 0) // 2
        more = await self._page(name, None, None, middle) if middle > first.received else None
        rows = [*first.rows, *(more.rows if more else ())]
        return [one for one in map(_sample, rows) if one is not None], first.total

    async def _finds(self, name: str, question: Question) -> bool:
        offset = 0
        while True:
            page = await self._page(name, question.begin, question.end, offset)
            if page is None or not page.received:
                return False
            if question.id in page.ids:
                return True
            offset += page.received

    async def _finish(self, name: str, window: Window, verdict: Whole[Row] | Doubtful[Row]) -> None:
        """Keep the rows of *window*, and commit if that is due."""
        begin, end = moment_of(window.begin), moment_of(window.end)
        dates = [(row, row[0].date_created) for row in verdict.rows]
        rows = [row for row, date in dates if date is not None and begin <= date < end]
        undated = [row for row, date in dates if date is None or date < NO_DATE]
        rows += undated
        seen, total, reason = len(rows), None, None
        if isinstance(verdict, Doubtful):
            seen, total, reason = verdict.seen, verdict.total, verdict.reason
        # The certificate of a young window speaks of one moment; rows may have become visible since.
        kept = reason is None and window.is_settled(self._rules, verdict.at)
        entry = Entry(name, window.begin, window.end, kept, verdict.at, len(rows), len(undated), seen, total, reason)
        self._pending.append(Finished(entry, rows))
        is_full = sum(len(one.rows) for one in self._pending) >= MOST_PENDING
        is_due = asyncio.get_running_loop().time() - self._committed_at >= COMMIT_EVERY
        if is_full or (is_due and not self._turn.locked()):
            await self._commit()

    async def _commit(self) -> None:
        """Write what is pending, and enter it into the ledger."""
        async with self._turn:
            pending, self._pending = self._pending, []
            if not pending:
                return
            writing = asyncio.ensure_future(asyncio.to_thread(self._write, pending))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # Nothing ends a thread: the ledger is not to be closed under it.
                await asyncio.wait([writing])
                raise
            self._committed_at = asyncio.get_running_loop().time()
            if self._progress is not None:
                self._progress(self._so_far())

    def _write(self, pending: Sequence[Finished]) -> None:
        """Write files first, entries after: a file without an entry is nothing, an entry without its file a lie."""
        files = []
        for kept in (True, False):
            parts = [Part(one.entry.account, one.rows) for one in pending if one.rows and one.entry.kept == kept]
            if parts:
                name = f"{next(self._numbers):06}.parquet"
                write(parts, self._ledger.parts / name)
                files.append((name, kept))
        self._ledger.commit([one.entry for one in pending], files)

    def _so_far(self) -> Progress:
        sums = self._ledger.sums()
        width = (self._plan.created.end - self._plan.created.begin) * len(self._plan.accounts)
        return Progress(share=sums.width / width, windows=sums.windows, rows=sums.rows, calls=self._calls)

    def _report(self) -> WalkReport:
        sums = self._ledger.sums()
        doubtful = [
            self._not_whole(one.account, Window(one.begin, one.end), one.seen, one.total, one.reason or "")
            for one in self._ledger.doubtful()
        ]
        return WalkReport(
            parts=tuple(self._ledger.parts / name for name in self._ledger.names()),
            rows=sums.rows,
            undated=sums.undated,
            windows=sums.windows,
            not_whole=tuple(doubtful),
            calls=self._calls,
            grain=timedelta(milliseconds=self._rules.grain),
        )

    def _not_whole(self, name: str, window: Window, seen: int, total: int | None, reason: str) -> NotWhole:
        error = NotWhole((moment_of(window.begin), moment_of(window.end)), seen, total, reason)
        error.account = name or None
        error.operation = SEARCH_ORDERS.name
        return error


async def _cancel(tasks: Collection[asyncio.Task[T]]) -> None:
    """Cancel *tasks*, and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ids(orders: Sequence[Order]) -> tuple[str | None, ...]:
    """Return the ids of *orders* as text: 3 and "3" are one."""
    ids = [str(order.id) for order in orders]
    # Neither is an id; a row without one has lost it in decoding.
    if "None" in ids or "" in ids:
        return tuple([None if one in ("None", "") else one for one in ids])
    return tuple(ids)


def _sample(row: Row) -> Sample | None:
    order, _ = row
    [row_id] = _ids([order])
    if order.date_created is None or order.date_created < NO_DATE or row_id is None:
        return None
    is_changed = order.last_updated not in (None, order.date_created)
    return Sample(row_id, milliseconds(order.date_created), is_changed)


def _date(headers: Mapping[str, str]) -> int:
    """Return the platform's time, in milliseconds since 1970; this machine's, if the platform does not say it."""
    text = next((value for name, value in headers.items() if name.lower() == "date"), "")
    with suppress(ValueError):
        moment = parsedate_to_datetime(text)
        return milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return milliseconds(datetime.now(UTC))
