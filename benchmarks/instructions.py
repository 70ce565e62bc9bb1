"""How many instructions a call executes, counted by valgrind: a number that does not depend on the load of a machine.

`python -m benchmarks.instructions` prints thousand instructions per call. `--check` compares them with
`benchmarks/results/instructions.json` and fails where a count is more than 3 % higher; `--keep` writes that file.

Each count is the difference of two runs of one program, with fewer and with more calls, so that the start of the
interpreter and the import of the package are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import product, repeat
from pathlib import Path

from benchmarks.contestants import Target
from benchmarks.server import nginx_or_asyncio

RESULTS = Path(__file__).parent / "results" / "instructions.json"
#: Whose calls are counted: modules of `benchmarks.contestants`. Those of the package are checked.
CHECKED = ("sdk_http11", "sdk")
COUNTED = (*CHECKED, "bare_aiohttp", "http11_alone", "frozen_http11_alone")
METHODS = ("GET", "POST")
#: How many calls the two runs make. The first calls fill caches, so both runs begin with those.
FEW, MANY = 100, 350
#: How much higher a count may be than the kept one.
TOLERANCE = 1.03

Counts = dict[str, float]


def count(name: str, method: str, base_url: str) -> float:
    """Return the thousand instructions of a call of *method* that the contestant *name* makes."""
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
    """Make `FEW` and `MANY` calls, one after the other, each in a process of its own; print the two process ids.

    This is what valgrind runs. Both processes are forked from one that has imported everything.
    """
    contestant = importlib.import_module(f"benchmarks.contestants.{name}")

    async def calls(number: int) -> None:
        async with contestant.connect(Target(base_url)) as both:
            call: Callable[[], Awaitable[object]] = both.get if method == "GET" else both.post
            for _ in repeat(None, number):
                await call()

    for number in (FEW, MANY):
        if (process := os.fork()) == 0:
            asyncio.run(calls(number))
            os._exit(0)
        os.waitpid(process, 0)
        print(process, flush=True)


def counted(names: Sequence[str]) -> Counts:
    """Count the instructions of the calls of *names*, and print them."""
    counts: Counts = {}
    with nginx_or_asyncio() as server:
        for name, method in product(names, METHODS):
            counts[f"{name} {method}"] = thousands = round(count(name, method, server.plain), 1)
            print(f"{name} {method}: {thousands} thousand instructions", flush=True)
    return counts


def main() -> int:
    """Count, and keep or check the counts."""
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--check", action="store_true", help="fail where a count is more than 3 %% above the kept one")
    line.add_argument("--keep", action="store_true", help=f"write {RESULTS.name}")
    line.add_argument("--make", nargs=3, metavar=("NAME", "METHOD", "URL"), help=argparse.SUPPRESS)
    arguments = line.parse_args()
    if arguments.make:
        make(*arguments.make)
        return 0
    if shutil.which("valgrind") is None:
        print("needs valgrind, which Debian has")
        return 1
    if arguments.check:
        return check(counted(CHECKED))
    counts = counted(COUNTED)
    for method in METHODS:
        price = ratio(counts, "sdk_http11", "frozen_http11_alone", method)
        print(f"a safe call over http11 of 0.2 alone, {method}: {price}")
        print(f"the default over bare aiohttp, {method}: {ratio(counts, 'sdk', 'bare_aiohttp', method)}")
    if arguments.keep:
        RESULTS.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    return 0


def ratio(counts: Counts, name: str, base: str, method: str) -> str:
    """Return how many times the instructions of *base* a call of *name* executes."""
    return f"{counts[f'{name} {method}'] / counts[f'{base} {method}']:.2f}"


def check(counts: Counts) -> int:
    """Return 1 where a count is too high, and say which."""
    kept: Counts = json.loads(RESULTS.read_text(encoding="utf-8"))
    above = [name for name, thousands in counts.items() if thousands > kept[name] * TOLERANCE]
    for name in above:
        print(f"{name}: {counts[name]} thousand instructions, but {kept[name]} are kept in {RESULTS.name}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
