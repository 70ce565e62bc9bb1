"""The walk over the windows of some accounts on one event loop: calls in flight, and rows written in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk.reconcile._certificate import Doubtful, Sight, Split, Steps, Verdict, Whole, examine
from paymentsdk.reconcile._ledger import Entry
from paymentsdk.reconcile._rows import Rows, keepable, write
from paymentsdk.reconcile._search import By, Search
from paymentsdk.reconcile._tasks import answered, together, work_off
from paymentsdk.reconcile._windows import EPOCH, MILLISECOND, NO_DATE, Rules, Window

#: Calls in flight, of all accounts together.
MOST_IN_FLIGHT = 64
#: Seconds between two commits: what a killed process has to do again. More often, the files would be small.
COMMIT_EVERY = 0.25
#: Rows that wait to be written, at most.
MOST_PENDING = 20_000


class Finished(Struct, frozen=True):
    """A window that is done and not yet committed, with its rows."""

    entry: Entry
    rows: Rows


@dataclass
class Walker:
    """Walks windows, and has their rows saved in batches."""

    search: Search
    rules: Rules
    in_flight: int
    """Windows of an account that are walked at a time."""
    save: Callable[[Sequence[Finished]], None]
    """Writes rows and enters windows; called in a thread."""
    saved: Callable[[], None]
    """Called after each batch."""
    most_pieces: int | None = None
    """A window that is split into more pieces is left to whoever shares out work."""
    postponed: list[Window] = field(default_factory=list)
    """What was left."""

    _pending: list[Finished] = field(default_factory=list)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _committed_at: float = 0.0

    async def run(self, todo: Mapping[str, list[Window]]) -> None:
        """Walk the windows of each account."""
        at_once = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self.in_flight))
        try:
            await together(self._account(name, windows, at_once) for name, windows in todo.items())
        finally:
            # Also if a call has failed: what is done need not be done again.
            await self._commit()

    async def _account(self, name: str, windows: list[Window], at_once: asyncio.Semaphore) -> None:
        """Walk the windows of one account, some at a time, the latest first: they split into the most pieces."""

        async def walk(window: Window) -> tuple[Window, Verdict[int], Rows]:
            return window, *await examined(self.search, self.rules, name, window)

        async def take(walked: tuple[Window, Verdict[int], Rows]) -> None:
            window, verdict, rows = walked
            if not isinstance(verdict, Split):
                await self._finish(window, verdict, rows)
            elif self.most_pieces is None or len(verdict.pieces) <= self.most_pieces:
                windows.extend(verdict.pieces)
            else:
                self.postponed += _merged(verdict.pieces, self.most_pieces)

        async with at_once:
            await work_off(windows, walk, take, lambda: self.in_flight)

    async def _finish(self, window: Window, verdict: Whole[int] | Doubtful[int], seen: Rows) -> None:
        """Keep the rows of *window*, and commit if that is due."""
        rows, undated = _cut(seen, verdict.rows, window)
        count, total, reason = len(rows), None, None
        if isinstance(verdict, Doubtful):
            count, total, reason = verdict.seen, verdict.total, verdict.reason
        # The certificate of a young window speaks of one moment; rows may have become visible since.
        kept = reason is None and window.is_settled(self.rules, verdict.at)
        # Rows of several tries were read before the last one began.
        at = min(map(seen.read_at.__getitem__, verdict.rows), default=verdict.at)
        entry = Entry(rows.account, window.begin, window.end, kept, at, len(rows), undated, count, total, reason)
        self._pending.append(Finished(entry, rows))
        is_full = sum(len(one.rows) for one in self._pending) >= MOST_PENDING
        is_due = asyncio.get_running_loop().time() - self._committed_at >= COMMIT_EVERY
        if is_full or (is_due and not self._turn.locked()):
            await self._commit()

    async def _commit(self) -> None:
        """Save what is pending."""
        async with self._turn:
            pending, self._pending = self._pending, []
            if not pending:
                return
            writing = asyncio.ensure_future(asyncio.to_thread(self.save, pending))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # Nothing ends a thread: the ledger is not to be closed under it.
                await asyncio.wait([writing])
                raise
            self._committed_at = asyncio.get_running_loop().time()
            self.saved()


async def examined(
    search: Search, rules: Rules, name: str, window: Window, by: By = "date_created"
) -> tuple[Verdict[int], Rows]:
    """Walk *window* of an account; return what became of it, and the rows that its places speak of."""
    begin, end = window.asked(rules.grain)
    steps: Steps[int, Verdict[int]] = examine(window, rules)
    rows = Rows(name)

    async def page(offset: int) -> Sight[int] | None:
        sight = await search.page(name, begin, end, offset, by=by)
        return None if sight is None else sight.with_rows(rows.add(sight.ids, sight.rows, sight.now))

    async def pages(offsets: Sequence[int]) -> list[Sight[int] | None]:
        return [await page(offsets[0])] if len(offsets) == 1 else await together(map(page, offsets))

    return await answered(steps, pages), rows


def _cut(rows: Rows, places: Sequence[int], window: Window) -> tuple[Rows, int]:
    """Return those of *rows* at *places* that belong to *window*, and how many of them have no date."""
    begin, end = window.begin * MILLISECOND, window.end * MILLISECOND
    inside = [i for i in places if (date := rows.created[i]) is not None and begin <= date < end]
    undated = []
    if len(inside) < len(places):
        undated = [i for i in places if (date := rows.created[i]) is None or date < NO_DATE - EPOCH]
    if len(inside) < len(rows):
        rows = rows.take([*inside, *undated])
    return rows, len(undated)


def save(pending: Sequence[Finished], directory: Path) -> tuple[list[Entry], list[tuple[str, bool]]]:
    """Write the rows of windows to files; return what is to be entered into the ledger: windows and files.

    A window whose rows have an amount that cannot be kept is not whole.
    """
    try:
        return _saved(pending, directory)
    except ValueError:
        return _saved([_keepable(one) for one in pending], directory)


def _saved(pending: Sequence[Finished], directory: Path) -> tuple[list[Entry], list[tuple[str, bool]]]:
    files = []
    for kept in (True, False):
        parts = [one.rows for one in pending if one.rows and one.entry.kept == kept]
        if parts:
            # A name that no other worker gives: a job may be done by two, if one is taken for dead.
            file = f"{uuid4().hex}.parquet"
            write(parts, directory / file)
            files.append((file, kept))
    return [one.entry for one in pending], files


def _keepable(finished: Finished) -> Finished:
    rows, reason = keepable(finished.rows)
    if reason is None:
        return finished
    entry = finished.entry._replace(kept=False, reason=finished.entry.reason or reason)
    return replace(finished, entry=entry, rows=rows)


def _merged(pieces: Sequence[Window], most: int) -> Iterable[Window]:
    """Return fewer windows, each of up to *most* neighbours among *pieces*."""
    for i in range(0, len(pieces), most):
        some = pieces[i : i + most]
        yield Window(some[0].begin, some[-1].end, some[0].doubts)
