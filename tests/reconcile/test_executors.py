"""Windows walked by processes, and by the workers of a Dask cluster: the same rows, whoever dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import distributed
import pytest

from paymentsdk import AuthenticationFailed, RequestInvalid
from paymentsdk.reconcile import DaskExecutor, Executor, WalkReport, walk
from tests.reconcile.planted import CREATED
from tests.reconcile.served import written
from tests.reconcile.workers import ROWS, connect, fails, rejected, world

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="it has no SIGKILL")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a cluster of two worker processes."""
    # In a process of its own: what it opens would be taken for what a test has left open.
    command = [sys.executable, "-m", "tests.reconcile.cluster", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip()
        cluster.stdin.close()


async def walked(out: Path, executor: Executor | None) -> WalkReport:
    """Walk all orders of the sellers."""
    names = world().sellers
    async with connect(out.parent) as client:
        return await walk(client, created=CREATED, accounts=names, out=out, max_window=60, executor=executor)


def shown() -> list[tuple[str, str]]:
    """Return the rows that a walk has to find."""
    return sorted((name, order.id) for name, seller in world().sellers.items() for order in seller.shown)


async def test_workers_can_be_threads(tmp_path: Path) -> None:
    """Of a cluster in this process: each job has its own event loop."""
    options = {"asynchronous": True, "dashboard_address": None, "processes": False, "threads_per_worker": 2}
    async with distributed.LocalCluster(n_workers=1, **options) as cluster:
        executor = DaskExecutor(partial(connect, tmp_path), cluster.scheduler_address, in_flight=8)
        report = await walked(tmp_path / "out", executor)
        assert 4 == executor.slots
        with pytest.raises(AuthenticationFailed):
            await walked(tmp_path / "rejected", DaskExecutor(rejected, cluster.scheduler_address))

    assert shown() == written(report)
    assert report.calls > 10


async def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path, scheduler: str) -> None:
    """What it was at is done again; files that it has left do not count."""
    (tmp_path / "dies").touch()

    shared = await walked(tmp_path / "shared", DaskExecutor(partial(connect, tmp_path, 1), scheduler))

    assert not (tmp_path / "dies").exists()
    assert shown() == written(shared)


async def test_an_executor_walks_for_one_run_at_a_time(tmp_path: Path, scheduler: str) -> None:
    """A second run is told so, and takes no workers from the first; when that is over, another may have it."""
    dask = DaskExecutor(partial(connect, tmp_path), scheduler)
    async with dask:
        with pytest.raises(RequestInvalid, match="executor: walks for another run"):
            await walked(tmp_path / "second", dask)

    assert ROWS == (await walked(tmp_path / "third", dask)).rows


async def test_a_worker_without_a_client_ends_the_walk(tmp_path: Path, scheduler: str) -> None:
    """Nobody waits for it for ever."""
    with pytest.raises(OSError, match="no credentials here"):
        await walked(tmp_path / "out", DaskExecutor(fails, scheduler))


def test_settings_that_make_no_sense_are_rejected(tmp_path: Path) -> None:
    """Before the cluster is reached."""
    executor = partial(DaskExecutor, partial(connect, tmp_path), "tcp://127.0.0.1:1")
    assert {1} == {executor(in_flight=number).slots for number in (1, 1_000)}
    for number in (0, 1_001):
        with pytest.raises(RequestInvalid, match="in_flight: "):
            executor(in_flight=number)
