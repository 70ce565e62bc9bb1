"""How a command that asks the platform ends before its time: interrupted, terminated, or read by nobody any more."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from paymentsdk import OPERATIONS, PaymentsClient
from paymentsdk.resources.orders import OrderRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.cli.terminal import read

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main(sys.argv[1:]))"
SEARCH = ("merchant-orders", "search", "--page-size", "1")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and terminals are those of POSIX")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox in a thread with three paid orders; the second page of a search never comes."""
    example = msgspec.convert(OPERATIONS["orders.create"].example, OrderRequest)

    async def sell() -> None:
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
            for number in range(3):
                order = await client.orders.create(msgspec.structs.replace(example, external_reference=f"t-{number}"))
                sandbox.buyer.pay(order.id)

    with Sandbox(seed=7).in_thread() as sandbox:
        asyncio.run(sell())
        with sandbox.faults.add(FaultRule(effect="hang", operation="merchant_orders.search", nth=2)):
            yield sandbox


@contextmanager
def in_terminal(sandbox: Sandbox, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a command in a terminal of 80 columns; what it shows can be read from the second."""
    ours, theirs = pty.openpty()
    access = {"PAYMENTSDK_BASE_URL": sandbox.base_url, "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token}
    command, environment = [sys.executable, "-c", PROGRAM, *arguments], {**os.environ, **access, "COLUMNS": "80"}
    environment = {**environment, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def test_an_interrupted_walk_says_where_to_go_on(sandbox):
    """What came is printed; whoever goes on from there misses no row."""
    with in_terminal(sandbox, *SEARCH, "--csv", "--columns", "external_reference") as (process, terminal):
        output = read(terminal, b"t-")
        process.send_signal(signal.SIGINT)
        output += read(terminal)

        assert 130 == process.wait(timeout=50)
    assert 1 == output.count(b"t-")
    assert b"paymentsdk: interrupted; continue with --start 1/3\r\n" in output
