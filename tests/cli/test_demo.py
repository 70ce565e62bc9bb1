"""`paymentsdk demo`: the whole job in small, and that it would notice."""

from __future__ import annotations

import itertools
from functools import partial

import msgspec
import pytest

from paymentsdk import PaymentsClient, Request, Response, SendFailed
from paymentsdk.cli import main
from paymentsdk.sandbox import Entry, FaultRule, Sandbox
from paymentsdk.testing import FakeClock
from paymentsdk.transports.aiohttp import AiohttpTransport

SMALL = ["demo", "--orders", "20"]


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses before a retry take no time: the sandbox asks for a second."""
    monkeypatch.setattr("paymentsdk.cli._demo.PaymentsClient", partial(PaymentsClient, clock=FakeClock()))


def demo(capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run the job in small; return the exit code, what it printed, and what it said meanwhile."""
    code = main(SMALL)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_books_agree(capsys):
    """With faults all along, nothing is double and nothing is lost, and the exit code says so."""
    code, out, err = demo(capsys)

    assert (0, "passed: client and sandbox agree on 43 entries: 0 double, 0 lost\n") == (code, out)
    first, *progress, last = err.splitlines()
    assert "20 orders, up to 32 calls at a time, against a sandbox on this machine" == first
    names = ["orders created: 20", "orders canceled: 2", "orders paid and read: 18", "orders refunded: 3"]
    assert names == [line.partition(" in ")[0] for line in progress]
    assert "faults that fired: 8" == last


@pytest.mark.parametrize(
    ("kind", "verdict"), [("double", "43 entries: 1 double, 0 lost"), ("lost", "42 entries: 0 double, 1 lost")]
)
def test_a_wrong_ledger_is_found(capsys, monkeypatch, kind: str, verdict: str):
    """Negative control: a row of the ledger that is there twice, or is missing, is reported and fails the job."""
    ledger = Sandbox.ledger

    def wrong(self: Sandbox, tenant: int | None = None) -> list[Entry]:
        rows = ledger(self, tenant)
        at = next(number for number, row in enumerate(rows) if row.kind == "payment")
        return [*rows, rows[at]] if kind == "double" else rows[:at] + rows[at + 1 :]

    monkeypatch.setattr(Sandbox, "ledger", wrong)

    code, out, _ = demo(capsys)

    assert 1 == code
    assert f"failed: client and sandbox agree on {verdict}" == out.splitlines()[-1]
    assert f"  {kind}: payment of PAY" in out


def test_a_key_for_each_attempt_is_found(capsys, monkeypatch):
    """Negative control: without one key for all attempts of a write, a lost response does it twice."""
    lost = FaultRule(effect="lose_response_after_commit", operation="orders.create", times=3)
    monkeypatch.setattr("paymentsdk.cli._demo.FAULTS", (lost,))
    numbers = itertools.count()
    send = AiohttpTransport.send

    async def with_another_key(self: AiohttpTransport, request: Request) -> Response:
        headers = dict(request.headers)
        if "X-Idempotency-Key" in headers:
            headers["X-Idempotency-Key"] = f"attempt-{next(numbers)}"
        return await send(self, msgspec.structs.replace(request, headers=headers))

    monkeypatch.setattr(AiohttpTransport, "send", with_another_key)

    code, out, _ = demo(capsys)

    assert 1 == code
    assert 3 == out.count("  double: order_created of ORD")


def test_a_job_that_cannot_go_on_says_so(capsys, monkeypatch):
    """A call that fails for good ends the job: exit code 1, one line, and no result."""

    async def cut_off(self: AiohttpTransport, request: Request) -> Response:
        raise SendFailed("the cable is out", sent=False, permanent=True)

    monkeypatch.setattr(AiohttpTransport, "send", cut_off)

    code, out, err = demo(capsys)

    assert (1, "") == (code, out)
    assert "paymentsdk: the demo ended early: NotSent: not sent: the cable is out" in err.splitlines()
