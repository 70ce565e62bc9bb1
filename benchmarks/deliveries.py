"""Measures the notifications per second that a sandbox with a file delivers to a receiver in another process.

::

    python -m benchmarks.deliveries [SECONDS]    10 by default

The process of the sandbox also creates the orders, as fast as it delivers their notifications. So the rate includes
both, and is a lower bound for deliveries alone.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import convert

from paymentsdk.resources.orders import CREATE, OrderRequest
from paymentsdk.sandbox import ParsedRequest, Sandbox, WebhookRequest
from paymentsdk.sandbox._handlers import orders
from paymentsdk.sandbox._webhooks import DELIVERIES

#: Orders that are created at a time, and the most orders that wait for their notification.
AT_ONCE, MOST_WAITING = 20, 100
RECEIVER = """
import asyncio

class Receiver(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.read = transport, b""

    def data_received(self, data):
        self.read += data
        head, end, body = self.read.partition(b"\\r\\n\\r\\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0]) if end else 0
        if end and len(body) >= length:
            self.read = body[length:]
            self.transport.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")

async def serve():
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(serve())
"""


async def measure(path: Path, port: int, seconds: float) -> tuple[int, float, float]:
    """Return the number of delivered notifications, and the seconds of time and of CPU."""
    request = ParsedRequest(body=convert(CREATE.example, OrderRequest, strict=False), path={}, query={})
    async with Sandbox(db=str(path)) as sandbox:
        sandbox.webhooks.add(WebhookRequest(url=f"http://127.0.0.1:{port}/"))
        began, cpu, created = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() < began + seconds:
            with sandbox.store.transaction():
                context = sandbox.context(sandbox.tenant)
                for _ in range(AT_ONCE):
                    orders.create(context, request)
            created += AT_ONCE
            await fewer(sandbox, MOST_WAITING)
        await fewer(sandbox, 1)
        return created, time.perf_counter() - began, time.process_time() - cpu


async def fewer(sandbox: Sandbox, number: int) -> None:
    """Wait until fewer than *number* deliveries are open."""
    seller, unsettled = sandbox.tenant.user_id, [("line", "<>", "")]
    while sandbox.store.count(DELIVERIES, seller, unsettled) >= number:  # noqa: ASYNC110 - nobody says when one ends
        await asyncio.sleep(0.005)


def main() -> None:
    """Measure and print a line."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    command = [sys.executable, "-c", RECEIVER]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(command, stdout=subprocess.PIPE) as receiver:  # noqa: S603 - ourselves
        try:
            port = int(receiver.stdout.readline() if receiver.stdout else 0)
            delivered, wall, cpu = asyncio.run(measure(Path(folder, "sandbox.db"), port, seconds))
        finally:
            receiver.kill()
    rate, cost = delivered / wall, cpu / delivered * 1e3
    print(f"{delivered} notifications in {wall:.1f} s: {rate:.0f} per second, {cost:.2f} ms of CPU each")


if __name__ == "__main__":
    main()
