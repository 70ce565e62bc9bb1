"""What goes out in a body, checked before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from math import inf, nan
from typing import Annotated, Generic, NewType, TypedDict, TypeVar
from uuid import UUID

import pytest
from msgspec import Meta, Struct

from paymentsdk import OPERATIONS, RequestInvalid, Response, StaticToken
from paymentsdk.resources.common import Amount, Moment, PositiveAmount, RequestStruct, require
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from tests.engine.declared import declared


class Line(RequestStruct):
    """A part of a body, with every kind of member that has a form of its own on the wire."""

    title: Annotated[str, Meta(max_length=5)] | None = None
    note: str | None = None
    price: Amount | None = None
    share: PositiveAmount | None = None
    at: Moment | None = None
    free: dict[str, object] | None = None

    def __post_init__(self) -> None:
        require(self.title != "bad", "$.title", "is bad")


class Plain(RequestStruct):
    """A part with nothing that has a form of its own on the wire."""

    name: str | None = None


class Weight(Struct):
    """A Struct of the caller's own, for free-form data."""

    share: float
    unit: str = "kg"


class Body(RequestStruct):
    """A body, with parts of its own kind."""

    lines: list[Line] | None = None
    line: Line | None = None
    plain: Plain | None = None
    fees: Annotated[list[Decimal], Meta(extra={"note": "of no weight"})] | None = None
    count: Annotated[int, Meta(ge=1, le=9)] | None = None
    note: str | None = None
    code: Annotated[str, Meta(pattern=r"\A[a-z]+\Z", min_length=2)] | None = None


NUMBERS = declared(body=Body).encoder
STRINGS = declared(body=Body, decimal_strings=True).encoder
NOON = datetime(2026, 1, 31, 12, 30, 0, 123_456, tzinfo=UTC)


def deep(levels: int) -> dict[str, object]:
    """Free-form data of so many levels."""
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


class Price(Decimal):
    """A Decimal of somebody else's."""


# --- the form on the wire ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "number", "string"),
    [
        (Decimal("24.9"), b"24.90", b'"24.90"'),
        (24, b"24", b'"24"'),
        (Decimal("0.01"), b"0.01", b'"0.01"'),
        (Decimal("999999999999999999.99"), b"999999999999999999.99", b'"999999999999999999.99"'),
        (Price("24.9"), b"24.90", b'"24.90"'),
    ],
)
def test_amounts_are_exact(amount: object, number: bytes, string: bytes) -> None:
    """An amount goes out with two decimals or none, in fixed notation, as a number or a string, wherever it stands."""
    body = Body(lines=[Line(price=amount)], line=Line(share=amount), fees=[amount])
    wire = b'{"lines":[{"price":%b}],"line":{"share":%b},"fees":[%b]}'

    assert wire % ((number,) * 3) == NUMBERS.encode(body)
    assert wire % ((string,) * 3) == STRINGS.encode(body)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON, "2026-01-31T12:30:00.123Z"),
        (NOON.astimezone(timezone(timedelta(hours=-3))), "2026-01-31T09:30:00.123-03:00"),
        (NOON.astimezone(timezone(timedelta(0), "GMT")), "2026-01-31T12:30:00.123+00:00"),
    ],
)
def test_moments_have_milliseconds_and_an_offset(moment: datetime, text: str) -> None:
    """A moment goes out with three digits of a second and its offset, wherever it stands."""
    query = OPERATIONS["merchant_orders.search"].query_encoder

    assert [{"at": text}] == json.loads(NUMBERS.encode(Body(lines=[Line(at=moment)])))["lines"]
    assert "date_created_from=" + text.replace(":", "%3A").replace("+", "%2B") == query.encode(
        {"date_created_from": moment}
    )


def test_a_hidden_credential_is_sent_in_the_clear() -> None:
    """A credential that does not show itself to people still goes to the platform."""
    hidden = StaticToken("abc").token(0.0)

    assert "'***'" == repr(hidden)
    assert b'{"line":{"title":"abc"}}' == NUMBERS.encode(Body(line=Line(title=hidden)))


class Code(Enum):
    """A code of a program's own."""

    LATIN = "abc"


class Text(str):
    """A string of another library, such as one of an array."""

    __slots__ = ()


@dataclass
class Named:
    """A part as a program of its own has it."""

    name: str


@pytest.mark.parametrize(
    "body",
    [
        Body(code=Code.LATIN),
        Body(code=Text("abc"), line=Line(title=Text("abc"), free={"a": Text("abc")})),
        Body(lines=(Line(title="abc"), Line(at=NOON))),
        Body(plain={"name": "abc"}),
        Body(plain=Named("abc"), line=Line(free=Named("abc"))),
        Body(line=Line(price=Decimal("24.9"), free={1: "b", "list": (1, 2.5, None), "id": UUID(int=0)})),
    ],
)
def test_what_means_the_same_goes_out(body: Body) -> None:
    """An Enum for its text, a string of another class, a tuple for a list, a dict or a dataclass for a part."""
    assert isinstance(NUMBERS.decode(NUMBERS.encode(body)), Body)


# --- what is rejected ------------------------------------------------------------------------------------------

REFUSED = {
    "an amount is a Decimal, not float": ("$.lines[1].price", Body(lines=[Line(), Line(price=24.9)])),
    "an amount has two decimals or none": ("$.line.price", Body(line=Line(price=Decimal("24.905")))),
    "an amount is written without an exponent": ("$.line.price", Body(line=Line(price=Decimal("1E+2")))),
    "an amount is finite, not -Infinity": ("$.fees[1]", Body(fees=[Decimal(1), Decimal("-Infinity")])),
    "an amount is finite, not sNaN": ("$.line.share", Body(line=Line(share=Decimal("sNaN")))),
    "an amount has at most 18 digits": ("$.line.price", Body(line=Line(price=Decimal(10) ** 18))),
    "must not be negative": ("$.line.price", Body(line=Line(price=Decimal("-0.01")))),
    "must be above 0": ("$.line.share", Body(line=Line(share=Decimal("0.00")))),
    "a datetime needs a time zone": ("$.lines[0].at", Body(lines=[Line(at=datetime(2026, 1, 31))])),  # noqa: DTZ001
    "expected a datetime, got str": ("$.line.at", Body(line=Line(at="2026-01-31"))),
    "Expected `object \\| null`, got `str`": ("$.line", Body(line="abc")),
    "Expected `array | null`": ("$.lines", Body(lines="abc")),
    "Expected `int | null`": ("$.count", Body(count="3")),
    "Expected `int` >= 1": ("$.count", Body(count=0)),
    "Expected `str` of length <= 5": ("$.lines[0].title", Body(lines=[Line(title="abcdef")])),
    "Expected `str` of length >= 2": ("$.code", Body(code="a")),
    "Expected `str` matching regex": ("$.code", Body(code="ab\n")),
    "Expected `str \\| null`, got `bytes`": ("$.note", Body(note=b"abc")),
    "Expected `str \\| null`, got `decimal`": ("$.note", Body(note=Decimal(24))),
    "nan is not a JSON number": ("$.line.free.a[1]", Body(line=Line(free={"a": [1, nan]}))),
    "-inf is not a JSON number": ("$.line.free.1", Body(line=Line(free={1: -inf}))),
    "nan is not a JSON number ": ("$.line.free.a.share", Body(line=Line(free={"a": Weight(nan)}))),
    "sNaN is not a JSON number": ("$.line.free.a", Body(line=Line(free={"a": Decimal("sNaN")}))),
    "no JSON form for object": ("$", Body(line=Line(free={"a": object()}))),
    "surrogates not allowed": ("$", Body(line=Line(free={"a": "\ud800"}))),
    "is nested more than 64 levels deep": ("$", Body(line=Line(free=deep(62)))),
    "nested more than 64 levels": ("$", Body(line=Line(free=deep(100_000)))),
    "expected Body, got dict": ("$", {"count": 3}),
    "expected Body, got NoneType": ("$", None),
}


T = TypeVar("T")


class Holder(RequestStruct, Generic[T]):
    """A body of somebody else's operation that holds what it is told, in tuples as responses do."""

    one: T | None = None
    parts: tuple[T, ...] | None = None


HOLDER = declared(body=Holder[Line]).encoder


@pytest.mark.control("paymentsdk.money.exact", Decimal, raises=AssertionError)
def test_a_body_may_be_generic_and_have_tuples() -> None:
    """What stands in it is written as in any other."""
    line = Line(price=Decimal("1.5"), at=NOON)
    text = b'{"price":1.50,"at":"2026-01-31T12:30:00.123Z"}'

    assert b'{"one":%b,"parts":[%b]}' % (text, text) == HOLDER.encode(Holder(one=line, parts=(line,)))


Fee = NewType("Fee", Decimal)


class Named(TypedDict):
    """What is a dict on the wire, and no Struct."""

    fee: Decimal


@pytest.mark.control("paymentsdk.money.exact", Decimal, raises=pytest.fail.Exception)
@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (dict[str, Decimal], {"a": Decimal("1.555")}, "$.one.a"),
        (dict[str, Line], {"a": Line(price=Decimal("1.555"))}, "$.one.a.price"),
        (set[Fee], {Decimal("1.555")}, "$.one[0]"),
        (Named, {"fee": Decimal("1.555")}, "$.one.fee"),
        (Decimal | int, Decimal("1.555"), "$.one"),
        (Fee, Decimal("1.555"), "$.one"),
        (Sequence[Line], [Line(price=Decimal("1.555"))], "$.one[0].price"),
        (list[Fee], {Decimal("1.555")}, "$.one[0]"),
    ],
    ids=str,
)
def test_amounts_are_checked_wherever_they_are(kind: object, value: object, path: str) -> None:
    """An amount is checked below a dict, a set, a Sequence, a TypedDict, a NewType and in a union, too."""
    with pytest.raises(RequestInvalid, match="two decimals") as rejected:
        declared(body=Holder[kind]).encoder.encode(Holder(one=value))

    assert path == rejected.value.path


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [(float, nan, "$.one"), (tuple[str, float], ("a", nan), "$.one[1]"), (Weight, Weight(nan), "$.one.share")],
    ids=str,
)
def test_a_number_that_is_not_finite_is_rejected(kind: object, value: object, path: str) -> None:
    """JSON has no such number: sent as null, a member would have another value."""
    with pytest.raises(RequestInvalid, match="is not a JSON number") as rejected:
        declared(body=Holder[kind]).encoder.encode(Holder(one=value))

    assert path == rejected.value.path


@pytest.mark.parametrize("reason", REFUSED)
def test_a_body_that_breaks_a_rule(reason: str) -> None:
    """What breaks a rule is rejected before anything is sent, and the error names the place and the rule."""
    path, body = REFUSED[reason]

    with pytest.raises(RequestInvalid, match=f"(?i){reason.strip()}") as rejected:
        STRINGS.encode(body)

    assert path == rejected.value.path


@pytest.mark.control("msgspec.convert", lambda data, kind, **options: data)
@pytest.mark.parametrize(
    ("member", "value", "path"),
    [
        ("external_reference", "a" * 65, "$.external_reference"),
        ("external_reference", "ab\n", "$.external_reference"),
        ("description", "a" * 151, "$.description"),
        ("type", "static", "$.type"),
        ("external_reference", None, "$.external_reference"),
    ],
)
async def test_the_twin_check_finds_every_constraint(
    make_client, transport, monkeypatch, *, member: str, value: object, path: str
) -> None:
    """A body is read again with its own type before it is sent: constraints that making it does not check are found."""
    operation = OPERATIONS["orders.create"]
    # Set first: where there was none yet, `delitem` alone would leave the encoder of this test to all others.
    monkeypatch.setitem(vars(operation), "encoder", None)
    del vars(operation)["encoder"]
    payments = TransactionsRequest(payments=[PaymentRequest(amount=Decimal(5))])
    good = {"external_reference": "a", "total_amount": Decimal(5), "transactions": payments}
    transport.replies(Response(201, {}, b'{"id":"ORD1"}'))

    with pytest.raises(RequestInvalid) as rejected:
        await make_client(transport=transport).orders.create(OrderRequest(**{**good, member: value}))

    assert path == rejected.value.path
    assert [] == transport.requests


# --- bodies that come in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a":' * 100_000, b'{"free": 1e5x}'])
def test_what_is_not_json(body: bytes) -> None:
    """What is not JSON is a ValueError of another kind: there is no place to name."""
    with pytest.raises(ValueError, match=r".") as failed:
        STRINGS.decode(body)

    assert not isinstance(failed.value, RequestInvalid)


# --- bodies that do not go with their operation -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "body", "reason"),
    [
        ("orders.create", None, "orders.create needs a body"),
        ("oauth.token", {"grant_type": "refresh_token"}, "expected TokenRequest, got dict"),
        ("release_reports.disable_schedule", Body(), "release_reports.disable_schedule takes no body"),
    ],
)
async def test_a_body_that_does_not_go_with_its_operation(client, operation: str, body: object, reason: str) -> None:
    """A body is rejected where none goes, and missed where one has to."""
    with pytest.raises(RequestInvalid, match=reason) as rejected:
        await client.call(OPERATIONS[operation], body)

    assert "$" == rejected.value.path
    assert ("type" if "expected" in reason else "value") == rejected.value.rule


@pytest.mark.parametrize("kind", [tuple[str, Decimal], tuple[Line, str]], ids=str)
def test_a_tuple_with_amounts_is_rejected(kind: object) -> None:
    """Nothing checks the amounts of a tuple of several types, so no operation can be declared with one."""
    with pytest.raises(RequestInvalid, match="must not be in tuples"):
        declared(body=Holder[kind]).encoder.encode(Holder())
