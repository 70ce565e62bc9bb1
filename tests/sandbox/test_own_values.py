"""What handlers of one's own return is sent as their clients read it."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from paymentsdk import Operation, PaymentsClient, RetryClass
from paymentsdk.resources.common import ResponseStruct
from paymentsdk.sandbox import Sandbox


class Card(ResponseStruct, tag="card"):
    """One way to pay."""

    id: str


class Cash(ResponseStruct, tag="cash"):
    """Another."""

    id: str


class Sale(ResponseStruct):
    """What was sold."""

    id: str
    paid: Card | Cash | None = None
    parts: list[Card | Cash] | UnsetType = UNSET
    name: str | UnsetType | None = UNSET


GET: Operation[None, Sale] = Operation(
    name="sales.get", method="GET", path="/sales/{sale}", retry=RetryClass.READ, result=Sale
)


async def received(sale: Sale) -> Sale:
    """Return what a client gets of *sale*, and see that nothing of it was malformed."""
    async with (
        Sandbox(handlers={GET: lambda context, request: sale}) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client,
    ):
        result = await client.call(GET, sale="1")
    assert () == result.anomalies
    return result.value


async def test_tags_are_sent() -> None:
    """Nothing else says which of several Structs a value is."""
    sale = Sale(id="S1", paid=Card(id="D1"), parts=[Cash(id="C1"), Card(id="D1")])

    assert sale == await received(sale)


async def test_what_is_unset_is_not_sent() -> None:
    """And null where that says something."""
    bare, unnamed = Sale(id="S1"), Sale(id="S1", name=None)

    assert [bare, unnamed] == [await received(bare), await received(unnamed)]
