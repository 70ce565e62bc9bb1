"""What the pages recommend, where running it once proves little."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paymentsdk import NotFound, PaymentsClient
from paymentsdk.sandbox import FaultRule, Sandbox

GUIDES = Path(__file__).parents[2] / "docs/how-to"


def blocks(guide: str) -> list[str]:
    """Return the Python of a guide."""
    page = GUIDES.joinpath(f"{guide}.md").read_text(encoding="utf-8")
    return [part.split("```")[0] for part in page.split("```python\n")[1:]]


@pytest.fixture
async def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Sandbox, Any]]:
    """A sandbox, and what the guide about retries defines to survive a crash; its journal is a file of this test."""
    monkeypatch.chdir(tmp_path)
    async with Sandbox() as sandbox, PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        program = ModuleType("retry")
        vars(program).update(client=client)
        imports, order, crash = (
            next(block for block in blocks("retry-safely") if mark in block)
            for mark in ("from paymentsdk import (", "def lunch(", "def settle(")
        )
        exec(
            imports.split("client = ")[0] + order.split("first = ")[0] + crash.split("await settle_all()  #")[0],
            vars(program),
        )
        yield sandbox, program
        program.journal.close()


async def test_what_a_gateway_says_settles_no_intent(journal: tuple[Sandbox, Any]):
    """The order was made, and a page of HTML says 404: the intent stays open, and is settled with its key."""
    sandbox, program = journal
    fault = FaultRule(effect="html", operation="orders.create", status=404, times=1)

    with sandbox.faults.add(fault), pytest.raises(NotFound):
        await program.sell(8)
    [(open_,)] = program.journal.execute("SELECT count(*) FROM intent WHERE outcome IS NULL")
    await program.settle_all()

    [(outcome,)] = program.journal.execute("SELECT outcome FROM intent")
    [creation] = [entry for entry in sandbox.ledger() if entry.kind == "order_created"]
    assert (1, f"made: {creation.id}") == (open_, outcome)
