"""Tests connections under stress: requests that race with a server's close, and 10,000 calls in flight.

The bench has three parts, each over both transports:

- races: the server closes every connection at some moment after its response. No response may be wrong, no request may
  be sent twice, and no request that the server has seen may count as not sent.
- memory: 10,000 calls are in flight on 100 connections. The server responds only after all calls have been made.
- saturation: one core, 64 calls at a time, compared with aiohttp alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle
from multiprocessing import get_context

from benchmarks import harness
from benchmarks.bench_call import connected, slices
from benchmarks.contestants import BASELINE, Target, bare_aiohttp, sdk, sdk_http11
from benchmarks.harness import Options, Result, Row, Trial, Variant
from benchmarks.server import nginx_or_asyncio
from paymentsdk import AiohttpTransport, Http11Transport, PaymentsClient, Request, SendFailed, Transport

_HEAD_END = b"\r\n\r\n"
_CLOSED_AT = (0.0, 0.0, 0.0002, 0.001, 0.0)
#: Seconds for the server to see its connections end.
_PARTING = 0.1
REQUESTS = 10_000
_BUSY = 64
#: The transports, by the name of their calls in results.
_KINDS: Mapping[str, Callable[..., Transport]] = {sdk.NAME: AiohttpTransport, sdk_http11.NAME: Http11Transport}


async def races(transport: Transport, count: int) -> Mapping[str, float]:
    """Send *count* requests to a server that closes connections just before their next use.

    Returns the numbers of correct responses, requests in doubt, requests not sent, and errors.
    """
    moments, lives = cycle(_CLOSED_AT), cycle((1, 2, 3, 1, 1))
    counts: Counter[str] = Counter()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(next(lives)):
            try:
                head = await reader.readuntil(_HEAD_END)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            target = head.split(b" ")[1]
            counts[target.decode()] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target))
        await asyncio.sleep(next(moments))
        writer.close()

    outcomes: Counter[str] = Counter()

    async def worker(first: int) -> None:
        for number in range(first, count, 16):
            target = f"/{number}"
            try:
                response = await transport.send(Request("GET", base_url + target))
                outcomes["right" if response.body == target.encode() else "wrong"] += 1
            except SendFailed as error:
                outcomes["in_doubt" if error.sent else "not_sent"] += 1
                outcomes["wrong"] += bool(counts[target] and not error.sent)
            outcomes["wrong"] += counts[target] > 1
            await asyncio.sleep(next(moments))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        await asyncio.gather(*map(worker, range(16)))
        await transport.aclose()
        await asyncio.sleep(_PARTING)
    return {name: outcomes[name] for name in ("right", "in_doubt", "not_sent", "wrong")}


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


def saturation(options: Options) -> list[Row]:
    """Measure a GET with 64 calls in flight."""
    with (
        nginx_or_asyncio() as server,
        harness.on_core(harness.cores()[0]),
        asyncio.Runner() as runner,
        contextlib.ExitStack() as stack,
    ):
        variants = []
        for contestant in (bare_aiohttp, sdk, sdk_http11):
            calls = connected(contestant.connect, Target(server.plain), runner, stack)
            key = {"what": "saturation", "contestant": contestant.NAME}
            variants.append(Variant(key, slices(runner, calls.get, _BUSY), least=_BUSY))
        return harness.interleave(variants, options)


def _memory(name: str, count: int) -> Mapping[str, float]:
    return asyncio.run(memory(_KINDS[name](limit=100), count))


def _memory_of(name: str, count: int) -> Mapping[str, float]:
    # A new process: a process reuses memory that it has had before.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(_memory, name, count).result()


def _races(name: str, count: int) -> Mapping[str, float]:
    return asyncio.run(races(_KINDS[name](), count))


def run(options: Options) -> Result:
    """Measure all three parts."""
    count = 200 if options.quick else REQUESTS
    trials = [
        Trial({"what": bench, "contestant": name}, partial(measure, name, count))
        for bench, measure in (("memory", _memory_of), ("races", _races))
        for name in _KINDS
    ]
    rows = saturation(options)
    rows += harness.take_turns(trials, Options(rounds=1, seed=options.seed), warm_up=False)
    notes = [f"memory: {count:,} calls on 100 connections; races: {count:,} requests"]
    return harness.result("bench_connections", rows, options, baseline={"contestant": BASELINE}, notes=notes)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
