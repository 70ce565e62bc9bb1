"""Serves the orders of `bench_reconcile` on a socket, and runs clusters, in separate processes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import distributed
from aiohttp import web

from benchmarks.bench_reconcile import Serving


@contextlib.contextmanager
def running(serve: Callable[[Connection, int], None], size: int) -> Iterator[str]:
    """Run *serve* in a new process until the block ends; yield the address that it sends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, size))
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join()


def orders(connection: Connection, rows: int) -> None:
    """Serve the orders of all sellers."""
    asyncio.run(_serve(connection, Serving(rows)))


async def _serve(connection: Connection, serving: Serving) -> None:
    async def response(request: web.Request) -> web.Response:
        page = serving.find(str(request.url), request.headers["Authorization"])
        return web.Response(body=page.body, headers={**page.headers, "Content-Type": "application/json"})

    app = web.Application()
    app.router.add_get("/merchant_orders/search", response)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    connection.send(f"http://{host}:{port}")
    with contextlib.suppress(EOFError):
        await asyncio.to_thread(connection.recv)
    await runner.cleanup()


def dask(connection: Connection, workers: int) -> None:
    """Run a Dask cluster with worker processes."""
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=4, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        connection.send(cluster.scheduler_address)
        with contextlib.suppress(EOFError):
            connection.recv()
