"""Structs of somebody else's: with tags, with `UNSET`, with fewer fields, and the days and moments of requests."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from paymentsdk import OPERATIONS, Echo, Operation, Pager, PaymentsClient, RequestInvalid, Response, RetryClass
from paymentsdk.resources.common import Moment, PositiveAmount, RequestDay, RequestStruct, ResponseStruct
from paymentsdk.testing import MemoryTransport

# --- tags -------------------------------------------------------------------------------------------------------------


class Card(ResponseStruct, tag="card"):
    """A way to pay, with an amount."""

    id: str
    amount: Decimal | None = None
    sale: str | None = None


class Cash(ResponseStruct, tag="cash"):
    """Another, with other members."""

    id: str
    till: str | None = None


class Sale(ResponseStruct):
    """Something paid for."""

    id: str
    paid: Card | Cash | None = None
    parts: list[Card | Cash] | None = None
    card: Card | None = None
    mixed: Card | Cash | str | None = None


def operation(result: type[ResponseStruct], *echoes: Echo) -> Operation[None, ResponseStruct]:
    """A write whose response is a *result*."""
    path = "/sales/{sale}"
    return Operation(name="sales.pay", method="POST", path=path, retry=RetryClass.KEYED, result=result, echoes=echoes)


SALE = operation(Sale)
CASH, CARD = Cash(id="C1", till="7"), Card(id="D1", amount=Decimal("1.50"))
AS_JSON = {CASH: '{"type": "cash", "id": "C1", "till": "7"}', CARD: '{"type": "card", "id": "D1", "amount": 1.50}'}


@pytest.mark.parametrize("sale_id", ['"S1"', "1"], ids=["exact", "repaired"])
@pytest.mark.parametrize("payment", [CASH, CARD], ids=["cash", "card"])
def test_a_tag_says_what_is_read(payment: Card | Cash, sale_id: str) -> None:
    """It is never read as another Struct of its union, whether something beside it has to be repaired or not."""
    body = f'{{"id": {sale_id}, "paid": {AS_JSON[payment]}, "parts": [{", ".join(AS_JSON.values())}]}}'

    value, anomalies = SALE.decode(body.encode())

    assert Sale(id=sale_id.strip('"'), paid=payment, parts=[CASH, CARD]) == value
    assert [] == [anomaly.path for anomaly in anomalies if anomaly.path != "$.id"]


@pytest.mark.parametrize("member", ["paid", "mixed"])
@pytest.mark.parametrize("payment", ['"type": "cash", "id": 1', '"type": "card", "id": "1", "amount": "NaN"'])
def test_one_of_several_that_is_malformed_is_dropped(member: str, payment: str) -> None:
    """Nothing of it is guessed at; an amount that cannot be used is malformed as well."""
    value, anomalies = SALE.decode(f'{{"id": "S1", "{member}": {{{payment}}}}}'.encode())

    assert Sale(id="S1") == value
    assert [(f"$.{member}", True)] == [(anomaly.path, anomaly.dropped) for anomaly in anomalies]


@pytest.mark.parametrize("tag", ['"type": "wallet", ', "", '"type": ["cash"], ', '"type": null, '])
def test_what_no_tag_is_known_of_is_dropped(tag: str) -> None:
    """Nobody can say what it is; the rest of the response is read."""
    value, anomalies = SALE.decode(f'{{"id": "S1", "paid": {{{tag}"id": "C1"}}, "parts": [{AS_JSON[CASH]}]}}'.encode())

    assert Sale(id="S1", parts=[CASH]) == value
    assert [("$.paid", True)] == [(anomaly.path, anomaly.dropped) for anomaly in anomalies]


class CashRequest(RequestStruct, tag="cash"):
    """One without."""

    till: str


class VoucherRequest(RequestStruct, tag="voucher"):
    """Another."""

    code: Annotated[str, Meta(max_length=5)]


class SaleRequest(RequestStruct):
    """Something to pay for."""

    paid: VoucherRequest | CashRequest | str
    parts: list[VoucherRequest | CashRequest] | None = None


PAY = Operation(name="sales.pay", method="POST", path="/sales", retry=RetryClass.UNKEYED, body=SaleRequest, result=Sale)


@pytest.mark.parametrize(
    ("payment", "sent"),
    [
        (VoucherRequest(code="TEN"), b'{"type":"voucher","code":"TEN"}'),
        (CashRequest(till="7"), b'{"type":"cash","till":"7"}'),
        ("by hand", b'"by hand"'),
    ],
    ids=str,
)
def test_a_request_may_have_any_of_several(payment: Any, sent: bytes) -> None:
    """Each is checked as what its tag says."""
    parts = [CashRequest(till="7"), VoucherRequest(code="TEN")]

    encoded = PAY.encoder.encode(SaleRequest(paid=payment, parts=parts))

    assert b'{"paid":' + sent + b',"parts":[{"type":"cash","till":"7"},{"type":"voucher","code":"TEN"}]}' == encoded
    with pytest.raises(RequestInvalid, match="length <= 5") as rejected:
        PAY.encoder.encode(SaleRequest(paid=payment, parts=[*parts, VoucherRequest(code="TWELVE")]))
    assert "$.parts[2].code" == rejected.value.path


# --- unset ------------------------------------------------------------------------------------------------------------


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
    name="plans.change", method="PATCH", path="/plans", retry=RetryClass.KEYED, body=Change, result=Plan
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


# --- fewer fields -----------------------------------------------------------------------------------------------------


class Sum(Struct, frozen=True):
    """The few fields that somebody needs."""

    id: int
    total_amount: Decimal


class Sums(Struct, frozen=True):
    """A page of them."""

    elements: tuple[Sum, ...] | None
    total: int
    next_offset: int


BODY = b'{"elements": [{"id": 1, "total_amount": 24.90, "payments": [{"id": 7}]}], "total": 1, "next_offset": 0}'


async def test_an_operation_returns_a_struct_of_ones_own() -> None:
    """A walk gives rows of that Struct, exact as ever; the operation itself is as it was."""
    search = OPERATIONS["merchant_orders.search"]
    async with PaymentsClient(
        "token", base_url="https://x", transport=MemoryTransport([Response(200, {}, BODY)])
    ) as client:
        rows = await Pager(client, search.returning(Sums)).collect()

    assert [Sum(1, Decimal("24.90"))] == rows
    assert search.result is not Sums
    assert search.page is search.returning(Sums).page


class Strict(Struct, forbid_unknown_fields=True):
    """What takes no field that it does not have."""

    id: int


async def test_an_operation_whose_response_forbids_unknown_fields_sends_nothing() -> None:
    """Also where the operation is somebody's own."""
    pay = Operation(name="pay", method="POST", path="/pay", retry=RetryClass.UNKEYED, result=Strict)
    transport = MemoryTransport([Response(200, {}, b'{"id": 1}')])

    async with PaymentsClient("token", base_url="https://x", transport=transport) as client:
        with pytest.raises(RequestInvalid, match="Strict forbids unknown fields"):
            await client.call(pay)

    assert not transport.requests


# --- days and moments -------------------------------------------------------------------------------------------------


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EMPTY = Response(200, {}, b'{"elements":[],"next_offset":0,"total":0}')


async def sent(moment: datetime) -> str:
    """Return what goes out as *moment*."""
    transport = MemoryTransport(lambda request: EMPTY)
    client = PaymentsClient("token", base_url="http://127.0.0.1", transport=transport)
    await client.merchant_orders.search(last_updated_from=moment).first()
    [request] = transport.requests
    return parse_qs(urlsplit(request.url).query)["last_updated_from"][0]


@settings(max_examples=30)
@given(seconds=st.integers(-86_399, 86_399))
async def test_an_offset_has_hours_and_minutes(seconds: int) -> None:
    """Whatever zone a moment is in, it goes out as the same moment, with an offset of whole minutes."""
    moment = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(seconds=seconds)))

    text = await sent(moment)

    assert moment == datetime.fromisoformat(text)
    assert text.endswith("Z") or len("2026-01-31T12:00:00.000+00:00") == len(text)


class Text(str):
    """A string of somebody else's, such as that of an array."""

    __slots__ = ()


class Visit(RequestStruct, rename="camel"):
    """A request with a day, as a Struct of somebody else's has it."""

    on_day: RequestDay
    days: list[RequestDay] | None = None


VISIT = Operation(name="visits.create", method="POST", path="/x", retry=RetryClass.KEYED, body=Visit, result=Visit)


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (date(2026, 1, 31), "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"),
        (Text("2026-01-31"), "2026-01-31"),
        (Text("2026-01-31T12:00:00Z"), "2026-01-31T12:00:00.000Z"),
    ],
)
def test_a_day_of_a_request_is_a_date_or_a_moment(day: object, text: str) -> None:
    """No class has to read it by itself, and what was read from what was sent, as by a recovery, goes out once more."""
    body = VISIT.encoder.encode(Visit(on_day=day, days=[day]))

    assert f'{{"onDay":"{text}","days":["{text}"]}}'.encode() == body
    assert body == VISIT.encoder.encode(VISIT.encoder.decode(body))


@pytest.mark.parametrize(
    "day", [NOON.replace(tzinfo=None), "2026-02-31", "2026-01-31T12:00:00", "today", Text("today"), 5]
)
def test_what_is_no_day_is_rejected_where_it_stands(day: object) -> None:
    """Nobody could say which day it is."""
    with pytest.raises(RequestInvalid) as rejected:
        VISIT.encoder.encode(Visit(on_day=date(2026, 1, 31), days=[day]))
    assert "$.days[0]" == rejected.value.path


async def test_a_moment_before_all_calendars_is_rejected() -> None:
    """In UTC it would be before the year 1."""
    with pytest.raises(RequestInvalid, match="out of range"):
        await sent(datetime.min.replace(tzinfo=timezone(timedelta(hours=1, seconds=30))))
