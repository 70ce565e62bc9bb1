"""What is malformed in one place of a response changes nothing anywhere else."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Struct, UnsetType

from paymentsdk import Operation, RequestInvalid, RetryClass


class Level(IntEnum):
    """Values that are numbers."""

    LOW = 1


class Part(Struct):
    """A part of a row."""

    amount: Decimal | None = None


class Pair(Struct, array_like=True):
    """A part that stands as a list of its fields."""

    name: str
    parts: list[Part] | None = None


@pytest.mark.parametrize(
    ("kind", "default", "sent", "expected"),
    [
        (Level | None, None, b"1", Level.LOW),
        (str | None, "by default", b"null", None),
        (int | None | UnsetType, UNSET, b"null", None),
        (list[Part | None], [], b'[null, {"amount": 5}]', [None, Part(Decimal(5))]),
        (list[Pair], [], b'[["a", [{"amount": 5}]]]', [Pair("a", [Part(Decimal(5))])]),
    ],
    ids=str,
)
def test_what_follows_its_type_stays_as_it_was_sent(kind: Any, default: object, sent: bytes, expected: object) -> None:
    """Whatever is to be repaired beside it: in the same row, or in the same field of another."""
    row = msgspec.defstruct("Row", [("id", str), ("field", kind, default), ("other", bool | None, None)])
    page = msgspec.defstruct("Page", [("rows", list[row])])
    search: Operation[None, Any] = Operation(name="x", method="GET", path="/x", retry=RetryClass.READ, result=page)

    for neighbor in (b"", b',"other": "?"', b'}, {"id": "2", "field": "\\ud83d{"', b'}, {"id": "2", "field": {"a": 1}'):
        decoded, _ = search.decode(b'{"rows": [{"id": "1", "field": ' + sent + neighbor + b"}]}")
        assert expected == decoded.rows[0].field, neighbor


class Checked(Struct):
    """A row with a rule of its own, and fields that are named as much else is."""

    report: str
    place: int = 0
    cls: int | None = None

    def __post_init__(self) -> None:
        if self.place < 0:
            raise RequestInvalid("place", "is below zero")


CHECKED = msgspec.defstruct("Page", [("rows", list[Checked]), ("one", Checked | None, None)])


@pytest.mark.parametrize("count", [2, 60])
def test_a_row_that_rejects_itself_costs_no_other(count: int) -> None:
    """It is dropped, and reported by its place."""
    search: Operation[None, Any] = Operation(name="x", method="GET", path="/x", retry=RetryClass.READ, result=CHECKED)
    rows = b'{"report": "a"}, ' * count

    page, [row, member] = search.decode(
        b'{"rows": [' + rows + b'{"report": "b", "place": -1}, {"report": "c"}], "one": {"report": "d", "place": -1}}'
    )

    assert [*["a"] * count, "c"] == [entry.report for entry in page.rows]
    assert page.one is None
    assert [(f"$.rows[{count}]", True), ("$.one", True)] == [
        (anomaly.path, anomaly.dropped) for anomaly in (row, member)
    ]
    assert "is below zero" in row.reason


class Priced(Struct):
    """A row whose rule fails where the amount is none."""

    price: Decimal | None = None
    parts: list[Priced] = []

    def __post_init__(self) -> None:
        if self.price is not None and self.price < 0:
            raise ValueError("is below zero")


@pytest.mark.parametrize(("count", "amount"), [(2, '"NaN"'), (60, '"sNaN"')])
def test_a_rule_that_cannot_compare_an_amount_costs_that_amount_alone(count: int, amount: str) -> None:
    """No number is below zero, or above: an amount that is none is dropped before a class is asked for its rules."""
    kind = msgspec.defstruct("Page", [("rows", list[Priced])])
    search: Operation[None, Any] = Operation(name="x", method="GET", path="/x", retry=RetryClass.READ, result=kind)
    rows = '{"price": 5}, ' * count

    page, anomalies = search.decode(
        f'{{"rows": [{rows} {{"price": {amount}}}, {{"parts": [{{"price": {amount}}}]}}]}}'.encode()
    )

    assert [*[Priced(Decimal(5))] * count, Priced(), Priced(None, [Priced()])] == page.rows
    assert {f"$.rows[{count}].price", f"$.rows[{count + 1}].parts[0].price"} == {anomaly.path for anomaly in anomalies}
