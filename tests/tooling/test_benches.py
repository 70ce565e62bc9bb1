"""The benches run, and the contestants do the same work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks import bars, bench_call, bench_decode, bench_journal, bench_sandbox, harness, report, server, tables
from benchmarks.contestants import Contestant, Target, contestants
from benchmarks.harness import Options, Result
from benchmarks.journal_calls import functions

BENCHES: dict[str, Callable[[Options], Result]] = {
    "bench_call": partial(bench_call.run, concurrency=(2,), tls=(False,)),
    "bench_decode": bench_decode.run,
    "bench_journal": bench_journal.run,
    "bench_sandbox": bench_sandbox.run,
}
#: Enough contestants for each bench to be itself; the rest are only other libraries.
ONLY = {"bench_call": ("paymentsdk",), "bench_decode": ("paymentsdk",)}
#: Functions that a journaled create may run: each costs time, and each has to be read.
MOST = 90


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_runs_and_its_result_can_be_kept(name: str, tmp_path: Path) -> None:
    """Every bench ends by itself, and its table has a line for each row."""
    result = BENCHES[name](Options(rounds=1, slice_ms=0, quick=True, only=ONLY.get(name, ())))

    harness.save(result, tmp_path)
    read = harness.load(name, tmp_path)
    assert read is not None
    assert [row.key for row in result.rows] == [row.key for row in read.rows] != []
    assert len(result.rows) + 2 == len(tables.table(read).splitlines())


def test_the_pages_show_the_results_that_the_bars_are_about() -> None:
    """Each bar has rows in the results that are checked in, and each table agrees with them."""
    pages, results = [page.read_text(encoding="utf-8") for page in report.PAGES], report.loaded()

    assert [report.written(page, results) for page in pages] == pages
    assert sorted(report.TABLES) == sorted(re.findall(r"<!-- table: (\w+) -->\n\n\S", "".join(pages)))
    assert [] == [bar.what for bar in bars.BARS if not bars.readings(bar, results)]


def test_contestants_bring_back_the_same_orders() -> None:
    """All clients that read and create an order return equal values."""
    racing = [client for client in contestants()[0] if "stripe" not in client.name and "openai" not in client.name]
    with server.fixed() as running, asyncio.Runner() as runner:
        first, *others = [runner.run(answers_of(client, Target(running.plain))) for client in racing]

    assert [] == [values for values in others if values != first]


async def answers_of(client: Contestant, target: Target) -> list[object]:
    """Return an order that *client* read, and one that it created."""
    async with client.connect(target) as calls:
        return [await call() for call in (calls.get, calls.post)]


def test_a_journaled_create_runs_few_functions() -> None:
    """What is computed once is not computed again, and nothing only hands on."""
    names = asyncio.run(functions())

    assert len(names) <= MOST, "\n".join(names)
