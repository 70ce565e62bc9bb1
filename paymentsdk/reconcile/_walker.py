"""The walk over the windows of some accounts on one event loop: calls in flight, and rows written in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk.reconcile._certificate import Doubtful, Sight, Split, Verdict, Whole, examine
from paymentsdk.reconcile._ledger import Entry
from paymentsdk.reconcile._rows import Part, Row, keepable, write
from paymentsdk.reconcile._search import Search
from paymentsdk.reconcile._windows import NO_DATE, Rules, Window, moment_of

T = TypeVar("T")

#: Calls in flight, of all accounts together.
MOST_IN_FLIGHT = 64
#: Seconds between two commits: what a killed process has to do again. More often, the files would be small.
COMMIT_EVERY = 0.25
#: Rows that wait to be written, at most.
MOST_PENDING = 8_000


class Finished(Struct, frozen=True):
    """A window that is done and not yet committed, with its rows."""

    entry: Entry
    rows: Sequence[Row]


class Walker:
    """Walks windows, and has their rows saved in batches.

    Args:
        search: Fetches pages.
        rules: What is assumed about the platform.
        in_flight: Windows of an account that are walked at a time.
        save: Writes rows and enters windows; called in a thread.
        saved: Called after each batch.
        most_pieces: A window that is split into more pieces is left, in `postponed`, to whoever shares out work.
    """

    def __init__(
        self,
        search: Search,
        rules: Rules,
        in_flight: int,
        save: Callable[[Sequence[Finished]], None],
        saved: Callable[[], None],
        *,
        most_pieces: int | None = None,
    ) -> None:
        self._search = search
        self._rules = rules
        self._in_flight = in_flight
        self._save = save
        self._saved = saved
        self._most_pieces = most_pieces
        self._pending: list[Finished] = []
        self._turn = asyncio.Lock()
        self._committed_at = 0.0
        self.postponed: list[Window] = []

    async def run(self, todo: Mapping[str, list[Window]]) -> None:
        """Walk the windows of each account."""
        at_once = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self._in_flight))
        try:
            await together(self._account(name, windows, at_once) for name, windows in todo.items())
        finally:
            # Also if a call has failed: what is done need not be done again.
            await self._commit()

    async def _account(self, name: str, windows: list[Window], at_once: asyncio.Semaphore) -> None:
        """Walk the windows of one account, some at a time, the latest first: they split into the most pieces."""
        running: set[asyncio.Task[tuple[Window, Verdict[Row]]]] = set()
        done: set[asyncio.Task[tuple[Window, Verdict[Row]]]] = set()
        async with at_once:
            try:
                while windows or running:
                    while windows and len(running) < self._in_flight:
                        running.add(asyncio.create_task(self._window(name, windows.pop())))
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        window, verdict = task.result()
                        if not isinstance(verdict, Split):
                            await self._finish(name, window, verdict)
                        elif self._most_pieces is None or len(verdict.pieces) <= self._most_pieces:
                            windows.extend(verdict.pieces)
                        else:
                            self.postponed += _merged(verdict.pieces, self._most_pieces)
            finally:
                await cancel(running | done)

    async def _window(self, name: str, window: Window) -> tuple[Window, Verdict[Row]]:
        begin, end = window.asked(self._rules.grain)
        steps: Generator[int, Sight[Row] | None, Verdict[Row]] = examine(window, self._rules)
        try:
            offset = next(steps)
            while True:
                offset = steps.send(await self._search.page(name, begin, end, offset))
        except StopIteration as stop:
            return window, stop.value

    async def _finish(self, name: str, window: Window, verdict: Whole[Row] | Doubtful[Row]) -> None:
        """Keep the rows of *window*, and commit if that is due."""
        begin, end = moment_of(window.begin), moment_of(window.end)
        rows = [row for row in verdict.rows if (date := row[0].date_created) is not None and begin <= date < end]
        undated: list[Row] = []
        if len(rows) < len(verdict.rows):
            undated = [row for row in verdict.rows if (date := row[0].date_created) is None or date < NO_DATE]
            rows += undated
        seen, total, reason = len(rows), None, None
        if isinstance(verdict, Doubtful):
            seen, total, reason = verdict.seen, verdict.total, verdict.reason
        # The certificate of a young window speaks of one moment; rows may have become visible since.
        kept = reason is None and window.is_settled(self._rules, verdict.at)
        # Rows of several tries were read before the last one began.
        at = min((read_at for _, read_at in verdict.rows), default=verdict.at)
        entry = Entry(name, window.begin, window.end, kept, at, len(rows), len(undated), seen, total, reason)
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
            writing = asyncio.ensure_future(asyncio.to_thread(self._save, pending))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # Nothing ends a thread: the ledger is not to be closed under it.
                await asyncio.wait([writing])
                raise
            self._committed_at = asyncio.get_running_loop().time()
            self._saved()


def save(
    pending: Sequence[Finished], directory: Path, name: Callable[[], str]
) -> tuple[list[Entry], list[tuple[str, bool]]]:
    """Write the rows of windows to files; return what is to be entered into the ledger: windows and files.

    A window whose rows have an amount that cannot be kept is not whole.
    """
    try:
        return _saved(pending, directory, name)
    except ValueError:
        return _saved([_keepable(one) for one in pending], directory, name)


def _saved(
    pending: Sequence[Finished], directory: Path, name: Callable[[], str]
) -> tuple[list[Entry], list[tuple[str, bool]]]:
    files = []
    for kept in (True, False):
        parts = [Part(one.entry.account, one.rows) for one in pending if one.rows and one.entry.kept == kept]
        if parts:
            file = name()
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


async def together(work: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all of *work* at a time and return what it returns; the first error ends the rest and is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def cancel(tasks: Collection[asyncio.Task[T]]) -> None:
    """Cancel *tasks*, and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
