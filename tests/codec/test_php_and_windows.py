"""What PHP and Windows make of JSON: lists with gaps as objects, and a byte order mark before the first brace."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from decimal import Decimal
from pathlib import Path

import pytest

from paymentsdk import OPERATIONS, BadRequest, PaymentsClient, Response, RetryClass
from paymentsdk._codec.anomaly import DecodingError
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.declared import declared

GET, SEARCH = OPERATIONS["orders.get"], OPERATIONS["merchant_orders.search"]
REQUEST = OrderRequest(
    external_reference="A-1",
    total_amount=Decimal("5.00"),
    transactions=TransactionsRequest(payments=[PaymentRequest(amount=Decimal("5.00"))]),
)
MADE = {"id": "ORD1", "external_reference": "A-1", "total_amount": "5.00"}
ONE, NUMBERED = "an object stands for a list of one", "an object with numbered members stands for its list"


def client(*responses: Response, **settings: object) -> PaymentsClient:
    """A client that gets *responses*, one after the other."""
    transport = MemoryTransport(list(responses))
    return PaymentsClient(
        "APP_USR-1-0-0-7", base_url="http://127.0.0.1", clock=FakeClock(), transport=transport, **settings
    )


# --- lists as objects -------------------------------------------------------------------------------------------------


def payments(listed: object) -> tuple[list[str | None], list[str]]:
    """Decode an order with such payments; return their ids, and what was reported."""
    value, anomalies = GET.decode(json.dumps({"id": "ORD1", "transactions": {"payments": listed}}).encode())
    return [payment.id or None for payment in value.transactions.payments], [anomaly.reason for anomaly in anomalies][
        :1
    ]


@pytest.mark.parametrize(
    ("listed", "ids", "reasons"),
    [
        ({"0": {"id": "A"}, "1": {"id": "B"}}, ["A", "B"], [NUMBERED]),
        ({"10": {"id": "C"}, "2": {"id": "B"}, "0": {"id": "A"}}, ["A", "B", "C"], [NUMBERED]),
        ({"3": {"id": "A"}}, ["A"], [NUMBERED]),
        ({"id": "A"}, ["A"], [ONE]),
        ({"0": {"id": "A"}, "id": "B"}, ["B"], [ONE]),
        ({"0": "A", "1": "B"}, [None], [ONE]),
        ({"٣": {"id": "A"}}, [None], [ONE]),
        ({"-1": {"id": "A"}}, [None], [ONE]),
        ({"1" * 5000: {"id": "A"}}, [None], [ONE]),
    ],
)
def test_an_object_of_numbered_objects_is_a_list(listed: object, ids: list[str | None], reasons: list[str]) -> None:
    """PHP writes a list with gaps so: all entries are read, in the order of their numbers, with one anomaly."""
    assert (ids, reasons) == payments(listed)


@pytest.mark.control("paymentsdk._codec.repair._numbered", lambda raw: [])
def test_rows_of_a_page_may_be_numbered() -> None:
    """A page whose rows were filtered is such an object."""
    rows = {str(number): {"id": number} for number in range(0, 6000, 2)}
    body = json.dumps({"elements": rows, "next_offset": 3000, "total": 3000}).encode()

    value, anomalies = SEARCH.decode(body)

    assert list(range(0, 6000, 2)) == [row.id for row in value.elements]
    assert [("$.elements", NUMBERED)] == [(anomaly.path, anomaly.reason) for anomaly in anomalies]


def test_what_is_wrong_in_an_entry_has_its_place() -> None:
    """An entry is repaired as in any list; its place is that in the list."""
    listed = {"5": {"id": "A", "amount": "abc"}, "7": {"id": "B", "amount": "1.00"}}
    body = json.dumps({"id": "ORD1", "transactions": {"payments": listed}}).encode()
    value, anomalies = GET.decode(body)

    assert [None, Decimal("1.00")] == [payment.amount for payment in value.transactions.payments]
    assert ["$.transactions.payments", "$.transactions.payments[0].amount"] == [anomaly.path for anomaly in anomalies]


def test_free_form_data_stays_as_it_is() -> None:
    """Nobody declares what is in `metadata`."""
    body = json.dumps({"id": "5-1", "items": {"0": {"title": "Tea"}}, "metadata": {"0": {"a": 1}}}).encode()
    value, _ = OPERATIONS["preferences.create"].decode(body)

    assert {"0": {"a": 1}} == value.metadata
    assert ["Tea"] == [item.title for item in value.items]


async def test_a_rejection_may_number_its_errors() -> None:
    """The code is found, and so is each further entry."""
    errors = {"0": {"code": "invalid_properties", "message": "no"}, "2": {"code": "property_value"}}
    async with client(Response(400, {}, json.dumps({"errors": errors}).encode())) as caller:
        with pytest.raises(BadRequest) as rejected:
            await caller.orders.get("ORD1")

    assert ("invalid_properties", ("invalid_properties", "property_value")) == (
        rejected.value.code,
        rejected.value.codes,
    )


# --- byte order marks -------------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._codec.decode.BOM_UTF8", b"", raises=DecodingError)
@pytest.mark.parametrize("listed", [[{"id": "A"}], {"id": "A"}])
def test_a_byte_order_mark_is_skipped(listed: object) -> None:
    """With it, a response is what it is without it: the same value, and the same anomalies."""
    body = json.dumps({**MADE, "transactions": {"payments": listed}}).encode()

    assert GET.decode(body) == GET.decode(BOM_UTF8 + body)


@pytest.mark.parametrize("rows", [1, 30_000])
def test_a_byte_order_mark_before_a_page_is_skipped(rows: int) -> None:
    """However large the page is."""
    body = json.dumps(
        {"elements": [{"id": number, "status": "closed"} for number in range(rows)], "total": rows}
    ).encode()

    plain, marked = SEARCH.decode(body), SEARCH.decode(BOM_UTF8 + body)

    assert plain == marked


def test_a_body_of_a_byte_order_mark_alone_is_empty() -> None:
    """An operation whose response may be empty has succeeded."""
    operation = OPERATIONS["release_reports.disable_schedule"]

    assert operation.decode(b"")[0] == operation.decode(BOM_UTF8)[0]


def test_bytes_keep_their_byte_order_mark() -> None:
    """A response that is no JSON, such as a report in CSV, is what it is."""
    report = declared(method="GET", retry=RetryClass.READ, result=bytes)

    assert (BOM_UTF8 + b"a;b", ()) == report.decode(BOM_UTF8 + b"a;b")


def test_a_list_of_ones_own_may_follow_a_byte_order_mark() -> None:
    """So may a response that is no object."""
    listed = declared(method="GET", retry=RetryClass.READ, result=list[int])

    assert ([1, 2], ()) == listed.decode(BOM_UTF8 + b"[1,2]")


async def test_a_rejection_after_a_byte_order_mark_keeps_its_code() -> None:
    """Else each rejection would be without a code, and settle nothing."""
    async with client(Response(400, {}, BOM_UTF8 + b'{"errors":[{"code":"property_value","message":"no"}]}')) as caller:
        with pytest.raises(BadRequest) as rejected:
            await caller.orders.create(REQUEST)

    assert ("property_value", "no") == (rejected.value.code, rejected.value.message)


async def test_a_named_write_is_read_from_its_kept_response(tmp_path: Path) -> None:
    """The journal keeps the bytes as they came; the name returns the order each time."""
    created = Response(201, {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, BOM_UTF8 + json.dumps(MADE).encode())
    page = Response(200, dict(created.headers), b'{"paging":{"total":0},"results":[]}')
    replies = {"POST": created, "GET": page}
    transport = MemoryTransport(lambda request: replies[request.method])
    async with PaymentsClient(
        "APP_USR-1-0-0-7",
        base_url="http://127.0.0.1",
        clock=FakeClock(),
        transport=transport,
        journal=SQLiteJournal(tmp_path / "journal.db"),
    ) as caller:
        orders = [await caller.orders.create(REQUEST, once="table-7/1") for _ in range(2)]

    assert ["ORD1", "ORD1"] == [order.id for order in orders]
    assert 1 == [request.method for request in transport.requests].count("POST")
