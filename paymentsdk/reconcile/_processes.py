"""Windows walked by processes of this machine."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Self

from paymentsdk._validate import check_within
from paymentsdk.errors import RequestInvalid
from paymentsdk.reconcile._job import MOST_PER_WORKER, Job, JobDone, do
from paymentsdk.reconcile._tasks import cancel

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

#: Jobs that a worker has at a time: while one waits for its last page, the others keep the calls in flight.
JOBS_PER_WORKER = 4
#: Workers that a job may outlive.
_MOST_DEATHS = 5
#: In place of the number of a job: there is no client.
_FAILED = 0


class ProcessExecutor:
    """Walks windows in processes of this machine, for `walk(executor=)` and `reconcile(executor=)`.

    Each process has one event loop and one client for the whole run. A process that dies is replaced, and what it was
    at is done again: its files do not count.

    Args:
        connect: Makes the client of a process: a function at the top of a module, so that a new process can import it.
            It is called on the event loop; the client is closed at the end.
        processes: How many, 1 to 256.
        in_flight: Calls in flight of each process, 1 to 1,000. For a rate that all share, give their clients the same
            `FlowControl(share=RateShare(path, rate))`.

    Raises:
        RequestInvalid: A number is out of range, or *connect* cannot be sent to a process.
    """

    def __init__(self, connect: Callable[[], PaymentsClient], *, processes: int, in_flight: int = 16) -> None:
        self._connect = connect
        self._processes = check_within("processes", processes, 1, 256)
        self._in_flight = check_within("in_flight", in_flight, 1, MOST_PER_WORKER)
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        """How many jobs may be under way."""
        return self._processes * JOBS_PER_WORKER

    async def run(self, job: Job) -> JobDone:
        """Have a process do *job*; if it dies, another.

        Raises:
            ChildProcessError: Five processes have died with it.
            PaymentsError: A call failed.
        """
        for _ in range(_MOST_DEATHS):
            worker = min(self._workers, key=lambda one: one.load)
            try:
                return await worker.run(job)
            except EOFError:
                if worker in self._workers:
                    self._workers[self._workers.index(worker)] = self._start()
                    await worker.stop()
        raise ChildProcessError(f"{_MOST_DEATHS} processes have died with the window {job.window}")

    async def __aenter__(self) -> Self:
        self._workers = [self._start() for _ in range(self._processes)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.stop() for worker in workers))

    def _start(self) -> _Worker:
        return _Worker(self._connect, self._in_flight)


class _Worker:
    """A process, as the driver sees it."""

    def __init__(self, connect: Callable[[], PaymentsClient], in_flight: int) -> None:
        # A fork would have the threads and the connections of this process, in any state.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, connect, in_flight), daemon=True)
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RequestInvalid("connect", f"cannot be sent to a process: {error}") from None
        theirs.close()
        self._waiting: dict[int, asyncio.Future[JobDone]] = {}
        self._number = 0
        self._failure: BaseException = EOFError()
        self._reader = asyncio.ensure_future(self._read())

    @property
    def load(self) -> int:
        """How many jobs it has."""
        return len(self._waiting)

    async def run(self, job: Job) -> JobDone:
        """Do *job*.

        Raises:
            EOFError: The process is gone.
        """
        if self._reader.done():
            raise self._failure
        self._number += 1
        number = self._number
        future: asyncio.Future[JobDone] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            # A process that is gone cannot be written to; the reader is about to see that, too.
            with suppress(OSError):
                self._connection.send((number, job))
            return await future
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        try:
            while True:
                number, done = await asyncio.to_thread(self._connection.recv)
                if number == _FAILED:
                    self._failure = done
                    break
                future = self._waiting.get(number)
                if future is None or future.done():
                    continue
                if isinstance(done, BaseException):
                    future.set_exception(done)
                else:
                    future.set_result(done)
        except (EOFError, OSError):
            pass
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._failure)

    async def stop(self) -> None:
        """End the process, and wait until it is gone: what it has not reported counts for nothing."""
        self._process.terminate()
        await self._reader
        await asyncio.to_thread(self._process.join)
        self._connection.close()


# --- in the process ---------------------------------------------------------------------------------------------------


def _main(connection: Connection, connect: Callable[[], PaymentsClient], in_flight: int) -> None:
    # Ctrl-C in a terminal reaches all processes; the driver ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(connection, connect, in_flight))


async def _make(connect: Callable[[], PaymentsClient]) -> PaymentsClient:
    return connect()


async def _serve(connection: Connection, connect: Callable[[], PaymentsClient], in_flight: int) -> None:
    """Do jobs until the driver is gone."""
    budget, running = asyncio.Semaphore(in_flight), set[asyncio.Task[JobDone]]()

    def answer(number: int, task: asyncio.Task[JobDone]) -> None:
        running.discard(task)
        if not task.cancelled():
            connection.send((number, task.exception() or task.result()))

    made = asyncio.create_task(_make(connect))
    await asyncio.wait((made,))
    if (error := made.exception()) is not None:
        connection.send((_FAILED, error))
        return
    async with made.result() as client:
        # It reads what the driver sends, one job after the other, for as long as there is a driver.
        with suppress(EOFError, OSError):
            while True:
                number, job = await asyncio.to_thread(connection.recv)
                task = asyncio.create_task(do(job, client, in_flight, budget))
                running.add(task)
                task.add_done_callback(partial(answer, number))
        await cancel([*running])
