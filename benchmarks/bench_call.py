"""Measures one typed call, compared with the bare library and with other SDKs.

The bench reads and creates an order, with 1, 16 and 128 calls in flight. The other SDKs make their own call of the same
size (see the notes). The default is plain HTTP on asyncio's loop; ``--full`` adds TLS and uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import repeat

from benchmarks import harness, payloads
from benchmarks.contestants import BASELINE, Calls, Contestant, Target, contestants
from benchmarks.harness import Key, Options, Result, Row, Variant
from benchmarks.server import fixed

CONCURRENCY = (1, 16, 128)
LOOPS = ("asyncio", "uvloop")
#: The contestants that run on uvloop, too, and in every round: they differ by some hundredths of a call.
_CLOSE = {BASELINE, "paymentsdk", "paymentsdk, http11", "http11, no engine"}
#: The rounds of the others, which are far from their bars or have no bar. They would take most of the time.
_ROUNDS_OF_OTHERS = 3


def run(
    options: Options,
    *,
    loops: Sequence[str] = ("asyncio",),
    tls: Sequence[bool] = (False,),
    concurrency: Sequence[int] = CONCURRENCY,
) -> Result:
    """Measure every contestant under every condition."""
    racing, notes = contestants()
    racing = [contestant for contestant in racing if not options.only or contestant.name in (*options.only, BASELINE)]
    rows: list[Row] = []
    with fixed() as server, harness.on_core(harness.cores()[0]):
        for loop in loops:
            try:
                factory = _loop_factory(loop)
            except ImportError as error:
                notes.append(f"{loop} was left out: {error}")
                continue
            for secure in tls:
                target = Target(server.tls, server.authority) if secure else Target(server.plain)
                with asyncio.Runner(loop_factory=factory) as runner, contextlib.ExitStack() as stack:
                    here = [contestant for contestant in racing if loop == "asyncio" or contestant.name in _CLOSE]
                    calls = {contestant.name: connected(contestant, target, runner, stack) for contestant in here}
                    conditions: Key = {"loop": loop, "tls": "yes" if secure else "no"}
                    variants = list(_variants(calls, runner, concurrency, conditions, options))
                    rows += harness.interleave(variants, options, {"server_us": server.cpu_seconds})
    notes += [contestant.note for contestant in racing if contestant.note]
    notes.append(payloads.sizes())
    return harness.result("bench_call", rows, options, baseline={"contestant": BASELINE}, notes=notes)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes event loops of the kind *name*."""
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop  # noqa: PLC0415 - an optional peer

    return uvloop.new_event_loop


def _variants(
    calls: Mapping[str, Calls], runner: asyncio.Runner, concurrency: Sequence[int], conditions: Key, options: Options
) -> Iterator[Variant]:
    """Yield the measurements on one loop over one kind of connection."""
    for method in ("GET", "POST"):
        for width in concurrency:
            for name, calls_of in calls.items():
                key: Key = {"contestant": name, "method": method, "in flight": width, **conditions}
                rounds = options.rounds if name in _CLOSE else _ROUNDS_OF_OTHERS
                call = calls_of.get if method == "GET" else calls_of.post
                yield Variant(key, slices(runner, call, width), least=width, rounds=rounds)


def connected(contestant: Contestant, target: Target, runner: asyncio.Runner, stack: contextlib.ExitStack) -> Calls:
    """Open a contestant now, and close it when the *stack* is left."""

    async def enter() -> tuple[contextlib.AbstractAsyncContextManager[Calls], Calls]:
        context = contestant.connect(target)  # Some clients must be created on their loop.
        return context, await context.__aenter__()

    async def leave() -> None:
        await context.__aexit__(None, None, None)

    context, calls = runner.run(enter())
    stack.callback(lambda: runner.run(leave()))
    return calls


def slices(runner: asyncio.Runner, call: Callable[[], Awaitable[object]], width: int) -> Callable[[int], None]:
    """Return a function that makes so many calls, *width* at a time."""

    async def worker(count: int) -> None:
        for _ in repeat(None, count):
            await call()

    async def workers(count: int) -> None:
        await asyncio.gather(*(worker(count // width) for _ in range(width)))

    return lambda count: runner.run(workers(count))


def main() -> None:
    """Measure, print and keep the results."""
    line = harness.parser(__doc__)
    line.add_argument("--full", action="store_true", help="plain and TLS, asyncio and uvloop")
    line.add_argument("--loops", nargs="*", choices=LOOPS, default=["asyncio"])
    line.add_argument("--tls", action="store_true", help="TLS too")
    line.add_argument("--in-flight", nargs="*", type=int, default=CONCURRENCY, help="calls at a time")
    arguments = line.parse_args()
    result = run(
        harness.options(arguments),
        loops=LOOPS if arguments.full else arguments.loops,
        tls=(False, True) if arguments.full or arguments.tls else (False,),
        concurrency=arguments.in_flight,
    )
    harness.finish(result, arguments)


if __name__ == "__main__":
    main()
