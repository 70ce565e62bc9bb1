"""Windows walked by the workers of a Dask cluster, on as many machines as it has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from paymentsdk._validate import check_within
from paymentsdk.reconcile._job import MOST_PER_WORKER, Job, JobDone, do

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient


T = TypeVar("T")


class DaskExecutor:
    """Walks windows on the workers of a Dask cluster, for `walk(executor=)` and `reconcile(executor=)`.

    Needs the extra `dask`, on all machines the same versions, and `out` on storage that all of them have under the same
    path. Each worker process has one event loop and one client for the whole run. If a worker dies, Dask has another do
    what it was at: its files do not count.

    Args:
        connect: Makes the client of a worker: a function that the workers can import, or one of the main module. It is
            called on the event loop; the client is closed at the end.
        address: Of the scheduler, such as `tcp://10.0.0.1:8786`.
        in_flight: Calls in flight of each worker process, 1 to 1,000.

    Raises:
        RequestInvalid: *in_flight* is out of range.
    """

    def __init__(self, connect: Callable[[], PaymentsClient], address: str, *, in_flight: int = 16) -> None:
        self._connect = connect
        self._address = address
        self._in_flight = check_within("in_flight", in_flight, 1, MOST_PER_WORKER)
        self._run = uuid4().hex
        self._cluster: Any = None
        self._threads = 0

    @property
    def slots(self) -> int:
        """How many jobs may be under way: one for each thread of the workers, and as many that wait."""
        return max(1, 2 * self._threads)

    async def run(self, job: Job) -> JobDone:
        """Have a worker do *job*; if it dies, another.

        Raises:
            PaymentsError: A call failed.
            distributed.KilledWorker: Too many workers have died with it, as Dask is configured.
        """
        future = self._cluster.submit(_do, job, self._run, self._connect, self._in_flight, pure=False)
        try:
            done: JobDone = await future
        finally:
            future.release()
        return done

    async def __aenter__(self) -> Self:
        self._cluster = await import_module("distributed").Client(self._address, asynchronous=True)
        self._threads = sum((await self._cluster.nthreads()).values())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._cluster.run(_close, self._run, on_error="ignore")
        finally:
            await self._cluster.close()


# --- on a worker ------------------------------------------------------------------------------------------------------


class _Host:
    """The event loop of a worker process, in a thread of its own, with its client."""

    def __init__(self, connect: Callable[[], PaymentsClient], in_flight: int) -> None:
        self._in_flight = in_flight
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="paymentsdk").start()
        self._client, self._budget = self._await(self._open(connect))

    async def _open(self, connect: Callable[[], PaymentsClient]) -> tuple[PaymentsClient, asyncio.Semaphore]:
        return connect(), asyncio.Semaphore(self._in_flight)

    def do(self, job: Job) -> JobDone:
        """Do *job*; called from any thread of the worker."""
        return self._await(do(job, self._client, self._in_flight, self._budget))

    def close(self) -> None:
        """Close the client."""
        self._await(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _await(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


_hosts: dict[str, _Host] = {}
_turn = threading.Lock()


def _do(job: Job, run: str, connect: Callable[[], PaymentsClient], in_flight: int) -> JobDone:
    with _turn:
        if run not in _hosts:
            _hosts[run] = _Host(connect, in_flight)
    return _hosts[run].do(job)


def _close(run: str) -> None:
    host = _hosts.pop(run, None)
    if host is not None:
        host.close()
