"""What worker processes of the tests import: clients of a platform in memory, which can kill its worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from paymentsdk import FlowControl, PaymentsClient, RateShare, Request, Response, RetryPolicy
from paymentsdk.testing import MemoryTransport
from tests.reconcile.planted import World

ROWS = 300


def world() -> World:
    """The same in every process."""
    return World(ROWS, sellers=2, grain=10**9)


def connect(directory: Path, *, dies_at: int = 0, rate: float = 0.0) -> PaymentsClient:
    """Make a client that writes down its process, and each call with its time."""
    handler, calls = world(), 0
    (directory / f"client-{os.getpid()}-{time.monotonic_ns()}").touch()

    async def handle(request: Request) -> Response:
        nonlocal calls
        calls += 1
        with (directory / "calls").open("a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\n")
        if calls == dies_at:
            with suppress(FileNotFoundError):  # Another worker was first, and dies.
                (directory / "dies").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return await handler(request)

    flow = FlowControl(share=RateShare(directory / "rate.db", rate)) if rate else FlowControl()
    return PaymentsClient(
        base_url="https://x",
        accounts="TEST-{}-123".format,
        transport=MemoryTransport(handle),
        retry=RetryPolicy(attempts=1),
        flow=flow,
    )


def connecting(directory: Path, **options: float) -> Callable[[], PaymentsClient]:
    """A function without arguments that can be sent to a process."""
    return partial(connect, directory, **options)


def fails() -> PaymentsClient:
    """No client."""
    raise OSError("no credentials here")
