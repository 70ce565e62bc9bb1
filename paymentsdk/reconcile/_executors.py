"""Walks windows on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from paymentsdk._validate import check_within
from paymentsdk.errors import RequestInvalid
from paymentsdk.reconcile._run import Job, do

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

#: The maximum of calls in flight in a worker process.
_MOST_IN_FLIGHT = 1_000
#: Seconds without a job after which a worker closes its client, because the driver may have been killed.
IDLE = 60.0


class DaskExecutor:
    """Walks windows on the workers of a Dask cluster, for `walk(executor=)` and `reconcile(executor=)`.

    Needs the extra `dask`, the same versions on all machines, and storage that all machines see under the same path for
    `out`. Each worker process has one event loop and one client for the whole run. Both end after a minute without a
    job, for example after the driver has died. If a worker dies, Dask gives its job to another worker, and the files of
    the first do not count.

    Args:
        connect: Makes the client of a worker. It is a function that the workers can import, or a function of the main
            module. It is called on the event loop; the client is closed at the end.
        address: The address of the scheduler, such as `tcp://10.0.0.1:8786`.
        in_flight: Calls in flight of each worker process, 1 to 1,000.

    Raises:
        RequestInvalid: *in_flight* is out of range, or, when a walk begins, *address* is invalid.
    """

    def __init__(self, connect: Callable[[], PaymentsClient], address: str, *, in_flight: int = 16) -> None:
        self._connect = connect
        self._address = address
        self._in_flight = check_within("in_flight", in_flight, 1, _MOST_IN_FLIGHT)
        self._run = uuid4().hex
        self._cluster: Any = None
        self._threads = 0

    @property
    def slots(self) -> int:
        """The number of jobs in flight: one for each thread of the workers, and as many that wait."""
        return max(1, 2 * self._threads)

    async def run(self, job: Job) -> Job:
        """Let a worker do *job*, and return the job with its result. If the worker dies, another does the job.

        Raises:
            PaymentsError: A call failed.
            ChildProcessError: The job has killed as many workers as Dask's configuration allows.
        """
        future = self._cluster.submit(_do, job, self._run, self._connect, self._in_flight, pure=False)
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
            self._threads = sum((await self._cluster.nthreads()).values())
        except BaseException as error:
            await self._leave()
            if isinstance(error, ValueError):
                raise RequestInvalid("address", str(error)) from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._cluster.run(_close, self._run, on_error="ignore")
        finally:
            await self._leave()

    async def _leave(self) -> None:
        cluster, self._cluster = self._cluster, None
        await cluster.close()


# --- in a worker process ----------------------------------------------------------------------------------------------


class _Host:
    """The client of a worker process. It is made for the first job, and closed after a while without jobs."""

    def __init__(self, connect: Callable[[], PaymentsClient], in_flight: int) -> None:
        self._connect = connect
        self._in_flight = in_flight
        self._budget = asyncio.Semaphore(in_flight)
        self._client: PaymentsClient | None = None
        self._jobs = 0
        self._idle: asyncio.TimerHandle | None = None
        self._loop = _loop()

    def do(self, job: Job) -> Future[Job]:
        """Begin *job*, and return a future of its result. Any thread of the worker may call this."""
        return asyncio.run_coroutine_threadsafe(self._do(job), self._loop)

    def close(self) -> None:
        """Close the client."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    async def _do(self, job: Job) -> Job:
        if self._idle is not None:
            self._idle.cancel()
        self._jobs += 1
        try:
            self._client = self._client or self._connect()
            return await do(job, self._client, self._in_flight, self._budget)
        finally:
            self._jobs -= 1
            if not self._jobs:
                self._idle = self._loop.call_later(IDLE, lambda: self._loop.create_task(self._close()))

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process for clients, which runs in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="paymentsdk").start()
    return loop


#: The hosts by run, because a worker of Dask may serve several drivers.
_hosts: dict[str, _Host] = {}


def _do(job: Job, run: str, connect: Callable[[], PaymentsClient], in_flight: int) -> Job:
    return _hosts.setdefault(run, _Host(connect, in_flight)).do(job).result()


def _close(run: str) -> None:
    if (host := _hosts.pop(run, None)) is not None:
        host.close()
