"""What the pages recommend, where running it once proves little."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from docs.describe import members
from paymentsdk import NotFound, PaymentsClient, Response
from paymentsdk.resources import orders
from paymentsdk.resources.orders import Order, OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport

GUIDES = Path(__file__).parents[2] / "docs/how-to"
MIDNIGHT = datetime(2026, 3, 10, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def blocks(guide: str) -> list[str]:
    """Return the Python of a guide."""
    page = GUIDES.joinpath(f"{guide}.md").read_text(encoding="utf-8")
    return [part.split("```")[0] for part in page.split("```python\n")[1:]]


@pytest.fixture
def reconcile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the first block of the page defines."""
    program = ModuleType("reconcile")
    monkeypatch.setitem(sys.modules, "reconcile", program)  # Dataclasses look there.
    exec(blocks("reconcile-orders")[0], vars(program))
    return program


@pytest.fixture
def before(reconcile: Any) -> Any:
    """What the page makes windows with."""
    return reconcile.Window.before


def lunch(reference: str) -> OrderRequest:
    """Return an order of one payment."""
    price = Decimal("10.00")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=price)])
    return OrderRequest(external_reference=reference, total_amount=price, transactions=payments)


@pytest.mark.parametrize("edge", ["inclusive", "exclusive"])
async def test_no_row_falls_between_two_windows(before: Any, edge: str):
    """Whether or not the platform counts the ends of a range in, what changes at midnight is in one of the windows."""
    begin = MIDNIGHT - timedelta(hours=1)
    async with (
        Sandbox(frozen_at=begin, policies={"window_edge": edge}) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
        made = set()
        for moment in (MIDNIGHT - MILLISECOND, MIDNIGHT, MIDNIGHT + MILLISECOND):
            sandbox.clock.freeze(moment)
            order = await client.orders.create(lunch(f"row-{len(made)}"))
            sandbox.buyer.pay(order)
            made.add(order.external_reference)
        sandbox.clock.freeze(MIDNIGHT + timedelta(days=1))

        found = set()
        for day in (MIDNIGHT, MIDNIGHT + timedelta(days=1)):
            window = before(day)
            walk = client.merchant_orders.search(last_updated_from=window.begin, last_updated_to=window.end)
            found |= {row.external_reference async for row in walk}

    assert made == found


def test_two_windows_overlap(before: Any):
    """A moment that is finer than the platform's milliseconds is in a window, too."""
    assert before(MIDNIGHT + timedelta(days=1)).begin < before(MIDNIGHT).end


async def test_books_in_two_currencies_do_not_agree(reconcile: Any):
    """A sale of 100 US dollars is no sale of 100 pesos, though both have one reference."""
    async with Sandbox() as sandbox, PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        for currency in ("ARS", "USD"):
            item = PreferenceItemRequest(title="A book", unit_price=Decimal(100), currency_id=currency)
            sandbox.buyer.pay_preference(
                await client.preferences.create(PreferenceRequest(external_reference="cart-1", items=[item]))
            )
        dollars, pesos = map(reconcile.entry, await client.merchant_orders.search().collect())

    assert reconcile.Differences([], []) == reconcile.compare([pesos, dollars], [dollars, pesos])
    assert reconcile.Differences([pesos], [dollars]) == reconcile.compare([pesos], [dollars])


@pytest.fixture
async def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Sandbox, Any]]:
    """A sandbox, and what the guide about retries defines to survive a crash; its journal is a file of this test."""
    monkeypatch.chdir(tmp_path)
    async with (
        Sandbox() as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
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
    [made] = [entry for entry in sandbox.ledger() if entry.kind == "order_created"]
    assert (1, f"made: {made.id}") == (open_, outcome)


async def test_what_the_platform_refuses_settles_an_intent(journal: tuple[Sandbox, Any]):
    """A refusal with a code is final."""
    sandbox, program = journal
    fault = FaultRule(effect="refuse", operation="orders.create", status=404, code="pos_not_found", times=1)

    with sandbox.faults.add(fault):
        await program.sell(8)

    assert [("refused: pos_not_found",)] == program.journal.execute("SELECT outcome FROM intent").fetchall()


@pytest.mark.parametrize(
    ("row", "lost"),
    [
        ({"id": 1, "external_reference": 7, "date_created": "", "payer": [], "paid_amount": "10.00"}, None),
        ({"id": 1, "paid_amount": "ten"}, "paid_amount"),
        ({"id": 1, "refunded_amount": [5]}, "refunded_amount"),
        ({"id": 1, "items": [{"quantity": 1.5}]}, r"items\[0\].quantity"),
        ({"paid_amount": 10}, "has no id"),
        (5, r"elements\[0\]"),
    ],
)
async def test_what_is_mended_is_reconciled_and_what_is_lost_is_not(reconcile: Any, row: object, lost: str | None):
    """The oddities of every day do not end the job; an amount or a row that cannot be read does, and is named."""
    answer = Response(body=json.dumps({"elements": [row], "next_offset": 1, "total": 1}).encode(), status=200)
    client = PaymentsClient("TEST-token", base_url="http://127.0.0.1", transport=MemoryTransport([answer]))

    [page] = [page async for page in client.merchant_orders.search().pages()]

    if lost is None:
        assert [Decimal("10.00")] == [reconcile.entry(order).paid for order in reconcile.whole(page).items]
    else:
        with pytest.raises(ValueError, match=lost):
            reconcile.whole(page)


def right_column(guide: str, head: str) -> list[str]:
    """Return what the last cells below a table's *head* name first, where they name something."""
    page = GUIDES.joinpath(f"{guide}.md").read_text(encoding="utf-8")
    rows = page.partition(f"{head} |\n|---|---|\n")[2]
    cells = [row.rsplit(" | ", 1)[1] for row in rows.partition("\n\n")[0].splitlines()]
    return [cell.split("`")[1] for cell in cells if cell.startswith("`")]


def test_the_new_names_of_the_older_interfaces_exist():
    """Whoever moves finds each new member in a request or an answer, each state, and each code of a refusal."""
    guide = "move-from-older-interfaces"
    members_now = {row[0].strip("`") for body in (OrderRequest, Order) for row in members(body)}
    codes = {error.code for error in orders.CREATE.errors}

    for head, known, many in (
        ("| Before | Now", members_now, 8),
        ("| Before | Now: `order.status`", {str(status) for status in orders.OrderStatus}, 4),
        ("| Before | Now: `error.code`", codes, 5),
    ):
        named = right_column(guide, head)
        assert many == len(named)
        assert [] == [name for name in named if name not in known]
