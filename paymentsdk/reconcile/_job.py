"""A window as a job for a worker process: what goes there, what is done there, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from msgspec import Struct

from paymentsdk.reconcile._ledger import Entry
from paymentsdk.reconcile._search import Search
from paymentsdk.reconcile._walker import Finished, Walker, save
from paymentsdk.reconcile._windows import Rules, Window

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

#: Windows that a job walks; of those of more, the rest goes to other workers.
MOST_PIECES = 8
#: Calls in flight of a worker process, at most.
MOST_PER_WORKER = 1_000


class Job(Struct, frozen=True, kw_only=True):
    """A window of an account to be walked."""

    directory: str
    """Where its files go: the same storage for all workers."""
    account: str
    window: Window
    rules: Rules


class JobDone(Struct, frozen=True, kw_only=True):
    """What a job has come to. Nothing of it counts before the driver has entered it into the ledger."""

    job: Job
    entries: Sequence[Entry]
    files: Sequence[tuple[str, bool]]
    calls: int
    postponed: Sequence[Window]
    """What it has left to other workers."""


class Executor(Protocol):
    """Who walks the windows of `walk(executor=)` and `reconcile(executor=)`: `ProcessExecutor` or `DaskExecutor`."""

    @property
    def slots(self) -> int:
        """How many jobs may be under way."""
        ...

    async def run(self, job: Job) -> JobDone:
        """Have a worker do *job*; if that worker dies, another."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


async def do(job: Job, client: PaymentsClient, in_flight: int, budget: asyncio.Semaphore) -> JobDone:
    """Walk the window of *job* on this event loop, up to *in_flight* windows at a time; *budget* bounds the calls."""
    seller = client.account(job.account) if job.account else client
    search = Search({job.account: seller}, job.rules.max_window, in_flight, budget)
    entries: list[Entry] = []
    files: list[tuple[str, bool]] = []

    def keep(pending: Sequence[Finished]) -> None:
        done, written = save(pending, Path(job.directory))
        entries.extend(done)
        files.extend(written)

    walker = Walker(search, job.rules, in_flight, keep, lambda: None, most_pieces=MOST_PIECES)
    await walker.run({job.account: [job.window]})
    return JobDone(job=job, entries=entries, files=files, calls=search.calls, postponed=walker.postponed)
