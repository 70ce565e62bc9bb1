"""Measures in interleaved slices: CPU time, medians with spread, and results that a later reader can judge.

Every bench here keeps these rules:

- Compared variants run in one process, in short slices, in a new random order in each round. A noisy neighbour or a
  slow second then affects all variants.
- A ratio is the median of the ratios within the rounds, not the ratio of two medians taken minutes apart.
- The cost is CPU time (:func:`time.process_time`: all threads, user and system), the cost for a busy
  service. Throughput is also measured.
- Client and server stay on different cores. Garbage is collected before each slice. All objects are frozen before the
  first slice, so that no variant pays for the modules of another variant.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct

RESULTS = Path(__file__).parent / "results"
MICRO = 1e6

#: Identifies a row: ``{"contestant": "paymentsdk", "method": "GET", ...}``.
Key = Mapping[str, str | int]

_PACKAGES = ("aiohttp", "httpx", "msgspec", "openai", "orjson", "pydantic", "stripe", "tenacity", "uvloop", "yarl")

#: Runs once, and returns one sample for each metric.
Once = Callable[[], Mapping[str, float]]


class Options(Struct, frozen=True, kw_only=True):
    """The number and length of measurements.

    Attributes:
        rounds: The number of slices of each variant.
        slice_ms: The length of a slice, in milliseconds of wall time.
        seed: The seed of the random order.
        quick: Only check that the bench works.
        only: The names of the contestants to measure; empty for all.
    """

    rounds: int = 9
    slice_ms: float = 40.0
    seed: int = 1
    quick: bool = False
    only: tuple[str, ...] = ()


class Variant(Struct, frozen=True):
    """A variant that is measured in slices: *run* makes the given number of calls, and returns.

    With *rounds*, only the first so many rounds have a slice of this variant.
    """

    key: Key
    run: Callable[[int], None]
    least: int = 1
    rounds: int = sys.maxsize


class Trial(Struct, frozen=True):
    """A variant that is measured as a whole."""

    key: Key
    run: Once


class Row(Struct, frozen=True):
    """The measurements of one variant: for each metric, one number per round."""

    key: dict[str, str | int]
    samples: dict[str, list[float]]


class Result(Struct, frozen=True, kw_only=True):
    """One run of one bench."""

    bench: str
    started: str
    machine: dict[str, str]
    versions: dict[str, str]
    settings: dict[str, object]
    baseline: dict[str, str | int]
    rows: list[Row]
    notes: list[str] = []


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that all benches share."""
    line = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    line.add_argument("--quick", action="store_true", help="a few calls each: only check that the bench works")
    line.add_argument("--rounds", type=int, default=Options().rounds, help="slices per variant (%(default)s)")
    line.add_argument("--slice-ms", type=float, default=Options().slice_ms, help="length of a slice (%(default)s)")
    line.add_argument("--seed", type=int, default=Options().seed, help="seed of the random order (%(default)s)")
    line.add_argument("--only", nargs="*", default=[], metavar="NAME", help="measure only these contestants")
    line.add_argument(
        "--out", type=Path, default=None, help="folder for the JSON (benchmarks/results; none with --quick)"
    )
    return line


def options(arguments: argparse.Namespace) -> Options:
    """Return the shared settings of a command line."""
    if arguments.quick:
        return Options(rounds=2, slice_ms=0, seed=arguments.seed, quick=True, only=tuple(arguments.only))
    return Options(
        rounds=arguments.rounds, slice_ms=arguments.slice_ms, seed=arguments.seed, only=tuple(arguments.only)
    )


def interleave(
    variants: Sequence[Variant],
    options: Options,
    others: Mapping[str, Callable[[], float]] | None = None,
) -> list[Row]:
    """Measure *variants* in shuffled slices.

    Each slice gives three samples: ``cpu_us`` and ``wall_us`` per call, and the ``load`` of the machine.

    Args:
        variants: The variants to compare. Each runs alone, for about ``slice_ms``, in each round.
        options: The number and length of slices.
        others: Further clocks in seconds, by the name of their sample. They are read before and after each slice. The
            samples are in microseconds per call.
    """
    clocks: dict[str, Callable[[], float]] = {
        "cpu_us": time.process_time,
        "wall_us": time.perf_counter,
        **(others or {}),
    }
    rows = [Row(dict(variant.key), {name: [] for name in (*clocks, "load")}) for variant in variants]
    shuffle = random.Random(options.seed).shuffle  # noqa: S311 - an order, not a secret
    order = list(range(len(variants)))
    gc.collect()
    gc.freeze()
    try:
        counts = [_calibrate(variant, options) for variant in variants]
        gc.collect()
        gc.freeze()
        for number in range(options.rounds):
            shuffle(order)
            for i in order:
                if number < variants[i].rounds:
                    _slice(variants[i], counts[i], clocks, rows[i])
    finally:
        gc.unfreeze()
    return rows


def _slice(variant: Variant, count: int, clocks: Mapping[str, Callable[[], float]], row: Row) -> None:
    """Measure one slice of *variant*, and add its samples to *row*."""
    # An idle second may cost a variant a pooled connection. This is not part of the cost of a call.
    variant.run(variant.least)
    gc.collect()
    before = [clock() for clock in clocks.values()]
    variant.run(count)
    after = [clock() for clock in clocks.values()]
    for name, start, end in zip(clocks, before, after, strict=True):
        row.samples[name].append((end - start) / count * MICRO)
    row.samples["load"].append(load_average())


def _calibrate(variant: Variant, options: Options) -> int:
    """Return the number of calls in a slice, from the fastest of three runs.

    A delayed run would make the slices of this variant short, and calls in a short slice are expensive.
    """
    variant.run(variant.least)
    if options.quick:
        return variant.least
    count = variant.least
    while True:
        elapsed = min(_wall(variant, count) for _ in range(3))
        if elapsed >= options.slice_ms / 4000:
            target = round(count * options.slice_ms / 1000 / elapsed)
            return max(1, target // variant.least) * variant.least
        count *= 4


def _wall(variant: Variant, count: int) -> float:
    """Return the seconds of *count* calls."""
    start = time.perf_counter()
    variant.run(count)
    return time.perf_counter() - start


def take_turns(trials: Sequence[Trial], options: Options, *, warm_up: bool = True) -> list[Row]:
    """Measure each of *trials* once per round. *warm_up* adds a first run that does not count."""
    rows = [Row(dict(trial.key), {}) for trial in trials]
    shuffle = random.Random(options.seed).shuffle  # noqa: S311 - an order, not a secret
    order = list(range(len(trials)))
    first = 0 if warm_up and not options.quick else 1
    for number in range(first, options.rounds + 1):
        shuffle(order)
        for i in order:
            gc.collect()
            samples = trials[i].run()
            if number:
                for metric, value in samples.items():
                    rows[i].samples.setdefault(metric, []).append(value)
                rows[i].samples.setdefault("load", []).append(load_average())
    return rows


def median(samples: Sequence[float]) -> float:
    """Return the median of *samples*."""
    return statistics.median(samples)


def spread(samples: Sequence[float]) -> tuple[float, float]:
    """Return the quartiles of *samples*: half of the samples lie between them."""
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def ratios(row: Row, base: Row, metric: str = "cpu_us") -> list[float]:
    """Return the ratios of *row* to *base*, round by round."""
    return [ours / theirs for ours, theirs in zip(row.samples[metric], base.samples[metric], strict=False)]


def ratio(row: Row, base: Row, metric: str = "cpu_us") -> float:
    """Return the ratio of *row* to *base*: the median of the ratios within the rounds."""
    return median(ratios(row, base, metric))


def difference(row: Row, base: Row, metric: str = "cpu_us") -> list[float]:
    """Return the differences of *row* and *base*, round by round."""
    return [ours - theirs for ours, theirs in zip(row.samples[metric], base.samples[metric], strict=False)]


def matching(rows: Iterable[Row], key: Key) -> list[Row]:
    """Return the rows whose key has all members of *key*."""
    return [row for row in rows if all(row.key.get(name) == value for name, value in key.items())]


@functools.cache
def cores() -> tuple[int | None, int | None]:
    """Return a core for the client and a core for the server; ``None`` for both on a machine with a single core."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    have = sorted(os.sched_getaffinity(0))
    return (have[0], have[1]) if len(have) > 1 else (None, None)


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Keep this process and its new child processes on *core*."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def resident() -> int:
    """Return the current memory of this process in bytes; 0 if the system does not report it."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if status.exists() else 0


@contextlib.contextmanager
def compiled() -> Iterator[dict[str, str]]:
    """Yield an environment in which modules are compiled only at their first import.

    An installed package works like this. A source tree, or ``PYTHONDONTWRITEBYTECODE``, may compile them every time.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        yield {**environment, "PYTHONPYCACHEPREFIX": folder}


def machine() -> dict[str, str]:
    """Return the properties of the machine that change the numbers."""
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        # Without the additions of a distribution or a hoster to the version of the kernel.
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": f"{load_average():.1f}",
    }


def load_average() -> float:
    """Return the number of processes that ran or waited for a core in the last minute; NaN if it is unknown.

    If it is above the number of cores, processes share caches, and CPU times are too high.
    """
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def _cpu() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def versions() -> dict[str, str]:
    """Return the versions of the measured packages that are installed."""
    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def result(
    bench: str,
    rows: list[Row],
    options: Options,
    *,
    baseline: Mapping[str, str | int] | None = None,
    notes: Sequence[str] = (),
    **settings: object,
) -> Result:
    """Return *rows* with the machine and the versions, so that a reader can judge the numbers."""
    return Result(
        bench=bench,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        versions=versions(),
        settings={**msgspec.structs.asdict(options), **settings},
        baseline=dict(baseline or {}),
        rows=rows,
        notes=list(notes),
    )


def save(outcome: Result, folder: Path = RESULTS) -> Path:
    """Write *outcome* as JSON, one file per bench. It replaces the last run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{outcome.bench}.json"
    rounded = msgspec.structs.replace(
        outcome,
        rows=[
            Row(row.key, {m: [float(f"{s:.5g}") for s in samples] for m, samples in row.samples.items()})
            for row in outcome.rows
        ],
    )
    path.write_bytes(_one_row_per_line(rounded))
    return path


def _one_row_per_line(outcome: Result) -> bytes:
    """Return *outcome* as JSON with a line for each row."""
    # Results in the repository stay small, and a diff of two results shows the changed rows.
    head = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(outcome, rows=[])), indent=1)
    rows = b",\n  ".join(map(msgspec.json.encode, outcome.rows))
    return head.replace(b'"rows": []', b'"rows": [\n  ' + rows + b"\n ]", 1) + b"\n"


def load(bench: str, folder: Path = RESULTS) -> Result | None:
    """Return the last run of *bench*, or ``None`` without a run."""
    path = folder / f"{bench}.json"
    return msgspec.json.decode(path.read_bytes(), type=Result) if path.exists() else None


def finish(outcome: Result, arguments: argparse.Namespace) -> None:
    """Print *outcome*, and write it to a file unless it is a quick run."""
    from benchmarks import tables  # noqa: PLC0415 - tables reads this module

    sys.stdout.write(tables.page(outcome))
    folder = arguments.out or (None if arguments.quick else RESULTS)
    if folder is not None:
        sys.stdout.write(f"\n{save(outcome, folder)}\n")
