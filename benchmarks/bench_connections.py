"""What connections stand: requests that race with a server's close, and 10,000 calls in flight.

Three runs, each over both transports:

- races: a server that closes every connection at some moment after its response. No response may be wrong, and no
  request that the server has not seen may count as sent without reason; the shares are printed.
- memory: 10,000 calls in flight on a server that answers none of them before all have been made.
- saturation: one core, 64 calls at a time, against aiohttp alone.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from itertools import cycle

from benchmarks import harness
from benchmarks.contestants import Target, bare_aiohttp, sdk, sdk_http11
from benchmarks.server import nginx_or_asyncio
from paymentsdk import AiohttpTransport, Http11Transport, PaymentsClient, Request, SendFailed, Transport

_HEAD_END = b"\r\n\r\n"
_CLOSED_AT = (0.0, 0.0, 0.0002, 0.001, 0.0)
#: Seconds that the server gets to see its connections end.
_PARTING = 0.1


async def races(transport: Transport, count: int) -> Counter[str]:
    """Send *count* requests to a server that closes connections as they are about to be used again."""
    moments, lives = cycle(_CLOSED_AT), cycle((1, 2, 3, 1, 1))
    seen: Counter[str] = Counter()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(next(lives)):
            try:
                head = await reader.readuntil(_HEAD_END)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            target = head.split(b" ")[1]
            seen[target.decode()] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target))
        await asyncio.sleep(next(moments))
        writer.close()

    found: Counter[str] = Counter()

    async def worker(first: int) -> None:
        for number in range(first, count, 16):
            target = f"/{number}"
            try:
                response = await transport.send(Request("GET", base_url + target))
                found["right" if response.body == target.encode() else "WRONG"] += 1
            except SendFailed as error:
                found["in doubt" if error.sent else "not sent"] += 1
                found["SEEN, BUT NOT SENT"] += bool(seen[target] and not error.sent)
            found["SENT TWICE"] += seen[target] > 1
            await asyncio.sleep(next(moments))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        await asyncio.gather(*map(worker, range(16)))
        await transport.aclose()
        await asyncio.sleep(_PARTING)
    return +found


async def memory(transport: Transport, count: int) -> float:
    """Return the bytes per call, with *count* calls in flight that wait for a connection or a response."""
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
        before = harness.resident()
        calls = [asyncio.ensure_future(client.orders.get("ORD1")) for _ in range(count)]
        await arrived.wait()
        await asyncio.sleep(1)
        size = (harness.resident() - before) / count
        go_on.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await client.aclose()
        await asyncio.sleep(_PARTING)
    return size


def saturation(rounds: int) -> dict[str, float]:
    """Return calls per second of CPU time, for GET with 64 in flight."""
    rates: dict[str, list[float]] = {}
    with nginx_or_asyncio() as server, asyncio.Runner() as runner:
        for turn in range(rounds):
            for module in (bare_aiohttp, sdk, sdk_http11):

                async def calls(count: int, module: object = module) -> float:
                    async with module.connect(Target(server.plain)) as both:  # type: ignore[attr-defined]
                        await asyncio.gather(*(both.get() for _ in range(64)))
                        started = time.process_time()

                        async def worker() -> None:
                            for _ in range(count // 64):
                                await both.get()

                        await asyncio.gather(*(worker() for _ in range(64)))
                        return count / (time.process_time() - started)

                rate = runner.run(calls(6400))
                if turn:
                    rates.setdefault(module.NAME, []).append(rate)
    return {name: sorted(found)[len(found) // 2] for name, found in rates.items()}


def main() -> None:
    """Measure and print."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--races", type=int, default=10_000)
    line.add_argument("--calls", type=int, default=10_000)
    line.add_argument("--rounds", type=int, default=9)
    given = line.parse_args()
    for kind in (Http11Transport, AiohttpTransport):
        print(f"races, {kind.__name__}: {dict(asyncio.run(races(kind(), given.races)))}")
    for kind in (Http11Transport, AiohttpTransport):
        size = asyncio.run(memory(kind(limit=100), given.calls))
        print(f"memory, {kind.__name__}: {size / 1024:.1f} KiB per call in flight, {given.calls} on 100 connections")
    rates = saturation(given.rounds)
    for name, rate in rates.items():
        print(f"saturation, {name}: {rate:,.0f} calls per second of CPU, {rate / rates[bare_aiohttp.NAME]:.2f} of bare")


if __name__ == "__main__":
    main()
