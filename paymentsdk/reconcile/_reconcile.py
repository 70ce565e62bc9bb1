"""The steps of a reconciliation: the book, the walk, what has changed since, the comparison, and what was not found."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from paymentsdk.reconcile._book import Book
from paymentsdk.reconcile._changes import Changes, ChangesWalk
from paymentsdk.reconcile._diff import Diff
from paymentsdk.reconcile._job import Executor
from paymentsdk.reconcile._ledger import Ledger
from paymentsdk.reconcile._look_up import FOUND, Absent, Found, LookUps
from paymentsdk.reconcile._open import open_records, open_write
from paymentsdk.reconcile._report import Report
from paymentsdk.reconcile._walk import Plan, Progress, Walk, WalkReport
from paymentsdk.reconcile._windows import moment_of

if TYPE_CHECKING:
    from paymentsdk.journal import Journal

#: Databases of comparisons: what has such a name is deleted by the next run.
_PREFIX = "paymentsdk-comparison-"
Phase = Literal["walk", "changes", "look-ups", "comparison"]


@dataclass(kw_only=True)
class Reconciliation:
    """A reconciliation under way."""

    plan: Plan
    diff: Diff
    """Has the book."""
    columns: tuple[str, ...]
    """The columns of the book."""
    ledger: Ledger
    journal: Journal | None
    """Of the client."""
    progress: Callable[[Progress], None] | None
    executor: Executor | None

    def __post_init__(self) -> None:
        self._search = self.plan.search()
        self._directory = self.ledger.parts.parent

    async def run(self) -> Report:
        """Take every step, and write what was found."""
        records = [] if self.journal is None else await open_records(self.journal)
        walked = await Walk(self.plan, self._search, self.ledger, self.progress, self.executor).run()
        changes = await self._changes(walked)
        # Before the first call of this run nobody knew more than the book.
        begun = self._search.begun or self.plan.created.end
        doubtful = (*walked.not_whole, *changes.not_whole)
        missing = await asyncio.to_thread(
            self.diff.compare,
            self.plan.created,
            walked.parts,
            changes.files,
            columns=self.columns,
            # However coarse the date filter is: the search shows an order once it is older than the lag.
            settled=begun - self.plan.rules.lag,
            oldest=begun - self.plan.rules.horizon,
            doubtful=walked.not_whole,
            open_writes=[open_write(record) for record in records],
        )
        if missing:
            await self._look_up(walked, missing)
        self._tell("comparison", 0.0, walked)
        counts = await asyncio.to_thread(self.diff.finish, self._directory / "differences.parquet")
        self.ledger.drop_look_ups()
        self._tell("comparison", 1.0, walked)
        return Report(
            directory=self._directory,
            counts=counts,
            columns=self.columns,
            created=(moment_of(self.plan.created.begin), moment_of(self.plan.created.end)),
            rows=walked.rows,
            calls=self._search.calls,
            as_of=None if changes.as_of is None else moment_of(changes.as_of),
            not_whole=doubtful,
            open_records=tuple(records),
        )

    async def _changes(self, walked: WalkReport) -> Changes:
        directory = self._directory / "changes"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        since = self.ledger.since()
        if since is None:
            return Changes([], None, [])
        walk = ChangesWalk(self._search, self.plan.rules, directory, lambda share: self._tell("changes", share, walked))
        # What changed shortly before may have been shown only since.
        return await walk.run(since - self.plan.rules.lag)

    async def _look_up(self, walked: WalkReport, missing: int) -> None:
        def told(done: int) -> None:
            self._tell("look-ups", done / missing, walked)

        look_ups = LookUps(self._search, self.plan.rules, self.ledger, self.plan.in_flight, told)
        await look_ups.run(self.diff.absent())
        self.diff.add_looked_up(self._found())

    def _found(self) -> Iterator[tuple[Absent, Found]]:
        for one in self.diff.absent():
            kept = self.ledger.look_up(*one.key)
            if kept is not None:
                yield one, FOUND.decode(kept)

    def _tell(self, phase: Phase, share: float, walked: WalkReport) -> None:
        if self.progress is not None:
            calls = self._search.calls
            self.progress(Progress(phase=phase, share=share, windows=walked.windows, rows=walked.rows, calls=calls))


@asynccontextmanager
async def loaded(book: Book, out: Path) -> AsyncIterator[tuple[Diff, tuple[str, ...]]]:
    """Read *book* into a database of its own, below *out*, and yield it with the columns that the book has."""
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=_PREFIX, dir=out, ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with closing(await asyncio.to_thread(Diff, directory)) as diff:
            yield diff, await book.load(diff.database, directory)


def drop_left(out: Path, diff: Diff) -> None:
    """Delete what killed runs have left behind; the caller has locked *out*."""
    for path in out.glob(f"{_PREFIX}*"):
        if path != diff.directory:
            shutil.rmtree(path, ignore_errors=True)
