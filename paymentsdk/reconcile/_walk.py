"""The walk over all windows of all accounts: who walks them, and what becomes of it."""

from __future__ import annotations

import json
from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk.errors import NotWhole
from paymentsdk.reconcile._job import Executor, Job, JobDone
from paymentsdk.reconcile._ledger import Ledger
from paymentsdk.reconcile._rows import SEARCH_ORDERS
from paymentsdk.reconcile._search import Search
from paymentsdk.reconcile._tasks import work_off
from paymentsdk.reconcile._walker import Finished, Walker, save
from paymentsdk.reconcile._windows import Rules, Window, moment_of, remaining

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient


class Progress(Struct, frozen=True, kw_only=True):
    """How far a walk or a reconciliation is."""

    phase: Literal["walk", "changes", "look-ups", "comparison"] = "walk"
    """What it is at: the walk over all windows, then what has changed since, orders that were not found, and the rest.
    A walk alone has the first."""

    share: float
    """The part of this phase that is done, 0 to 1; of a walk, by the time that its windows span."""

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

    def search(self) -> Search:
        """Return what asks for pages, and counts the calls."""
        return Search(self.accounts, self.rules.max_window, self.in_flight)


@dataclass
class Walk:
    """A run: it asks, writes and commits until every window is done."""

    plan: Plan
    search: Search
    ledger: Ledger
    progress: Callable[[Progress], None] | None
    """Called after each commit."""
    executor: Executor | None
    """Who walks the windows; this event loop without one."""

    async def run(self) -> WalkReport:
        """Walk whatever is left."""
        if self.ledger.grain is None:
            self.ledger.grain = await self._prove()
        rules = replace(self.plan.rules, grain=self.ledger.grain)
        todo = {name: remaining(self.plan.created, self.ledger.done(name)) for name in self.plan.accounts}
        if self.executor is None:
            await Walker(self.search, rules, self.plan.in_flight, self._save, self._report_progress).run(todo)
        else:
            await self._spread(self.executor, rules, todo)
        return self._report(rules)

    async def _prove(self) -> int:
        """Prove the date filter.

        Raises:
            NotWhole: No row is found by its date: no window would prove anything.
        """
        proof = await self.search.prove()
        if proof.grain is None:
            reason = "the date filter finds no row by the date that it shows"
            raise not_whole(proof.account, self.plan.created, 0, proof.total, reason)
        return proof.grain

    def _save(self, pending: Sequence[Finished]) -> None:
        """Write files first, entries after: a file without an entry is nothing, an entry without its file a lie."""
        self.ledger.commit(*save(pending, self.ledger.parts))

    async def _spread(self, executor: Executor, rules: Rules, todo: Mapping[str, Sequence[Window]]) -> None:
        """Have *executor* walk the windows. Workers write files; whose windows are entered is decided here alone."""
        jobs = [
            Job(directory=str(self.ledger.parts.absolute()), account=name, window=window, rules=rules)
            for name, windows in todo.items()
            for window in windows
        ]

        async def take(done: JobDone) -> None:
            self.search.calls += done.calls
            await to_thread(self.ledger.commit, done.entries, done.files)
            self._report_progress()
            jobs.extend(replace(done.job, window=window) for window in done.postponed)

        await work_off(jobs, executor.run, take, lambda: executor.slots)

    def _report_progress(self) -> None:
        if self.progress is not None:
            sums = self.ledger.sums()
            width = (self.plan.created.end - self.plan.created.begin) * len(self.plan.accounts)
            share = sums.width / width
            self.progress(Progress(share=share, windows=sums.windows, rows=sums.rows, calls=self.search.calls))

    def _report(self, rules: Rules) -> WalkReport:
        sums = self.ledger.sums()
        doubtful = [
            not_whole(one.account, Window(one.begin, one.end), one.seen, one.total, one.reason or "")
            for one in self.ledger.doubtful()
        ]
        return WalkReport(
            parts=tuple(self.ledger.parts / name for name in self.ledger.names()),
            rows=sums.rows,
            undated=sums.undated,
            windows=sums.windows,
            not_whole=tuple(doubtful),
            calls=self.search.calls,
            grain=timedelta(milliseconds=rules.grain),
        )


def not_whole(name: str, window: Window, seen: int, total: int | None, reason: str) -> NotWhole:
    """Return the error that names *window* of an account."""
    error = NotWhole((moment_of(window.begin), moment_of(window.end)), seen, total, reason)
    error.account = name or None
    error.operation = SEARCH_ORDERS.name
    return error
