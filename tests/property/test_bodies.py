"""Laws of request bodies: the short way of encoding one is the long way, or it is not taken."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Literal
from uuid import UUID

import pytest
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from paymentsdk import RequestInvalid
from paymentsdk.resources.common import Amount, Moment, PositiveAmount, RequestStruct, require
from tests.engine.declared import declared


class Mode(StrEnum):
    """As a caller may give the text of a literal."""

    ON = "on"
    OTHER = "other"


class Number(int):
    """An integer, and more."""


class Text(str):
    """A string, and more."""

    __slots__ = ()


class Odd(Enum):
    """No text at all."""

    ON = "on"


class Line(RequestStruct, forbid_unknown_fields=True):
    """A part with a rule across its members."""

    price: Amount
    count: Annotated[int, Meta(ge=1, lt=100)] = 1
    flag: bool | None = None

    def __post_init__(self) -> None:
        require(self.count != 13, "$.count", "is unlucky")


class LongLine(Line):
    """A line, and more: the platform would not read the rest."""

    more: str = "more"


class Body(RequestStruct):
    """Every kind of member that a body has."""

    lines: Annotated[list[Line], Meta(min_length=1, max_length=2)]
    total: PositiveAmount
    name: Annotated[str, Meta(min_length=1, max_length=4, pattern=r"\A[a-z]*\Z")] = "a"
    note: str | None = None
    mode: Literal["on", "off"] | None = None
    line: Line | None = None
    free: dict[str, object] | None = None
    at: Moment | None = None
    either: int | str | None = None
    number: int = 0
    type: Literal["qr"] = field(default_factory=lambda: "qr")


class Stranger(Struct):
    """A Struct with the members of a line."""

    price: Decimal = Decimal(1)
    count: int = 1
    flag: bool | None = None

    def __post_init__(self) -> None:
        """Have no rules."""


@dataclass
class Cell:
    """No Struct."""

    price: Decimal = Decimal(1)


GOOD, LONG = Line(price=Decimal(1)), LongLine(price=Decimal(1), more="x")
#: What callers put into bodies, by mistake or not.
VALUES = [
    *(Decimal(text) for text in ("12.34", "5", "0", "-1.00", "1.5", "1E+2", "sNaN", "Infinity", "1.005")),
    *(Decimal(10**18), Decimal("-0.00"), 1.5, "1.00", float("nan")),
    *(1, 99, 0, 100, 13, -(2**63) - 1, 2**64, True, Number(5), Number(100)),
    *("", "abcd", "abcde", "A", "ab\n", "\ud800", b"a", Text("a"), Mode.ON, Mode.OTHER, Odd.ON),
    *("on", "other", "qr", Text("on"), b"on", UUID(int=5), None),
    *(datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 1, 31)),  # noqa: DTZ001
    *([], {}, (), [GOOD], (GOOD,), frozenset([GOOD]), [GOOD] * 3, [None], {"a": 1}, {"a": float("nan")}, {1: 2}),
    *(GOOD, LONG, [LONG], Stranger(), [Stranger()], Cell(), [Cell()], {"price": "1.00"}, [{"price": "1.00"}], ["on"]),
]


def bodies() -> Iterator[Body]:
    """Yield bodies that are right but for one member, or one of a line."""
    right = {"lines": [GOOD], "total": Decimal(5)}
    yield Body(**right)
    for value in VALUES:
        for name in Body.__struct_fields__:
            yield Body(**right | {name: value})
        for name in Line.__struct_fields__:
            line = copy.copy(GOOD)
            force_setattr(line, name, value)  # As a list in it can be changed after it was made.
            yield Body(**right | {"lines": [line]})


@pytest.mark.control("paymentsdk._codec.body._lengths", lambda info, value: iter(()))
def test_a_plain_body_is_what_its_bytes_are_read_as() -> None:
    """Whether a body goes the short way or the long way, the same bytes go out, or the same error is raised."""

    def outcome(encoder: object, body: Body) -> object:
        try:
            return encoder.encode(body)
        except RequestInvalid as error:
            return error.path, error.reason

    for decimal_strings in (True, False):
        short, long = (declared(body=Body, decimal_strings=decimal_strings).encoder for _ in range(2))
        long._not_plain = lambda body: "*"
        assert [] == [body for body in bodies() if outcome(long, body) != outcome(short, body)]
