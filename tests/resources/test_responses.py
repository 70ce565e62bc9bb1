"""What comes back: every member of the contract, and every malformed form that real traffic has."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from msgspec import DecodeError, Struct, ValidationError, inspect

from paymentsdk.resources import OPERATIONS
from paymentsdk.resources.merchant_orders import StreetName
from tests.resources.members import declared, present

# One response per operation, with every member that the spec names.
WHOLE = {
    "oauth.token": """{"access_token": "TEST-1234-010203-0a1b-77", "token_type": "bearer", "expires_in": 15552000,
        "scope": "offline_access read write", "user_id": 77, "refresh_token": "TG-0123456789", "live_mode": false,
        "public_key": "TEST-key"}""",
    "invoices.search": """{"paging": {"offset": 0, "limit": 10, "total": 1}, "results": [{"id": 6114264375,
        "type": "scheduled", "date_created": "2026-01-31T09:30:00.000-04:00",
        "last_modified": "2026-02-01T09:30:00.000-04:00", "preapproval_id": "2c938084726fca480172750000000000",
        "reason": "Yoga", "external_reference": "YG-1234", "currency_id": "ARS", "transaction_amount": 24.90,
        "debit_date": "2026-02-01T00:00:00.000-04:00", "retry_attempt": 4, "status": "recycling",
        "summarized": "pending", "payment": {"id": 19951521071, "status": "approved",
        "status_detail": "accredited"}}]}""",
    "preferences.create": """{"id": "77-2b1f0c1a-7f3c-4f27-a6d3-5f6c7a8b9c0d", "collector_id": 77,
        "operation_type": "regular_payment", "items": [{"id": "sku-1", "title": "Flight", "description": "To the south",
        "picture_url": "https://shop.example.com/1.png", "category_id": "travels", "quantity": 1, "currency_id": "BRL",
        "unit_price": 75.76, "type": "ticket", "warranty": false, "event_date": "2026-03-01T20:00:00.000-03:00",
        "category_descriptor": {"passenger": {"first_name": "Ana", "last_name": "Souza", "identification_type": "CPF",
        "identification_number": "19119119100"}, "route": {"departure": "GRU", "destination": "EZE",
        "departure_date_time": "2026-03-01T20:00:00.000-03:00", "arrival_date_time": "2026-03-01T23:00:00.000-03:00",
        "company": "An airline"}}}], "payer": {"name": "Ana", "surname": "Souza", "first_name": "Ana",
        "last_name": "Souza", "email": "ana@example.com", "phone": {"area_code": 11, "number": 987654321},
        "identification": {"type": "CPF", "number": "19119119100", "identification_type": "CPF",
        "identification_number": "19119119100"}, "address": {"zip_code": "06233-200", "street_name": "Rua A",
        "street_number": 123}, "date_created": "2015-06-02T12:58:41.425-04:00", "authentication_type": "Native web",
        "registration_date": "2015-06-02T12:58:41.425-04:00", "is_prime_user": true,
        "is_first_purchase_online": false, "last_purchase": "2025-06-02T12:58:41.425-04:00"},
        "back_urls": {"success": "https://s.example.com", "pending": "https://p.example.com",
        "failure": "https://f.example.com"}, "auto_return": "approved", "payment_methods":
        {"excluded_payment_methods": [{"id": "visa"}], "excluded_payment_types": [{"id": "ticket"}],
        "default_payment_method_id": "master", "installments": 36, "default_installments": 1}, "client_id": 963,
        "marketplace": "NONE", "marketplace_fee": 5, "shipments": {"mode": "custom", "local_pickup": false,
        "dimensions": "30x30x30,500", "default_shipping_method": 73328, "free_methods": [{"id": 73328}], "cost": 10.5,
        "free_shipping": false, "express_shipment": true, "receiver_address": {"zip_code": "06233-200",
        "street_name": "Rua A", "city_name": "Osasco", "state_name": "SP", "street_number": 3003,
        "country_name": "Brasil"}}, "notification_url": "https://shop.example.com/hook",
        "statement_descriptor": "SHOP", "external_reference": "basket-42", "additional_info": "gift",
        "expires": true, "expiration_date_from": "2026-01-31T09:30:00.000-04:00",
        "expiration_date_to": "2026-02-28T09:30:00.000-04:00", "date_of_expiration": "2026-02-28T09:30:00.000-04:00",
        "date_created": "2026-01-31T09:30:00.000-04:00", "differential_pricing": {"id": 7},
        "tracks": [{"type": "google_ad", "values": {"conversion_id": 1, "conversion_label": "a", "pixel_id": "2"}}],
        "binary_mode": true, "sponsor_id": 8, "metadata": {"a": {"b": [1, "x"]}},
        "init_point": "https://pay.example.com/1", "sandbox_init_point": "https://sandbox.example.com/1"}""",
    "wallet_payments.create": """{"id": 4013, "payments": [{"id": 4014, "status_detail": "accredited",
        "payment_method_id": "account_money", "transaction_amount": 80.00, "installments": 1, "description": "Taxi",
        "capture": true, "external_reference": "ride-7"}], "wallet_payment": {"transaction_amount": 80.00,
        "description": "Taxi", "external_reference": "ride-7", "statement_descriptor": "TAXI", "forward_data":
        {"sub_merchant": {"sub_merchant_id": "s1", "mcc": "4121", "country": "BRA", "address_door_number": 12,
        "zip": "06233", "document_number": "191", "city": "Osasco", "address_street": "Rua A", "legal_name": "Taxi SA",
        "region_code_iso": "BR-SP", "region_code": "SP", "document_type": "CNPJ", "phone": {"number": "55"},
        "url": "https://taxi.example.com"}}, "discount": {"amount": 10, "description": "Ten off", "code": "TEN",
        "detail": {"cap": 20, "type": "fixed", "value": 10}}}, "disbursements": [{"collector_id": 77}],
        "payer": {"id": 99}, "site_id": "MLB", "binary_mode": true, "date_created": "2026-01-31T09:30:00.000-04:00",
        "date_last_updated": "2026-01-31T09:30:01.000-04:00"}""",
    "plans.get": """{"id": "2c938084726fca480172750000000000", "application_id": 1234567812345678,
        "collector_id": 100200300, "reason": "Yoga", "auto_recurring": {"frequency": 1, "frequency_type": "months",
        "repetitions": 12, "billing_day": 10, "billing_day_proportional": true, "free_trial": {"frequency": 2,
        "frequency_type": "days", "first_invoice_offset": 7}, "transaction_amount": 10, "currency_id": "ARS"},
        "payment_methods_allowed": {"payment_types": [{"id": "credit_card"}], "payment_methods": [{"id": "visa"}]},
        "back_url": "https://shop.example.com", "external_reference": "plan-1",
        "init_point": "https://pay.example.com/plan", "date_created": "2026-01-31T09:30:00.000-04:00",
        "last_modified": "2026-01-31T09:30:00.000-04:00", "status": "active"}""",
    "plans.search": """{"paging": {"offset": 0, "limit": 10, "total": 1}, "results": [{"id": "2c93", "subscribed": 3,
        "status": "active"}]}""",
    "merchant_orders.search": """{"elements": [{"id": 1126664483, "status": "closed", "order_status": "paid",
        "external_reference": "default", "preference_id": "77-2b1f", "application_id": 10000, "site_id": "MLB",
        "marketplace": "NONE", "date_created": "2026-01-31T09:30:00.000-04:00",
        "last_updated": "2026-01-31T09:31:00.000-04:00", "shipping_cost": 0, "total_amount": 5, "paid_amount": 5.25,
        "refunded_amount": 0, "additional_info": "gift", "collector": {"id": 77}, "payer": {"id": 99}, "items":
        [{"id": "i1", "category_id": "others", "currency_id": "BRL", "description": "Pens", "picture_url":
        "https://shop.example.com/1.png", "title": "Pen", "quantity": 1, "unit_price": 5}], "payments": [{"id": 9,
        "transaction_amount": 5, "total_paid_amount": 5.25, "shipping_cost": 0, "currency_id": "BRL",
        "status": "approved", "status_detail": "accredited", "date_approved": "2026-01-31T09:31:00.000-04:00",
        "date_created": "2026-01-31T09:30:30.000-04:00", "last_modified": "2026-01-31T09:31:00.000-04:00",
        "amount_refunded": 0}], "shipments": [{"id": 20, "shipment_type": "shipping", "shipping_mode": "me2",
        "status": "pending", "items": [{"id": "i1", "description": "Pens", "quantity": 1, "dimensions": "1x1x1,5"}],
        "date_created": "2026-01-31T09:30:00.000-04:00", "last_modified": "2026-01-31T09:30:00.000-04:00",
        "date_first_printed": "2026-02-01T09:30:00.000-04:00", "service_id": 1, "sender_id": 77, "receiver_id": 99,
        "receiver_address": {"id": 5, "address_line": "Rua A 1", "city": {"id": 9, "name": "Osasco"},
        "state": {"id": "BR-SP", "name": "SP"}, "country": {"id": "BR", "name": "Brasil"},
        "latitude": -23.53, "longitude": -46.79, "comment": "Ring", "contact": "Ana", "phone": "11987",
        "zip_code": "06233", "street_name": {"en": "A Street",
        "pt": "Rua A", "es": "Calle A"}, "street_number": "1"}, "shipping_option": {"id": 3, "cost": 12.5,
        "currency_id": "BRL", "shipping_method_id": 73328, "estimated_delivery":
        {"date": "2026-02-09T00:00:00.000-03:00"}, "name": "Express", "list_cost": 15, "speed": {"handling": 24,
        "shipping": 48}}}]}], "next_offset": 1, "total": 2}""",
    "customers.create": """{"id": "470183340-cpunOI7UsIHlHr", "email": "ana@example.com", "first_name": "Ana",
        "last_name": "Souza", "phone": {"area_code": "11", "number": "987654321"}, "identification": {"type": "CPF",
        "number": "19119119100"}, "address": {"id": "1", "zip_code": "06233", "street_name": "Rua A",
        "street_number": 123}, "description": "Prefers mornings", "date_created": "2026-01-31T09:30:00.000-04:00",
        "date_registered": "2025-01-31T09:30:00.000-04:00", "metadata": {"vip": true}, "default_address": "1",
        "default_card": "2", "cards": [{"id": "2", "last_four_digits": "4242"}], "addresses": [{"id": "1"}],
        "live_mode": false}""",
    "release_reports.disable_schedule": """{"id": 2541, "account_id": 77, "begin_date": "2026-01-01T00:00:00Z",
        "end_date": "2026-01-31T23:59:59Z", "created_from": "schedule", "currency_id": "BRL",
        "generation_date": "2026-02-01T09:30:00.000-04:00", "internal_management": [{"is_visible": true,
        "notify": false, "use_exact_time": false}], "is_reserve": false, "is_test": false,
        "last_modified": "2026-02-01T09:30:00.000-04:00", "report_id": 12, "retries": 0, "status": "deleted",
        "sub_type": "release", "user_id": 77, "format": "CSV"}""",
    "orders.create": """{"id": "ORD01J49MMW3SSBK5PSV3DFR32959", "user_id": "77", "type": "qr",
        "total_amount": "50.00", "external_reference": "ticket-1", "description": "Two coffees",
        "expiration_time": "PT16M", "processing_mode": "automatic", "status": "created", "status_detail": "created",
        "currency": "ARS", "country_code": "ARG", "created_date": "2026-01-31T09:30:00.123Z",
        "last_updated_date": "2026-01-31T09:30:00.123Z", "marketplace_fee": "1.00", "config": {"qr":
        {"external_pos_id": "POS1", "mode": "dynamic"}}, "type_response": {"qr_data": "00020101"}, "transactions":
        {"payments": [{"id": "PAY01J49MMW3SSBK5PSV3DFR32960", "amount": "50.00", "status": "processed",
        "status_detail": "accredited", "refunded_amount": "5.00", "paid_amount": "45.00", "reference_id": "r1",
        "payment_method": {"type": "credit_card", "installments": 1, "id": "visa"}, "discounts":
        {"type": "credit_card"}}], "refunds": [{"id": "REF1", "transaction_id": "PAY1", "reference_id": "r2",
        "amount": "5.00", "status": "processing"}], "cash_withdrawal": {"amount": "2.00"}},
        "items": [{"title": "Coffee", "unit_price": "25.00",
        "quantity": 2, "unit_measure": "unit", "external_code": "c1", "external_categories": [{"id": "food"}]}],
        "discounts": {"payment_methods": [{"new_total_amount": "45.00", "type": "credit_card"}]},
        "integration_data": {"application_id": "1", "platform_id": "2", "integrator_id": "dev_3",
        "sponsor": {"id": "4"}}}""",
}
#: What real traffic puts in the place of a member.
ODD: tuple[object, ...] = (None, "", [], {}, [{}], [None], "odd", "0001-01-01T00:00:00.000+00:00", 7, 2**70, -0.5, True)


def _read(text: str) -> dict[str, object]:
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

    assert {member for response in responses.values() for member in declared(response)} == members


@pytest.mark.parametrize("name", WHOLE)
def test_every_member_of_the_contract_is_kept(name: str) -> None:
    """A response with all members of the spec is read exactly, on the fast way, and none of them is lost."""
    value, anomalies = OPERATIONS[name].decode(WHOLE[name].encode())

    assert [] == list(_lost(_read(WHOLE[name]), value))
    assert () == anomalies


def test_a_lost_member_is_noticed() -> None:
    """The control: what is compared here finds a member that is missing, at any depth."""
    whole, name = _read(WHOLE["invoices.search"]), "invoices.search"
    poor, _ = OPERATIONS[name].decode(WHOLE[name].replace("status_detail", "unknown").encode())

    assert [("results", 0, "payment", "status_detail")] == list(_lost(whole, poor))


@pytest.mark.parametrize("name", WHOLE)
def test_a_malformed_member_costs_no_other(name: str) -> None:
    """Whatever stands in the place of one member, the response is read, and every other member is as it was."""
    operation, whole = OPERATIONS[name], _read(WHOLE[name])
    for place in _places(whole):
        for odd in ODD:
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


MINIMAL = {
    "oauth.token": b'{"access_token": "t"}',
    "plans.get": b'{"id": "p"}',
    "preferences.create": b'{"id": "77-1"}',
    "wallet_payments.create": b'{"id": 1}',
    "customers.create": b'{"id": "c"}',
    "release_reports.disable_schedule": b"{}",
    "orders.create": b'{"id": "ORD1"}',
    "invoices.search": b"{}",
    "plans.search": b"{}",
    "merchant_orders.search": b"{}",
}


@pytest.mark.parametrize(("name", "body"), MINIMAL.items())
def test_a_minimal_response_is_a_response(name: str, body: bytes) -> None:
    """A success may hold nothing but the identity, and a page nothing at all."""
    assert () == OPERATIONS[name].decode(body)[1]


WEST = timezone(timedelta(hours=-4))
#: An operation, what came, where to look, what is read there, and the places of the anomalies.
MALFORMED = [
    # Ids: text or number for the same member, and beyond what a double can hold.
    ("invoices.search", '{"results": [{"id": "61"}]}', "results.0.id", "61", []),
    ("invoices.search", '{"results": [{"id": 9007199254740993}]}', "results.0.id", 2**53 + 1, []),
    ("merchant_orders.search", '{"elements": [{"id": 1, "payer": {"id": "9"}}]}', "elements.0.payer.id", "9", []),
    ("merchant_orders.search", '{"elements": [{"id": 1180591620717411303424}]}', "elements.0.id", 2**70, []),
    ("plans.get", '{"id": 17}', "id", "17", ["$.id"]),
    ("customers.create", '{"id": "c", "default_address": 5}', "default_address", 5, []),
    # A row without its identity is still a row.
    ("merchant_orders.search", '{"elements": [{"status": "closed"}]}', "elements.0.status", "closed", None),
    ("merchant_orders.search", '{"elements": [{"id": null, "status": "closed"}]}', "elements.0.status", "closed", None),
    # References as numbers.
    (
        "merchant_orders.search",
        '{"elements": [{"id": 1, "external_reference": 42}]}',
        "elements.0.external_reference",
        "42",
        ["$.elements[0].external_reference"],
    ),
    # Paging: totals as text, no rows, no position.
    ("invoices.search", '{"paging": {"total": "3"}}', "paging.total", 3, ["$.paging.total"]),
    ("invoices.search", '{"paging": null, "results": []}', "paging.total", None, []),
    ("plans.search", '{"paging": [], "results": null}', "paging.offset", None, ["$.paging"]),
    ("merchant_orders.search", '{"elements": null, "next_offset": 0, "total": 0}', "elements", None, []),
    ("merchant_orders.search", '{"elements": "", "total": "12"}', "total", 12, ["$.elements", "$.total"]),
    ("merchant_orders.search", '{"elements": [null, {"id": 2}], "total": 2}', "elements.0.id", 2, ["$.elements[0]"]),
    # Amounts: every spelling of a number, and exact.
    ("plans.get", '{"id": "p", "auto_recurring": {"transaction_amount": 5.0E8}}',
     "auto_recurring.transaction_amount", Decimal(500_000_000), []),
    ("plans.get", '{"id": "p", "auto_recurring": {"transaction_amount": "24.9"}}',
     "auto_recurring.transaction_amount", Decimal("24.9"), []),
    ("plans.get", '{"id": "p", "auto_recurring": {"transaction_amount": 0.1}}',
     "auto_recurring.transaction_amount", Decimal("0.1"), []),
    ("plans.get", '{"id": "p", "auto_recurring": {"transaction_amount": "NaN"}}',
     "auto_recurring.transaction_amount", None, ["$.auto_recurring.transaction_amount"]),
    ("merchant_orders.search", '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"latitude": "-23.5"}}]}]}',
     "elements.0.shipments.0.receiver_address.latitude", -23.5,
     ["$.elements[0].shipments[0].receiver_address.latitude"]),
    # Whole numbers written as fractions.
    ("merchant_orders.search", '{"elements": [{"id": 1, "items": [{"quantity": 2.0}]}]}',
     "elements.0.items.0.quantity", 2, ["$.elements[0].items[0].quantity"]),
    # Enums: unknown values, both spellings, empty.
    ("merchant_orders.search", '{"elements": [{"id": 1, "order_status": "payment_required"}]}',
     "elements.0.order_status", "payment_required", []),
    ("merchant_orders.search", '{"elements": [{"id": 1, "order_status": "partially_something"}]}',
     "elements.0.order_status", "partially_something", []),
    ("invoices.search", '{"results": [{"id": 1, "type": "recurring"}]}', "results.0.type", "recurring", []),
    ("plans.get", '{"id": "p", "status": "cancelled"}', "status", "cancelled", []),
    ("plans.get", '{"id": "p", "auto_recurring": {"frequency_type": "days"}}',
     "auto_recurring.frequency_type", "days", []),
    ("orders.create", '{"id": "ORD1", "status": "action_required"}', "status", "action_required", []),
    ("oauth.token", '{"access_token": "t", "token_type": "Bearer"}', "token_type", "Bearer", []),
    ("oauth.token", '{"access_token": "t", "scope": "read payments"}', "scope", "read payments", []),
    ("oauth.token", '{"access_token": "t", "user_id": "77", "expires_in": "21600"}',
     "expires_in", 21600, ["$.expires_in"]),
    # Dates: without a zone, alone, empty, with three, six or nine digits, before time.
    ("invoices.search", '{"results": [{"id": 1, "debit_date": "2026-02-01"}]}',
     "results.0.debit_date", datetime(2026, 2, 1, tzinfo=UTC), []),
    ("invoices.search", '{"results": [{"id": 1, "debit_date": "2026-02-31"}]}',
     "results.0.debit_date", None, ["$.results[0].debit_date"]),
    ("invoices.search", '{"results": [{"id": 1, "date_created": "2026-02-01"}]}',
     "results.0.date_created", datetime(2026, 2, 1, tzinfo=UTC), ["$.results[0].date_created"]),
    ("invoices.search", '{"results": [{"id": 1, "debit_date": "2026-02-01T09:30:00"}]}',
     "results.0.debit_date", datetime(2026, 2, 1, 9, 30, tzinfo=UTC), ["$.results[0].debit_date"]),
    ("invoices.search", '{"results": [{"id": 1, "debit_date": ""}]}',
     "results.0.debit_date", None, ["$.results[0].debit_date"]),
    ("plans.get", '{"id": "p", "date_created": "2026-02-01T09:30:00.123-04:00"}',
     "date_created", datetime(2026, 2, 1, 9, 30, 0, 123_000, WEST), []),
    ("plans.get", '{"id": "p", "date_created": "2026-02-01T09:30:00-00:00"}',
     "date_created", datetime(2026, 2, 1, 9, 30, tzinfo=UTC), []),
    ("plans.get", '{"id": "p", "date_created": "2026-02-01T09:30:00.123456789Z"}',
     "date_created", datetime(2026, 2, 1, 9, 30, 0, 123_457, UTC), None),
    ("release_reports.disable_schedule", '{"generation_date": "0001-01-01T00:00:00.000+00:00"}',
     "generation_date", datetime(1, 1, 1, tzinfo=UTC), []),
    # Street names: a text, an object of languages, a number, nothing.
    ("merchant_orders.search", '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"street_name": "A"}}]}]}',
     "elements.0.shipments.0.receiver_address.street_name", "A", []),
    ("merchant_orders.search",
     '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"street_name": {"es": "A", "pt": null}}}]}]}',
     "elements.0.shipments.0.receiver_address.street_name", StreetName(es="A"), []),
    ("merchant_orders.search",
     '{"elements": [{"id": 1, "shipments": [{"receiver_address": {"street_name": 9, "comment": "x"}}]}]}',
     "elements.0.shipments.0.receiver_address.street_name", "9",
     ["$.elements[0].shipments[0].receiver_address.street_name"]),
    # Objects and lists that stand for something else.
    ("merchant_orders.search", '{"elements": [{"id": 1, "shipments": [{}]}]}', "elements.0.shipments.0.id", None, []),
    ("merchant_orders.search", '{"elements": [{"id": 1, "payer": []}]}', "elements.0.payer", None,
     ["$.elements[0].payer"]),
    ("merchant_orders.search", '{"elements": [{"id": 1, "payments": {"id": 9}}]}', "elements.0.payments.0.id", 9,
     ["$.elements[0].payments"]),
    ("plans.get", '{"id": "p", "payment_methods_allowed": {"payment_types": [{}], "payment_methods": null}}',
     "payment_methods_allowed.payment_types.0", {}, []),
    ("customers.create", '{"id": "c", "phone": "", "metadata": []}', "metadata", None, ["$.phone", "$.metadata"]),
    ("orders.create", '{"id": "ORD1", "transactions": {"payments": [{"id": "P", "payment_method": null}]}}',
     "transactions.payments.0.payment_method", None, []),
    ("preferences.create", '{"id": "1", "payer": {"phone": {"area_code": "", "number": ""}}, "items": [{}]}',
     "payer.phone.area_code", "", []),
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


@pytest.mark.parametrize(("name", "body"), [(name, body) for name, body, _, _, malformed in MALFORMED if malformed])
def test_without_the_repair_malformed_responses_are_lost(name: str, body: str) -> None:
    """The control: what is reported as repaired does not decode by itself, or decodes to an amount that is none."""
    decoder = OPERATIONS[name].decoder
    with suppress(ValidationError, DecodeError):
        assert decoder._unusable(decoder._exact(body.encode()))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("", (None, (), None)),
        (', "transactions": {}, "type_response": {}', (None, (), None)),
        (', "transactions": {"payments": [], "refunds": []}', (None, (), None)),
        (
            ', "transactions": {"payments": [{"id": "P"}], "refunds": [{"id": "R"}, {"id": "S"}]}',
            ("P", ("R", "S"), None),
        ),
        (', "type_response": {"qr_data": "0002"}', (None, (), "0002")),
    ],
)
def test_the_parts_of_an_order_that_everybody_asks_for(members: str, expected: tuple[object, ...]) -> None:
    """Payment, refunds and code are at hand, and absent without an error where a response leaves them out."""
    order, _ = OPERATIONS["orders.get"].decode(f'{{"id": "ORD1"{members}}}'.encode())

    assert expected == (order.payment and order.payment.id, tuple(refund.id for refund in order.refunds), order.qr_data)


def test_an_unknown_member_is_ignored() -> None:
    """Responses grow: an unknown member is no anomaly."""
    assert () == OPERATIONS["plans.get"].decode(b'{"id": "p", "brand_new": {"a": [1]}}')[1]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"7", b"<html>", b'{"id"', b'{"status": "active"}', b"\xff"])
def test_what_is_no_response_is_rejected(body: bytes) -> None:
    """Without JSON, without an object or without the identity there is no response, and no value is made up."""
    with pytest.raises(ValueError, match="body"):
        OPERATIONS["plans.get"].decode(body)


def test_a_credential_is_never_in_an_anomaly() -> None:
    """A token that had to be repaired is reported without being shown."""
    token, anomalies = OPERATIONS["oauth.token"].decode(b'{"access_token": 1234567890123}')

    assert "1234567890123" == token.access_token
    assert "1234567890123" not in repr(anomalies)
