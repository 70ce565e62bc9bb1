"""Walks windows on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from paymentsdk._validate import check_within
from paymentsdk.errors import RequestInvalid
from paymentsdk.reconcile._run import Job, do

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

#: The maximum of calls in flight in a worker process.
_MOST_IN_FLIGHT = 1_000


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

    def __init__(self, connect: Callable[[], PaymentsClient], address: str, *, in_flight: int = 16) -> None:
        self._connect = connect
        self._address = address
        self._in_flight = check_within("in_flight", in_flight, 1, _MOST_IN_FLIGHT)
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


# --- in a worker process ----------------------------------------------------------------------------------------------


def _do(job: Job, connect: Callable[[], PaymentsClient], in_flight: int) -> Job:
    return asyncio.run(do(job, connect, in_flight))
