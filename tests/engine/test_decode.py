"""Responses that do not follow the contract: exactly what is malformed is repaired or dropped, and nothing else."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from msgspec import inspect

from paymentsdk import OPERATIONS, Anomaly, NoAnswer, OutcomeUnknown, PaymentsClient, PaymentsError, Response
from paymentsdk.resources.common import OpenEnum
from paymentsdk.testing import MemoryTransport
from tests.engine.conftest import Script
from tests.engine.declared import declared, leaves

NOON = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)


DROPPED, REPAIRED, UNSET = "dropped", "repaired", "stands for unset"


def body(**members: object) -> bytes:
    """A response with an id and *members*."""
    return json.dumps({"id": "X1", **members}).encode()


def at(value: object, path: str) -> object:
    """Return what is at *path* (`transactions.payments.0.amount`) of a decoded value."""
    for name in path.split("."):
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    return value


# --- what follows the contract ----------------------------------------------------------------------------------------


def test_any_member_may_be_missing_or_null() -> None:
    """Only the id, or the access token, is needed: everything else may be missing or null, at every level."""
    structs = (struct for op in OPERATIONS.values() for struct in leaves(inspect.type_info(op.result)))
    for struct in {struct.cls: struct for struct in structs}.values():
        needed = {member.encode_name: "X1" for member in struct.fields if member.required}
        assert needed.keys() <= {"id", "access_token"}
        decoder = declared(result=struct.cls)

        nulls = {member.encode_name: None for member in struct.fields if member.type != struct.cls}
        bare, bare_anomalies = decoder.decode(json.dumps(needed).encode())
        null, null_anomalies = decoder.decode(json.dumps({**nulls, **needed}).encode())

        assert bare == null
        assert () == bare_anomalies == null_anomalies


@pytest.mark.parametrize(
    ("name", "members", "path", "value"),
    [
        ("orders.get", {"surprise": {"a": [1]}}, "id", "X1"),
        ("orders.get", {"status": "action_required"}, "status", "action_required"),
        ("orders.get", {"total_amount": "24.90"}, "total_amount", Decimal("24.90")),
        ("orders.get", {"created_date": "2026-01-31T12:30:00.000Z"}, "created_date", NOON),
        ("orders.get", {"created_date": "2026-01-31T12:30:00.000000000Z"}, "created_date", NOON),
        ("orders.get", {"created_date": "2026-01-31T08:30:00.000-04:00"}, "created_date", NOON),
        ("orders.get", {"created_date": "2026-01-31 12:30:00Z"}, "created_date", NOON),
        ("orders.get", {"transactions": {"payments": [{"id": "P", "payment_method": {"id": None}}]}}, "id", "X1"),
        ("plans.get", {"auto_recurring": {"frequency_type": "days"}}, "auto_recurring.frequency_type", "days"),
        ("customers.create", {"metadata": {"a": [1.5, None, {"b": 2}]}}, "metadata", {"a": [1.5, None, {"b": 2}]}),
    ],
)
def test_what_needs_no_repair(name: str, members: dict[str, object], path: str, value: object) -> None:
    """Members nobody knows, values nobody listed, and every ordinary form of a date are no anomalies."""
    decoded, anomalies = OPERATIONS[name].decode(body(**members))

    assert (value, ()) == (at(decoded, path), anomalies)


def test_numbers_are_exact() -> None:
    """An amount that comes as a number has all its digits, whatever a float would make of it."""
    decoded, anomalies = OPERATIONS["merchant_orders.search"].decode(
        b'{"elements":[{"id":1,"total_amount":5.0E8,"paid_amount":0.10000000000000000001,"shipping_cost":100}]}'
    )

    row = decoded.elements[0]
    assert [Decimal("5.0E8"), Decimal("0.10000000000000000001"), Decimal(100)] == [
        row.total_amount,
        row.paid_amount,
        row.shipping_cost,
    ]
    assert () == anomalies


# --- what does not ----------------------------------------------------------------------------------------------------

REPAIRS = [
    # operation, what came, where, what is made of it, what is said about it
    ("orders.get", {"created_date": ""}, "created_date", None, UNSET),
    ("orders.get", {"status": ""}, "status", None, UNSET),
    ("orders.get", {"status": 5}, "status", "5", REPAIRED),
    ("orders.get", {"status": []}, "status", None, UNSET),
    ("orders.get", {"status": ["paid"]}, "status", None, DROPPED),
    ("orders.get", {"config": []}, "config", None, UNSET),
    ("orders.get", {"config": "qr"}, "config", None, "expected an object, got a string"),
    ("orders.get", {"config": [{"qr": {"mode": "static"}}]}, "config.qr.mode", "static", "a list of one"),
    ("orders.get", {"external_reference": 123}, "external_reference", "123", REPAIRED),
    ("orders.get", {"description": True}, "description", "true", REPAIRED),
    ("orders.get", {"description": {"es": "libro"}}, "description", None, DROPPED),
    ("orders.get", {"total_amount": ""}, "total_amount", None, UNSET),
    ("orders.get", {"total_amount": "24,90"}, "total_amount", None, DROPPED),
    ("orders.get", {"items": {}}, "items", None, "stands for an empty list"),
    ("orders.get", {"items": 5}, "items", None, "expected a list, got a number"),
    ("orders.get", {"items": {"title": "Tea"}}, "items.0.title", "Tea", "an object stands for a list of one"),
    ("orders.get", {"items": [None, {"title": "Tea"}]}, "items.0.title", "Tea", "is not an entry"),
    ("orders.get", {"items": [5, {"title": "Tea"}]}, "items.0.title", "Tea", "expected an object, got a number"),
    ("orders.get", {"items": [{"quantity": "3"}]}, "items.0.quantity", 3, REPAIRED),
    ("orders.get", {"items": [{"quantity": 3.0}]}, "items.0.quantity", 3, "repaired|^$"),
    ("orders.get", {"items": [{"quantity": 2.5}]}, "items.0.quantity", None, DROPPED),
    ("orders.get", {"items": [{"quantity": "1_000"}]}, "items.0.quantity", None, DROPPED),
    ("orders.get", {"items": [{"quantity": "٣"}]}, "items.0.quantity", None, DROPPED),
    ("orders.get", {"created_date": "2026-01-31T12:30:00"}, "created_date", NOON, REPAIRED),
    ("orders.get", {"created_date": "2026-01-31"}, "created_date", NOON.replace(hour=0, minute=0), REPAIRED),
    ("orders.get", {"created_date": " 2026-01-31T08:30:00-04:00 "}, "created_date", NOON, REPAIRED),
    ("orders.get", {"created_date": int(NOON.timestamp())}, "created_date", None, DROPPED),
    ("orders.get", {"created_date": "yesterday"}, "created_date", None, DROPPED),
    ("orders.get", {"transactions": {"payments": [{}]}}, "transactions.payments.0.id", "", "is missing"),
    ("orders.get", {"transactions": {"payments": [{"id": []}]}}, "transactions.payments.0.id", "", UNSET),
    ("plans.get", {"auto_recurring": {"billing_day_proportional": "true"}}, "auto_recurring.billing_day_proportional",
     True, REPAIRED),
    ("plans.get", {"auto_recurring": {"billing_day_proportional": "yes"}}, "auto_recurring.billing_day_proportional",
     None, DROPPED),
    ("merchant_orders.search", {"latitude": "-34.6"}, "latitude", -34.6, REPAIRED),
    ("merchant_orders.search", {"latitude": "NaN"}, "latitude", None, DROPPED),
    ("merchant_orders.search", {"latitude": "1e999"}, "latitude", None, DROPPED),
    ("merchant_orders.search", {"latitude": -34.6, "contact": 5}, "latitude", -34.6, REPAIRED),
    ("customers.create", {"metadata": []}, "metadata", None, UNSET),
    ("customers.create", {"cards": {"id": 1}}, "cards", None, "expected a list, got an object; dropped"),
    ("customers.create", {"phone": {"number": 1.5}}, "phone.number", "1.5", REPAIRED),
]  # fmt: skip


@pytest.mark.parametrize(("name", "members", "path", "value", "reason"), REPAIRS)
def test_repair(name: str, members: dict[str, object], path: str, value: object, reason: str) -> None:
    """A member that does not fit is repaired where its meaning is plain, else dropped, and always reported."""
    if name == "merchant_orders.search":  # Coordinates are the only members of their kind, and deep down.
        members = {"elements": [{"id": "X1", "shipments": [{"receiver_address": members}]}]}
        path = f"elements.0.shipments.0.receiver_address.{path}"

    decoded, anomalies = OPERATIONS[name].decode(body(**members))

    assert value == at(decoded, path)
    assert "X1" == getattr(decoded, "id", "X1")
    [anomaly] = anomalies or [Anomaly("", None, "")]
    assert pytest.raises(AssertionError, match=reason).matches(AssertionError(anomaly.reason))
    assert anomaly.reason.endswith(DROPPED) == anomaly.dropped
    assert path != "status" or value is None or isinstance(at(decoded, path), OpenEnum)


@pytest.mark.control("paymentsdk.resources.common.visible", lambda text: text)
def test_an_unknown_state_is_one_line_of_text() -> None:
    """It keeps its text, and what shows it in a log forges no line there."""
    text = "paid\nCRITICAL forged \x1b[2J"
    order, _ = OPERATIONS["orders.get"].decode(json.dumps({"id": "X1", "status": text}).encode())

    assert text == order.status
    assert repr(order).isprintable()


def test_an_invalid_day_next_to_a_malformed_member() -> None:
    """A Struct that reads its own days is repaired member by member, and none of its errors comes out of `decode`."""
    route = {"company": [5], "departure_date_time": "2026-01-31", "arrival_date_time": "soon"}

    preference, anomalies = OPERATIONS["preferences.create"].decode(
        body(items=[{"category_descriptor": {"route": route}}])
    )

    read, place = preference.items[0].category_descriptor.route, "$.items[0].category_descriptor.route"
    assert (None, date(2026, 1, 31), None) == (read.company, read.departure_date_time, read.arrival_date_time)
    assert {f"{place}.company", f"{place}.arrival_date_time"} == {anomaly.path for anomaly in anomalies}


@pytest.mark.parametrize(
    ("member", "number"), [("quantity", b"1e5000"), ("title", b"1" * 5_000), ("unit_measure", b"-" + b"9" * 5_000)]
)
def test_a_number_of_a_monstrous_size_where_none_belongs(member: str, number: bytes) -> None:
    """It is not written out: neither a count nor a text is made of it, and what is reported of it is small."""
    response = b'{"id":"X1","items":[{"%s":%s}]}' % (member.encode(), number)

    order, [anomaly] = OPERATIONS["orders.get"].decode(response)

    assert len(str(getattr(order.items[0], member))) < len("1E+5000")
    assert len(str(anomaly.value)) < len("1E+5000")


def test_anomalies_name_their_places() -> None:
    """Each anomaly has the path of its member and what came there."""
    page, anomalies = OPERATIONS["invoices.search"].decode(
        b'{"paging":{"total":"3"},"results":[{"id":1},{"id":2,"debit_date":"","payment":{"id":[]}},null,'
        b'{"id":3,"retry_attempt":"many","reason":{"es":"libro"},"payment":5},{}]}'
    )

    assert {
        "$.paging.total": "3",
        "$.results[1].debit_date": "",
        "$.results[1].payment.id": [],
        "$.results[2]": None,
        "$.results[3].retry_attempt": "many",
        "$.results[3].reason": {"es": "libro"},
        "$.results[3].payment": 5,
        "$.results[4].id": None,
    } == {anomaly.path: anomaly.value for anomaly in anomalies}
    assert (3, 4) == (page.paging.total, len(page.results))


@pytest.mark.parametrize("offset", ["z", "-00:00", "+0000"])
def test_a_moment_next_to_a_malformed_one_reads_the_same(offset: str) -> None:
    """Whatever form of its offset the exact way takes is nothing to be reported in the other rows either."""
    rows = [{"id": 1, "date_created": "yesterday"}, {"id": 2, "date_created": f"2026-01-31T12:30:00{offset}"}]

    page, anomalies = OPERATIONS["invoices.search"].decode(json.dumps({"results": rows}).encode())

    assert (NOON, ["$.results[0].date_created"]) == (page.results[1].date_created, [a.path for a in anomalies])


def test_free_form_data_keeps_its_days() -> None:
    """What has the name of a day in the integrator's own data stays the text that it was."""
    body = b'{"id":"c1","date_registered":"2026-02-01","metadata":{"date_registered":"2026-02-01"}}'

    customer, anomalies = OPERATIONS["customers.create"].decode(body)

    assert (datetime(2026, 2, 1, tzinfo=UTC), "2026-02-01", ()) == (
        customer.date_registered,
        customer.metadata["date_registered"],
        anomalies,
    )


# --- nothing to be trusted --------------------------------------------------------------------------------------------

UNDECODABLE = [
    b"",
    b"<html>",
    b'{"id":"OR',
    b"[]",
    b"{}",
    b'{"id":""}',
    b'{"id":[]}',
    b'{"id":"\xff"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"id":' + b"1" * 5000 + b"}",
]


@pytest.mark.parametrize("response", UNDECODABLE, ids=lambda response: repr(response[:14]))
def test_an_untrustworthy_response(response: bytes) -> None:
    """What is not JSON, not an object, or an object without its id is never made into an empty response."""
    order = OPERATIONS["orders.get"]

    with pytest.raises(ValueError, match=r".") as failed:
        order.decode(response)

    assert not isinstance(failed.value, PaymentsError)


@pytest.mark.parametrize("response", [b"", b" \n", b"null", b"[]", b' ""'])
def test_an_empty_response_where_it_may_be(response: bytes) -> None:
    """The response to a deletion may have no body at all, or one that says nothing; elsewhere that is none."""
    report, anomalies = OPERATIONS["release_reports.disable_schedule"].decode(response)

    assert (None, ["$"]) == (report.status, [anomaly.path for anomaly in anomalies])
    with pytest.raises(ValueError, match="JSON"):
        OPERATIONS["release_reports.disable_schedule"].decode(b"<html>")


@pytest.mark.parametrize("levels", [100, 800])
def test_deep_free_form_data(levels: int) -> None:
    """Free-form data that is nested too deeply is dropped; the rest of the response is not."""
    metadata = '{"a":' * levels + "1" + "}" * levels
    response = f'{{"id":"c1","email":5,"description":"text","metadata":{metadata}}}'.encode()
    decoder = OPERATIONS["customers.create"]
    customer, anomalies = decoder.decode(response)

    assert ("5", "text") == (customer.email, customer.description)
    assert (customer.metadata is None) == any("nested too deeply" in anomaly.reason for anomaly in anomalies)


# --- what the caller learns -------------------------------------------------------------------------------------------


async def test_anomalies_are_on_the_result_and_in_the_log(make_client, caplog) -> None:
    """A repaired response is a success: what was repaired is on the result, and in the log without its value."""
    client = make_client(Response(200, {}, b'{"id":"ORD1","user_id":5,"external_reference":77}'))

    result = await client.call(OPERATIONS["orders.get"], order_id="ORD1")

    assert ["$.user_id", "$.external_reference"] == [anomaly.path for anomaly in result.anomalies]
    assert ["$.user_id", "$.external_reference"] == [record.payments_path for record in caplog.records]
    assert {("orders.get", logging.WARNING)} == {(r.payments_operation, r.levelno) for r in caplog.records}
    assert {"paymentsdk"} == {record.name for record in caplog.records}
    assert ["orders.get: $.user_id", "orders.get: $.external_reference"] == [
        line.rpartition(": ")[0] for line in caplog.messages
    ]
    assert "77" not in caplog.text


async def test_strict_clients_repair_nothing(play, jobs) -> None:
    """With `strict` a malformed response is no response. It is not asked for again: the next would be as malformed."""
    malformed = Response(200, {}, b'{"id":"ORD1","external_reference":77}')

    read = await play("orders.get", malformed, strict=True)
    write = await play("orders.cancel", malformed, strict=True)
    clean = await play("orders.get", jobs["orders.get"].response, strict=True)

    assert (1, NoAnswer) == (len(read.requests), type(read.error))
    assert (1, OutcomeUnknown) == (len(write.requests), type(write.error))
    assert "$.external_reference" in read.error.reason
    assert clean.error is None


@pytest.mark.parametrize("name", ["oauth.exchange_code", "oauth.refresh"])
async def test_a_strict_client_takes_a_token_all_the_same(play, name: str) -> None:
    """The grant that it was made of is spent: with the response that breaks the contract, the token would be lost."""
    malformed = Response(200, {}, b'{"access_token":"APP_USR-new-access","expires_in":"3600"}')

    played = await play(name, malformed, strict=True)

    assert ("APP_USR-new-access", 1) == (played.value.access_token, len(played.requests))


@pytest.mark.parametrize(
    ("content_type", "is_taken"),
    [("application/pdf", True), ("Application/PDF; version=1", True), ("", True), ("text/html", False)],
)
async def test_bytes_of_another_type_are_no_result(content_type: str, is_taken: bool) -> None:
    """An operation that returns bytes of one media type rejects the page of a gateway."""
    receipt = declared(result=bytes, accept="application/pdf")
    response = Response(200, {"Content-Type": content_type} if content_type else {}, b"%PDF")
    transport = MemoryTransport(Script(response))
    rejected = nullcontext() if is_taken else pytest.raises(NoAnswer, match="text/html, and not application/pdf")
    async with PaymentsClient("APP_USR-0-0-0-77", base_url="https://x", transport=transport) as client:
        with rejected:
            assert b"%PDF" == (await client.call(receipt)).value
