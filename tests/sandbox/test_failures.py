"""A failure inside the sandbox is never silent."""

from __future__ import annotations

import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.sandbox import Sandbox
from paymentsdk.sandbox._responses import Refused


def fill_the_disk(sandbox: Sandbox) -> None:
    """Let the database grow no further, as on a full disk."""
    connection = sandbox.platform.store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")


async def create_many(client: PaymentsClient, order) -> None:
    """Create more orders than a full disk has room for."""
    for number in range(200):
        await client.orders.create(order(external_reference=f"order-{number}", description="x" * 150))


@pytest.mark.control(
    "paymentsdk.sandbox._pipeline.Pipeline.log_failure",
    lambda self, request, error: Refused(500, "generic", "internal error of the sandbox"),
)
async def test_a_full_disk_is_said(tmp_path, order, capsys):
    """To the client, on stderr and in the list of requests."""
    async with Sandbox(db=str(tmp_path / "sandbox.db")) as sandbox:
        retry = RetryPolicy(attempts=1)
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, retry=retry) as client:
            fill_the_disk(sandbox)
            with pytest.raises(OutcomeUnknown) as unknown:
                await create_many(client, order)
        failed = [one for one in sandbox.platform.feed.requests if one.status == 500]

    assert "disk full" in str(unknown.value.last_error)
    assert "the sandbox failed at POST /v1/orders: disk full" in capsys.readouterr().err
    assert [("orders.create", True)] == [(one.operation, "disk full" in one.answer) for one in failed]


async def test_a_failed_command_is_on_stderr_and_listed(plain, sandbox, monkeypatch, capsys):
    """A failure of the control API is seen like one of an operation."""

    def fail(*_: object) -> None:
        raise RuntimeError("the cause")

    monkeypatch.setattr(sandbox.platform.clock, "resume", fail)
    answer = await plain("POST", "/_sandbox/clock/resume")

    assert (500, "internal error of the sandbox: see its stderr") == (answer.status, answer.json["message"])
    assert "POST /_sandbox/clock/resume: RuntimeError('the cause')" in capsys.readouterr().err
    assert [("/_sandbox/clock/resume", 500)] == [(one.path, one.status) for one in sandbox.platform.feed.requests]
