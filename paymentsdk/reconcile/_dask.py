"""Windows walked by the workers of a Dask cluster, on as many machines as it has."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import closing
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from paymentsdk._validate import check_within
from paymentsdk.errors import RequestInvalid
from paymentsdk.reconcile._job import MOST_PER_WORKER, Job, JobDone, do

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient


T = TypeVar("T")
#: Seconds without a job after which a worker closes its client: the driver may have been killed.
IDLE = 60.0


class DaskExecutor:
    """Walks windows on the workers of a Dask cluster, for `walk(executor=)` and `reconcile(executor=)`.

    Needs the extra `dask`, on all machines the same versions, and `out` on storage that all of them have under the same
    path. Each worker process has one event loop and one client for the whole run; a minute without a job, as after the
    death of the driver, ends them. If a worker dies, Dask has another do what it was at: its files do not count.

    Args:
        connect: Makes the client of a worker: a function that the workers can import, or one of the main module. It is
            called on the event loop; the client is closed at the end.
        address: Of the scheduler, such as `tcp://10.0.0.1:8786`.
        in_flight: Calls in flight of each worker process, 1 to 1,000.

    Raises:
        RequestInvalid: *in_flight* is out of range; at the begin of a walk, *address* is none.
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
            ChildProcessError: Too many workers have died with it, as Dask is configured.
        """
        future = self._cluster.submit(_do, job, self._run, self._connect, self._in_flight, pure=False)
        try:
            done: JobDone = await future
        except import_module("distributed").KilledWorker as error:
            raise ChildProcessError(str(error)) from None
        finally:
            future.release()
        return done

    async def __aenter__(self) -> Self:
        self._cluster = import_module("distributed").Client(self._address, asynchronous=True)
        try:
            await self._cluster
        except BaseException as error:
            await self._cluster.close()
            if isinstance(error, ValueError):
                raise RequestInvalid("address", str(error)) from None
            raise
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

    def __init__(self, run: str, connect: Callable[[], PaymentsClient], in_flight: int) -> None:
        self._in_flight = in_flight
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, daemon=True, name="paymentsdk").start()
        try:
            self._client, self._budget = self._submit(self._open(connect)).result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise
        self._watch = self._submit(self._end_when_idle(run))
        #: Under way, as `_turn` guards them.
        self.jobs = 0
        self.quiet_since = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it has had nothing to do for long."""
        return not self.jobs and time.monotonic() - self.quiet_since >= IDLE

    def do(self, job: Job) -> JobDone:
        """Do *job*; called from any thread of the worker."""
        return self._submit(do(job, self._client, self._in_flight, self._budget)).result()

    def close(self) -> None:
        """Close the client."""
        self._watch.cancel()
        self._submit(self._client.aclose()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        with closing(self._loop):
            self._loop.run_forever()

    async def _open(self, connect: Callable[[], PaymentsClient]) -> tuple[PaymentsClient, asyncio.Semaphore]:
        return connect(), asyncio.Semaphore(self._in_flight)

    async def _end_when_idle(self, run: str) -> None:
        is_over = False
        while not is_over:
            await asyncio.sleep(IDLE)
            is_over = await asyncio.to_thread(_drop_idle, run)
        await self._client.aclose()
        self._loop.stop()

    def _submit(self, work: Coroutine[None, None, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


_hosts: dict[str, _Host] = {}
_turn = threading.Lock()


def _do(job: Job, run: str, connect: Callable[[], PaymentsClient], in_flight: int) -> JobDone:
    with _turn:
        if run not in _hosts:
            _hosts[run] = _Host(run, connect, in_flight)
        host = _hosts[run]
        host.jobs += 1
    try:
        return host.do(job)
    finally:
        with _turn:
            host.jobs -= 1
            host.quiet_since = time.monotonic()


def _drop_idle(run: str) -> bool:
    """Let the next job of *run* make a client of its own, if this one is idle; tell whether it is not needed."""
    with _turn:
        if run in _hosts and _hosts[run].is_idle:
            del _hosts[run]
        return run not in _hosts


def _close(run: str) -> None:
    with _turn:
        host = _hosts.pop(run, None)
    if host is not None:
        host.close()
