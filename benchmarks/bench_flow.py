"""Measures flow control on a platform with a rate limit: 429s, failed calls, goodput, fairness, and latency.

The platform serves 100 requests per second to each seller, in windows of one second. It rejects other requests with 429
and Retry-After: 1. Callers call again and again, as fast as they can. *Goodput* is the share of the platform's capacity
that was served. *Jain* is the fairness among the sellers: 1 if all get the same, 1/n if one seller gets all of it.
*p50* is the median time of a call, or of interactive calls if there are batch calls.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from benchmarks import harness
from benchmarks.harness import Options, Result, Row
from paymentsdk import AiohttpTransport, FlowControl, PaymentsClient, PaymentsError

LIMIT = 100
#: Seconds that a load lasts.
SECONDS = 20.0
#: The number of concurrent loads. Together they take half of a core.
AT_ONCE = 3
#: Connections, and seconds per request, for sellers that share too small a pool.
POOL, POOL_LATENCY = 16, 0.02
Priority: TypeAlias = Literal["interactive", "batch"]

FLOWS = {
    "off": FlowControl(gate=False),
    "gate": FlowControl(),
    "adaptive": FlowControl(adaptive=True),
    "adaptive, 16 at once": FlowControl(adaptive=True, max_in_flight=POOL),
}


class Group(Struct, frozen=True):
    """Callers of one seller, which call again and again with a pause after each call."""

    callers: int
    seller: str = "shop-1"
    priority: Priority = "interactive"
    pause: float = 0.0


class Load(Struct, frozen=True, kw_only=True):
    """The callers, the limit and the flow control."""

    name: str
    flow: str
    groups: Sequence[Group]
    limit: int = LIMIT
    latency: float = 0.0
    pool: int = 100


_TWENTY = (Group(95, "big"), *(Group(5, f"small-{number}") for number in range(19)))
_BESIDE = (Group(64, priority="batch"), Group(1, pause=0.1))
LOADS = (
    *(
        Load(name=f"{count} callers", flow=flow, groups=(Group(count),))
        for count in (16, 64, 256)
        for flow in ("off", "gate", "adaptive")
    ),
    *(
        Load(name=f"{count} callers, 80 ms away", flow=flow, groups=(Group(count),), latency=0.08)
        for count in (16, 64)
        for flow in ("gate", "adaptive")
    ),
    *(
        Load(name="20 sellers, one with half", flow=flow, groups=_TWENTY, limit=10**9, latency=POOL_LATENCY, pool=POOL)
        for flow in ("gate", "adaptive, 16 at once")
    ),
    *(Load(name="1 beside 64 batch", flow=flow, groups=_BESIDE) for flow in ("gate", "adaptive")),
)

# --- the platform -----------------------------------------------------------------------------------------------------


class Platform:
    """Counts the requests of each seller in windows of one second, and rejects requests beyond the limit."""

    def __init__(self, limit: int, latency: float) -> None:
        self._limit = limit
        self._latency = latency
        self._windows: dict[str, tuple[int, int]] = {}
        self.statuses: Counter[int] = Counter()
        self.served: Counter[str] = Counter()
        self.url = ""

    def status(self, seller: str) -> int:
        """Count a request of *seller*, and return its status."""
        window = int(time.monotonic())
        when, count = self._windows.get(seller, (window, 0))
        count = count + 1 if when == window else 1
        self._windows[seller] = (window, count)
        status = 200 if count <= self._limit else 429
        self.statuses[status] += 1
        self.served[seller] += status == 200
        return status

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond on one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seller = head.split(b" ", 2)[1].rpartition(b"/")[2].decode()
                status = self.status(seller)
                if self._latency:
                    await asyncio.sleep(self._latency)
                retry, body = ("Retry-After: 1\r\n", "{}") if status == 429 else ("", f'{{"id":"{seller}"}}')
                writer.write(f"HTTP/1.1 {status} X\r\n{retry}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def platform(load: Load) -> AsyncIterator[Platform]:
    """Run the platform of *load*."""
    served = Platform(load.limit, load.latency)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()


# --- the callers ------------------------------------------------------------------------------------------------------


class Callers:
    """Callers of one client with the default retries."""

    def __init__(self, load: Load, url: str) -> None:
        self._load = load
        self._client = PaymentsClient(
            base_url=url,
            transport=AiohttpTransport(limit=load.pool),
            accounts=lambda name: f"APP_USR-{name}",
            flow=FLOWS[load.flow],
        )
        self.calls: list[tuple[Priority, bool, float]] = []

    async def run(self, seconds: float) -> None:
        """Call for so many seconds."""
        tasks = [asyncio.create_task(self._loop(group)) for group in self._load.groups for _ in range(group.callers)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    async def _loop(self, group: Group) -> None:
        """Call again and again as one caller of *group*."""
        client = self._client.account(group.seller).with_options(priority=group.priority)
        while True:
            started, succeeded = time.monotonic(), True
            try:
                await client.orders.get(group.seller)
            except PaymentsError:
                succeeded = False
            self.calls.append((group.priority, succeeded, time.monotonic() - started))
            await asyncio.sleep(group.pause)


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


async def _measure(load: Load, seconds: float) -> Mapping[str, float]:
    """Run the callers of *load* for so many seconds."""
    async with platform(load) as served:
        # The windows of the platform begin with each second, so this makes the first window whole.
        await asyncio.sleep(1.0 - time.monotonic() % 1.0 if seconds > 1.0 else 0.0)
        callers = Callers(load, served.url)
        await callers.run(seconds)
    quick = [took for priority, _, took in callers.calls if priority == "interactive"] or [0.0]
    possible = load.limit * seconds if load.limit == LIMIT else load.pool / load.latency * seconds
    return {
        "refused_pct": 100.0 * served.statuses[429] / max(1, served.statuses.total()),
        "failed": float(sum(not succeeded for _, succeeded, _ in callers.calls)),
        "goodput": served.statuses[200] / possible,
        "jain": jain(list(served.served.values()) or [1.0]),
        "p50_ms": statistics.median(quick) * 1e3,
        "load": harness.load_average(),
    }


def _once(load: Load, seconds: float) -> Mapping[str, float]:
    """Run `_measure` on a new event loop."""
    return asyncio.run(_measure(load, seconds))


def run(options: Options, loads: Sequence[Load] = LOADS) -> Result:
    """Run every load on a separate platform, several at a time: the loads mostly wait."""
    seconds = 0.1 if options.quick else SECONDS
    chosen = [load for load in loads if not options.only or load.flow in options.only]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        measured = list(threads.map(partial(_once, seconds=seconds), chosen))
    rows = [
        Row({"load": load.name, "flow": load.flow}, {metric: [value] for metric, value in values.items()})
        for load, values in zip(chosen, measured, strict=True)
    ]
    return harness.result("bench_flow", rows, msgspec.structs.replace(options, rounds=1), limit=LIMIT, seconds=seconds)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
