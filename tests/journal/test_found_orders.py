"""`recover(look_up=)`: an order in doubt whose time is over is found by a search that the contract does not have."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from paymentsdk import PaymentsClient, RequestInvalid, Response, beyond
from paymentsdk.journal import Record, RecordState
from paymentsdk.resources.orders import CREATE, OrderStatus
from paymentsdk.testing import MemoryTransport
from tests.journal import test_look_up
from tests.journal.conftest import make_record
from tests.journal.platform import order
from tests.journal.test_look_up import FAILED, LOST, Seller

LOOK_UP = {"orders.create": beyond.find_order}
seller = test_look_up.seller


async def test_an_unpaid_order_is_found(seller: Seller) -> None:
    """Its record is done with the order as it is now, and a call with the name returns that."""
    await seller.create("lunch", LOST)

    row = (await seller.a_day_later(look_up=LOOK_UP))["lunch"]

    again = await seller.client.orders.create(order(), once="lunch")
    created = [entry.id for entry in seller.sandbox.ledger() if entry.kind == "order_created"]
    assert (RecordState.DONE, OrderStatus.EXPIRED) == (row.state, again.status)
    assert created[0] == again.id == CREATE.decode(row.response.body)[0].id


@pytest.mark.parametrize(("effects", "options"), [
    ([FAILED], {"look_up": LOOK_UP}), ([LOST, FAILED], {"look_up": LOOK_UP}), ([LOST], {}),
], ids=["not created", "two records", "without the option"])  # fmt: skip
async def test_what_proves_nothing_leaves_a_record_open(seller: Seller, effects: list[str], options: dict) -> None:
    """A search may lag, a reference of two records does not show whose order it is, and the contract shows none."""
    for name, effect in zip(("lunch", "dinner"), effects, strict=False):
        await seller.create(name, effect)

    rows = await seller.a_day_later(**options)

    assert {RecordState.UNKNOWN} == {rows[name].state for name in ("lunch", "dinner") if name in rows}


async def test_an_operation_that_the_client_does_not_have_is_rejected(seller: Seller) -> None:
    """A misspelt name would look up nothing, in silence."""
    with pytest.raises(RequestInvalid, match=r"order\.create"):
        await seller.client.recover(look_up={"order.create": beyond.find_order})
    with pytest.raises(RequestInvalid, match=r"order\.create"):
        seller.client.recovery(look_up={"order.create": beyond.find_order})


CREATED = {
    "id": "ORD1",
    "external_reference": "ticket-7",
    "total_amount": "10.50",
    "created_date": "2026-01-31T10:00:05.000Z",
    "status": "expired",
}


@pytest.mark.parametrize(
    ("rows", "total", "is_found"),
    [
        pytest.param([CREATED], 1, True, id="one"),
        pytest.param([CREATED], None, True, id="no total"),
        pytest.param([], 0, False, id="none"),
        pytest.param([CREATED], 2, False, id="others on further pages"),
        pytest.param([CREATED, {**CREATED, "id": "ORD2"}], 2, False, id="several"),
        pytest.param([CREATED, 7], 1, False, id="an entry that cannot be read"),
        pytest.param([{**CREATED, "total_amount": "10.51"}], 1, False, id="another amount"),
        pytest.param([{**CREATED, "external_reference": "ticket-8"}], 1, False, id="another reference"),
        pytest.param([{**CREATED, "created_date": "2026-01-31T09:58:00.000Z"}], 1, False, id="before the record"),
        pytest.param([{**CREATED, "created_date": "2026-01-31T10:17:00.000Z"}], 1, False, id="after its window"),
    ],
)
async def test_what_is_not_certain_proves_nothing(rows: list[object], total: object, is_found: bool) -> None:
    """Several orders, another amount, or what a platform shows that ignores a filter: the record stays open."""
    assert is_found is await finds("ticket-7", rows, total)


async def finds(reference: str, rows: list[object], total: object) -> bool:
    """Return whether the order of *reference* is found in the one page of a search."""
    page = msgspec.json.encode({"data": rows, "paging": {"total": total}})
    transport = MemoryTransport(lambda _: Response(200, {}, page))
    begun = datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp()
    record = make_record(
        body=msgspec.json.encode(order(reference)), path="/v1/orders", begun=begun, not_after=begun + 900
    )

    async def no_others(**_: object) -> list[Record]:
        return []

    async with PaymentsClient("TEST-t", base_url="http://127.0.0.1:1", transport=transport) as client:
        return await beyond.find_order(client, record, no_others) is not None
