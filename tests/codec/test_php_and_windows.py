"""What PHP and Windows make of JSON: lists with gaps as objects, and a byte order mark before the first brace."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from decimal import Decimal

import pytest

from paymentsdk import OPERATIONS, BadRequest, PaymentsClient, Response
from paymentsdk._codec.anomaly import DecodingError
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.testing import FakeClock, MemoryTransport

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
        ({"id": "A"}, ["A"], [ONE]),
        ({"0": {"id": "A"}, "id": "B"}, ["B"], [ONE]),
        ({"٣": {"id": "A"}}, [None], [ONE]),
        ({"1" * 5000: {"id": "A"}}, [None], [ONE]),
    ],
)
def test_an_object_of_numbered_objects_is_a_list(listed: object, ids: list[str | None], reasons: list[str]) -> None:
    """PHP writes a list with gaps so: all entries are read, in the order of their numbers, with one anomaly."""
    assert (ids, reasons) == payments(listed)


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


async def test_a_rejection_after_a_byte_order_mark_keeps_its_code() -> None:
    """Else each rejection would be without a code, and settle nothing."""
    async with client(Response(400, {}, BOM_UTF8 + b'{"errors":[{"code":"property_value","message":"no"}]}')) as caller:
        with pytest.raises(BadRequest) as rejected:
            await caller.orders.create(REQUEST)

    assert ("property_value", "no") == (rejected.value.code, rejected.value.message)
