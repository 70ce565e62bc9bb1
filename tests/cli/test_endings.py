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

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.cli.terminal import read
from tests.journal.platform import order

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main(sys.argv[1:]))"
SEARCH = ("merchant-orders", "search", "--page-size", "1")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and terminals are those of POSIX")


@pytest.fixture
def sold(sandbox: Sandbox) -> Iterator[Sandbox]:
    """A sandbox with three paid orders; the second page of a search never comes."""

    async def sell() -> None:
        async with PaymentsClient.from_env() as client:
            for number in range(3):
                sandbox.buyer.pay((await client.orders.create(order(f"t-{number}"))).id)

    asyncio.run(sell())
    with sandbox.faults.add(FaultRule(effect="hang", operation="merchant_orders.search", nth=2)):
        yield sandbox


@contextmanager
def in_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a command in a terminal of 80 columns; what it shows can be read from the second."""
    ours, theirs = pty.openpty()
    command, environment = [sys.executable, "-c", PROGRAM, *arguments], {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def test_an_interrupted_walk_says_where_to_go_on(sold):
    """What came is printed; whoever goes on from there misses no row."""
    with in_terminal(*SEARCH, "--csv", "--columns", "external_reference") as (process, terminal):
        output = read(terminal, b"t-")
        process.send_signal(signal.SIGINT)
        output += read(terminal)

        assert 130 == process.wait(timeout=50)
    assert 1 == output.count(b"t-")
    assert b"paymentsdk: interrupted; continue with --start 1/3\r\n" in output
