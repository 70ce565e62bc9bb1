"""A status that nobody knows yet survives as itself, in the type that it had before type checkers were told of it."""

from __future__ import annotations

from enum import Enum
from typing import get_type_hints

import msgspec
import pytest

from paymentsdk import OPERATIONS
from paymentsdk.resources.common import Open, OpenEnum, ResponseStruct
from paymentsdk.resources.orders import Order, OrderStatus


class Colour(OpenEnum):
    """A member whose list may grow."""

    RED = "red"


class Car(ResponseStruct):
    """Somebody's own response."""

    colour: Open[Colour] | None = None


@pytest.mark.parametrize("status", ["created", "action_required"])
def test_a_status_is_of_its_enum_at_run_time(status: str) -> None:
    """Known or not, a value is of the enum: msgspec takes no union of an enum with a text."""
    order, anomalies = OPERATIONS["orders.get"].decode(b'{"id":"ORD1","status":"%b"}' % status.encode())

    assert (OrderStatus, status, ()) == (type(order.status), order.status, anomalies)


def test_an_annotation_is_the_enum_at_run_time() -> None:
    """Whatever reads annotations when the program runs sees the enum alone."""
    assert OrderStatus | None == get_type_hints(Order)["status"]
    assert Colour is Open[Colour]


def test_an_enum_of_ones_own_is_open_too() -> None:
    """An operation of somebody's own has open members alike."""
    listed, new = (msgspec.json.decode(b'{"colour":"%b"}' % text, type=Car).colour for text in (b"red", b"mauve"))

    assert listed is Colour.RED
    assert isinstance(new, Enum)
    assert "mauve" == new
