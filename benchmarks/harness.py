"""Measuring: interleaved slices, CPU time, medians with spread, and results that a later reader can judge.

The rules that every bench here keeps:

- Variants that are compared run in one process, in short slices, in an order that is shuffled anew in each round. A
  noisy neighbour or a slow second then hits all of them.
- A ratio is the median of the ratios within the rounds, not the ratio of two medians taken minutes apart.
- The cost is CPU time (:func:`time.process_time`: all threads, user and system), since that is what a busy service
  pays. Throughput is given beside it.
- Client and server stay on different cores. Garbage is collected before each slice, and what was made before the first
  slice is frozen, so that no variant pays for the modules of another.
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

#: What tells one row from another: ``{"contestant": "paymentsdk", "method": "GET", ...}``.
Key = Mapping[str, str | int]

_PACKAGES = (
    "aiohttp",
    "attrs",
    "cattrs",
    "httpx",
    "httpx2",
    "msgspec",
    "multidict",
    "openai",
    "orjson",
    "pydantic",
    "pyreqwest",
    "stripe",
    "tenacity",
    "uvloop",
    "wreq",
    "yarl",
)

#: Does something once; returns one sample for each of its metrics.
Once = Callable[[], Mapping[str, float]]


class Options(Struct, frozen=True, kw_only=True):
    """How long and how often to measure.

    Attributes:
        rounds: How many slices each variant gets.
        slice_ms: How long a slice lasts, in milliseconds of wall time.
        seed: Of the shuffling.
        quick: A run that only shows that the bench works.
        only: Contestants to measure, by name; none for all.
    """

    rounds: int = 9
    slice_ms: float = 40.0
    seed: int = 1
    quick: bool = False
    only: tuple[str, ...] = ()


class Variant(Struct, frozen=True):
    """One thing to measure: *run* makes as many calls as it is asked to, and returns.

    With *rounds*, only the first so many rounds have a slice of it.
    """

    key: Key
    run: Callable[[int], None]
    least: int = 1
    rounds: int = sys.maxsize


class Trial(Struct, frozen=True):
    """One thing to measure whole."""

    key: Key
    run: Once


class Row(Struct, frozen=True):
    """What was measured of one variant: per metric, one number for each round."""

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
    """Return the command line that all benches share."""
    line = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    line.add_argument(
        "--quick", action="store_true", help="a few calls each: shows that the bench works, measures nothing"
    )
    line.add_argument("--rounds", type=int, default=Options().rounds, help="slices per variant (%(default)s)")
    line.add_argument("--slice-ms", type=float, default=Options().slice_ms, help="length of a slice (%(default)s)")
    line.add_argument("--seed", type=int, default=Options().seed, help="of the shuffling (%(default)s)")
    line.add_argument("--only", nargs="*", default=[], metavar="NAME", help="measure only these contestants")
    line.add_argument(
        "--out", type=Path, default=None, help="where the JSON goes (benchmarks/results; nowhere with --quick)"
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

    Each slice gives three samples: ``cpu_us`` and ``wall_us``, both per call, and ``load``, that of the machine.

    Args:
        variants: What to compare. Each runs alone, for about ``slice_ms``, in each round.
        options: How long and how often.
        others: Further clocks, by the name of their sample, read before and after each slice; in seconds, given per
            call in microseconds.
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
    # What an idle second cost the variant (a connection that its pool let go) is not the price of a call.
    variant.run(variant.least)
    gc.collect()
    before = [clock() for clock in clocks.values()]
    variant.run(count)
    after = [clock() for clock in clocks.values()]
    for name, start, end in zip(clocks, before, after, strict=True):
        row.samples[name].append((end - start) / count * MICRO)
    row.samples["load"].append(load_average())


def _calibrate(variant: Variant, options: Options) -> int:
    """Return how many calls fill a slice.

    The fastest of three runs says so: one that was held up would make the slices of this variant short, and calls in a
    short slice dear.
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
    start = time.perf_counter()
    variant.run(count)
    return time.perf_counter() - start


def take_turns(trials: Sequence[Trial], options: Options, *, warm_up: bool = True) -> list[Row]:
    """Measure *trials* whole, each once per round; with *warm_up* after a first time that does not count."""
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
    """Return the middle of *samples*."""
    return statistics.median(samples)


def spread(samples: Sequence[float]) -> tuple[float, float]:
    """Return the quartiles of *samples*: half of them lie between."""
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def ratios(row: Row, base: Row, metric: str = "cpu_us") -> list[float]:
    """Return how many times *base* the *row* costs, round by round."""
    return [ours / theirs for ours, theirs in zip(row.samples[metric], base.samples[metric], strict=False)]


def ratio(row: Row, base: Row, metric: str = "cpu_us") -> float:
    """Return how many times *base* the *row* costs: the median over the rounds, each round compared with itself."""
    return median(ratios(row, base, metric))


def difference(row: Row, base: Row, metric: str = "cpu_us") -> list[float]:
    """Return how much more the *row* costs than *base*, round by round."""
    return [ours - theirs for ours, theirs in zip(row.samples[metric], base.samples[metric], strict=False)]


def matching(rows: Iterable[Row], key: Key) -> list[Row]:
    """Return the rows whose key has all of *key*."""
    return [row for row in rows if all(row.key.get(name) == value for name, value in key.items())]


@functools.cache
def cores() -> tuple[int | None, int | None]:
    """Return one core for the client and another for the server, or twice ``None`` on a machine with one."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    have = sorted(os.sched_getaffinity(0))
    return (have[0], have[1]) if len(have) > 1 else (None, None)


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Keep this process, and the children that it starts meanwhile, on *core*."""
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
    """Return the bytes of memory that this process has now; 0 where the system does not tell."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if status.exists() else 0


@contextlib.contextmanager
def compiled() -> Iterator[dict[str, str]]:
    """Yield an environment in which modules are compiled at their first import, and only then.

    So it is where a package was installed; in a tree, or with ``PYTHONDONTWRITEBYTECODE``, it may not be.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        yield {**environment, "PYTHONPYCACHEPREFIX": folder}


def machine() -> dict[str, str]:
    """Return what the numbers depend on."""
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        # Without what a distribution or a hoster adds to the version of the kernel.
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": f"{load_average():.1f}",
    }


def load_average() -> float:
    """Return how many processes have run or waited for a core in the last minute; NaN where the system does not tell.

    More than there are cores: then caches are shared with others, and CPU times are too high.
    """
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def versions() -> dict[str, str]:
    """Return the versions of the packages that are measured here, of those that are installed."""
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
    """Put *rows* together with all that a reader needs to judge them."""
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


def pooled(results: Sequence[Result]) -> Result:
    """Return the runs of a bench in several processes as one.

    Where a process has its code and its dicts in memory moves the price of a call by some tenths of a microsecond, for
    as long as it lives: no number of rounds within one process evens that out.
    """
    rows = [
        Row(same[0].key, {metric: [s for row in same for s in row.samples[metric]] for metric in same[0].samples})
        for same in zip(*(run.rows for run in results), strict=True)
    ]
    return msgspec.structs.replace(results[0], rows=rows, settings={**results[0].settings, "processes": len(results)})


def save(outcome: Result, folder: Path = RESULTS) -> Path:
    """Write *outcome* as JSON, one file per bench; the newest run wins."""
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
    # So that a checked-in result is small, and a diff of two shows which rows changed.
    head = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(outcome, rows=[])), indent=1)
    rows = b",\n  ".join(map(msgspec.json.encode, outcome.rows))
    return head.replace(b'"rows": []', b'"rows": [\n  ' + rows + b"\n ]", 1) + b"\n"


def load(bench: str, folder: Path = RESULTS) -> Result | None:
    """Read the last run of *bench*, or ``None`` when there is none."""
    path = folder / f"{bench}.json"
    return msgspec.json.decode(path.read_bytes(), type=Result) if path.exists() else None


def finish(outcome: Result, arguments: argparse.Namespace) -> None:
    """Print *outcome*, and keep it unless it is a quick run."""
    from benchmarks import tables  # noqa: PLC0415 - tables reads this module

    sys.stdout.write(tables.page(outcome))
    folder = arguments.out or (None if arguments.quick else RESULTS)
    if folder is not None:
        sys.stdout.write(f"\n{save(outcome, folder)}\n")
