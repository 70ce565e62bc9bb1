"""The walk over all windows of all accounts: split, certified, written to files, and entered into the checkpoint."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._call.engine import of_one_seller
from paymentsdk._paging.proof import (
    EPOCH,
    GRAINS,
    MILLISECOND,
    NO_DATE,
    Examination,
    Rules,
    Snapshot,
    Verdict,
    Window,
    moment_of,
    remaining,
)
from paymentsdk.errors import NotWhole, PaymentsError
from paymentsdk.reconcile._checkpoint import Checkpoint, DoneWindow
from paymentsdk.reconcile._merchant_orders import By, Rows, Search, asked_for, drop_unstorable, not_whole, write
from paymentsdk.reconcile._tasks import for_each, in_thread, together, work_off

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

Phase = Literal["walk", "changes", "look-ups", "comparison"]

#: Calls in flight, of all accounts together.
MOST_IN_FLIGHT = 64
#: Seconds between two commits: what a killed process has to do again. More often, the files would be small.
COMMIT_EVERY = 0.25
#: Rows that wait to be written, at most.
MOST_PENDING = 20_000
#: Jobs for each place of an executor: some parts of a time have more rows than others.
_JOBS_PER_SLOT = 4
#: Milliseconds of a job at least.
_SHORTEST_JOB = 60_000


class Progress(Struct, frozen=True, kw_only=True):
    """How far a walk or a reconciliation is."""

    phase: Literal["walk", "changes", "look-ups", "comparison"] = "walk"
    """The current phase: the walk over all windows, then rows that have changed since, then orders that were not found,
    then the comparison. A walk alone has the first phase."""

    share: float
    """The part of this phase that is done, 0 to 1; of a walk, by the time that its windows span."""

    windows: int
    """Windows that are done, of this run and those that it goes on with."""

    rows: int
    """Rows in them."""

    calls: int
    """Calls that this run has made."""


class WalkReport(Struct, frozen=True, kw_only=True):
    """The result of a walk."""

    parts: tuple[Path, ...]
    """The Parquet files with the rows, each row once. Other files in their directory are not part of the walk. Rows of
    accounts that only an earlier run in the directory had are in them, too."""

    rows: int
    """How many rows of the accounts of this run they have."""

    undated: int
    """How many of them have no ``date_created``, or one of the year 1. Such a row comes once for each window that
    showed it."""

    windows: int
    """How many windows there were."""

    not_whole: tuple[NotWhole, ...]
    """The windows that could not be certified. Rows that were seen in them are among the rows."""

    failed: Mapping[str, PaymentsError]
    """The accounts that could not be read, and the error of each. Run again to walk what is left of them."""

    calls: int
    """Calls that this run has made; those of earlier runs do not count."""

    grain: timedelta
    """How exactly the platform's date filter works, as it was proved on live rows of each account: that of the account
    for which it is the coarsest. It is a day for an account without rows, on which nothing can be proved."""


class Job(Struct, frozen=True, kw_only=True):
    """A window of an account to be walked by a worker process."""

    directory: str
    """Where its files go: the same storage for all workers."""
    account: str
    window: Window
    rules: Rules


class JobDone(Struct, frozen=True, kw_only=True):
    """The result of a job. Nothing of it counts before the driver has entered it into the checkpoint."""

    windows: Sequence[DoneWindow]
    files: Sequence[tuple[str, bool]]
    calls: int
    begun: int | None
    """The platform's time at its first response, in milliseconds since 1970."""


class Executor(AbstractAsyncContextManager["Executor"], Protocol):
    """Walks the windows of `walk(executor=)` and `reconcile(executor=)`, as `DaskExecutor` does."""

    @property
    def slots(self) -> int:
        """How many jobs may be under way."""
        ...

    async def run(self, job: Job) -> JobDone:
        """Have a worker do *job*; if that worker dies, another."""
        ...


@dataclass
class Walk:
    """A run: it asks, writes and commits until every window is done."""

    created: Window
    accounts: Mapping[str, "PaymentsClient"]
    rules: Rules
    in_flight: int
    checkpoint: Checkpoint
    progress: Callable[[Progress], None] | None
    """Called after each commit."""
    executor: Executor | None
    """Who walks the windows; this event loop without one."""
    failed: dict[str, PaymentsError] = field(default_factory=dict)
    """The accounts that are set aside, and the error of each."""
    _reported: tuple[Phase | None, float, float] = (None, 0.0, 0.0)
    """The phase that was reported last, its share, and when."""

    def __post_init__(self) -> None:
        #: How exact the date filter of each account is, in milliseconds.
        self._grains: dict[str, int] = {}
        budgets = {name: asyncio.Semaphore(self.in_flight) for name in self.accounts}
        self.search = Search(self.accounts, self.rules.max_window, budgets)

    async def walk(self) -> WalkReport:
        """Walk all windows that are left.

        Raises:
            PaymentsError: As `take_phase` says.
        """
        await self.take_phase(self._walk_accounts)
        self.report_progress(share=1.0)
        sums = self.checkpoint.sums()
        return WalkReport(
            parts=tuple(self.checkpoint.parts / name for name in self.checkpoint.names()),
            rows=sums.rows,
            undated=sums.undated,
            windows=sums.windows,
            not_whole=tuple(
                not_whole(done.account, Window(done.begin, done.end), done.seen, done.total, done.reason or "")
                for done in self.checkpoint.doubtful()
            ),
            failed=self.failed,
            calls=self.search.calls,
            grain=timedelta(milliseconds=max(self._grains.values())),
        )

    async def take_phase(self, phase: Callable[[list[str]], Coroutine[None, None, None]]) -> None:
        """Take a *phase* of the run with all accounts that have not failed, then again with those that fail in it.

        Raises:
            PaymentsError: No account could be read. This is the first error.
        """
        earlier = {*self.failed}
        await phase([name for name in self.accounts if name not in earlier])
        if len(self.failed) == len(self.accounts):
            raise next(iter(self.failed.values()))
        if again := [name for name in self.failed if name not in earlier]:
            for name in again:
                del self.failed[name]
            await phase(again)

    async def _walk_accounts(self, names: list[str]) -> None:
        saved = self.checkpoint.grains()
        proved = await self.prove([name for name in names if name not in saved], self.created)
        # Not of an account without rows: there may be some when the run is resumed.
        self.checkpoint.save_grains({name: grain for name, grain in proved.items() if isinstance(grain, int)})
        self.failed |= {name: grain for name, grain in proved.items() if isinstance(grain, NotWhole)}
        # Without a row to prove it on, the coarsest costs nothing: the rows that appear later are few.
        grains = {name: grain or GRAINS[-1] for name, grain in {**proved, **saved}.items() if name in names}
        self._grains |= {name: grain for name, grain in grains.items() if isinstance(grain, int)}
        todo = {name: remaining(self.created, self.checkpoint.done(name)) for name in names if name not in self.failed}
        rules = {name: replace(self.rules, grain=self._grains[name]) for name in todo}
        if self.executor is None:
            commit, directory = self.checkpoint.commit, self.checkpoint.parts
            walker = Walker(
                self.search, rules, self.in_flight, directory, commit, self.report_progress, failed=self.failed
            )
            await walker.run(todo)
        else:
            await self._spread(self.executor, rules, todo)

    async def prove(
        self, names: Iterable[str], created: Window, by: By = "date_created"
    ) -> dict[str, int | NotWhole | None]:
        """Prove the date filter of each account; return its grain, or what is wrong. `None`: it has no rows.

        An account whose calls fail is set aside.
        """
        turn = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self.in_flight))

        async def grain_of(name: str) -> int | NotWhole | None:
            async with turn:
                try:
                    return await self.search.prove(name, created, by)
                except NotWhole as error:
                    return error

        return await for_each(names, grain_of, self.failed)

    async def _spread(
        self, executor: Executor, rules: Mapping[str, Rules], todo: Mapping[str, Sequence[Window]]
    ) -> None:
        """Have *executor* walk the windows. Workers write files; whose windows are entered is decided here alone."""
        parts = -(-_JOBS_PER_SLOT * executor.slots // max(1, sum(map(len, todo.values()))))
        jobs = [
            Job(directory=str(self.checkpoint.parts.absolute()), account=name, window=part, rules=rules[name])
            for name, windows in todo.items()
            for window in windows
            for part in window.slices(max(1, min(parts, (window.end - window.begin) // _SHORTEST_JOB)))
        ]

        async def do_job(job: Job) -> JobDone | None:
            """Return `None` if the account is set aside."""
            accounts = [job.account] if job.account not in self.failed else []
            return (await for_each(accounts, lambda _: executor.run(job), self.failed)).get(job.account)

        async def take(result: JobDone | None) -> None:
            if result is None:
                return
            self.search.calls += result.calls
            self.search.begun = min(filter(None, (self.search.begun, result.begun)), default=None)
            await in_thread(self.checkpoint.commit, result.windows, result.files)
            self.report_progress()

        await work_off(jobs, do_job, take, executor.slots)

    def report_progress(self, phase: Phase = "walk", share: float | None = None) -> None:
        """Report the progress, four times a second and at the end of a phase; without a *share*, that of the walk."""
        reported, reached, at = self._reported
        now = asyncio.get_running_loop().time()
        is_told = phase == reported and (reached == 1 if share == 1 else now - at < COMMIT_EVERY)
        if self.progress is None or is_told:
            return
        sums = self.checkpoint.sums()
        if share is None:
            share = sums.width / ((self.created.end - self.created.begin) * len(self.accounts))
        self._reported = phase, share, now
        self.progress(Progress(phase=phase, share=share, windows=sums.windows, rows=sums.rows, calls=self.search.calls))


async def asked_of(client: "PaymentsClient", accounts: Sequence[str]) -> tuple[str, str | None]:
    """Return the address of the platform, and the seller of a client of one: accounts are told by their names."""
    if name := accounts[0]:
        client = client.account(name)
    engine = client._engine  # noqa: SLF001 - no caller of a client needs it
    base_url, seller = engine.settings.base_url, engine.settings.account or await engine.user_id()
    return base_url, None if name else seller


def question(created: Window, accounts: Sequence[str], rules: Rules, base_url: str, seller: str | None) -> str:
    """Return what a resumed run has to have in common with the run that it goes on with, on whatever machine it is."""
    members = {
        "created": [moment_of(end).isoformat() for end in (created.begin, created.end)],
        "accounts": list(accounts),
        "lag": rules.lag,
        "max_window": rules.max_window,
        "base_url": base_url,
        "seller": seller,
    }
    return json.dumps(members)


async def do(job: Job, client: "PaymentsClient", in_flight: int, budget: asyncio.Semaphore) -> JobDone:
    """Walk the window of *job* on this event loop, up to *in_flight* windows at a time; *budget* bounds the calls."""
    seller = of_one_seller(client.account(job.account) if job.account else client)
    search = Search({job.account: seller}, job.rules.max_window, {job.account: budget})
    windows: list[DoneWindow] = []
    files: list[tuple[str, bool]] = []

    def collect(finished: Sequence[DoneWindow], written: Sequence[tuple[str, bool]]) -> None:
        windows.extend(finished)
        files.extend(written)

    walker = Walker(search, {job.account: job.rules}, in_flight, Path(job.directory), collect)
    await walker.run({job.account: [job.window]})
    if walker.failed:
        raise walker.failed[job.account]
    return JobDone(windows=windows, files=files, calls=search.calls, begun=search.begun)


# --- the windows of some accounts, on one event loop ------------------------------------------------------------------


@dataclass
class Walker:
    """Walks windows, and writes their rows in batches."""

    search: Search
    rules: Mapping[str, Rules]
    """Of each account: its date filter has a grain of its own."""
    in_flight: int
    """Windows of an account that are walked at a time."""
    directory: Path
    """Where files go."""
    commit: Callable[[Sequence[DoneWindow], Sequence[tuple[str, bool]]], None]
    """Enters windows, and the files with their rows; called in a thread."""
    on_commit: Callable[[], None] = lambda: None
    """Called after each batch."""
    failed: dict[str, PaymentsError] = field(default_factory=dict)
    """The accounts whose calls have failed, and the error of each."""

    _pending: list[tuple[DoneWindow, Rows]] = field(default_factory=list)
    """Windows that are done and not yet committed, with their rows."""
    _pending_rows: int = 0
    """How many these are."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _committed_at: float = 0.0

    async def run(self, todo: Mapping[str, list[Window]]) -> None:
        """Walk the windows of each account."""
        at_once = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self.in_flight))
        try:
            await for_each(todo, lambda name: self._account(name, todo[name], at_once), self.failed)
        finally:
            # Also if a call has failed: what is done need not be done again.
            await self._commit()

    async def _account(self, name: str, windows: list[Window], at_once: asyncio.Semaphore) -> None:
        """Walk the windows of one account, some at a time, the latest first: they split into the most pieces."""

        async def walk(window: Window) -> tuple[Window, Verdict, Rows]:
            return window, *await examined(self.search, self.rules[name], name, window)

        async def take(walked: tuple[Window, Verdict, Rows]) -> None:
            window, verdict, rows = walked
            if verdict.pieces:
                windows.extend(verdict.pieces)
            else:
                await self._finish(window, verdict, rows)

        async with at_once:
            await work_off(windows, walk, take, self.in_flight)

    async def _finish(self, window: Window, verdict: Verdict, pages: Rows) -> None:
        """Keep the rows of *window*, and commit if that is due."""
        rows, undated = _cut(pages, verdict.places, window)
        # The certificate of a young window speaks of one moment; rows may have become visible since.
        is_final = verdict.reason is None and window.is_settled(self.rules[rows.account], verdict.at)
        # Rows of several tries were read before the last one began.
        at = min(map(pages.read_at.__getitem__, verdict.places), default=verdict.at)
        about = (len(rows), undated, len(verdict.places), verdict.total, verdict.reason)
        self._pending.append((DoneWindow(rows.account, window.begin, window.end, is_final, at, *about), rows))
        self._pending_rows += len(rows)
        is_full = self._pending_rows >= MOST_PENDING
        is_due = asyncio.get_running_loop().time() - self._committed_at >= COMMIT_EVERY
        if is_full or (is_due and not self._turn.locked()):
            await self._commit()

    async def _commit(self) -> None:
        """Save what is pending."""
        async with self._turn:
            pending, self._pending, self._pending_rows = self._pending, [], 0
            if pending:
                await in_thread(self._save, pending)
                self._committed_at = asyncio.get_running_loop().time()
                self.on_commit()

    def _save(self, pending: Sequence[tuple[DoneWindow, Rows]]) -> None:
        """Write files first, windows after: a file that no window has is nothing, a window without its file a lie."""
        try:
            files = self._write(pending)
        except ValueError:
            # A window whose rows have an amount that cannot be stored is not whole.
            pending = [(_without_unstorable(window, rows), rows) for window, rows in pending]
            files = self._write(pending)
        self.commit([window for window, _ in pending], files)

    def _write(self, pending: Sequence[tuple[DoneWindow, Rows]]) -> list[tuple[str, bool]]:
        files = []
        for is_final in (True, False):
            parts = [rows for window, rows in pending if rows and window.is_final == is_final]
            if parts:
                # A name that no other worker gives: a job may be done by two, if one is taken for dead.
                file = f"{uuid4().hex}.parquet"
                write(parts, self.directory / file)
                files.append((file, is_final))
        return files


async def examined(
    search: Search, rules: Rules, name: str, window: Window, by: By = "date_created"
) -> tuple[Verdict, Rows]:
    """Walk *window* of an account; return what became of it, and the rows that its places speak of."""
    rows, filters = Rows(name), asked_for(*window.asked(rules.grain), by)

    async def ask(offsets: Sequence[int]) -> list[Snapshot | None]:
        if len(offsets) == 1:
            return [await search.page(rows, offsets[0], **filters)]
        return await together(search.page(rows, offset, **filters) for offset in offsets)

    return await Examination(window, rules, ask).verdict(), rows


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


def _without_unstorable(window: DoneWindow, rows: Rows) -> DoneWindow:
    """Drop amounts of *rows* that cannot be stored; return what is to be said of their window then."""
    reason = drop_unstorable(rows)
    return window if reason is None else window._replace(is_final=False, reason=window.reason or reason)
