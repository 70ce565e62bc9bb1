"""The benches run, their numbers have the shape that the tables and bars want, and the contestants do the same work."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks import (
    bars,
    bench_auth,
    bench_call,
    bench_cold,
    bench_connections,
    bench_decode,
    bench_flow,
    bench_import,
    bench_journal,
    bench_layers,
    bench_observers,
    bench_pages,
    bench_reconcile,
    bench_retry,
    bench_sandbox,
    harness,
    payloads,
    report,
    server,
    tables,
)
from benchmarks.bars import Bar
from benchmarks.contestants import Contestant, Target, contestants
from benchmarks.harness import Options, Result, Row, Trial, Variant

ROOT = Path(__file__).parents[2]
QUICK = Options(rounds=2, slice_ms=0, quick=True)

#: For each result: how to get it with a few calls, the names in its key, and its metrics.
BENCHES: dict[str, tuple[Callable[[Options], Result], set[str], set[str]]] = {
    "bench_call": (
        partial(bench_call.run, concurrency=(2,), tls=(False, True)),
        {"contestant", "method", "in flight", "loop", "tls"},
        {"cpu_us", "wall_us", "server_us", "load"},
    ),
    "bench_connections": (bench_connections.run, {"what", "contestant"}, {"load"}),
    "bench_layers": (bench_layers.run, {"method", "layer"}, {"cpu_us", "wall_us", "added_us"}),
    "bench_decode": (bench_decode.run, {"contestant", "answer"}, {"cpu_us", "wall_us"}),
    "bench_pages": (bench_pages.run, {"latency, ms", "prefetch"}, {"wall_ms", "to_ideal", "cpu_ms"}),
    "bench_pages_memory": (bench_pages.memory, {"rows"}, {"rss_mib", "cpu_ms"}),
    "bench_journal": (bench_journal.run, {"journal", "in flight"}, {"calls_s", "cpu_us", "steps", "journal_us"}),
    "bench_import": (bench_import.run, {"import"}, {"cpu_ms", "wall_ms", "net_ms"}),
    "bench_cold": (bench_cold.run, {"contestant"}, {"wall_ms", "cpu_ms", "import_ms", "first_ms", "second_ms"}),
    "bench_retry": (bench_retry.run, {"call", "way", "against"}, {"cpu_us", "wall_us", "added_us"}),
    "bench_observers": (bench_observers.run, {"call", "way", "against"}, {"cpu_us", "added_us"}),
    "bench_auth": (bench_auth.run, {"call", "way", "against"}, {"cpu_us"}),
    "bench_flow": (bench_flow.run, {"load", "flow"}, {"refused_pct", "failed", "goodput", "jain", "p50_ms"}),
    "bench_reconcile": (
        bench_reconcile.run,
        {"what", "orders"},
        {"cpu_ms", "wall_ms", "peak_mib", "serving_mib", "calls", "calls_to_ideal"},
    ),
    "bench_reconcile_waiting": (
        bench_reconcile.waiting,
        {"latency, ms", "in flight", "limit"},
        {"calls", "calls_to_ideal", "to_ideal"},
    ),
    "bench_reconcile_killed": (
        bench_reconcile.killed,
        {"what"},
        {"calls_again", "s_again", "of_calls", "first_call_s"},
    ),
    "bench_reconcile_diff": (
        bench_reconcile.comparing,
        {"what", "orders"},
        {"cpu_ms", "wall_ms", "peak_mib", "wrong"},
    ),
    "bench_reconcile_model": (bench_reconcile.model, {"runs"}, {"lost", "twice", "loud", "lossy_naive_runs"}),
    "bench_sandbox": (bench_sandbox.run, {"what"}, {"wall_ms", "cpu_ms"}),
}
#: Enough contestants for each bench to be itself; the rest are only other libraries.
ONLY = {
    "bench_call": ("paymentsdk", "stripe, aiohttp", "floor"),
    "bench_decode": ("paymentsdk",),
    "bench_import": ("paymentsdk",),
    "bench_cold": ("paymentsdk",),
}


@pytest.fixture(autouse=True)
def nothing_to_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the collections before each slice what the other tests have left, also after the first bench."""
    monkeypatch.setattr("benchmarks.harness.gc.unfreeze", gc.freeze)


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_runs_and_gives_its_shape(name: str, tmp_path: Path) -> None:
    """Every bench ends by itself, and each of its rows has the members and the metrics that tables and bars read."""
    run, members, metrics = BENCHES[name]

    result = run(Options(rounds=1, slice_ms=0, quick=True, only=ONLY.get(name, ())))

    assert name == result.bench
    assert result.rows
    for row in result.rows:
        assert members == set(row.key)
        assert metrics <= set(row.samples)
        assert all(
            samples and all(isinstance(sample, float | int) for sample in samples) for samples in row.samples.values()
        )
    harness.save(result, tmp_path)
    read = harness.load(name, tmp_path)
    assert read is not None
    assert [row.key for row in result.rows] == [row.key for row in read.rows]
    assert len(result.rows) + 2 == len(tables.table(read).splitlines())


@pytest.mark.parametrize("bar", bars.BARS, ids=lambda bar: bar.what)
def test_a_bar_is_about_rows_that_exist(bar: Bar) -> None:
    """Each bar finds its rows, and what they are held against, in the results that are checked in."""
    results = report.loaded()

    readings = bars.readings(bar, results)

    assert len(readings) == sum(len(harness.matching(results[bar.bench].rows, key)) for key in bar.of) > 0


def test_the_pages_show_the_results() -> None:
    """Each table is on one of the pages on performance, and agrees with the results that are checked in."""
    pages = [page.read_text(encoding="utf-8") for page in report.PAGES]

    assert [report.written(page, report.loaded()) for page in pages] == pages
    assert sorted(report.TABLES) == sorted(re.findall(r"<!-- table: (\w+) -->\n\n\S", "".join(pages)))


def test_a_marker_that_names_no_table_is_an_error() -> None:
    """A misspelt marker does not leave an old table in place."""
    with pytest.raises(KeyError):
        report.written("<!-- table: bench_cal -->\n<!-- end of table -->", {})


def test_a_command_keeps_what_it_measured(tmp_path: Path) -> None:
    """`--only`, `--quick` and `--out` of the command line, and the report over what they left."""
    python = [sys.executable, "-m"]
    command = [*python, "benchmarks.bench_sandbox", "--quick", "--only", "start", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    command = [*python, "benchmarks.report", "--results", str(tmp_path)]

    output = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout

    assert ["bench_sandbox.json"] == [path.name for path in tmp_path.iterdir()]
    [line] = [line for line in output.splitlines() if "start of the sandbox" in line]
    assert "| <= 50 ms |" in line
    assert re.search(r"\| [0-9.,]+ ms \| (yes|\*\*no\*\*) \|", line)
    assert "not measured" in output


# --- the contestants --------------------------------------------------------------------------------------------------


def racing() -> list[Contestant]:
    """Return those that ask for an order; the others ask their own service for something of the same size."""
    clients, _ = contestants()
    return [client for client in clients if "stripe" not in client.NAME and "openai" not in client.NAME]


def test_contestants_bring_back_the_same_orders() -> None:
    """All clients that read and create an order return equal values, and a GET brings the order that it asked for."""
    with server.nginx_or_asyncio() as running, asyncio.Runner() as runner:
        read = {client.NAME: runner.run(answers_of(client, Target(running.plain))) for client in racing()}

    assert {"bare aiohttp", "paymentsdk", "naive aiohttp", "floor"} <= set(read)
    values = list(read.values())
    assert all(value == values[0] for value in values)
    ids = payloads.order_ids()
    assert [next(ids), next(ids)] == [order["id"] for order in values[0][:2]]


async def answers_of(client: Contestant, target: Target) -> list[object]:
    """Return two orders that *client* read, and one that it created."""
    async with client.connect(target) as calls:
        return [payloads.plain(await call()) for call in (calls.get, calls.get, calls.post)]


@pytest.mark.parametrize("shape", bench_decode.SHAPES)
@pytest.mark.parametrize("peer", ["pydantic", "cattrs"])
def test_typed_decoders_agree(peer: str, shape: str) -> None:
    """What a typed peer decodes equals ours, member by member: the race is about the same work."""
    body = bench_decode.SHAPES[shape].make(0)
    try:
        theirs = bench_decode.decoder(peer, shape)
    except ImportError as error:
        pytest.skip(f"needs {error.name}")

    ours = bench_decode.decoder("paymentsdk", shape)

    assert payloads.plain(theirs(body)) == payloads.plain(ours(body))


def test_the_server_ends_with_its_bench() -> None:
    """No process is left behind, also when the bench fails."""
    pids: list[int] = []

    def bench() -> None:
        with server.pages(latency=0, total=1) as running:
            os.kill(running.pid, 0)  # It is there.
            pids.append(running.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bench()

    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a child with its parent")
@pytest.mark.parametrize("kind", ["nginx_or_asyncio()", "pages(latency=0, total=1)"])
@pytest.mark.control("benchmarks.server._die_with_parent", lambda: None)
def test_a_killed_bench_leaves_no_server(kind: str, patience: float) -> None:
    """The server ends with a bench that was killed, and could clean up nothing."""
    code = f"""
import os, sys
from benchmarks import server
{"" if server._die_with_parent.__name__ == "_die_with_parent" else "server._die_with_parent = lambda: None"}
with server.{kind} as running:
    print(running.pid, flush=True)
    sys.stdin.read()
"""
    bench = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with bench:
        orphan = os.pidfd_open(int(bench.stdout.readline()))
        try:
            bench.kill()
            bench.wait()
            ended, _, _ = select.select([orphan], [], [], patience)
            assert ended
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(orphan, signal.SIGKILL)
            os.close(orphan)


# --- how it is measured -----------------------------------------------------------------------------------------------


def row(name: str, *samples: float) -> Row:
    """Return a row with CPU times."""
    return Row({"contestant": name, "in flight": 1}, {"cpu_us": list(samples)})


def test_a_ratio_is_taken_per_round() -> None:
    """A slow second that hits both variants of a round does not move their ratio."""
    base, twice = row("base", 10, 10, 100), row("twice", 20, 20, 200)

    assert harness.ratio(twice, base) == 2
    assert [10, 10, 100] == harness.difference(twice, base)


def test_every_variant_gets_the_same_number_of_slices() -> None:
    """Each round runs each variant once, in an order that changes from round to round."""
    ran: list[str] = []
    variants = [Variant({"name": name}, lambda count, name=name: ran.append(name)) for name in "abc"]

    rows = harness.interleave(variants, Options(rounds=20, slice_ms=0, quick=True))

    rounds = ["".join(ran[i : i + 6 : 2]) for i in range(3, len(ran), 6)]  # Each slice warms up first.
    assert {"abc"} == {"".join(sorted(order)) for order in rounds}
    assert len(set(rounds)) > 1
    assert [20, 20, 20] == [len(measured.samples["cpu_us"]) for measured in rows]


def test_a_variant_of_few_rounds_is_compared_within_them() -> None:
    """It has a slice in the first rounds, and its ratios are those of these rounds, whatever the later ones cost."""
    variants = [Variant({"name": "a"}, lambda count: None), Variant({"name": "b"}, lambda count: None, rounds=2)]

    every, few = harness.interleave(variants, Options(rounds=5, slice_ms=0, quick=True))

    assert (5, 2) == (len(every.samples["cpu_us"]), len(few.samples["cpu_us"]))
    base = Row({}, {"cpu_us": [1.0, 2.0, 100.0, 100.0, 100.0]})
    assert 3.0 == harness.ratio(Row({}, {"cpu_us": [3.0, 6.0]}), base)


def test_a_variant_that_was_held_up_once_gets_slices_as_long_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many calls a slice has does not depend on one run that took longer, such as the first of its kind."""
    now, counts = 0.0, list[int]()

    def call(count: int) -> None:
        nonlocal now
        now += count * 0.001 + (1 if len(counts) == 1 else 0)
        counts.append(count)

    monkeypatch.setattr("benchmarks.harness.time.perf_counter", lambda: now)

    harness.interleave([Variant({"name": "a"}, call, least=16)], Options(rounds=1, slice_ms=40))

    assert 32 == counts[-1]


def test_the_rounds_of_several_processes_are_compared_within_each() -> None:
    """A process in which everything takes longer moves neither ratio nor difference: its rounds stay side by side."""
    runs = [
        harness.result("b", [row("base", 10 * slow), row("ours", 10 * slow + 5)], Options(rounds=1))
        for slow in (1, 2, 9)
    ]

    pooled = harness.pooled(runs)
    base, ours = pooled.rows

    assert [10, 20, 90] == base.samples["cpu_us"]
    assert [5, 5, 5] == harness.difference(ours, base)
    assert 3 == pooled.settings["processes"]


def test_the_first_turn_of_a_trial_does_not_count() -> None:
    """What a first time has to load is no sample, unless the run is a quick one."""
    turns = iter(range(100))
    trial = Trial({}, lambda: {"wall_ms": float(next(turns))})

    [counted] = harness.take_turns([trial], Options(rounds=3))

    assert [1.0, 2.0, 3.0] == counted.samples["wall_ms"]


BAR = Bar(what="ours", bench="b", of=({"contestant": "ours"},), to={"contestant": "base"}, most=1.05)


@pytest.mark.parametrize(("cpu", "holds"), [(10.4, True), (10.6, False)])
def test_a_bar_holds_up_to_its_bound(cpu: float, holds: bool) -> None:
    """Negative control of the report: a cost above the bar does not pass."""
    result = harness.result("b", [row("base", 10.0), row("ours", cpu)], QUICK)

    [reading] = bars.readings(BAR, {"b": result})

    assert holds is reading.holds
    assert pytest.approx(cpu / 10) == reading.value


def test_a_bar_that_was_not_measured_does_not_hold() -> None:
    """Nothing is taken for granted: without rows there is no reading, and the report says so."""
    assert [] == bars.readings(BAR, {})
    assert "not measured | ? |" in report.bars_table({})
