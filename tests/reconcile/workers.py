"""What worker processes of the tests import: clients of a platform in memory, which can kill its worker."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from paymentsdk import PaymentsClient, Request, Response, RetryPolicy
from paymentsdk.testing import MemoryTransport
from tests.reconcile.planted import World

ROWS = 300


def world() -> World:
    """The same in every process."""
    return World(ROWS, sellers=2, grain=10**9)


def connect(directory: Path, dies_at: int = 0) -> PaymentsClient:
    """Make a client that kills its process at a call, while the directory has the file `dies`."""
    handler, calls = world(), 0

    async def handle(request: Request) -> Response:
        nonlocal calls
        calls += 1
        if calls == dies_at:
            with suppress(FileNotFoundError):  # Another worker was first, and dies.
                (directory / "dies").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return await handler(request)

    return PaymentsClient(
        base_url="https://x",
        accounts="TEST-{}-123".format,
        transport=MemoryTransport(handle),
        retry=RetryPolicy(attempts=1),
    )


def rejected() -> PaymentsClient:
    """A client whose tokens are dead."""
    transport = MemoryTransport(lambda request: Response(401, {}, b"{}"))
    return PaymentsClient(base_url="https://x", accounts="TEST-{}-123".format, transport=transport)


def fails() -> PaymentsClient:
    """No client."""
    raise OSError("no credentials here")
