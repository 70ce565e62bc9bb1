"""A write that a killed process has left can still be finished: its time does not end with the lease of the dead."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct

from paymentsdk import (
    OPERATIONS,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    RequestInvalid,
    RetryClass,
    SendFailed,
    Timeout,
)
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.resources.orders import OrderRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.pays import PAYMENT, journal_at, sealed
from tests.journal.platform import ONCE, TOKEN, URL, Platform, order

ROOT = Path(__file__).parents[2]
#: Seconds of a lease, and a little more.
AFTER_THE_LEASE = 65.0


async def test_recovery_finishes_the_wallet_payment_of_a_killed_process(tmp_path: Path, until) -> None:
    """It is killed in flight; when its lease has ended, there is time left to send the payment once more."""
    file = str(tmp_path / "payments.db")
    async with Sandbox() as sandbox:

        def charges() -> int:
            return sum(entry.kind == "wallet_payment" for entry in sandbox.ledger())

        rule = FaultRule(effect="delay_after_commit", seconds=3600, operation="wallet_payments.create", times=1)
        sandbox.faults.add(rule)
        command = (sys.executable, "-m", "tests.journal.pays", file, sandbox.base_url, sandbox.access_token)
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        await until(charges)
        process.kill()
        assert -signal.SIGKILL == await process.wait()
        sandbox.clock.advance(timedelta(seconds=AFTER_THE_LEASE))
        journal = journal_at(file, now=lambda: time.time() + AFTER_THE_LEASE)
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, journal=journal) as client:
            summary = await client.recover()
            await client.wallet_payments.create(PAYMENT, once="ride-7")

        assert ({RecordState.DONE: 1}, True) == (dict(summary.resolved), summary.is_complete)
        assert 1 == charges()


class Note(Struct):
    """A body."""

    text: str = ""


def own(**more: object) -> Operation[Note, Note]:
    """An operation of one's own."""
    return Operation(
        name="notes.create", method="POST", path="/notes", retry=RetryClass.KEYED, body=Note, result=Note, **more
    )


async def window(tmp_path: Path, operation: Operation, limits: Timeout, **options: object) -> float:
    """Return the seconds for which a write may be sent."""
    clock = FakeClock()
    platform = Platform(clock)
    platform.lose = True
    journal = SQLiteJournal(tmp_path / "payments.db", now=clock.now, seal=sealed, unseal=sealed)
    body = {"orders.create": order(), "wallet_payments.create": PAYMENT, "notes.create": Note()}
    settings = {"base_url": URL, "clock": clock, "transport": MemoryTransport(platform), "retry": ONCE}
    async with PaymentsClient(TOKEN, journal=journal, timeout=limits, **settings) as client:
        path = dict.fromkeys(operation.path_names, "ORD1")
        with pytest.raises(OutcomeUnknown):
            await client.call(operation, body.get(operation.name), once="a", **path, **options)
        [row] = await journal.records([RecordState.UNKNOWN])
    return row.not_after - row.begun


USUAL, SLOW = Timeout(), Timeout(attempt=400, total=600)
WALLET, CANCEL, REFUND = (OPERATIONS[name] for name in ("wallet_payments.create", "orders.cancel", "orders.refund"))


@pytest.mark.parametrize(
    ("operation", "limits", "seconds"),
    [
        (WALLET, USUAL, 15 * 60),
        (CANCEL, SLOW, 1.5 * 800),
        (REFUND, USUAL, 23 * 3600),
        (own(), USUAL, 90),
        (own(), Timeout(total=300), 300),
        (own(), SLOW, 1.5 * 800),
        (own(), Timeout(total=None), 23 * 3600),
        (own(resend_window=timedelta(seconds=90)), SLOW, 1.5 * 800),
        (own(resend_window=timedelta(days=9)), USUAL, 23 * 3600),
        (own(resend_window=lambda body: timedelta(seconds=30)), SLOW, 30),
    ],
)
async def test_a_window_leaves_time_after_the_lease(tmp_path: Path, operation, limits: Timeout, seconds: float) -> None:
    """It is one and a half leases at least, and 23 hours at most; what a function of the body returns holds."""
    assert seconds == await window(tmp_path, operation, limits)


async def test_an_explicit_end_wins(tmp_path: Path) -> None:
    """Also where it is shorter than a lease: a crash then leaves the record to a person."""
    assert 5 == await window(tmp_path, WALLET, SLOW, not_after=timedelta(seconds=5))


async def test_an_order_that_expires_early_is_not_sent_later(
    tmp_path: Path, clock: FakeClock, platform: Platform
) -> None:
    """Nobody waits for its code any more."""
    short = OrderRequest(
        external_reference="A-1",
        total_amount=order().total_amount,
        transactions=order().transactions,
        expiration_time="PT30S",
    )

    def lost(request: object) -> None:
        raise SendFailed("connection reset", sent=True)

    platform.fail = lost
    journal = SQLiteJournal(tmp_path / "payments.db", now=clock.now)
    settings = {"base_url": URL, "clock": clock, "transport": MemoryTransport(platform), "retry": ONCE}
    async with PaymentsClient(TOKEN, journal=journal, **settings) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(short, once="a")
        [row] = await journal.records([RecordState.UNKNOWN])

    assert 30 == row.not_after - row.begun


@pytest.mark.parametrize("declared", [timedelta(seconds=89), timedelta(0), timedelta(days=-1), 3600, "PT15M"])
def test_a_window_that_ends_with_the_lease_is_rejected_where_it_is_declared(declared: object) -> None:
    """Recovery could never send it."""
    with pytest.raises(RequestInvalid, match=r"notes\.create\.resend_window: must be a timedelta of 90 s"):
        own(resend_window=declared)
