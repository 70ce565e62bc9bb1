"""Requests that race with a server that closes and resets its connections at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from paymentsdk import AiohttpTransport, Http11Transport, Request, SendFailed

KINDS: dict[str, Callable[..., AiohttpTransport | Http11Transport]] = {
    "aiohttp": AiohttpTransport,
    "http11": Http11Transport,
}
METHODS = ("GET", "POST", "PUT", "DELETE")
#: Requests at a time, and connections for them.
WORKERS, CONNECTIONS = 16, 12
#: Seconds after a response within which the server ends its connection, and a worker sends its next request.
SOON = 0.002


class Outcomes(Struct):
    """What requests came to, and what the server saw of them."""

    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    """The attempts that were sent twice, had another's response, or were seen although `sent` was false."""


class Unsteady(asyncio.Protocol):
    """Responds with the target of a request, or not at all, and ends its connection soon after."""

    def __init__(self, arrivals: Counter[str], dice: random.Random) -> None:
        self.seen, self.dice, self.data = arrivals, dice, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn how to write."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Note what has arrived, and do one of many things."""
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, remaining = self.data.partition(b"\r\n\r\n")
            self.data = remaining.removeprefix(b"{}") if b"POST" in head[:4] or b"PUT" in head[:4] else remaining
            target = head.split(b" ", 2)[1]
            self.seen[target.decode()] += 1
            response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target)
            fate = self.dice.random()
            if fate < 0.03:
                self.end()
            elif fate < 0.06:
                self.transport.write(response[: self.dice.randrange(1, len(response))])
                self.end()
            else:
                self.transport.write(response)
                if fate < 0.5:
                    asyncio.get_running_loop().call_later(self.dice.random() * SOON, self.end)
                elif fate < 0.6:
                    self.end()

    def end(self) -> None:
        """Close the connection, or reset it."""
        if self.transport.is_closing():
            return
        if self.dice.random() < 0.5:
            self.transport.close()
        else:
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


@contextlib.contextmanager
def unsteady_server(arrivals: Counter[str], seed: int) -> Iterator[str]:
    """Run the server on a thread of its own, for real races; yield its address."""
    ready, addresses, dice = threading.Event(), [], random.Random(seed)

    async def serve() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await loop.create_server(lambda: Unsteady(arrivals, dice), "127.0.0.1", 0)
        addresses.extend((server.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(stopped.set)))
        ready.set()
        async with server:
            await stopped.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    port, stop = addresses
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop()
        thread.join()


async def race(name: str, requests: int, seed: int) -> Outcomes:
    """Send so many requests over the transport *name*, and compare what each came to with what the server saw."""
    outcomes, arrivals, dice, numbers = Outcomes(), Counter(), random.Random(seed), iter(range(requests))
    ended: dict[str, str] = {}

    async def work(transport: AiohttpTransport | Http11Transport, address: str) -> None:
        for number in numbers:
            method, fresh = dice.choice(METHODS), dice.random() < 0.1
            target = f"/{number}"
            body = b"{}" if method in ("POST", "PUT") else b""
            try:
                response = await transport.send(Request(method, address + target, {}, body, fresh=fresh))
            except SendFailed as error:
                ended[target] = "failed as sent" if error.sent else "failed as not sent"
            else:
                ended[target] = "response" if response.body.decode() == target else "another's response"
            await asyncio.sleep(dice.random() * SOON)

    with unsteady_server(arrivals, seed) as address:
        transport = KINDS[name](limit=CONNECTIONS, drain=0.1)
        await asyncio.gather(*(work(transport, address) for _ in range(WORKERS)))
        await transport.aclose()
    for target, outcome in ended.items():
        outcomes.counts[outcome] += 1
        outcomes.counts["failed as sent, and not seen"] += outcome == "failed as sent" and not arrivals[target]
        right = {"response": (1,), "failed as sent": (0, 1), "failed as not sent": (0,)}.get(outcome, ())
        if arrivals[target] not in right:
            outcomes.breaches.append(f"{target}: {outcome}, and seen {arrivals[target]} times")
    return outcomes
