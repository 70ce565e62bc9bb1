"""A run over all accounts, with its phases, its progress, and the jobs of executors."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._call.engine import engine_of, of_one_seller
from paymentsdk._futures import in_thread
from paymentsdk._paging.proof import GRAINS, Rules, Window, moment_of, remaining
from paymentsdk._validate import check_within
from paymentsdk.errors import NotWhole, PaymentsError, RequestInvalid
from paymentsdk.reconcile._checkpoint import Checkpoint, DoneWindow
from paymentsdk.reconcile._merchant_orders import By
from paymentsdk.reconcile._tasks import for_each, work_off
from paymentsdk.reconcile._walk import COMMIT_EVERY, MOST_IN_FLIGHT, Walk, not_whole

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

Phase = Literal["walk", "changes", "look-ups", "comparison"]

#: The maximum of calls in flight in a worker process.
_MOST_OF_WORKER = 1_000
#: Jobs per slot of an executor. Several are needed because some jobs have more rows than others.
_JOBS_PER_SLOT = 4
#: The minimum length of a job's window, in milliseconds.
_SHORTEST_JOB = 60_000


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a walk or a reconciliation."""

    phase: Literal["walk", "changes", "look-ups", "comparison"] = "walk"
    """The current phase: the walk over all windows, then rows that have changed since, then orders that were not found,
    then the comparison. `walk` has only the first phase."""

    share: float
    """The finished part of this phase, 0 to 1. In the walk, it is measured by the time that the windows span."""

    windows: int
    """Finished windows, with those of the run that was resumed."""

    rows: int
    """Rows in the finished windows."""

    calls: int
    """Calls that this run has made."""


class WalkReport(Struct, frozen=True, kw_only=True):
    """The result of a walk."""

    parts: tuple[Path, ...]
    """The Parquet files with the rows, each row once. Other files in their directory are not part of the walk. The
    files also have the rows of accounts that only an earlier run in the directory had."""

    rows: int
    """The number of rows of this run's accounts in the files."""

    undated: int
    """The number of rows without a ``date_created``, or with a date in the year 1. Such a row comes once for each
    window that showed it."""

    windows: int
    """The number of windows."""

    not_whole: tuple[NotWhole, ...]
    """The windows that could not be certified. The rows that were seen in them are in the files."""

    failed: Mapping[str, PaymentsError]
    """The accounts that could not be read, with the error of each. Run again to walk their remaining windows."""

    calls: int
    """Calls that this run has made, without earlier runs."""

    grain: timedelta
    """The precision of the platform's date filter, as proved on live rows of each account; the coarsest counts. For an
    account without rows it is a day, because nothing can be proved."""


class Job(Struct, kw_only=True):
    """A window of an account that a worker process walks, with the result.

    The result counts only after the driver has entered it into the checkpoint.
    """

    directory: str
    """The directory for the files, on storage that all workers share."""
    account: str
    window: Window
    rules: Rules

    windows: list[DoneWindow] = []
    files: list[tuple[str, bool]] = []
    calls: int = 0
    begun: int | None = None
    """The platform's time at the first response, in milliseconds since 1970."""

    def commit(self, windows: Sequence[DoneWindow], files: Sequence[tuple[str, bool]]) -> None:
        """Add *windows* and *files* to the result."""
        self.windows += windows
        self.files += files


class Executor(AbstractAsyncContextManager["Executor"], Protocol):
    """Walks the windows for `walk(executor=)` and `reconcile(executor=)`, as `DaskExecutor` does."""

    @property
    def slots(self) -> int:
        """The maximum of jobs in flight."""
        ...

    async def run(self, job: Job) -> Job:
        """Let a worker do *job*, and return the job with its result. If the worker dies, another does the job."""
        ...


@dataclass
class Run:
    """A run takes its phases with all accounts, and sets aside accounts that cannot be read."""

    created: Window
    accounts: Mapping[str, "PaymentsClient"]
    rules: Rules
    in_flight: int
    checkpoint: Checkpoint
    progress: Callable[[Progress], None] | None
    """Called after each commit."""
    executor: Executor | None
    """Walks the windows; without it, this event loop does."""
    failed: dict[str, PaymentsError] = field(default_factory=dict)
    """The accounts that are set aside, with the error of each."""
    _reported: tuple[Phase | None, float, float] = (None, 0.0, 0.0)
    """The phase that was reported last, its share, and the time of the report."""

    def __post_init__(self) -> None:
        #: The grain of each account's date filter, in milliseconds.
        self._grains: dict[str, int] = {}
        self.walk = Walk(
            self.accounts,
            self.rules.max_window,
            self.in_flight,
            self.checkpoint.parts,
            self.checkpoint.commit,
            on_commit=self.report_progress,
            failed=self.failed,
        )

    async def walk_all(self) -> WalkReport:
        """Walk all remaining windows.

        Raises:
            PaymentsError: No account could be read. This is the first error.
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
                not_whole(row.account, Window(row.begin, row.end), row.seen, row.total, row.reason or "")
                for row in self.checkpoint.doubtful()
            ),
            failed=self.failed,
            calls=self.walk.calls,
            grain=timedelta(milliseconds=max(self._grains.values())),
        )

    async def take_phase(self, phase: Callable[[list[str]], Coroutine[None, None, None]]) -> None:
        """Take a *phase* with all accounts that have not failed, then once more with the accounts that failed in it.

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
        proved = await self.prove([name for name in names if name not in saved], self.created, self.failed)
        # An account without rows has no saved grain, because it may have rows when the run is resumed.
        self.checkpoint.save_grains({name: grain for name, grain in proved.items() if grain is not None})
        # Without rows to prove it, the coarsest grain is safe. It costs little, because few rows can appear later.
        grains = {name: grain or GRAINS[-1] for name, grain in {**proved, **saved}.items() if name in names}
        self._grains |= grains
        todo = {name: remaining(self.created, self.checkpoint.done(name)) for name in grains}
        rules = {name: replace(self.rules, grain=grain) for name, grain in grains.items()}
        await (self.walk.run(todo, rules) if self.executor is None else self._spread(self.executor, todo, rules))

    async def prove(
        self, names: Iterable[str], created: Window, failed: dict[str, PaymentsError], by: By = "date_created"
    ) -> dict[str, int | None]:
        """Prove the date filter of each account, and return its grain, or `None` for an account without rows.

        An account whose calls fail, or whose filter finds no row by its date, goes to *failed*.
        """
        turn = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self.in_flight))

        async def grain_of(name: str) -> int | None:
            async with turn:
                return await self.walk.prove(name, created, by)

        return await for_each(names, grain_of, failed)

    async def _spread(
        self, executor: Executor, todo: Mapping[str, Sequence[Window]], rules: Mapping[str, Rules]
    ) -> None:
        """Let *executor* walk the windows. Workers write files, but only this method enters windows."""
        parts = -(-_JOBS_PER_SLOT * executor.slots // max(1, sum(map(len, todo.values()))))
        jobs = [
            Job(directory=str(self.checkpoint.parts.absolute()), account=name, window=part, rules=rules[name])
            for name, windows in todo.items()
            for window in windows
            for part in window.slices(max(1, min(parts, (window.end - window.begin) // _SHORTEST_JOB)))
        ]

        async def do_job(job: Job) -> Job | None:
            """Do *job*, and return it with its result; `None` if the account is set aside."""
            accounts = [job.account] if job.account not in self.failed else []
            return (await for_each(accounts, lambda _: executor.run(job), self.failed)).get(job.account)

        async def take(job: Job | None) -> None:
            if job is None:
                return
            self.walk.calls += job.calls
            self.walk.begun = min(filter(None, (self.walk.begun, job.begun)), default=None)
            await in_thread(self.checkpoint.commit, job.windows, job.files)
            self.report_progress()

        await work_off(jobs, do_job, take, executor.slots)

    def report_progress(self, phase: Phase = "walk", share: float | None = None) -> None:
        """Report the progress, at most four times a second, and at the end of a phase.

        Without a *share*, the share of the walk is reported.
        """
        reported, reached, at = self._reported
        now = asyncio.get_running_loop().time()
        is_told = phase == reported and (reached == 1 if share == 1 else now - at < COMMIT_EVERY)
        if self.progress is None or is_told:
            return
        sums = self.checkpoint.sums()
        if share is None:
            share = sums.width / ((self.created.end - self.created.begin) * len(self.accounts))
        self._reported = phase, share, now
        self.progress(Progress(phase=phase, share=share, windows=sums.windows, rows=sums.rows, calls=self.walk.calls))


async def asked_of(client: "PaymentsClient", accounts: Sequence[str]) -> tuple[str, str | None]:
    """Return the address of the platform, and the seller of a client without named accounts, else `None`."""
    name = accounts[0]
    engine = engine_of(client.account(name) if name else client)
    base_url, seller = engine.settings.base_url, engine.settings.account or await engine.seller()
    return base_url, None if name else seller


def question(created: Window, accounts: Sequence[str], rules: Rules, base_url: str, seller: str | None) -> str:
    """Return the arguments that a resumed run must share with the earlier run, as JSON; the machine may differ."""
    members = {
        "created": [moment_of(end).isoformat() for end in (created.begin, created.end)],
        "accounts": list(accounts),
        "lag": rules.lag,
        "max_window": rules.max_window,
        "base_url": base_url,
        "seller": seller,
    }
    return json.dumps(members)


# --- workers ---------------------------------------------------------------------------------------------------------


class DaskExecutor:
    """Walks windows on the workers of a Dask cluster, for `walk(executor=)` and `reconcile(executor=)`.

    Needs the extra `dask`, the same versions on all machines, and storage that all machines see under the same path for
    `out`. Each job has its own client. If a worker dies, Dask gives its job to another worker, and the files of the
    first do not count.

    Args:
        connect: Makes the client of a job. It is a function that the workers can import, or a function of the main
            module. It is called on the event loop of the job; the client is closed after the job.
        address: The address of the scheduler, such as `tcp://10.0.0.1:8786`.
        in_flight: Calls in flight of each worker process, 1 to 1,000. The threads of the process share them equally,
            and each has at least one.

    Raises:
        RequestInvalid: *in_flight* is out of range, or, when a walk begins, *address* is invalid.
    """

    def __init__(self, connect: Callable[[], "PaymentsClient"], address: str, *, in_flight: int = 16) -> None:
        self._connect = connect
        self._address = address
        self._in_flight = check_within("in_flight", in_flight, 1, _MOST_OF_WORKER)
        self._cluster: Any = None
        #: The threads of each worker process.
        self._threads: list[int] = []

    @property
    def slots(self) -> int:
        """The number of jobs in flight: one for each thread of the workers, and as many that wait."""
        return max(1, 2 * sum(self._threads))

    async def run(self, job: Job) -> Job:
        """Let a worker do *job*, and return the job with its result. If the worker dies, another does the job.

        Raises:
            PaymentsError: A call failed.
            ChildProcessError: The job has killed as many workers as Dask's configuration allows.
        """
        in_flight = max(1, self._in_flight // max(self._threads, default=1))
        future = self._cluster.submit(_do, job, self._connect, in_flight, pure=False)
        try:
            result: Job = await future
        except import_module("distributed").KilledWorker as error:
            raise ChildProcessError(str(error)) from None
        finally:
            future.release()
        return result

    async def __aenter__(self) -> Self:
        if self._cluster is not None:
            raise RequestInvalid("executor", "walks for another run; make an executor for each run")
        self._cluster = import_module("distributed").Client(self._address, asynchronous=True)
        try:
            await self._cluster
            self._threads = [*(await self._cluster.nthreads()).values()]
        except BaseException as error:
            await self.__aexit__()
            if isinstance(error, ValueError):
                raise RequestInvalid("address", str(error)) from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        cluster, self._cluster = self._cluster, None
        await cluster.close()


def _do(job: Job, connect: Callable[[], "PaymentsClient"], in_flight: int) -> Job:
    return asyncio.run(_walk_job(job, connect, in_flight))


async def _walk_job(job: Job, connect: Callable[[], "PaymentsClient"], in_flight: int) -> Job:
    """Walk the window of *job* with a client of its own, up to *in_flight* pieces concurrently."""
    job, name = replace(job, windows=[], files=[]), job.account
    async with connect() as client:
        seller = of_one_seller(client.account(name) if name else client)
        walk = Walk({name: seller}, job.rules.max_window, in_flight, Path(job.directory), job.commit)
        await walk.run({name: [job.window]}, {name: job.rules})
    if walk.failed:
        raise walk.failed[name]
    return replace(job, calls=walk.calls, begun=walk.begun)
