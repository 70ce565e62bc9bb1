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
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import tables
from benchmarks.bars import BARS, SUMMARY, Bar, Reading, readings
from benchmarks.harness import RESULTS, Result, load, matching

ROOT = Path(__file__).parent.parent
PAGES = tuple(ROOT / "docs" / "explanation" / name for name in ("performance.md", "performance-evidence.md"))
#: The benches with their options for the pages.
BENCHES: Mapping[str, Sequence[str]] = {
    "bench_call": ("--full", "--rounds", "13"),
    "bench_connections": (),
    "bench_decode": ("--rounds", "5"),
    "bench_pages": ("--rounds", "3"),
    "bench_import": (),
    "bench_flow": (),
    "bench_sandbox": (),
    "bench_journal": ("--rounds", "4"),
    "bench_webhooks": (),
    "bench_reconcile": ("--rows", "200000", "--rounds", "2"),
}
#: Results in the order of the pages.
NAMES = (*BENCHES, "instructions", "bench_pages_memory", "bench_reconcile_diff", "bench_reconcile_executors")
_MARKED = re.compile(r"(?P<start><!-- table: (?P<name>[a-z_]+) -->\n).*?(?P<end><!-- end of table -->)", re.DOTALL)


def summary_table(results: Mapping[str, Result]) -> str:
    """Return one line for each main cost."""
    lines = ["| what | unit | measured (ratio) | ratio to | `python -m` |", "| --- | --- | --: | --- | --- |"]
    for line in SUMMARY:
        result = results[line.bench]
        unit, _ = tables.METRICS[line.metric]
        to = ", ".join(
            value if isinstance(value, str) else f"{name} {value}" for name, value in result.baseline.items()
        )
        cells = (tables.cell(row, result, line.metric) for row in matching(result.rows, line.of))
        lines += [f"| {line.what} | {unit} | {cell} | {to} | `benchmarks.{line.bench}` |" for cell in cells]
    return "\n".join(lines)


def bars_table(results: Mapping[str, Result], *, missed: bool = False) -> str:
    """Return one line per bar, or only for bars that do not hold everywhere."""
    lines = ["| what | bar | measured | holds |", "| --- | --- | --- | --- |"]
    for bar in BARS:
        measured = readings(bar, results)
        if not (missed and all(reading.holds for reading in measured)):
            text = "; ".join(_reading(bar, reading) for reading in measured)
            lines.append(f"| {bar.what} | {bar.promise} | {text or 'not measured'} | {_verdict(measured)} |")
    return "\n".join(lines)


def _reading(bar: Bar, reading: Reading) -> str:
    """Return *reading* as text."""
    return f"{reading.value:.2f}{bar.unit}{f' ({reading.where})' if reading.where else ''}"


def _verdict(measured: Sequence[Reading]) -> str:
    """Return whether the bar holds."""
    if not measured:
        return "?"
    holding = sum(reading.holds for reading in measured)
    return "yes" if holding == len(measured) else "**no**" if holding == 0 else f"**in {holding} of {len(measured)}**"


def _table(name: str, results: Mapping[str, Result]) -> str:
    """Return the table of the bench *name*."""
    return tables.table(results[name])


def _call(loop: str, tls: str) -> Callable[[Mapping[str, Result]], str]:
    """Return a function that makes the table of the calls on *loop*, with or without TLS."""

    def table(results: Mapping[str, Result]) -> str:
        result = results["bench_call"]
        rows = matching(result.rows, {"loop": loop, "tls": tls})
        return tables.pivot(msgspec.structs.replace(result, rows=rows), "contestant", ("method", "in flight"))

    return table


#: The tables of the pages, by the name in their marker.
TABLES: Mapping[str, Callable[[Mapping[str, Result]], str]] = {
    "summary": summary_table,
    "missed": lambda results: bars_table(results, missed=True),
    "bars": bars_table,
    "bench_call": _call("asyncio", "no"),
    "bench_call_tls": _call("asyncio", "yes"),
    "bench_call_uvloop": _call("uvloop", "no"),
    "bench_call_uvloop_tls": _call("uvloop", "yes"),
    **{name: partial(_table, name) for name in NAMES if name != "bench_call"},
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
        subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603 - our own command
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
