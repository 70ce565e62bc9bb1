"""Counts the instructions of a call with valgrind. The number does not depend on the load of the machine.

`python -m benchmarks.instructions` prints thousands of instructions per call. `--check` counts the calls of the package
and compares them with `benchmarks/results/instructions.json`. It fails if a count is more than 3 % higher. `--keep`
writes the file. `bars.py` has the bars on these counts.

Each count is the difference of two runs of one program, with fewer and with more calls. This leaves out the start of
the interpreter and the import of the package.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import product, repeat

from benchmarks.contestants import BASELINE, Target, named
from benchmarks.harness import Options, Result, Row, load, matching, result, save
from benchmarks.server import fixed
from benchmarks.tables import page

#: The counted contestants. `--check` checks the contestants of the package.
CHECKED = ("paymentsdk, http11", "paymentsdk")
COUNTED = (*CHECKED, BASELINE, "http11, no engine", "http11 of 0.2, no engine")
METHODS = ("GET", "POST")
#: The numbers of calls of the two runs. The first calls fill caches, so both runs include them.
FEW, MANY = 100, 350
#: The highest allowed ratio of a count to the kept count.
TOLERANCE = 1.03
METRIC = "kinstructions"


def count(name: str, method: str, base_url: str) -> float:
    """Return the thousands of instructions of a call of *method* by the contestant *name*."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "benchmarks.instructions", "--make", name, method, base_url]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    refs = dict(re.findall(r"==([0-9]+)== I +refs: +([0-9,]+)", ended.stderr))
    try:
        few, many = (int(refs[process].replace(",", "")) for process in ended.stdout.split())
    except (KeyError, ValueError):
        raise RuntimeError(f"valgrind did not count {name}, {method}:\n{ended.stderr}") from None
    return (many - few) / (MANY - FEW) / 1000


def make(name: str, method: str, base_url: str) -> None:
    """Make `FEW` calls in a new process, then `MANY` calls in another, and print the two process ids.

    valgrind runs this program. The parent process imports everything before it forks.
    """
    contestant = named(name)

    async def calls(number: int) -> None:
        async with contestant.connect(Target(base_url)) as contestant_calls:
            call = contestant_calls.get if method == "GET" else contestant_calls.post
            for _ in repeat(None, number):
                await call()

    for number in (FEW, MANY):
        if (process := os.fork()) == 0:
            asyncio.run(calls(number))
            os._exit(0)
        os.waitpid(process, 0)
        print(process, flush=True)


def counted(names: Sequence[str]) -> Result:
    """Count the instructions of the calls of *names*."""
    rows: list[Row] = []
    with fixed() as server:
        for name, method in product(names, METHODS):
            key: dict[str, str | int] = {"contestant": name, "method": method}
            rows.append(Row(key, {METRIC: [count(name, method, server.plain)]}))
    return result("instructions", rows, Options(rounds=1), baseline={"contestant": BASELINE})


def above(counts: Result, baseline: Result) -> list[str]:
    """Return a sentence for each count that is more than 3 % higher than the kept count."""
    sentences = []
    for row in counts.rows:
        [thousands], [before] = row.samples[METRIC], matching(baseline.rows, row.key)[0].samples[METRIC]
        if thousands > before * TOLERANCE:
            call = f"{row.key['contestant']}, {row.key['method']}"
            sentences.append(f"{call}: {thousands:.1f} thousand instructions, but {before:g} are kept")
    return sentences


def main() -> int:
    """Count the instructions, and keep or check the counts."""
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--check", action="store_true", help="fail if a count is more than 3 %% above the kept count")
    line.add_argument("--keep", action="store_true", help="write instructions.json")
    line.add_argument("--make", nargs=3, metavar=("NAME", "METHOD", "URL"), help=argparse.SUPPRESS)
    arguments = line.parse_args()
    if arguments.make:
        make(*arguments.make)
        return 0
    if shutil.which("valgrind") is None:
        print("needs valgrind, which Debian has")
        return 1
    counts = counted(CHECKED if arguments.check else COUNTED)
    print(page(counts))
    if arguments.check:
        baseline = load("instructions")
        sentences = ["there are no kept counts: run --keep"] if baseline is None else above(counts, baseline)
        print("\n".join(sentences))
        return 1 if sentences else 0
    if arguments.keep:
        save(counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
