"""Measures the first call over TLS: a process that starts, imports, connects and calls.

*Import* is the import of the library. *First call* makes the client, does the TLS handshake and reads one response.
*Second call* uses the open connection. *Time* and *CPU* cover the whole process up to the end of the first call.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Options, Result, Trial
from benchmarks.server import Server, nginx_or_asyncio

BASELINE = "bare aiohttp"
#: The modules of :mod:`benchmarks.cold` by their names in results, each with its library.
PROGRAMS = {
    BASELINE: ("bare_aiohttp", "aiohttp"),
    "paymentsdk": ("sdk", "paymentsdk"),
    "bare httpx": ("bare_httpx", "httpx"),
    "stripe, aiohttp": ("stripe_aiohttp", "stripe"),
    "openai, default": ("openai_default", "openai"),
}


def run(options: Options) -> Result:
    """Measure every program."""
    names = [name for name in PROGRAMS if not options.only or name in (*options.only, BASELINE)]
    missing = [name for name in names if find_spec(PROGRAMS[name][1]) is None]
    with nginx_or_asyncio() as server, harness.compiled() as environment, harness.on_core(harness.cores()[0]):
        trials = [
            Trial({"contestant": name}, partial(first_call, PROGRAMS[name][0], server, environment))
            for name in names
            if name not in missing
        ]
        rows = harness.take_turns(trials, options)
    notes = [f"{name} was left out: its library is not installed" for name in missing]
    notes.append(
        "all trust one certificate authority, given as a file; the ratio is that of the first metric, the time"
    )
    return harness.result(
        "bench_cold", rows, options, baseline={"contestant": BASELINE}, notes=notes, server=server.kind
    )


def first_call(module: str, server: Server, environment: dict[str, str]) -> Mapping[str, float]:
    """Run one program of :mod:`benchmarks.cold`, and return its output."""
    command = [sys.executable, "-m", "benchmarks.cold", module, server.tls, server.authority, str(time.monotonic())]
    root = Path(__file__).parent.parent
    process = subprocess.run(  # noqa: S603 - our own command
        command, check=True, capture_output=True, text=True, cwd=root, env=environment, timeout=60
    )
    measured = dict(line.split() for line in process.stdout.splitlines())
    return {metric: float(measured[metric]) for metric in ("wall_ms", "cpu_ms", "import_ms", "first_ms", "second_ms")}


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
