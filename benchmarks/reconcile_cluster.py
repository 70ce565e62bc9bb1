"""Runs a Dask cluster with worker processes in a separate process, so that it shares no event loop with the walk."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

import distributed


@contextlib.contextmanager
def running(workers: int) -> Iterator[str]:
    """Run a cluster until the block ends; yield the address of its scheduler."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, workers))
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join()


def _serve(connection: Connection, workers: int) -> None:
    """Run the cluster until the other end of *connection* is closed."""
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=4, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        connection.send(cluster.scheduler_address)
        with contextlib.suppress(EOFError):
            connection.recv()
