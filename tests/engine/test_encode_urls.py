"""What goes out in a URL: filters and ids, checked before anything is sent."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote
from uuid import UUID

import pytest

from paymentsdk import OPERATIONS, NoAnswer, Pager, PaymentsClient, RequestInvalid, Response, RetryPolicy
from paymentsdk.testing import MemoryTransport
from tests.engine.declared import declared

# --- queries ----------------------------------------------------------------------------------------------------------

ORDERS = OPERATIONS["merchant_orders.search"].query_encoder


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({}, ""),
        ({"status": "closed", "limit": 5}, "status=closed&limit=5"),
        ({"payer_id": 2**60, "application_id": "007"}, f"payer_id={2**60}&application_id=007"),
        ({"external_reference": "a b&c=d/e?f#g+h%é"}, "external_reference=a%20b%26c%3Dd%2Fe%3Ff%23g%2Bh%25%C3%A9"),
    ],
)
def test_filters_become_a_query(filters: dict[str, object], text: str) -> None:
    """Filters go out percent-encoded, in the order in which they were given, without those that are None."""
    assert text == ORDERS.encode(filters)


class Closed(str, Enum):  # noqa: UP042 - unlike a StrEnum, it writes itself with its name
    """A status."""

    IT = "closed"


class Shop(int, Enum):
    """An id with a name; an IntEnum writes itself as its number."""

    IT = 7


def test_a_filter_with_a_name_goes_out_as_its_value() -> None:
    """A member of an Enum is its text or its number: a search by ``Closed.IT`` would find nothing, in silence."""
    assert "status=closed&payer_id=7" == ORDERS.encode({"status": Closed.IT, "payer_id": Shop.IT})


class OfSeller(TypedDict):
    """Filters of which one has to be given."""

    seller: str
    status: NotRequired[str]
    offset: NotRequired[int]


@pytest.mark.parametrize(
    "query", [None, {}, {"seller": None}, {"status": "closed"}, {"status": "closed", "seller": None}]
)
async def test_a_filter_that_is_required_has_to_be_given(query: dict[str, object] | None) -> None:
    """Also where nothing else is: without it, a search would find what is not asked for."""
    search = replace(OPERATIONS["plans.search"], query=OfSeller)
    async with PaymentsClient("token", base_url="https://x", transport=MemoryTransport([])) as client:
        with pytest.raises(RequestInvalid, match="missing required field `seller`") as rejected:
            await client.call(search, query=query)
        with pytest.raises(RequestInvalid, match="missing required field `seller`"):
            Pager(client, search, **(query or {}))
    assert ("$query", "required") == (rejected.value.path, rejected.value.rule)


class Plain(Enum):
    """A status whose members are no texts, and one that would leave the filter out."""

    CLOSED = "closed"
    SEVEN = 7
    PAIR = ("a", "b")


class AnyFilters(TypedDict):
    """What an operation of one's own may declare: whatever its author likes."""

    it: Any


@pytest.mark.control("paymentsdk._codec.encode.query_text", str)
@pytest.mark.parametrize(
    ("value", "text"), [(Plain.CLOSED, "closed"), (Decimal("1E+2"), "100"), (1e16, "10000000000000000")]
)
def test_a_filter_of_ones_own_goes_out_as_it_is_meant(value: object, text: str) -> None:
    """An Enum is its value, and a number has no exponent; days, times, UUIDs and other numbers are Python's text."""
    encoder = declared(query=AnyFilters).query_encoder
    for other in (time(12, 30), date(2026, 1, 31), UUID(int=5), Decimal("1.50"), -3):
        assert f"it={quote(str(other))}" == encoder.encode({"it": other})

    assert f"it={text}" == encoder.encode({"it": value})


@pytest.mark.control("paymentsdk._codec.encode.query_text", str, raises=pytest.fail.Exception)
@pytest.mark.parametrize(
    ("value", "rule", "reason"),
    [
        (["a", "b"], "type", "got list"),
        (b"closed", "type", "got bytes"),
        (Plain.PAIR, "type", "got tuple"),
        (math.inf, "value", "must be a finite number"),
        (Decimal("sNaN"), "value", "must be a finite number"),
    ],
    ids=str,
)
def test_a_filter_that_is_no_text_of_the_wire(value: object, rule: str, reason: str) -> None:
    """What has no one form in a URL is rejected with its place: as Python's text it would find nothing, in silence."""
    with pytest.raises(RequestInvalid, match=re.escape(reason)) as rejected:
        declared(query=AnyFilters).query_encoder.encode({"it": value})

    assert ("$query.it", rule) == (rejected.value.path, rejected.value.rule)


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        ({"colour": "red"}, "$query.colour"),
        ({"status": 5}, "$query.status"),
        ({"limit": 0}, "$query.limit"),
        ({"offset": -1}, "$query.offset"),
        ({"payer_id": True}, "$query.payer_id"),
        ({"date_created_from": "2026-01-31T00:00:00Z"}, "$query.date_created_from"),
        ({"date_created_from": datetime(2026, 1, 31)}, "$query.date_created_from"),  # noqa: DTZ001
        ({"status": "\ud800"}, "$query.status"),
        # A platform takes it for none: who looks for the orders of "" would get everybody's.
        ({"external_reference": ""}, "$query.external_reference"),
    ],
)
def test_a_filter_that_breaks_a_rule(filters: dict[str, object], path: str) -> None:
    """A filter that is unknown, empty, or of the wrong type, is rejected with its name."""
    with pytest.raises(RequestInvalid) as rejected:
        ORDERS.encode(filters)

    assert path == rejected.value.path


# --- paths ------------------------------------------------------------------------------------------------------------

UNSAFE = ["..", ".", "a/b", "a?b", "%2e%2e", "a\n", "", "a\\b", "{order_id}"]


@pytest.mark.control("paymentsdk._codec.encode._SAFE_IN_PATH", re.compile(""))
@pytest.mark.parametrize("value", UNSAFE)
async def test_an_id_cannot_change_the_path(client, transport, value: object) -> None:
    """An id that would lead elsewhere, or needs to be quoted, is rejected: a path is a place where money moves."""
    transport.replies(Response(200, {}, b"{}"))
    with pytest.raises(RequestInvalid) as rejected:
        await client.call(declared(path="/v1/orders/{order_id}/refund"), order_id=value)

    assert "$path.order_id" == rejected.value.path
    assert [] == transport.requests


@pytest.mark.parametrize("value", [None, True, 5.0, pytest.param(10**5000, id="huge")])
async def test_what_is_no_id_in_a_path(client, value: object) -> None:
    """An id is a text, a whole number or a UUID."""
    with pytest.raises(RequestInvalid, match=r"\$path.order_id: expected a text, a whole number or a UUID, got"):
        await client.call(OPERATIONS["orders.get"], order_id=value)


class Int64:
    """A whole number as NumPy has it: it is no `int`."""

    def __index__(self) -> int:
        return 123


@pytest.mark.parametrize(
    ("value", "text"),
    [(123, "123"), (Int64(), "123"), (Shop.IT, "7"), (UUID(int=5), "00000000-0000-0000-0000-000000000005")],
)
async def test_an_id_may_be_a_number_or_a_uuid(client, transport, value: Any, text: str) -> None:
    """It stands in the path as text, and in a search as well; the response is compared with that text."""
    transport.replies(Response(200, {}, f'{{"id":"{text}"}}'.encode()), Response(200, {}, b'{"id":"8"}'))

    await client.call(OPERATIONS["orders.get"], order_id=value)
    with pytest.raises(NoAnswer, match="about another id"):
        await client.with_options(retry=RetryPolicy(attempts=1)).call(OPERATIONS["orders.get"], order_id=value)

    assert transport.requests[0].url.endswith(f"/v1/orders/{text}")
    name = "external_reference" if isinstance(value, UUID) else "application_id"
    assert f"{name}={text}" == ORDERS.encode({name: value})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [({"a": "1", "c": "2"}, "c: is not an argument of this operation"), ({"a": "1"}, r"\$path.b: is missing")],
)
async def test_every_placeholder_has_its_value(client, transport, values: dict[str, str], complaint: str) -> None:
    """Of several values, none may be missing and none left over."""
    operation = declared(path="/x/{a}/y/{b}")
    transport.replies(Response(200, {}, b"{}"))

    await client.call(operation, b="2", a="1")

    assert transport.requests[0].url.endswith("/x/1/y/2")
    with pytest.raises(RequestInvalid, match=complaint):
        await client.call(operation, **values)
