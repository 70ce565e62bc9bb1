"""Services that keep a client: under load, stopped by SIGTERM or killed, nothing is lost and nothing done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from paymentsdk import PaymentsClient
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.sandbox import Sandbox

PROGRAM = Path(__file__).with_name("program.py")
BUYERS = 8


class Service:
    """The service in a process of its own, and what its callers were told."""

    def __init__(self, sandbox: Sandbox, journal: Path, port: int) -> None:
        self._environment = {
            **os.environ,
            "PAYMENTSDK_BASE_URL": sandbox.base_url,
            "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token,
        }
        self._journal, self._port = journal, port
        self.told: dict[str, str | None] = {}
        self.busy = asyncio.Event()
        self.stopping = False

    async def start(self, kind: str) -> asyncio.subprocess.Process:
        """Start it, and wait until it takes requests."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", str(PROGRAM), kind, str(self._port), str(self._journal)),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert b"ready\n" == await process.stdout.readline(), await process.stderr.read()
        return process

    async def buy(self, session: aiohttp.ClientSession, buyer: int) -> None:
        """Buy one thing after the other, until the service is gone."""
        number = 0
        while not self.stopping:
            name, number = f"{buyer}-{number}", number + 1
            self.told[name] = None
            try:
                async with session.post(f"http://127.0.0.1:{self._port}/sell/{name}") as response:
                    answer = await response.json(content_type=None)
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)  # Until uvicorn listens, or because it is gone.
                continue
            self.told[name] = answer.get("id")
            if number > 40 // BUYERS:
                self.busy.set()


@pytest.fixture
def unused_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
@pytest.mark.parametrize("kind", ["web", "uvicorn"])
async def test_a_service_stops_under_load(tmp_path: Path, unused_port: int, kind: str, number: signal.Signals) -> None:
    """After SIGTERM it ends by itself and leaves nothing open; after kill -9 recovery settles what it left."""
    journal = tmp_path / "payments.db"
    async with Sandbox() as sandbox:
        service = Service(sandbox, journal, unused_port)
        process = await service.start(kind)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as load:
            for buyer in range(BUYERS):
                load.create_task(service.buy(session, buyer))
            await asyncio.wait_for(service.busy.wait(), 20)
            process.send_signal(number)
            service.stopping = number is signal.SIGKILL
            _, complaints = await asyncio.wait_for(process.communicate(), 20)
            service.stopping = True

        if number is signal.SIGTERM:
            # uvicorn ends by the signal that it got, once it has stopped.
            assert ({"web": 0, "uvicorn": -signal.SIGTERM}[kind], b"") == (process.returncode, complaints)
        # The leases of a process that was killed end a minute later.
        rows = SQLiteJournal(journal, now=lambda: time.time() + 120)
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, journal=rows) as client:
            open_rows = await rows.records([RecordState.PENDING, RecordState.SENT, RecordState.UNKNOWN])
            if number is signal.SIGTERM:
                assert [] == open_rows
            await client.recover()
            closed = await rows.records(tuple(RecordState), limit=10_000)
        created = Counter(entry.external_reference for entry in sandbox.ledger() if entry.kind == "order_created")

    assert {1} == set(created.values())
    assert {RecordState.DONE} == {row.state for row in closed}
    assert created.keys() == {row.name for row in closed}
    assert {name for name, answer in service.told.items() if answer} <= created.keys()
