"""What comes back: every member of the contract, and every malformed form that real traffic has."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct, inspect

from paymentsdk.resources import OPERATIONS, merchant_orders
from tests.resources.members import declared, present

#: One response per operation, with every member that the spec names.
WHOLE = {
    name: bytes(response)
    for name, response in msgspec.json.decode(
        Path(__file__).with_name("responses.json").read_bytes(), type=dict[str, msgspec.Raw]
    ).items()
}
#: What real traffic puts in the place of a member.
ODD: tuple[object, ...] = (None, "", [], {}, [None], "odd", "0001-01-01T00:00:00.000+00:00", 2**70, -0.5, True)


def _read(text: bytes) -> dict[str, object]:
    return json.loads(text, parse_float=Decimal)


def _at(value: object, path: str) -> object:
    """Follow *path* (``results.0.payment.status``) into Structs, tuples and dicts."""
    for step in path.split("."):
        if isinstance(value, tuple | list):
            value = value[int(step)]
        else:
            value = value[step] if isinstance(value, dict) else getattr(value, step)
    return value


def _places(raw: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every member and every element of *raw*."""
    if path:
        yield path
    members = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, member in members:
        yield from _places(member, (*path, key))


def _lost(raw: object, value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value in *raw* that is not in *value*."""
    if isinstance(raw, dict) and isinstance(value, Struct):
        for key, member in raw.items():
            yield from _lost(member, getattr(value, key, None), (*path, key))
    elif isinstance(raw, list) and isinstance(value, tuple) and len(raw) == len(value):
        for i, row in enumerate(raw):
            yield from _lost(row, value[i], (*path, i))
    elif _read_as(type(value), raw) != value:
        yield path


def _read_as(kind: type, raw: object) -> object:
    """Return *raw* as a moment or an amount, where it is the text of one."""
    return {datetime: datetime.fromisoformat, Decimal: Decimal, float: float}.get(kind, lambda text: text)(raw)


def test_the_table_has_every_member_that_is_declared() -> None:
    """A member that is new in a response is read, lost, spoiled and left out like the others in the tests below."""
    responses = {name: inspect.type_info(operation.result) for name, operation in OPERATIONS.items()}
    members = {member for name, text in WHOLE.items() for member in present(responses[name], json.loads(text))}

    expected = {member for response in responses.values() for member in declared(response)}
    assert expected == members, "give each new member a value in tests/resources/responses.json"


@pytest.mark.parametrize("name", WHOLE)
def test_every_member_of_the_contract_is_kept(name: str) -> None:
    """A response with all members of the spec is read exactly, on the fast way, and none of them is lost."""
    value, anomalies = OPERATIONS[name].decode(WHOLE[name])

    assert [] == list(_lost(_read(WHOLE[name]), value))
    assert () == anomalies


def test_a_lost_member_is_noticed() -> None:
    """The control: what is compared here finds a member that is missing, at any depth."""
    whole, name = _read(WHOLE["invoices.search"]), "invoices.search"
    poor, _ = OPERATIONS[name].decode(WHOLE[name].replace(b"status_detail", b"unknown"))

    assert [("results", 0, "payment", "status_detail")] == list(_lost(whole, poor))


@pytest.mark.parametrize("name", WHOLE)
def test_a_malformed_member_costs_no_other(name: str) -> None:
    """Whatever stands in the place of one member, the response is read, and every other member is as it was."""
    operation, whole = OPERATIONS[name], _read(WHOLE[name])
    for number, place in enumerate(_places(whole)):
        for odd in ODD[number % 3 :: 3]:  # Each place gets some, each of them many places.
            malformed = copy.deepcopy(whole)
            holder = _parent(malformed, place)
            holder[place[-1]] = odd
            try:
                value, _ = operation.decode(json.dumps(malformed, default=float).encode())
            except ValueError:
                assert place in {("id",), ("access_token",)}, (place, odd)  # Without these there is no response.
                continue
            assert {p for p in _lost(whole, value) if not _touches(p, place)} == set(), (place, odd)


def _parent(raw: object, place: tuple[str | int, ...]) -> object:
    for step in place[:-1]:
        raw = raw[step]
    return raw


def _touches(lost: tuple[str | int, ...], place: tuple[str | int, ...]) -> bool:
    """Whether *lost* is at, below or above *place*; a list that lost an element has moved the others."""
    lists = [i for i, step in enumerate(place) if isinstance(step, int)]
    shared = place[: lists[-1]] if lists and lists[-1] == len(place) - 1 else place
    length = min(len(lost), len(shared))
    return lost[:length] == shared[:length]


@pytest.mark.parametrize("name", WHOLE)
def test_a_missing_member_reads_as_none(name: str) -> None:
    """Any member but the identity may be missing, and a response without it needs no repair."""
    operation, whole = OPERATIONS[name], _read(WHOLE[name])
    for member in whole.keys() - {"id", "access_token"}:
        remaining = {key: value for key, value in whole.items() if key != member}

        value, anomalies = operation.decode(json.dumps(remaining, default=float).encode())

        assert getattr(value, member) in (None, type(getattr(value, member))())
        assert () == anomalies


MINIMAL = dict.fromkeys(WHOLE, b'{"id": "77-1"}') | {"oauth.token": b'{"access_token": "t"}'}
MINIMAL |= dict.fromkeys(("invoices.search", "plans.search", "merchant_orders.search"), b"{}")
MINIMAL |= {"wallet_payments.create": b'{"id": 1}', "release_reports.disable_schedule": b"{}"}


@pytest.mark.parametrize(("name", "body"), MINIMAL.items())
def test_a_minimal_response_is_a_response(name: str, body: bytes) -> None:
    """A success may hold nothing but the identity, and a page nothing at all."""
    assert () == OPERATIONS[name].decode(body)[1]


#: An operation, what came, where to look, what is read there, and the places of the anomalies.
MALFORMED = [
    # Ids: text or number for the same member, and beyond what a double can hold.
    ("invoices.search", '{"results": [{"id": 9007199254740993}]}', "results.0.id", 2**53 + 1, []),
    ("merchant_orders.search", '{"elements": [{"id": 1180591620717411303424}]}', "elements.0.id", 2**70, []),
    ("plans.get", '{"id": 17}', "id", "17", ["$.id"]),
    ("customers.create", '{"id": "c", "default_address": 5}', "default_address", 5, []),
    # A row without its identity is still a row.
    ("merchant_orders.search", '{"elements": [{"status": "closed"}]}', "elements.0.status", "closed", None),
    # References as numbers.
    ("merchant_orders.search", '{"elements": [{"id": 1, "external_reference": 42}]}',
     "elements.0.external_reference", "42", ["$.elements[0].external_reference"]),
    # Paging: totals as text, no rows, no position.
    ("invoices.search", '{"paging": {"total": "3"}}', "paging.total", 3, ["$.paging.total"]),
    ("merchant_orders.search", '{"elements": null, "next_offset": 0, "total": 0}', "elements", None, []),
    ("merchant_orders.search", '{"elements": [null, {"id": 2}], "total": 2}', "elements.0.id", 2, ["$.elements[0]"]),
    # Amounts: every spelling of a number, and exact.
    ("plans.get", '{"id": "p", "auto_recurring": {"transaction_amount": 5.0E8}}',
     "auto_recurring.transaction_amount", Decimal(500_000_000), []),
    ("plans.get", '{"id": "p", "auto_recurring": {"transaction_amount": "NaN"}}',
     "auto_recurring.transaction_amount", None, ["$.auto_recurring.transaction_amount"]),
    ("merchant_orders.search", '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"latitude": "-23.5"}}]}]}',
     "elements.0.shipments.0.receiver_address.latitude", -23.5,
     ["$.elements[0].shipments[0].receiver_address.latitude"]),
    # Whole numbers written as fractions.
    ("merchant_orders.search", '{"elements": [{"id": 1, "items": [{"quantity": 2.0}]}]}',
     "elements.0.items.0.quantity", 2, ["$.elements[0].items[0].quantity"]),
    # Enums: unknown values, both spellings, empty.
    ("merchant_orders.search", '{"elements": [{"id": 1, "order_status": "partially_something"}]}',
     "elements.0.order_status", "partially_something", []),
    # Dates: without a zone, alone, empty, with three, six or nine digits, before time.
    ("invoices.search", '{"results": [{"id": 1, "debit_date": "2026-02-01"}]}',
     "results.0.debit_date", datetime(2026, 2, 1, tzinfo=UTC), []),
    ("invoices.search", '{"results": [{"id": 1, "debit_date": "2026-02-01T09:30:00"}]}',
     "results.0.debit_date", datetime(2026, 2, 1, 9, 30, tzinfo=UTC), ["$.results[0].debit_date"]),
    ("plans.get", '{"id": "p", "date_created": "2026-02-01T09:30:00.123456789Z"}',
     "date_created", datetime(2026, 2, 1, 9, 30, 0, 123_457, UTC), None),
    ("release_reports.disable_schedule", '{"generation_date": "0001-01-01T00:00:00.000+00:00"}',
     "generation_date", datetime(1, 1, 1, tzinfo=UTC), []),
    # Street names: a text, an object of languages, a number, nothing.
    ("merchant_orders.search",
     '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"street_name": {"es": "A", "pt": null}}}]}]}',
     "elements.0.shipments.0.receiver_address.street_name", merchant_orders.StreetName(es="A"), []),
    ("merchant_orders.search",
     '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"street_name": 9, "comment": "x"}}]}]}',
     "elements.0.shipments.0.receiver_address.street_name", "9",
     ["$.elements[0].shipments[0].receiver_address.street_name"]),
    # Objects and lists that stand for something else.
    ("merchant_orders.search", '{"elements": [{"id": 1, "payer": []}]}', "elements.0.payer", None,
     ["$.elements[0].payer"]),
    ("merchant_orders.search", '{"elements": [{"id": 1, "payments": {"id": 9}}]}', "elements.0.payments.0.id", 9,
     ["$.elements[0].payments"]),
    ("customers.create", '{"id": "c", "phone": "", "metadata": []}', "metadata", None, ["$.phone", "$.metadata"]),
    ("preferences.create", '{"id": "1", "binary_mode": "true", "expires": 0}', "binary_mode", True,
     ["$.expires", "$.binary_mode"]),
    # A deletion may have an empty response.
    ("release_reports.disable_schedule", "", "status", None, ["$"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "path", "expected", "malformed"), MALFORMED)
def test_what_real_traffic_sends_is_read(
    name: str, body: str, path: str, expected: object, malformed: list[str] | None
) -> None:
    """Every form of real traffic is read for what it means, and each repair is reported at its place."""
    value, anomalies = OPERATIONS[name].decode(body.encode())

    assert expected == _at(value, path)
    if malformed is not None:
        assert malformed == [anomaly.path for anomaly in anomalies]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("", (None, (), None)),
        (', "transactions": {"payments": [], "refunds": []}', (None, (), None)),
        (', "transactions": {"payments": [{"id": "P"}], "refunds": [{"id": "R"}]}', ("P", ("R",), None)),
        (', "type_response": {"qr_data": "0002"}', (None, (), "0002")),
    ],
)
def test_the_parts_of_an_order_that_everybody_asks_for(members: str, expected: tuple[object, ...]) -> None:
    """Payment, refunds and code are at hand, and absent without an error where a response leaves them out."""
    order, _ = OPERATIONS["orders.get"].decode(f'{{"id": "ORD1"{members}}}'.encode())

    assert expected == (order.payment and order.payment.id, tuple(refund.id for refund in order.refunds), order.qr_data)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id"', b'{"status": "active"}'])
def test_what_is_no_response_is_rejected(body: bytes) -> None:
    """Without JSON, without an object or without the identity there is no response, and no value is made up."""
    with pytest.raises(ValueError, match="body"):
        OPERATIONS["plans.get"].decode(body)


def test_a_credential_is_never_in_an_anomaly() -> None:
    """A token that had to be repaired is reported without being shown."""
    token, anomalies = OPERATIONS["oauth.token"].decode(b'{"access_token": 1234567890123}')

    assert "1234567890123" == token.access_token
    assert "1234567890123" not in repr(anomalies)
