"""Amounts of a response that are none, or of a monstrous size."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import pytest
from msgspec import Struct

from paymentsdk import OPERATIONS, Operation
from tests.engine.declared import declared

NOT_AMOUNTS = [
    *(f'"{text}"' for text in ("NaN", "nan", "-NaN", "sNaN", "nan123", "Infinity", "-infinity", "iNf", "+inf")),
    *("1e999999999", '"1e999999999"', "1E+100", "-1e-999999999", '"1e-999999999"', "0e-999999999"),
    # Not so long as it is written, but as a number.
    *("1e99", '"1e99"', "9" * 50 + "e50", "0.1e-99"),
]


@pytest.mark.control("paymentsdk._codec.amounts._suspects", lambda most: defaultdict(lambda: True))
def test_monstrous_amounts_are_dropped() -> None:
    """A number with more digits than a sheet of paper is a bomb for the first who prints it."""
    assert_dropped("orders.get", "1e999999999")


@pytest.mark.parametrize(
    ("name", "amount"), [("orders.get", amount) for amount in NOT_AMOUNTS] + [("merchant_orders.search", "1e99")]
)
def test_invalid_amounts_are_dropped(name: str, amount: str) -> None:
    """NaN, infinities and monstrous exponents decode like any amount: they are found at any depth, and dropped."""
    assert_dropped(name, amount)


def assert_dropped(name: str, amount: str) -> None:
    """Decode a response with a second amount that is none."""
    row = f'{{"id":"X1","items":[{{"title":"Tea","unit_price":{amount}}},{{"unit_price":5}}]}}'
    response = row if name == "orders.get" else f'{{"elements":[{row}]}}'
    decoded, anomalies = decoder_of(name).decode(response.encode())

    decoded = decoded if name == "orders.get" else decoded.elements[0]
    assert [None, Decimal(5)] == [item.unit_price for item in decoded.items]
    [anomaly] = anomalies
    assert anomaly.path.endswith(".items[0].unit_price")
    assert "dropped" in anomaly.reason


@pytest.mark.parametrize(
    "amount", ["0", "-5", "0.00", "1e10", "5.0E8", '"1E+2"', "1e-7", "1e98", "-1e-98", "123456789012345678901234567890"]
)
def test_amounts_that_are_plain_enough(amount: str) -> None:
    """Responses may have amounts that a request may not: any plain number."""
    decoder = OPERATIONS["orders.get"]

    decoded, anomalies = decoder.decode(f'{{"id":"X1","total_amount":{amount}}}'.encode())

    assert Decimal(amount.strip('"')) == decoded.total_amount
    assert () == anomalies


TEXTS = [" 5.00", "5.00\n", "1_000", "\u0665", "\uff15", "5.", ".5", "+5", "0x5", "5,00", "", "1__0"]


@pytest.mark.parametrize("amount", [*map(json.dumps, TEXTS), "0." + "1" * 120, "1e99", "1e100000000000000000000"])
def test_what_is_wrong_in_one_row_decides_on_no_amount_of_another(amount: str) -> None:
    """What is a number to Python is an amount, and anything else is dropped, whatever else is malformed."""
    rows = f'{{"id":"X1","items":[{{"title":"Tea","unit_price":{amount}}},{{"title":"Cup","unit_price":%s}}]}}'

    alone, _ = decoder_of("orders.get").decode((rows % 5).encode())
    beside, _ = decoder_of("orders.get").decode((rows % "{}").encode())

    assert alone.items[0] == beside.items[0]
    assert beside.items[1].unit_price is None


class Lists(Struct):
    """Amounts in lists, which no response has so far."""

    id: str
    amounts: tuple[Decimal, ...] | None = None


def test_amounts_in_lists_are_searched() -> None:
    """A list of amounts is searched as well."""
    value, anomalies = declared(result=Lists).decode(b'{"id":"1","amounts":["1","NaN","2"]}')

    assert (Decimal(1), Decimal(2)) == value.amounts
    assert ["$.amounts[1]"] == [anomaly.path for anomaly in anomalies]


def decoder_of(name: str) -> Operation:
    """The operation as if it had never been used: it makes its decoder anew."""
    return replace(OPERATIONS[name])
