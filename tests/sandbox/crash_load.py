"""Kills a sandbox again and again amid concurrent writes, and looks for acknowledged effects; run by test_crash.py.

A child serves a file, and many connections create orders, each with a key of its own. After some responses the child
is killed. What was sent and not acknowledged is sent again to the next child, with its key, as a client does.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import selectors
import signal
import socket
import sys
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path

from paymentsdk.resources import orders
from paymentsdk.sandbox import Platform, Sandbox, WebhookRequest
from paymentsdk.sandbox._records import ORDERS

IN_FLIGHT = 16
BODY = json.dumps(orders.CREATE.example).encode()
HEAD = "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Idempotency-Key: {}\r\nContent-Length: {}"


async def nothing() -> None:
    """Wait for no commit."""


async def serve(path: Path, options: Collection[str], out: int) -> None:
    """Serve until somebody kills this process; say where at first."""
    async with Sandbox(db=str(path)) as sandbox:
        if "--answer-first" in options:
            sandbox.store.committed = nothing
        os.write(out, f"{sandbox.base_url.rpartition(':')[2]} {sandbox.access_token}\n".encode())
        await asyncio.Event().wait()


def start(path: Path, options: Collection[str]) -> tuple[int, int, str]:
    """Return the process of a child that serves *path*, its port and a token."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        with suppress(BaseException):
            asyncio.run(serve(path, options, writer))
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as lines:
        port, token = lines.readline().split()
    return child, int(port), token


def response_in(connection: socket.socket) -> dict | None:
    """Return the next response of a connection that has one; `None` if it broke before its end."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
            head, separator, body = received.partition(b"\r\n\r\n")
            if separator and len(body) == int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
                return json.loads(body)
    return None


def load(server: tuple[int, int, str], waiting: list[str], acknowledged: dict[str, str], enough: int) -> None:
    """Send what is *waiting*, note what is acknowledged, and kill the child after *enough*; read on to the end."""
    (child, port, token), unsent, sent, answered = server, iter(list(waiting)), {}, 0
    with selectors.DefaultSelector() as selector:

        def send(connection: socket.socket) -> bool:
            key = next(unsent, None)
            if key is None:
                return False
            sent[connection] = key
            with suppress(ConnectionError):
                connection.sendall(HEAD.format(token, key, len(BODY)).encode() + b"\r\n\r\n" + BODY)
            return True

        for _ in range(IN_FLIGHT):
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            if send(connection):
                selector.register(connection, selectors.EVENT_READ)
            else:
                connection.close()
        while selector.get_map():
            for ready, _ in selector.select(30):
                connection = ready.fileobj
                if response := response_in(connection):
                    acknowledged[sent[connection]] = response["id"]
                    waiting.remove(sent[connection])
                    answered += 1
                if answered == enough:
                    os.kill(child, signal.SIGKILL)
                    enough = -1
                if not response or enough < 0 or not send(connection):
                    selector.unregister(connection)
                    connection.close()
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(path: Path, kills: int, options: Collection[str]) -> None:
    """Print one line of JSON: how many were acknowledged, and which of them are lost or doubled."""
    chance, acknowledged, waiting, number = random.Random(1), {}, [], 0
    with closing(Platform(db=str(path))) as platform:
        platform.default_tenant()
        platform.webhooks.add(WebhookRequest(url="http://127.0.0.1:9/"))  # Nobody listens there.
    for _ in range(kills):
        enough = chance.randint(1, 3 * IN_FLIGHT)
        while len(waiting) < enough + IN_FLIGHT:
            number += 1
            waiting.append(f"key-{number}")
        load(start(path, options), waiting, acknowledged, enough)
    with closing(Platform(db=str(path))) as platform:
        entries = platform.ledger()
        effects = {entry.idempotency_key: entry.id for entry in entries}
        stored = {record.order.id for record in platform.store.find(ORDERS, None)}
        notified = {delivery.resource for delivery in platform.webhooks.deliveries(limit=-1)}
    lost = [key for key, order in acknowledged.items() if effects.get(key) != order or order not in stored]
    result = {"acknowledged": len(acknowledged), "lost": lost, "doubled": len(entries) - len(effects)}
    result["notified otherwise"] = sorted(notified ^ stored)
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
