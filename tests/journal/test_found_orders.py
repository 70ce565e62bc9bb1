"""`recover(look_up=)`: an order in doubt whose time is over is found by a search that the contract does not have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, RequestInvalid, Response, RetryPolicy, beyond
from paymentsdk.journal import Journal, Record, RecordState, SQLiteJournal
from paymentsdk.resources.orders import CREATE, OrderStatus
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport
from tests.journal.conftest import make_record
from tests.journal.platform import order

LOOK_UP = {"orders.create": beyond.find_order}
LOST, FAILED = "lose_response_after_commit", "fail_before_commit"


class Till:
    """A seller whose orders get lost, with a journal, at a platform with the search."""

    def __init__(self, sandbox: Sandbox, journal: Journal) -> None:
        self.sandbox, self.journal = sandbox, journal
        self.client = PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, journal=journal, retry=RetryPolicy(attempts=1)
        )

    async def create(self, name: str, effect: str, reference: str = "ticket-7") -> None:
        """Create an order whose outcome is in doubt."""
        self.sandbox.faults.add(FaultRule(effect=effect, operation="orders.create", times=1))
        with pytest.raises(OutcomeUnknown):
            await self.client.orders.create(order(reference), once=name)

    async def recovered(self, name: str) -> Record:
        """Recover a day later, and return the record *name*."""
        self.sandbox.clock.advance(timedelta(hours=24))
        await self.client.plans.search().first()  # It tells the time.
        orders = self.orders()
        await self.client.recover(look_up=LOOK_UP)
        assert orders == self.orders(), "recovery has sent an order whose time is over"
        return (await self.records())[name]

    async def records(self) -> dict[str, Record]:
        """The records by name."""
        return {row.name: row for row in await self.journal.records(tuple(RecordState))}

    def orders(self) -> list[str]:
        """The ids of all orders."""
        return [entry.id for entry in self.sandbox.ledger() if entry.kind == "order_created"]


@pytest.fixture
async def till(tmp_path: Path) -> AsyncIterator[Till]:
    """A seller."""
    async with Sandbox(beyond="reads") as sandbox:
        till = Till(sandbox, SQLiteJournal(tmp_path / "payments.db"))
        async with till.client:
            await till.client.plans.search().first()  # A record that begins now is dated by the platform.
            yield till


async def test_an_unpaid_order_is_found(till: Till) -> None:
    """Its record is done with the order as it is now, and a call with the name returns that."""
    await till.create("lunch", LOST)

    row = await till.recovered("lunch")

    assert RecordState.DONE is row.state
    assert till.orders() == [CREATE.decode(row.response.body)[0].id]
    again = await till.client.orders.create(order("ticket-7"), once="lunch")
    assert (till.orders(), OrderStatus.EXPIRED) == ([again.id], again.status)


async def test_an_order_that_was_not_created_stays_open(till: Till) -> None:
    """That a search finds nothing proves nothing: it may lag."""
    await till.create("lunch", FAILED)

    assert RecordState.UNKNOWN is (await till.recovered("lunch")).state


async def test_without_the_option_the_record_stays_open(till: Till) -> None:
    """Negative control: the contract alone shows no order that nobody paid."""
    await till.create("lunch", LOST)
    till.sandbox.clock.advance(timedelta(hours=24))
    await till.client.plans.search().first()
    await till.client.recover()

    assert RecordState.UNKNOWN is (await till.records())["lunch"].state


async def test_the_reference_of_two_records_proves_nothing(till: Till) -> None:
    """It does not show which of them has created the order."""
    await till.create("lunch", LOST)
    await till.create("dinner", FAILED)

    assert RecordState.UNKNOWN is (await till.recovered("lunch")).state
    assert RecordState.UNKNOWN is (await till.records())["dinner"].state


async def test_an_operation_that_the_client_does_not_have_is_rejected(till: Till) -> None:
    """A misspelt name would look up nothing, in silence."""
    with pytest.raises(RequestInvalid, match=r"order\.create"):
        await till.client.recover(look_up={"order.create": beyond.find_order})
    with pytest.raises(RequestInvalid, match=r"order\.create"):
        till.client.recovery(look_up={"order.create": beyond.find_order})


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
