"""Half an emoji, lists as objects, byte order marks, and what is beside them: nothing around them is lost."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType

from paymentsdk import (
    OPERATIONS,
    Anomaly,
    BadRequest,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    RequestInvalid,
    Response,
    RetryClass,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import order_request

# --- half an emoji ----------------------------------------------------------------------------------------------------


SEARCH = OPERATIONS["merchant_orders.search"]
MADE = {"id": "ORD01J67CQQH5904WDBVZEM4JMEP3", "external_reference": "shop-1", "total_amount": "24.90"}
ONE = Anomaly("$", r"\ud83d", "has 1 escape(s) of half a character; each read as U+FFFD")
NO_REPLACEMENT = ("paymentsdk._codec.decode.replace_lone_surrogates", lambda body: (body, []))


def client(status: int, body: bytes) -> PaymentsClient:
    """A client that gets *body*, whatever it asks for."""
    transport = MemoryTransport(lambda request: Response(status, {}, body))
    return PaymentsClient("TEST-t", base_url="http://127.0.0.1", clock=FakeClock(), transport=transport)


def page(*rows: dict[str, object]) -> bytes:
    """A page of *rows*."""
    return json.dumps({"elements": rows, "next_offset": 0, "total": len(rows)}).encode()


@pytest.mark.control(*NO_REPLACEMENT, raises=OutcomeUnknown)
async def test_an_order_that_was_made_is_an_order() -> None:
    """It is sent once, and what was read otherwise is reported."""
    body = json.dumps({**MADE, "description": "lunch \ud83d"}).encode()

    caller = client(201, body)

    result = await caller.with_result(caller.orders.create, order_request())

    assert ("lunch \ufffd", 1, (ONE,)) == (result.value.description, result.attempts, result.anomalies)


@pytest.mark.control("paymentsdk._contract.error_response.replace_lone_surrogates", lambda body: (body, []))
async def test_a_rejection_keeps_its_code_and_hides_what_it_repeats() -> None:
    """Half an emoji in its message hides neither what the platform says, nor a token that has escapes in it."""
    body = rb'{"error": "invalid_order", "message": "lunch \ud83d for \u0054EST-secret-token"}'
    transport = MemoryTransport([Response(400, {}, body)])
    async with PaymentsClient("TEST-secret-token", base_url="http://127.0.0.1", transport=transport) as caller:
        with pytest.raises(BadRequest) as caught:
            await caller.orders.create(order_request())

    assert ("invalid_order", "lunch \ufffd for ***") == (caught.value.code, caught.value.message)
    assert b"secret" not in caught.value.raw


@pytest.mark.parametrize("extra", [{}, {"total_amount": "abc"}])
@pytest.mark.control(*NO_REPLACEMENT, raises=ValueError)
def test_one_row_costs_no_other(extra: dict[str, object]) -> None:
    """Nor does it cost its own other members."""
    text = "x" * 120
    rows: list[dict[str, object]] = [{"id": number, "additional_info": text} for number in range(500)]
    rows[7] = {"id": 7, "additional_info": "lunch \ud83d", "external_reference": "A-7", **extra}

    value, anomalies = SEARCH.decode(page(*rows))

    assert [*range(500)] == [row.id for row in value.elements]
    assert ("lunch \ufffd", "A-7") == (value.elements[7].additional_info, value.elements[7].external_reference)
    assert {text} == {row.additional_info for row in value.elements if row.id != 7}
    assert (ONE, len(extra)) == (anomalies[0], len(anomalies) - 1)


#: What a text may have in it as JSON writes it: escaped backslashes before what then is no escape, pairs, and halves.
PIECES = st.lists(
    st.sampled_from([r"\\", r"\ud83d", r"\uD83D", r"\ude00", r"\uDE00", r"\n", r"\"", "u", "ud83d", r"\u00e9"])
).map("".join)


@pytest.mark.control("paymentsdk._codec.decode._LONE_SURROGATE", rb"(?!)()|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
@given(text=PIECES)
def test_pairs_and_escaped_backslashes_stay(text: str) -> None:
    """The text is the one that JSON means, with a replacement character for each half."""
    body = f'{{"elements": [{{"id": 1, "additional_info": "{text}"}}], "next_offset": 0, "total": 1}}'
    meant = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(body)["elements"][0]["additional_info"])

    assert meant == SEARCH.decode(body.encode())[0].elements[0].additional_info


@pytest.mark.parametrize("text", [r"\ud8", r"\ud83d\u12", r"\ud83", r"\ud83d\q"])
def test_what_is_no_json_stays_none(text: str) -> None:
    """Half a character does not make the rest of the body better."""
    with pytest.raises(ValueError, match="the body is not JSON"):
        SEARCH.decode(page({"id": 1, "additional_info": "?"}).replace(b"?", text.encode()))


# --- PHP and Windows --------------------------------------------------------------------------------------------------


GET = OPERATIONS["orders.get"]
ALONE, NUMBERED = "an object stands for a list of one", "an object with numbered members stands for its list"


def payments(listed: object) -> tuple[list[str | None], list[str]]:
    """Decode an order with such payments; return their ids, and what was reported."""
    value, anomalies = GET.decode(json.dumps({"id": "ORD1", "transactions": {"payments": listed}}).encode())
    return [payment.id or None for payment in value.transactions.payments], [anomaly.reason for anomaly in anomalies][
        :1
    ]


@pytest.mark.parametrize(("listed", "ids", "reasons"), [
    ({"0": {"id": "A"}, "1": {"id": "B"}}, ["A", "B"], [NUMBERED]),
    ({"10": {"id": "C"}, "2": {"id": "B"}, "0": {"id": "A"}}, ["A", "B", "C"], [NUMBERED]),
    ({"id": "A"}, ["A"], [ALONE]),
    ({"0": {"id": "A"}, "id": "B"}, ["B"], [ALONE]),
    ({"٣": {"id": "A"}}, [None], [ALONE]),
    ({"1" * 5000: {"id": "A"}}, [None], [ALONE]),
])  # fmt: skip
def test_an_object_of_numbered_objects_is_a_list(listed: object, ids: list[str | None], reasons: list[str]) -> None:
    """PHP writes a list with gaps so: all entries are read, in the order of their numbers, with one anomaly."""
    assert (ids, reasons) == payments(listed)


async def test_a_rejection_may_number_its_errors() -> None:
    """The code is found, and so is each further entry."""
    errors = {"0": {"code": "invalid_properties", "message": "no"}, "2": {"code": "property_value"}}
    async with client(400, json.dumps({"errors": errors}).encode()) as caller:
        with pytest.raises(BadRequest) as rejected:
            await caller.orders.get("ORD1")

    assert ("invalid_properties", ("invalid_properties", "property_value")) == (
        rejected.value.code,
        rejected.value.codes,
    )


@pytest.mark.control("paymentsdk._codec.decode.BOM_UTF8", b"", raises=ValueError)
@pytest.mark.parametrize("listed", [[{"id": "A"}], {"id": "A"}])
def test_a_byte_order_mark_is_skipped(listed: object) -> None:
    """With it, a response is what it is without it: the same value, and the same anomalies."""
    body = json.dumps({**MADE, "transactions": {"payments": listed}}).encode()

    assert GET.decode(body) == GET.decode(BOM_UTF8 + body)


async def test_a_rejection_after_a_byte_order_mark_keeps_its_code() -> None:
    """Else each rejection would be without a code, and settle nothing."""
    async with client(400, BOM_UTF8 + b'{"errors":[{"code":"property_value","message":"no"}]}') as caller:
        with pytest.raises(BadRequest) as rejected:
            await caller.orders.create(order_request())

    assert ("property_value", "no") == (rejected.value.code, rejected.value.message)


# --- neighbors --------------------------------------------------------------------------------------------------------


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


def test_a_body_that_rejects_itself_is_no_response() -> None:
    """Nothing in it can be trusted."""
    get: Operation[None, Checked] = Operation(name="x", method="GET", path="/x", retry=RetryClass.READ, result=Checked)

    with pytest.raises(ValueError, match="the body is rejected: place: is below zero"):
        get.decode(b'{"report": "b", "place": -1}')
