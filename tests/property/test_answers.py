"""Laws of responses: whatever comes, it is read, repaired or rejected; nothing else happens."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paymentsdk import OPERATIONS, APIError, NoAnswer, PaymentsClient, PaymentsError, Response, RetryPolicy
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.testing import MemoryTransport

#: Of few characters, as a table of all would have to be made first.
TEXTS = st.text('aZ9 \u00e9\0\n"\\\ud83d\U0001f600', max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | TEXTS
    | st.sampled_from(["", "3", "24.90", "NaN", "1e999", "2026-01-31", "2026-01-31T00:00:00.000-04:00", "true", "ok"])
)
JSON = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS, below, max_size=3), max_leaves=6
)


BODIES = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
OPERATION_NAMES = st.sampled_from(["orders.get", "merchant_orders.search", "release_reports.disable_schedule"])


@settings(max_examples=60)
@given(name=OPERATION_NAMES, body=BODIES)
def test_no_bytes_break_the_decoder(name: str, body: bytes) -> None:
    """Any bytes are a response, or are rejected as one."""
    try:
        value, _ = OPERATIONS[name].decode(body)
    except ValueError:
        return

    assert isinstance(value, OPERATIONS[name].result)


NAMES = ["errors", "cause", "causes", "error", "code", "message", "details", "data", "field", "ErrorCause"]
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


@settings(max_examples=60)
@given(
    name=st.sampled_from(list(CALLS)),
    status=st.integers(400, 599),
    body=st.binary(max_size=60) | REFUSALS.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
    headers=st.dictionaries(st.sampled_from(["X-Request-Id", "retry-after", "Date"]), TEXTS),
)
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
