"""Measures imports: a process that imports one thing and ends.

*CPU* covers the whole process, as for a command or a serverless function. *net* excludes the CPU of an interpreter that
imports nothing. The bar is on *CPU*.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Options, Result, Trial, matching

NOTHING = "nothing"
BASELINE = "asyncio"
#: The imports by their names in results.
PROGRAMS = {
    NOTHING: "pass",
    "asyncio": "import asyncio",
    "msgspec": "import msgspec",
    "paymentsdk": "from paymentsdk import PaymentsClient",
    "paymentsdk, and http11": "from paymentsdk import PaymentsClient, Http11Transport",
    "paymentsdk, and nothing of it": "import paymentsdk",
    "paymentsdk, and a client that reads orders": (
        "import paymentsdk; paymentsdk.PaymentsClient('t', base_url='http://127.0.0.1').orders"
    ),
    "paymentsdk, and every operation": "import paymentsdk; paymentsdk.OPERATIONS",
    "aiohttp": "import aiohttp",
    "httpx": "import httpx",
    "pydantic": "import pydantic; pydantic.BaseModel",
    "stripe": "import stripe",
    "openai": "import openai; openai.AsyncOpenAI",
}


def run(options: Options) -> Result:
    """Measure every import."""
    programs = {name: code for name, code in PROGRAMS.items() if not options.only or name in (*options.only, *_ALWAYS)}
    missing = [name for name in programs if name != NOTHING and find_spec(name.partition(",")[0]) is None]
    with harness.compiled() as environment, harness.on_core(harness.cores()[0]):
        trials = [
            Trial({"import": name}, partial(process, code, environment))
            for name, code in programs.items()
            if name not in missing
        ]
        rows = harness.take_turns(trials, options)
    [empty] = matching(rows, {"import": NOTHING})
    for row in rows:
        row.samples["net_ms"] = harness.difference(row, empty, "cpu_ms")
    notes = [f"{name} was left out: it is not installed" for name in missing]
    return harness.result("bench_import", rows, options, baseline={"import": BASELINE}, notes=notes)


_ALWAYS = (NOTHING, BASELINE)


def process(code: str, environment: dict[str, str]) -> Mapping[str, float]:
    """Run *code* in a new interpreter."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=Path(__file__).parent.parent, env=environment)  # noqa: S603 - our own
    elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_ms": cpu * 1e3, "wall_ms": elapsed * 1e3}


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
