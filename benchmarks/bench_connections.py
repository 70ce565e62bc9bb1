"""Tests connections under stress: requests that race with a server's close, and 10,000 calls in flight.

The bench has two parts, each over both transports:

- races: the server closes and resets its connections at any moment. No response may be wrong, no request may be sent
  twice, and no request that the server has seen may count as not sent.
- memory: 10,000 calls are in flight on 100 connections. The server responds only after all calls have been made.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from benchmarks import harness
from benchmarks.contestants import BASELINE
from benchmarks.harness import Options, Result, Trial
from paymentsdk import AiohttpTransport, Http11Transport, PaymentsClient, Transport
from tests.transports.races import race

_HEAD_END = b"\r\n\r\n"
#: Seconds for the server to see its connections end.
_PARTING = 0.1
REQUESTS = 10_000
#: The transports, by the name of their calls in results, with their name in the races.
_KINDS: Mapping[str, tuple[Callable[..., Transport], str]] = {
    "paymentsdk": (AiohttpTransport, "aiohttp"),
    "paymentsdk, http11": (Http11Transport, "http11"),
}


async def memory(transport: Transport, count: int) -> Mapping[str, float]:
    """Return the memory per call, while *count* calls wait for a connection or a response."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(_HEAD_END):
                arrived.set()
                await go_on.wait()
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"id":"ORD1"}')
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, PaymentsClient("token", base_url=base_url, transport=transport) as client:
        gc.collect()
        before = harness.resident()
        calls = [asyncio.ensure_future(client.orders.get("ORD1")) for _ in range(count)]
        await arrived.wait()
        await asyncio.sleep(count / REQUESTS)  # By now all calls have been made.
        size = (harness.resident() - before) / count
        go_on.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await client.aclose()
        await asyncio.sleep(_PARTING)
    return {"kib": size / 1024}


def _memory(name: str, count: int) -> Mapping[str, float]:
    """Measure the memory per call over the transport *name*, in this process."""
    return asyncio.run(memory(_KINDS[name][0](limit=100), count))


def _memory_of(name: str, count: int) -> Mapping[str, float]:
    """Measure the memory per call over the transport *name*, in a new process."""
    # A new process: a process reuses memory that it has had before.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(_memory, name, count).result()


def _races(name: str, count: int) -> Mapping[str, float]:
    """Race *count* requests over the transport *name*."""
    outcomes = asyncio.run(race(_KINDS[name][1], count, seed=1))
    told = {"right": "response", "in_doubt": "failed as sent", "not_sent": "failed as not sent"}
    return {**{metric: outcomes.counts[words] for metric, words in told.items()}, "wrong": len(outcomes.breaches)}


def run(options: Options) -> Result:
    """Measure both parts."""
    count = 200 if options.quick else REQUESTS
    trials = [
        Trial({"what": bench, "contestant": name}, partial(measure, name, count))
        for bench, measure in (("memory", _memory_of), ("races", _races))
        for name in _KINDS
    ]
    rows = harness.take_turns(trials, Options(rounds=1, seed=options.seed), warm_up=False)
    notes = [f"memory: {count:,} calls on 100 connections; races: {count:,} requests"]
    return harness.result("bench_connections", rows, options, baseline={"contestant": BASELINE}, notes=notes)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
