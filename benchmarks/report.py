"""Prints the bars, and writes the tables of docs/explanation/performance.md and performance-evidence.md.

It reads the last results from ``benchmarks/results``; ``--run`` runs the benches first. It prints the measurement of
each bar and whether the bar holds. ``--write`` writes the tables into both pages, between their markers.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import msgspec

from benchmarks import tables
from benchmarks.bars import BARS, Bar, Reading, readings
from benchmarks.contestants import BASELINE, PARTS
from benchmarks.harness import RESULTS, Key, Result, load, matching, pooled, ratio, save

ROOT = Path(__file__).parent.parent
PAGES = tuple(ROOT / "docs" / "explanation" / name for name in ("performance.md", "performance-evidence.md"))
#: The benches with their options for the pages.
BENCHES: Mapping[str, Sequence[str]] = {
    "bench_call": ("--full", "--rounds", "13"),
    "bench_connections": (),
    "bench_layers": ("--rounds", "25"),
    "bench_decode": ("--rounds", "5"),
    "bench_pages": ("--rounds", "3"),
    "bench_import": (),
    "bench_cold": ("--rounds", "5"),
    "bench_retry": ("--rounds", "5"),
    "bench_observers": (),
    "bench_auth": (),
    "bench_flow": (),
    "bench_sandbox": (),
    "bench_journal": ("--rounds", "4"),
    "bench_webhooks": (),
    "bench_reconcile": ("--rows", "200000", "--rounds", "2"),
}
#: The number of processes of a bench; the default is 1.
PROCESSES: Mapping[str, int] = {"bench_retry": 3}
#: Results in the order of the pages.
_PARTS = ("waiting", "killed", "model", "diff", "executors", "loaded")
NAMES = (*BENCHES, "instructions", "bench_pages_memory", *(f"bench_reconcile_{part}" for part in _PARTS))
_MARKED = re.compile(r"(?P<start><!-- table: (?P<name>[a-z_]+) -->\n).*?(?P<end><!-- end of table -->)", re.DOTALL)


_CALL: Key = {"loop": "asyncio", "tls": "no", "in flight": 16}
#: The lines of the summary: text, bench, key of the row, metric.
_SUMMARY: Sequence[tuple[str, str, Key, str]] = (
    *(
        (
            f"{method} {words}, 16 in flight",
            "bench_call",
            {**_CALL, "contestant": contestant, "method": method},
            "cpu_us",
        )
        for words, contestant in (("by default", "paymentsdk"), ("over `Http11Transport`", "paymentsdk, http11"))
        for method in ("GET", "POST")
    ),
    (
        "decode a page of 100 merchant orders",
        "bench_decode",
        {"contestant": "paymentsdk", "answer": "100 merchant orders"},
        "cpu_us",
    ),
    ("200 pages at 20 ms, one by one", "bench_pages", {"latency, ms": 20, "prefetch": 1}, "wall_ms"),
    ("200 pages at 20 ms, 8 in flight", "bench_pages", {"latency, ms": 20, "prefetch": 8}, "wall_ms"),
    ("proven walk of 200,000 orders", "bench_reconcile", {"what": "walk", "orders": "200,000"}, "rows_per_cpu_s"),
    ("memory of that walk", "bench_reconcile", {"what": "walk", "orders": "200,000"}, "peak_mib"),
    *(
        (f"journaled call, {name}, 16 in flight", "bench_journal", {"journal": name, "in flight": 16}, "cpu_us")
        for name in ("SQLite", "PostgreSQL")
    ),
    ("start the sandbox", "bench_sandbox", {"what": "start"}, "wall_ms"),
    ("create, pay and refund an order in it", "bench_sandbox", {"what": "create, pay, refund"}, "wall_ms"),
    ("import `PaymentsClient`", "bench_import", {"import": "paymentsdk"}, "cpu_ms"),
    ("import it and make a client", "bench_import", {"import": "paymentsdk, and a client that reads orders"}, "cpu_ms"),
    (
        "429s of 64 callers at 100 per second, rate not learned",
        "bench_flow",
        {"load": "64 callers", "flow": "gate"},
        "refused_pct",
    ),
    (
        "429s of 64 callers at 100 per second, rate learned",
        "bench_flow",
        {"load": "64 callers", "flow": "adaptive"},
        "refused_pct",
    ),
)


def summary_table(results: Mapping[str, Result]) -> str:
    """Return one line for each main cost."""
    lines = ["| what | unit | measured (ratio) | ratio to | `python -m` |", "| --- | --- | --: | --- | --- |"]
    for title, bench, key, metric in _SUMMARY:
        result = results[bench]
        unit, _ = tables.METRICS[metric]
        to = ", ".join(
            value if isinstance(value, str) else f"{name} {value}" for name, value in result.baseline.items()
        )
        cells = (tables.cell(row, result, metric) for row in matching(result.rows, key))
        lines += [f"| {title} | {unit} | {cell} | {to} | `benchmarks.{bench}` |" for cell in cells]
    return "\n".join(lines)


def bars_table(results: Mapping[str, Result], *, missed: bool = False) -> str:
    """Return one line per bar, or only for bars that do not hold everywhere."""
    lines = ["| what | bar | measured | holds |", "| --- | --- | --- | --- |"]
    for bar in BARS:
        measured = readings(bar, results)
        if missed and all(reading.holds for reading in measured):
            continue
        lines.append(f"| {bar.what} | {bar.promise} | {_measured(bar, measured)} | {_verdict(measured)} |")
    return "\n".join(lines)


def _measured(bar: Bar, measured: Sequence[Reading]) -> str:
    if not measured:
        return "not measured"
    return "; ".join(
        f"{reading.value:.2f}{bar.unit}{f' ({reading.where})' if reading.where else ''}" for reading in measured
    )


def _verdict(measured: Sequence[Reading]) -> str:
    if not measured:
        return "?"
    holding = sum(reading.holds for reading in measured)
    return "yes" if holding == len(measured) else "**no**" if holding == 0 else f"**in {holding} of {len(measured)}**"


def _part(bench: str, key: Key) -> Callable[[Mapping[str, Result]], Result]:
    """Return a function that selects the rows of *bench* with *key*."""

    def part(results: Mapping[str, Result]) -> Result:
        result = results[bench]
        return msgspec.structs.replace(result, rows=matching(result.rows, key))

    return part


def _table(bench: str, key: Key) -> Callable[[Mapping[str, Result]], str]:
    part = _part(bench, key)
    return lambda results: tables.table(part(results))


def _call(loop: str, tls: str) -> Callable[[Mapping[str, Result]], str]:
    part = _part("bench_call", {"loop": loop, "tls": tls})
    return lambda results: tables.pivot(part(results), "contestant", ("method", "in flight"))


def parts_table(results: Mapping[str, Result]) -> str:
    """Return the costs of the parts of a call as shares of the same call with bare aiohttp."""
    rows = results["bench_call"].rows
    lines = [f"| | {' | '.join(PARTS)} |", f"| --- |{' --: |' * len(PARTS)}"]
    for tls, method, width in product(("no", "yes"), ("GET", "POST"), (16, 128)):
        key: Key = {"loop": "asyncio", "tls": tls, "method": method, "in flight": width}
        base = matching(rows, {**key, "contestant": BASELINE})
        rows_of_parts = [matching(rows, {**key, "contestant": name}) for name in PARTS]
        cells = [f"{ratio(part_rows[0], base[0]):.2f}" if part_rows and base else "" for part_rows in rows_of_parts]
        lines.append(f"| {method}{', TLS' * (tls == 'yes')}, {width} in flight | {' | '.join(cells)} |")
    return "\n".join(lines)


#: The tables of the pages, by the name in their marker.
TABLES: Mapping[str, Callable[[Mapping[str, Result]], str]] = {
    "summary": summary_table,
    "missed": lambda results: bars_table(results, missed=True),
    "bars": bars_table,
    "parts": parts_table,
    "bench_call": _call("asyncio", "no"),
    "bench_call_tls": _call("asyncio", "yes"),
    "bench_call_uvloop": _call("uvloop", "no"),
    "bench_call_uvloop_tls": _call("uvloop", "yes"),
    **{
        f"{bench}_{method.lower()}": _table(bench, {name: method})
        for bench, name in (("bench_layers", "method"), ("bench_retry", "call"))
        for method in ("GET", "POST")
    },
    **{name: _table(name, {}) for name in NAMES if name not in ("bench_call", "bench_layers", "bench_retry")},
    "machine": lambda results: tables.about(results["bench_call"]),
}


def written(page: str, results: Mapping[str, Result]) -> str:
    """Return *page* with new tables between the markers. A table without a result does not change.

    Raises:
        KeyError: A marker names no table.
    """

    def fill(match: re.Match[str]) -> str:
        make = TABLES[match["name"]]
        try:
            text = make(results)
        except KeyError:  # The bench was not run.
            return match[0]
        return f"{match['start']}\n{text}\n\n{match['end']}"

    return _MARKED.sub(fill, page)


def loaded(folder: Path = RESULTS) -> dict[str, Result]:
    """Return the last results by bench, without benches that have no result."""
    return {name: result for name in NAMES if (result := load(name, folder)) is not None}


def run(benches: Sequence[str], *, quick: bool, folder: Path) -> None:
    """Run *benches* in separate processes, so that no bench pays for the imports of another.

    Raises:
        CalledProcessError: A bench failed.
    """
    began = time.monotonic()
    for name in benches:
        settings = ["--quick"] if quick else BENCHES[name]
        command = [sys.executable, "-m", f"benchmarks.{name}", *settings, "--out", str(folder)]
        runs: list[Result] = []
        for _ in range(1 if quick else PROCESSES.get(name, 1)):
            subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603 - our own command
            runs += filter(None, [load(name, folder)])
        if len(runs) > 1:
            save(pooled(runs), folder)
        print(f"{name}: {time.monotonic() - began:.0f} s since the beginning", file=sys.stderr)


def main() -> None:
    """Run the benches with `--run`, print the bars, and write the pages with `--write`."""
    line = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    line.add_argument("--run", action="store_true", help="run the benches first, for a quarter of an hour")
    line.add_argument("--quick", action="store_true", help="with --run: a few calls each, only to check the benches")
    line.add_argument("--only", nargs="*", default=[], choices=BENCHES, metavar="BENCH", help="run only these")
    line.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON (%(default)s)")
    line.add_argument("--write", action="store_true", help="write the tables into the pages on performance")
    arguments = line.parse_args()
    if arguments.quick and arguments.results == RESULTS:
        line.error("a quick run measures nothing: give --results another folder")
    if arguments.run:
        run(arguments.only or list(BENCHES), quick=arguments.quick, folder=arguments.results)
    results = loaded(arguments.results)
    print(bars_table(results))
    if arguments.write:
        for page in PAGES:
            page.write_text(written(page.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
