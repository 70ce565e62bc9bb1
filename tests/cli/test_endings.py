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

from paymentsdk import OPERATIONS, PaymentsClient, Response
from paymentsdk.cli import main
from paymentsdk.resources.orders import OrderRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport
from tests.cli.terminal import read

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main(sys.argv[1:]))"
SEARCH = ("merchant-orders", "search", "--page-size", "1")
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"
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
        shown = read(terminal, b"t-")
        process.send_signal(signal.SIGINT)
        shown += read(terminal)

        assert 130 == process.wait(timeout=50)
    assert 1 == shown.count(b"t-")
    assert b"paymentsdk: interrupted; go on with --start 1/3\r\n" in shown


def test_an_interrupted_walk_prints_the_table_that_it_has(sandbox):
    """Rows that are in no column yet are not lost."""
    with in_terminal(sandbox, *SEARCH, "--columns", "external_reference") as (process, terminal):
        shown = read(terminal, b"1/3")
        process.send_signal(signal.SIGINT)
        shown += read(terminal)

    assert shown.index(b"t-") < shown.index(b"go on with --start 1/3")
    assert shown.rindex(HIDDEN) < shown.rindex(SHOWN)


@pytest.mark.parametrize("form", ["--table", "--csv"])
@pytest.mark.parametrize(("limit", "start"), [(1, "1/3"), (2, "2/3"), (3, "")])
def test_a_walk_that_is_interrupted_behind_its_limit(capsys, form: str, limit: int, start: str):
    """The row to go on from is the first that was not printed, also if it came with the last one that was."""

    class Interrupted(MemoryTransport):
        async def aclose(self) -> None:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)

    transport = Interrupted([Response(200, {}, b'{"elements": [{"id": 1}, {"id": 2}, {"id": 3}], "total": 3}')])

    def connect() -> PaymentsClient:
        return PaymentsClient("TEST-1", base_url="https://platform.test", transport=transport)

    command = ["merchant-orders", "search", form, "--columns", "id", "--limit", str(limit)]
    code = main(command, operations=OPERATIONS.values(), connect=connect)

    printed, said = capsys.readouterr()
    assert (130, ["id", "1", "2", "3"][: limit + 1]) == (code, printed.split())
    assert start == said.partition("--start ")[2].strip()


def test_a_walk_that_is_terminated_gives_the_cursor_back(sandbox):
    """The terminal goes on without the program."""
    with in_terminal(sandbox, *SEARCH) as (process, terminal):
        shown = read(terminal, HIDDEN)
        process.send_signal(signal.SIGTERM)
        shown += read(terminal)

        assert -signal.SIGTERM == process.wait(timeout=50)
    assert shown.rindex(HIDDEN) < shown.rindex(SHOWN)


def test_the_handler_of_another_is_left_alone(sandbox, monkeypatch, capsys):
    """A program that calls `main` may have its own ways to end."""
    ended: list[int] = []
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", sandbox.access_token)
    for module in ("_platform", "_output"):  # The first has a name of its own for it, once it is imported.
        monkeypatch.setattr(f"paymentsdk.cli.{module}.in_terminal", lambda _: True)
    before = signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:
        assert 0 == main(["merchant-orders", "search", "--limit", "1"])
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert [signal.SIGTERM] == ended
