"""Laws of answers: whatever comes, it is read, mended or refused; nothing else happens."""

from __future__ import annotations

import json
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from paymentsdk import OPERATIONS, APIError, Response
from paymentsdk._operation.error_response import RAW_LIMIT, parse_error_response

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
def answers(result: type) -> st.SearchStrategy[object]:
    """Answers that look like *result*."""
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


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
def test_an_answer_is_mended_into_its_type(name: str, data: st.DataObject) -> None:
    """Any JSON in any place of an answer gives a value whose every member is of its type, or no value at all."""
    operation = OPERATIONS[name]
    body = data.draw(answers(operation.result))
    try:
        value, anomalies = operation.decode(json.dumps(body).encode("utf-8", "surrogatepass"))
    except ValueError:
        return

    plain = msgspec.to_builtins(value)
    assert value == msgspec.convert(plain, operation.result, strict=True)
    assert all(anomaly.path.startswith("$") and anomaly.reason for anomaly in anomalies)


@pytest.mark.parametrize("name", ["orders.get", "merchant_orders.search", "release_reports.disable_schedule"])
@given(body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")))
def test_no_bytes_break_the_decoder(name: str, body: bytes) -> None:
    """Any bytes are an answer, or are refused as one."""
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


@given(
    status=st.integers(300, 599),
    body=st.binary(max_size=60) | REFUSALS.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
    headers=st.dictionaries(st.sampled_from(["X-Request-Id", "retry-after", "Date"]), st.text(max_size=9)),
)
@pytest.mark.parametrize("name", ["orders.create", "customers.create", "oauth.token"])
def test_no_body_breaks_the_reader_of_errors(name: str, status: int, body: bytes, headers: dict[str, str]) -> None:
    """Whatever a refusal looks like, it becomes an error with its status, a message and its raw body."""
    error = parse_error_response(OPERATIONS[name], Response(status, headers, body), ["a-secret-of-some-length"])

    assert isinstance(error, APIError)
    assert (status, body[:RAW_LIMIT]) == (error.status, error.raw)
    assert error.message
    assert error.code is None or isinstance(error.code, str)
    assert all(isinstance(line, str) for detail in error.details for line in detail.details)
    assert str(status) in str(error)
