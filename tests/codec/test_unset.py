"""Members of somebody else's Structs that are msgspec's `UNSET` where nothing was said, so that null says something."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from msgspec import UNSET, UnsetType

from paymentsdk import Echo, Operation, PaymentsClient, RequestInvalid, Response, RetryClass
from paymentsdk.resources.common import Moment, PositiveAmount, RequestStruct, ResponseStruct
from paymentsdk.testing import MemoryTransport


class Change(RequestStruct):
    """What is to be changed of a plan: what is not set stays, null takes it away."""

    price: PositiveAmount | UnsetType | None = UNSET
    since: Moment | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET


class Plan(ResponseStruct):
    """What a plan is then."""

    id: str | int
    price: Decimal | UnsetType | None = UNSET
    since: Moment | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    parts: list[Plan] | UnsetType = UNSET


CHANGE: Operation[Change, Plan] = Operation(
    name="plans.change",
    method="PATCH",
    path="/plans",
    retry=RetryClass.KEYED,
    body=Change,
    result=Plan,
    echoes=(
        Echo("name", agrees=lambda requested, echoed: None if requested is None else requested == echoed),
        Echo("parts[].name", of="name"),
    ),
)


TWO = Plan(id="2")
SOME = Plan(id=1, parts=[TWO])


@pytest.mark.parametrize(
    ("body", "value", "reported"),
    [
        ('{"id": "1"}', Plan(id="1"), []),
        ('{"id": "1", "price": null, "name": null}', Plan(id="1", price=None, name=None), []),
        ('{"id": "1", "price": 1.5, "parts": [{"id": "2"}]}', Plan(id="1", price=Decimal("1.5"), parts=[TWO]), []),
        ('{"id": "1", "price": "NaN"}', Plan(id="1"), ["$.price"]),
        ('{"id": "1", "name": 5}', Plan(id="1", name="5"), ["$.name"]),
        ('{"id": 1, "since": "?", "parts": [{"id": "2", "price": []}]}', SOME, ["$.since", "$.parts[0].price"]),
    ],
)  # fmt: skip
def test_what_is_missing_is_unset(body: str, value: Plan, reported: list[str]) -> None:
    """Also in a response of which something else has to be repaired, and where what came cannot be read."""
    decoded, anomalies = CHANGE.decode(body.encode())

    assert value == decoded
    assert reported == [anomaly.path for anomaly in anomalies]


def test_what_is_unset_is_not_sent() -> None:
    """An amount or a moment as little as a text; null is sent, and what is there is checked."""
    since = datetime(2026, 1, 31, tzinfo=UTC)
    encoded = [
        CHANGE.encoder.encode(change)
        for change in (Change(), Change(price=None, since=None), Change(price=Decimal("1.5")), Change(since=since))
    ]

    assert [b"{}", b'{"price":null,"since":null}', b'{"price":1.50}'] == encoded[:3]
    assert b'{"since":"2026-01-31T00:00:00.000Z"}' == encoded[3]
    with pytest.raises(RequestInvalid, match="must be above 0") as rejected:
        CHANGE.encoder.encode(Change(price=Decimal(0)))
    assert "$.price" == rejected.value.path


async def test_what_is_unset_contradicts_nothing() -> None:
    """A response that leaves out what it may repeat is believed; what was not asked for is None."""
    bodies = [b'{"id": "1"}', b'{"id": "1", "name": "gold"}', b'{"id": "1", "name": "gold"}']
    transport = MemoryTransport([Response(200, {}, body) for body in bodies])
    async with PaymentsClient("token", base_url="https://x", transport=transport) as client:
        results = [await client.call(CHANGE, change) for change in (Change(name="gold"), Change(), Change(name="gold"))]

    assert [UNSET, "gold", "gold"] == [result.value.name for result in results]
