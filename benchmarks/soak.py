"""Checks for leaks: some hundred thousand calls of one client in one process, with faults, in Python's dev mode.

A sandbox in a separate process injects every fault. Calls succeed, are retried, rejected, cancelled and cut short by
deadlines. Between two portions, when no call is in flight, the program counts memory, objects, tasks, threads and
descriptors. The first portions fill pools and caches, and do not count. A growth, a warning or an unhandled error makes
the program exit with 1 and a line with the reason.

    python -X dev -m benchmarks.soak                                 # 200,000 calls: half an hour
    python -X dev -m benchmarks.soak --calls 20000
    python -X dev -m benchmarks.soak --calls 20000 --leak tasks      # a control: it must fail
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from paymentsdk import PaymentsClient, PaymentsError, RetryPolicy, Timeout
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import FaultRule, Sandbox, SandboxInfo

PORTIONS = 20
#: Portions that fill pools, caches and arenas.
WARM = 5
CONCURRENCY = 32
AMOUNT = Decimal("10.00")
FAULTS = (
    FaultRule(effect="lose_response_after_commit", probability=0.02, seed=1),
    FaultRule(effect="fail_before_commit", probability=0.02, seed=2, status=503),
    FaultRule(effect="truncate", probability=0.01, seed=3),
    FaultRule(effect="malformed", probability=0.01, seed=4),
    FaultRule(effect="html", probability=0.01, seed=5),
    FaultRule(effect="reset", probability=0.02, seed=6),
    FaultRule(effect="rate_limit", probability=0.005, seed=7, retry_after=0),
    FaultRule(effect="delay_after_commit", probability=0.01, seed=8, seconds=0.05),
)


class Sample(NamedTuple):
    """The counts when no call is in flight."""

    memory: int
    """The memory of the process in kilobytes."""
    objects: int
    """The number of objects that the garbage collector tracks."""
    tasks: int
    threads: int
    descriptors: int


#: The allowed growth from the beginning to the end: a share, and an additional number. A leak of one object per ten
#: calls, or one descriptor per ten thousand, exceeds it.
ALLOWED = {
    "memory": (0.05, 2_048),
    "objects": (0.005, 500),
    "tasks": (0.0, 0),
    "threads": (0.0, 0),
    "descriptors": (0.0, 12),  # Of the pool: faults close connections, and later calls open new connections.
}


def growth(samples: Sequence[Sample]) -> list[str]:
    """Return sentences about the growth from the first third of *samples* to the last."""
    third = len(samples) // 3
    grown = []
    for name, (share, besides) in ALLOWED.items():
        first, last = (median(getattr(sample, name) for sample in part) for part in (samples[:third], samples[-third:]))
        if last > first * (1 + share) + besides:
            grown.append(f"{name} grew from {first:,.0f} to {last:,.0f}")
    return grown


def count() -> Sample:
    """Return the current counts."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return Sample(
        memory=int(memory),
        objects=len(gc.get_objects()),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - a path for each would be counted as well
    )


class Soak:
    """Makes the calls.

    Args:
        client: The client.
        seed: Makes the choice of calls repeatable.
        leak: The kind of leak to make on purpose.
    """

    def __init__(self, client: PaymentsClient, seed: int, leak: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self._client = client
        self._hasty = client.with_options(timeout=Timeout(total=0.02))
        self._drawn = seed
        self._leak = leak
        self._leaked: list[object] = []
        self._orders = ["ORD" + "0" * 26]

    def _chance(self) -> float:
        """Return the next number from 0 to 1 of a repeatable sequence."""
        self._drawn += 1
        return zlib.crc32(b"%d" % self._drawn) / 2**32

    def _order(self) -> str:
        return self._orders[int(self._chance() * len(self._orders))]

    async def portion(self, calls: int) -> None:
        """Make *calls* calls, several at a time, and return when all have ended."""
        remaining = iter(range(calls))

        async def work() -> None:
            for _ in remaining:
                await self._call()

        async with asyncio.TaskGroup() as workers:
            for _ in range(CONCURRENCY):
                workers.create_task(work())
        await asyncio.sleep(0.1)  # The other side also closes its connections now.

    async def _call(self) -> None:
        if self._leak and self._chance() < 0.01:
            self._plant()
        drawn = self._chance()
        try:
            if drawn < 0.3:
                await self._create()
            elif drawn < 0.6:
                await self._client.orders.get(self._order())
            elif drawn < 0.7:
                await self._client.orders.cancel(self._order())
            elif drawn < 0.8:
                await self._hasty.merchant_orders.search(page_size=5).collect()
            elif drawn < 0.9:
                await self._client.plans.search().collect()
            else:
                await self._cancelled()
        except PaymentsError as error:
            self.outcomes[type(error).__name__] += 1
        else:
            self.outcomes["success"] += 1

    async def _create(self) -> None:
        payments = TransactionsRequest(payments=[PaymentRequest(amount=AMOUNT)])
        order = await self._client.orders.create(
            OrderRequest(external_reference="soak", total_amount=AMOUNT, transactions=payments)
        )
        self._orders = [*self._orders[-50:], order.id]

    async def _cancelled(self) -> None:
        call = asyncio.create_task(self._create())
        await asyncio.sleep(self._chance() * 0.01)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    def _plant(self) -> None:
        match self._leak:
            case "memory":
                self._leaked.append(b"leak" * 250_000)
            case "objects":
                self._leaked.append([[] for _ in range(500)])
            case "tasks":
                self._leaked.append(asyncio.create_task(asyncio.sleep(86_400)))
            case "descriptors":
                self._leaked.append(os.open(os.devnull, os.O_RDONLY))
            case "warnings":
                asyncio.sleep(0)  # type: ignore[unused-coroutine]  # Nobody awaits it.


async def soak(calls: int, seed: int, leak: str) -> list[str]:
    """Make the calls, print a line for each portion, and return the problems."""
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(str(context["message"])))
    sys.unraisablehook = lambda raised: unseen.append(repr(raised.exc_value))
    command = (sys.executable, "-m", "benchmarks.soak", "--serve")
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    if server.stdout is None:
        raise RuntimeError("the sandbox says nothing")
    info = msgspec.json.decode(await server.stdout.readline(), type=SandboxInfo)
    retry = RetryPolicy(attempts=4, base_delay=0.001, max_delay=0.01)
    samples: list[Sample] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with PaymentsClient(info.access_token, base_url=info.base_url, retry=retry) as client:
            work = Soak(client, seed, leak)
            began = time.perf_counter()
            for portion in range(1, PORTIONS + 1):
                await work.portion(calls // PORTIONS)
                samples.append(count())
                calls_made, seconds = portion * calls // PORTIONS, time.perf_counter() - began
                print(f"{calls_made:>9,} calls  {seconds:6.0f} s  {samples[-1]}", flush=True)
        gc.collect()
    print(dict(work.outcomes.most_common()))
    await server.communicate(b"")  # This closes its stdin, and the process ends.
    return [*growth(samples[WARM:]), *{str(warning.message) for warning in warned}, *dict.fromkeys(unseen)]


async def serve() -> None:
    """Run the sandbox until the other end of stdin is closed."""
    async with Sandbox(seed=1) as sandbox:
        for rule in FAULTS:
            sandbox.faults.add(rule)
        sys.stdout.buffer.write(msgspec.json.encode(sandbox.describe()) + b"\n")
        sys.stdout.buffer.flush()
        await asyncio.to_thread(sys.stdin.read)


def main() -> int:
    """Run the program, and return the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=200_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--leak", choices=["memory", "objects", "tasks", "descriptors", "warnings"], default="")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return 0
    if not sys.flags.dev_mode:
        options.error("it needs Python's dev mode: python -X dev -m benchmarks.soak")
    # Logged retries are normal, and so are slow callbacks in dev mode on a loaded machine.
    logging.disable(logging.WARNING)
    problems = asyncio.run(soak(arguments.calls, arguments.seed, arguments.leak))
    print("\n".join(problems) or "nothing grew, and nothing was warned of")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
