"""Responses of somebody else's types, and amounts that are none, or of a monstrous size."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Generic, Literal, TypeVar

import pytest
from msgspec import Meta

from paymentsdk import OPERATIONS, Operation
from paymentsdk.resources.common import Day, ResponseStruct
from tests.engine.declared import declared

# --- types ------------------------------------------------------------------------------------------------------------


T = TypeVar("T")


DROPPED, REPAIRED, UNSET = "dropped", "repaired", "stands for unset"


def body(**members: object) -> bytes:
    """A response with an id and *members*."""
    return json.dumps({"id": "X1", **members}).encode()


class Row(ResponseStruct):
    """A row of somebody else's operation."""

    id: str
    count: int | None = None


class Shelf(ResponseStruct):
    """A response of somebody else's operation, with members of types that no response of the contract has."""

    id: str
    name: str | None = None
    rows: list[Row] | None = None
    by_name: dict[str, Row] | None = None
    state: Literal["full", "empty"] | None = None
    since: date | None = None
    more: object = None


@pytest.mark.parametrize(
    ("sent", "member", "reason"),
    [
        (
            {"rows": [{"id": "1"}, {"id": 2, "count": "3"}, None]},
            {"rows": [Row(id="1"), Row(id="2", count=3)]},
            REPAIRED,
        ),
        ({"by_name": {"a": {"id": 1}}}, {"by_name": None}, DROPPED),
        ({"state": "half"}, {"state": None}, DROPPED),
        ({"since": ""}, {"since": None}, UNSET),
        ({"more": {"a": [1.5]}}, {"more": {"a": [1.5]}}, None),
    ],
)
def test_members_of_other_types_cost_nothing_else(
    sent: dict[str, object], member: dict[str, object], reason: str | None
) -> None:
    """An operation that somebody else declares is read as far as it can be, whatever the types of its response."""
    shelf, anomalies = declared(result=Shelf).decode(body(name=5, **sent))

    assert Shelf(id="X1", name="5", **member) == shelf
    assert reason is None or any(reason in anomaly.reason for anomaly in anomalies[1:])
    assert (reason is None) == (len(anomalies) == 1)


class Holder(ResponseStruct, Generic[T]):
    """A response of somebody else's operation that holds what it is told."""

    id: str
    one: T | None = None
    rows: list[T] | None = None


class Priced(ResponseStruct):
    """What it is told of."""

    amount: Decimal | None = None


def test_a_response_may_be_generic() -> None:
    """It is read and repaired as any other is, and an amount in it that cannot be used is dropped."""
    decoder = declared(result=Holder[Priced])
    price = Priced(amount=Decimal("1.50"))

    assert (Holder(id="1", one=price), ()) == decoder.decode(body(id="1", one={"amount": 1.5}))
    repaired, _ = decoder.decode(body(id=1, rows=[{"amount": "1.50"}, {"amount": [1]}]))
    assert Holder(id="1", rows=[price, Priced()]) == repaired
    unusable, anomalies = decoder.decode(body(id="1", one={"amount": "NaN"}))
    assert (Holder(id="1", one=Priced()), ["$.one.amount"]) == (unusable, [anomaly.path for anomaly in anomalies])


@pytest.mark.parametrize(
    ("kind", "sent", "value", "reported"),
    [
        (list[Row], b'[{"id": 1, "count": "3"}, null, {"id": "2"}]', [Row(id="1", count=3), Row(id="2")],
         ["$[0].id", "$[0].count", "$[1]"]),
        (tuple[Priced, ...], b'[{"amount": "NaN"}, {"amount": 1.5}]', (Priced(), Priced(amount=Decimal("1.5"))),
         ["$[0].amount"]),
        (Row | None, b'{"id": 1}', Row(id="1"), ["$.id"]),
        (tuple[Decimal, ...], b'["1", "NaN", null, "2"]', (Decimal(1), Decimal(2)), ["$[1]", "$[2]"]),
        (int, b'"5"', 5, ["$"]),
        (list[Row], b'[{"id": "\\ud83d"}]', [Row(id="\ufffd")], ["$"]),
        (object, b"null", None, []),
    ],
)  # fmt: skip
def test_a_response_may_be_no_struct(kind: object, sent: bytes, value: object, reported: list[str]) -> None:
    """What is in it is repaired as anywhere else."""
    decoded, anomalies = declared(result=kind).decode(sent)

    assert (value, reported) == (decoded, [anomaly.path for anomaly in anomalies])


class Branch(ResponseStruct):
    """A response of somebody else's operation that holds itself."""

    id: str
    amount: Decimal | None = None
    day: Day | None = None
    branches: list[Branch] | None = None


def test_a_response_may_hold_itself() -> None:
    """It is read as any other is, and an amount that cannot be used is dropped however deep it stands."""
    decoder = declared(result=Branch)
    leaf, branch = {"id": "3", "amount": 1.5}, {"id": "2"}

    clean, none = decoder.decode(body(id="1", branches=[{**branch, "branches": [leaf]}]))
    repaired, anomalies = decoder.decode(body(id="1", branches=[{**branch, "branches": [{**leaf, "amount": "NaN"}]}]))
    dated, _ = decoder.decode(body(id="1", branches=[{**branch, "day": "2026-01-31"}]))

    assert (Decimal("1.5"), ()) == (clean.branches[0].branches[0].amount, none)
    assert (None, ["$.branches[0].branches[0].amount"]) == (
        repaired.branches[0].branches[0].amount,
        [anomaly.path for anomaly in anomalies],
    )
    assert datetime(2026, 1, 31, tzinfo=UTC) == dated.branches[0].day


class Bounded(ResponseStruct):
    """A response of somebody else's operation whose members have to keep rules."""

    id: str
    count: Annotated[int, Meta(ge=1, le=10)] | None = None
    share: Annotated[float, Meta(gt=0)] | None = None
    name: Annotated[str, Meta(pattern="^a+$", max_length=3)] | None = None
    words: Annotated[list[str], Meta(max_length=1)] | None = None
    counts: tuple[Annotated[int, Meta(multiple_of=5)], ...] | None = None


@pytest.mark.parametrize(
    "sent", [{"count": 0}, {"count": "5"}, {"name": "aaaa"}, {"words": ["a", "b"]}, {"counts": [5, 6]}]
)
def test_what_breaks_a_rule_of_its_member_is_reported(sent: dict[str, object]) -> None:
    """Who is strict, or looks, learns that the contract is broken; the value is dropped."""
    [name] = sent

    decoded, [anomaly] = declared(result=Bounded).decode(body(**sent))

    assert getattr(decoded, name) is None
    assert (f"$.{name}", sent[name], True) == (anomaly.path, anomaly.value, anomaly.dropped)


@pytest.mark.parametrize(("kind", "sent"), [(list[Row], b'"none"'), (int, b"null")])
def test_a_response_of_another_type_is_rejected(kind: object, sent: bytes) -> None:
    """Nothing is made up for it."""
    with pytest.raises(ValueError, match=r"holds (a string|null), not"):
        declared(result=kind).decode(sent)


# --- amounts ----------------------------------------------------------------------------------------------------------


NOT_AMOUNTS = [
    *(f'"{text}"' for text in ("NaN", "nan", "-NaN", "sNaN", "nan123", "Infinity", "-infinity", "iNf", "+inf")),
    *("1e999999999", '"1e999999999"', "1E+100", "-1e-999999999", '"1e-999999999"', "0e-999999999"),
    # Not so long as it is written, but as a number.
    *("1e99", '"1e99"', "9" * 50 + "e50", "0.1e-99"),
]


@pytest.mark.control("paymentsdk._codec.amounts._suspects", lambda most: defaultdict(lambda: True))
def test_monstrous_amounts_are_dropped() -> None:
    """A number with more digits than a sheet of paper is a bomb for the first who prints it."""
    # As if it had never been used: it makes its decoder anew.
    assert_dropped(replace(OPERATIONS["merchant_orders.search"]), "1e999999999")


def test_invalid_amounts_are_dropped() -> None:
    """NaN, infinities and monstrous exponents decode like any amount: they are found at any depth, and dropped."""
    for amount in NOT_AMOUNTS:
        assert_dropped(OPERATIONS["merchant_orders.search"], amount)


def assert_dropped(operation: Operation, amount: str) -> None:
    """Decode a response with an amount that is none."""
    response = f'{{"elements":[{{"id":"1","items":[{{"title":"Tea","unit_price":{amount}}},{{"unit_price":5}}]}}]}}'
    decoded, anomalies = operation.decode(response.encode())

    assert [None, Decimal(5)] == [item.unit_price for item in decoded.elements[0].items]
    [anomaly] = anomalies
    assert anomaly.path.endswith(".items[0].unit_price")
    assert "dropped" in anomaly.reason


def test_amounts_that_are_plain_enough() -> None:
    """Responses may have amounts that a request may not: any plain number."""
    for amount in ("0", "-5", "0.00", "1e10", "5.0E8", '"1E+2"', "1e-7", "1e98", "-1e-98", "1234567890" * 3):
        decoded, anomalies = OPERATIONS["orders.get"].decode(f'{{"id":"X1","total_amount":{amount}}}'.encode())

        assert (Decimal(amount.strip('"')), ()) == (decoded.total_amount, anomalies)


TEXTS = [" 5.00", "5.00\n", "1_000", "\u0665", "\uff15", "5.", ".5", "+5", "0x5", "5,00", "", "1__0"]


def test_what_is_wrong_in_one_row_decides_on_no_amount_of_another() -> None:
    """What is a number to Python is an amount, and anything else is dropped, whatever else is malformed."""
    for amount in [*map(json.dumps, TEXTS), "0." + "1" * 120, "1e99", "1e100000000000000000000"]:
        rows = f'{{"id":"X1","items":[{{"title":"Tea","unit_price":{amount}}},{{"title":"Cup","unit_price":%s}}]}}'
        (alone, _), (beside, _) = (OPERATIONS["orders.get"].decode((rows % other).encode()) for other in (5, "{}"))

        assert alone.items[0] == beside.items[0], amount
        assert beside.items[1].unit_price is None
