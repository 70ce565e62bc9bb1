"""Processes that are killed by SIGKILL while they recover, over real sockets: what they leave in doubt is bounded."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from paymentsdk import AiohttpTransport, Deferred, PaymentsClient, Request, Response, SendFailed
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.journal.platform import ONCE

#: How many records a recovery carries out at once.
BATCH = 16
ROOT = Path(__file__).parents[2]
EFFECTS = {"order_created", "preference_created"}


class Unreachable(AiohttpTransport):
    """Reads pass, writes do not leave the machine."""

    async def send(self, request: Request) -> Response:
        if request.method == "POST":
            raise SendFailed("connection refused", sent=False)
        return await super().send(request)


class Journaled:
    """A sandbox, a journal file with deferred writes in it, and processes that recover and are killed."""

    def __init__(self, sandbox: Sandbox, path: Path) -> None:
        self.sandbox, self.path = sandbox, path
        self.ahead = 0.0

    def connect(self, **more: object) -> PaymentsClient:
        ahead = self.ahead
        journal = SQLiteJournal(self.path, now=lambda: time.time() + ahead)
        return PaymentsClient(self.sandbox.access_token, base_url=self.sandbox.base_url, journal=journal, **more)

    async def defer(self, preferences: int) -> None:
        """Have so many preferences, which take no key, wait for recovery."""
        async with self.connect(transport=Unreachable(), retry=ONCE) as client:
            later = {"defer": True, "not_after": timedelta(hours=1)}
            item = PreferenceItemRequest(title="A thing", quantity=1, unit_price=Decimal("10.50"))
            for number in range(preferences):
                request = PreferenceRequest(external_reference=f"p-{number}", items=[item])
                with pytest.raises(Deferred):
                    await client.preferences.create(request, once=f"p-{number}", **later)

    async def start(self) -> asyncio.subprocess.Process:
        """Have another process recover."""
        arguments = (str(self.path), self.sandbox.base_url, self.sandbox.access_token, str(self.ahead))
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.journal.recovers", *arguments, cwd=ROOT
        )

    async def kill(self, process: asyncio.subprocess.Process) -> bool:
        """Kill it, end its leases, and say whether it was still at work."""
        if process.returncode is None:
            process.kill()
        await process.wait()
        self.ahead += 150.0
        return process.returncode == -signal.SIGKILL

    def effects(self) -> Counter[str]:
        """How often each name took effect."""
        return Counter(entry.external_reference for entry in self.sandbox.ledger() if entry.kind in EFFECTS)


async def test_a_kill_leaves_in_doubt_what_was_under_way_alone(tmp_path: Path, until) -> None:
    """Writes that take no key are sent once: those that a dead recovery had not come to are sent by the next."""
    async with Sandbox() as sandbox:
        world = Journaled(sandbox, tmp_path / "payments.db")
        await world.defer(2 * BATCH)
        sandbox.faults.add(FaultRule(effect="delay_after_commit", seconds=60, operation="preferences.create"))
        process = await world.start()
        await until(lambda: len(world.effects()) == BATCH)
        assert await world.kill(process)
        sandbox.faults.clear()
        async with world.connect() as client:
            summary = await client.recover()

        assert {RecordState.DONE: BATCH} == dict(summary.resolved)
        assert BATCH == len(summary.left)
        assert {f"p-{number}": 1 for number in range(2 * BATCH)} == world.effects()
