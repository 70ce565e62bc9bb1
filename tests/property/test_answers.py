"""Laws of responses: whatever comes, it is read, repaired or rejected; nothing else happens."""

from __future__ import annotations

import asyncio
import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from paymentsdk import OPERATIONS, APIError, NoAnswer, PaymentsClient, PaymentsError, Response, RetryPolicy
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.testing import MemoryTransport

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "3", "24.90", "NaN", "1e999", "2026-01-31", "2026-01-31T00:00:00.000-04:00", "true", "ok"])
)
JSON = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)


@cache
def responses(result: type) -> st.SearchStrategy[object]:
    """Responses that look like *result*."""
    return like(inspect.type_info(result))


def like(info: inspect.Type) -> st.SearchStrategy[object]:
    """Values that look like *info*, with anything in any place."""
    match info:
        case inspect.StructType(fields=fields):
            members = {field.encode_name: like(field.type) | JSON for field in fields}
            needed = {name: st.text(min_size=1, max_size=5) for name in ("id", "access_token") if name in members}
            return st.fixed_dictionaries(needed, optional={k: v for k, v in members.items() if k not in needed})
        case inspect.VarTupleType(item_type=item):
            return st.lists(like(item) | JSON, max_size=3)
        case inspect.UnionType(types=types):
            return st.one_of(*map(like, types))
        case _:
            return SCALARS


@pytest.mark.parametrize("name", ["orders.get", "merchant_orders.search", "release_reports.disable_schedule"])
@given(body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")))
def test_no_bytes_break_the_decoder(name: str, body: bytes) -> None:
    """Any bytes are a response, or are rejected as one."""
    try:
        value, _ = OPERATIONS[name].decode(body)
    except ValueError:
        return

    assert isinstance(value, OPERATIONS[name].result)


NAMES = [
    "errors",
    "cause",
    "causes",
    "error",
    "code",
    "message",
    "details",
    "data",
    "field",
    "ErrorCause",
    "description",
]
REFUSALS = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(NAMES), below, max_size=4),
    max_leaves=9,
)


#: What is sent, by the operation; another shape of error body belongs to each.
CALLS = {
    "orders.get": (None, {"order_id": "ORD1"}),
    "orders.cancel": (None, {"order_id": "ORD1"}),
    "customers.create": (CustomerRequest(email="a@example.com"), {}),
}


async def error_of(name: str, response: Response) -> PaymentsError:
    """Return what a call raises that gets *response*."""
    body, path = CALLS[name]
    client = PaymentsClient(
        "TEST-1", base_url="http://127.0.0.1", transport=MemoryTransport([response]), retry=RetryPolicy(attempts=1)
    )
    async with client:
        with pytest.raises(PaymentsError) as raised:
            await client.call(OPERATIONS[name], body, **path)
    return raised.value


@given(
    status=st.integers(400, 599),
    body=st.binary(max_size=60) | REFUSALS.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
    headers=st.dictionaries(st.sampled_from(["X-Request-Id", "retry-after", "Date"]), st.text(max_size=9)),
)
@pytest.mark.parametrize("name", CALLS)
def test_no_body_breaks_the_reader_of_errors(name: str, status: int, body: bytes, headers: dict[str, str]) -> None:
    """Whatever a rejection looks like, it becomes an error with its status, a message and its raw body."""
    error = asyncio.run(error_of(name, Response(status, headers, body)))
    error = error.last_error if isinstance(error, NoAnswer) else error

    assert isinstance(error, APIError)
    assert (status, body[:1000]) == (error.status, error.raw[:1000])
    assert error.message
    assert error.code is None or isinstance(error.code, str)
    assert all(isinstance(line, str) for detail in error.details for line in detail.details)
    assert str(status) in str(error)
