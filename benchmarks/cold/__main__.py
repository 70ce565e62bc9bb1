"""Run one of the programs: ``python -m benchmarks.cold MODULE BASE_URL AUTHORITY STARTED``.

*STARTED* is the monotonic time of the start of the process. It prints milliseconds, one metric per line.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time


async def main(module: str, base_url: str, authority: str, started: float) -> None:
    """Import, connect, call twice."""
    before = time.perf_counter()
    program = importlib.import_module(f"benchmarks.cold.{module}")
    imported = time.perf_counter()
    async with program.connect(base_url, authority) as call:
        await call()
        first = time.perf_counter()
        whole, cpu = time.monotonic() - started, time.process_time()
        await call()
        second = time.perf_counter()
    print("import_ms", (imported - before) * 1e3)
    print("first_ms", (first - imported) * 1e3)
    print("second_ms", (second - first) * 1e3)
    print("wall_ms", whole * 1e3)
    print("cpu_ms", cpu * 1e3)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
