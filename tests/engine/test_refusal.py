"""What a refusal says: every shape of error body that was ever seen, and none that breaks the reader."""

from __future__ import annotations

import json

import pytest

from paymentsdk import (
    OPERATIONS,
    APIError,
    AuthenticationFailed,
    BadRequest,
    Conflict,
    ErrorDetail,
    IdempotencyConflict,
    NotFound,
    PermissionDenied,
    RateLimited,
    ReauthorizationRequired,
    Response,
    ServerError,
)
from paymentsdk._operation import error_response as refusal
from paymentsdk._operation.error_response import RAW_LIMIT, parse_error_response
from paymentsdk.errors import error_class
from paymentsdk.resources.oauth import _REFRESH

ORDERS, CUSTOMERS, TOKEN = OPERATIONS["orders.create"], OPERATIONS["customers.create"], OPERATIONS["oauth.token"]


def read(body: object, status: int = 400, operation=ORDERS, **headers: str) -> APIError:
    """Read a refusal."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_error_response(
        operation, Response(status, {name.replace("_", "-"): v for name, v in headers.items()}, content)
    )


# --- shapes -----------------------------------------------------------------------------------------------------------

SHAPES = {
    # name: operation, body, code, message, the entries as (code, message, lines)
    "cause with numbers": (
        CUSTOMERS,
        {"message": "invalid", "error": "bad_request", "cause": [{"code": 101, "description": "exists"}]},
        "101",
        "invalid",
        [("101", "exists", ())],
    ),
    "cause with texts": (
        CUSTOMERS,
        {"message": "invalid", "cause": [{"code": "130", "description": "odd", "data": "2026"}]},
        "130",
        "invalid",
        [("130", "odd", ("2026",))],
    ),
    "several causes": (
        CUSTOMERS,
        {"cause": [{"description": "no code"}, {"code": 107, "description": "first_name"}]},
        "107",
        "no code",
        [(None, "no code", ()), ("107", "first_name", ())],
    ),
    "cause is empty": (ORDERS, {"message": "no", "error": "not_found", "cause": []}, "not_found", "no", []),
    "cause is null": (ORDERS, {"message": "no", "error": None, "cause": None}, None, "no", []),
    "cause is an object": (ORDERS, {"cause": {"code": 7, "message": "x"}}, "7", "x", [("7", "x", ())]),
    "token endpoint": (
        TOKEN,
        {"message": "Error validating grant", "error": "invalid_grant", "status": 400, "cause": []},
        "invalid_grant",
        "Error validating grant",
        [],
    ),
    "token endpoint of the standard": (
        TOKEN,
        {"error": "invalid_scope", "error_description": "unknown scope"},
        "invalid_scope",
        "unknown scope",
        [],
    ),
    "orders": (
        ORDERS,
        {"errors": [{"code": "property_value", "message": "bad", "details": ["total_amount", "items[0]"]}]},
        "property_value",
        "bad",
        [("property_value", "bad", ("total_amount", "items[0]"))],
    ),
    "orders without details": (ORDERS, {"errors": [{"code": "a", "message": "b"}]}, "a", "b", [("a", "b", ())]),
    "orders with objects": (
        ORDERS,
        {"errors": [{"code": "a", "message": "b", "details": [{"field": "x", "n": 1}, None, 5]}]},
        "a",
        "b",
        [("a", "b", ("field: x, n: 1", "null", "5"))],
    ),
    "several errors and the order": (
        ORDERS,
        {"errors": [{"code": "a", "message": "b"}, {"code": "c", "message": "d"}], "data": {"id": "ORD1"}},
        "a",
        "b",
        [("a", "b", ()), ("c", "d", ())],
    ),
    "code and message": (ORDERS, {"code": "unauthorized", "message": "no"}, "unauthorized", "no", []),
    "message": (ORDERS, {"message": "no"}, None, "no", []),
    "error": (ORDERS, {"error": "forbidden"}, "forbidden", "forbidden", []),
    "error and code": (ORDERS, {"error": "not_found", "code": 404, "message": "no"}, "not_found", "no", []),
    "error is an object": (ORDERS, {"error": {"code": "a", "message": "b"}}, "a", "b", [("a", "b", ())]),
    "gateway": (ORDERS, {"status": 504, "message": "upstream"}, None, "upstream", []),
    "fields": (
        ORDERS,
        {"code": "bad_request", "message": "no", "details": [{"field": "total_amount", "message": "negative"}]},
        "bad_request",
        "no",
        [(None, "negative", ("total_amount",))],
    ),
    "plural": (ORDERS, {"message": "no", "causes": [{"code": "x"}]}, "x", "no", [("x", None, ())]),
    "camel case": (
        ORDERS,
        {"ErrorCode": "E1", "ErrorMessage": "no", "ErrorStatus": 400, "ErrorCause": [{"ErrorCode": 5}]},
        "5",
        "no",
        [("5", None, ())],
    ),
    "camel case all through": (
        ORDERS, {"ErrorCause": [{"Code": 5, "Description": "no"}]}, "5", "no", [("5", "no", ())]
    ),
    "camel case without cause": (ORDERS, {"ErrorCode": 12, "ErrorMessage": "no"}, "12", "no", []),
    "camel case without entries": (ORDERS, {"Code": "E1", "Message": "no"}, "E1", "no", []),
    "blocked": (ORDERS, {"status": 403, "code": "PA_UNAUTHORIZED", "message": "no", "blocked_by": "x"},
                "PA_UNAUTHORIZED", "no", []),
    "too many requests": (ORDERS, {"status": 429, "error": "too_many_requests", "message": "slow"},
                          "too_many_requests", "slow", []),
    "a list of objects": (ORDERS, [{"code": "a", "message": "b"}], "a", "b", [("a", "b", ())]),
    "a list of texts": (ORDERS, ["first", 5, True, None, []], None, "first", [(None, "first", ()), (None, "5", ())]),
    "a text under a third name": (ORDERS, {"errors": [{"msg": "no"}]}, None, "no", [(None, "no", ())]),
    "the first list is empty": (
        ORDERS, {"errors": [], "cause": [{"code": "a", "message": "b"}]}, "a", "b", [("a", "b", ())]
    ),
    "the first entry says nothing": (
        ORDERS, {"errors": [{"code": "a"}, {"message": "b"}]}, "a", "b", [("a", None, ()), (None, "b", ())]
    ),
    "a list of nothing": (ORDERS, [], None, "Bad Request", []),
    "an object of nothing": (ORDERS, {}, None, "Bad Request", []),
    "null": (ORDERS, None, None, "null", []),
    "a number": (ORDERS, 5, None, "5", []),
    "a text": (ORDERS, "no", None, '"no"', []),
    "nothing": (ORDERS, b"", None, "Bad Request", []),
    "spaces": (ORDERS, b" \n ", None, "Bad Request", []),
    "plain text": (ORDERS, b"upstream  connect\nerror", None, "upstream connect error", []),
    "html": (ORDERS, b"<html>\n<h1>403</h1>", None, "<html> <h1>403</h1>", []),
    "no text at all": (ORDERS, b"\xff\xfe\x00", None, "\ufffd\ufffd\x00", []),
    "a text that is no UTF-8": (ORDERS, b'{"message": "\xff"}', None, '{"message": "\ufffd"}', []),
    "odd members": (ORDERS, {"code": ["a"], "message": {"a": 1}, "error": True}, None, "Bad Request", []),
    "empty members": (ORDERS, {"code": "", "message": "", "errors": [], "error": ""}, None, "Bad Request", []),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_one_reader_for_every_shape(shape: str) -> None:
    """Code, message and entries are found wherever a platform of this kind puts them; the message is never empty."""
    operation, body, code, message, entries = SHAPES[shape]

    error = read(body, operation=operation)

    assert (code, message) == (error.code, error.message)
    assert entries == [(detail.code, detail.message, detail.details) for detail in error.details]


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_else_is_lost(shape: str) -> None:
    """Whatever the body: status, request id, Retry-After and the body itself stay on the error."""
    operation, body, *_ = SHAPES[shape]

    error = read(body, 418, operation, x_request_id="r-1", retry_after="7")

    assert (418, "r-1", 7.0) == (error.status, error.request_id, error.retry_after)
    assert error.raw == (body if isinstance(body, bytes) else json.dumps(body).encode())


def test_only_the_beginning_of_the_body_is_kept() -> None:
    """An error is small: 2 KiB of the body, 500 characters of the message."""
    error = read({"message": "x" * 10_000})

    assert (RAW_LIMIT, 500) == (len(error.raw), len(error.message))
    assert 2048 == RAW_LIMIT
    assert (500, 500) == (len(read(b"<" * 10_000).message), len(read(["x" * 10_000]).details[0].message))


def test_only_so_many_entries_are_kept() -> None:
    """An error is small, whatever the platform pours out: 100 entries, 100 lines of each, 500 characters of a text."""
    entry = {"field": "f" * 600, "code": "c" * 600, "message": "m" * 600, "details": ["x" * 600] * 110}

    error = read({"errors": [entry] * 110})

    assert 100 == len(error.details)
    assert {(500, 500, 100)} == {(len(one.code), len(one.message), len(one.details)) for one in error.details}
    assert {500} == {len(line) for one in error.details for line in one.details}


@pytest.mark.parametrize("levels", [*range(100, 1000, 100), *range(900, 1000, 7)])
def test_a_body_that_is_nested_deeply(levels: int) -> None:
    """No depth of nesting breaks the reader."""
    for spoiled in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
        for frame in (
            b"%b",
            b'{"errors":[{"details":[%b]}]}',
            b'{"errors":[{"field":%b}]}',
            b'{"cause":[{"data":%b}]}',
        ):
            assert 400 == read(frame % spoiled).status


def test_what_is_nested_too_deeply_is_not_told() -> None:
    """A line of an error that nobody could read is cut, and nothing is raised."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]

    assert ("...", "[1,null]", "text") == tuple(map(refusal._plain, (nested, [1, None], "text")))


# --- meanings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_documented_code_has_its_meaning(name: str) -> None:
    """Whatever shape it comes in, a documented code comes with what the contract says about it."""
    operation = OPERATIONS[name]
    for documented in operation.errors:
        bare = read({"code": documented.code, "message": "no"}, documented.status, operation)
        listed = read({"errors": [{"code": documented.code}]}, documented.status, operation)

        assert documented.meaning == bare.meaning == listed.meaning == listed.details[0].meaning
        assert documented.code in str(bare)
        assert documented.meaning in str(bare)


def test_an_undocumented_code_has_none() -> None:
    """A code that the contract does not list is a code all the same."""
    error = read({"code": "brand_new", "message": "no"})

    assert ("brand_new", None) == (error.code, error.meaning)
    assert "400 brand_new no" == str(error)


def test_an_error_reads_well() -> None:
    """Status, code, message, meaning where it says more, when to come back, and the id that the support asks for."""
    error = read({"code": "pos_not_found", "message": "no such till"}, 404, x_request_id="r-1")
    bare = read({"code": "pos_not_found", "message": "external_pos_id is unknown"}, 404)
    later = read({"error": "too_many_requests", "message": "slow down"}, 429, retry_after="3600", x_request_id="r-1")

    assert "404 pos_not_found no such till (external_pos_id is unknown) [request r-1]" == str(error)
    assert "404 pos_not_found external_pos_id is unknown" == str(bare)
    assert "429 too_many_requests slow down [retry after 3600 s] [request r-1]" == str(later)


# --- classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, BadRequest),
        (401, AuthenticationFailed),
        (403, PermissionDenied),
        (404, NotFound),
        (409, Conflict),
        (422, BadRequest),
        (429, RateLimited),
        (500, ServerError),
        (503, ServerError),
        (599, ServerError),
        (999, ServerError),
        (402, APIError),
        (418, APIError),
        (499, APIError),
        (307, APIError),
    ],
)
def test_the_status_names_the_class(status: int, cls: type[APIError]) -> None:
    """An HTML 403 is a refusal like any other: the class comes from the status, whatever the body."""
    assert cls is type(read(b"<html>", status)) is error_class(status, None)


def test_the_code_can_say_more() -> None:
    """A key that was used with another request has a class of its own, which is a conflict."""
    error = read({"errors": [{"code": "idempotency_key_already_used"}]}, 409)

    assert IdempotencyConflict is type(error)
    assert isinstance(error, Conflict)


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_of_the_server_is_no_refusal(status: int) -> None:
    """Whatever its code: neither is a key used up by it, nor does a grant end, which would send a person to sign in."""
    for code, operation in (("idempotency_key_already_used", ORDERS), ("invalid_grant", _REFRESH)):
        assert ServerError is type(read({"error": code}, status, operation))


@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client", "unauthorized_client"])
@pytest.mark.parametrize("status", [400, 401])
def test_the_end_of_a_grant(code: str, status: int) -> None:
    """The codes that end a grant do so at a renewal only: a code that is refused never was a grant."""
    body = {"error": code, "message": "no"}

    assert ReauthorizationRequired is type(read(body, status, _REFRESH))
    assert ReauthorizationRequired is not type(read(body, status, TOKEN))
    assert ReauthorizationRequired is not type(read({"error": "invalid_scope"}, status, _REFRESH))


def test_statuses_without_a_name() -> None:
    """A status that HTTP does not know gets a message as well."""
    assert "no message" == read(b"", 599).message


def test_details_are_plain() -> None:
    """An entry is data: it can be compared, and has a default for everything."""
    assert ErrorDetail() == ErrorDetail(code=None, message=None, meaning=None, details=())


@pytest.mark.control("paymentsdk._operation.error_response.scrub", lambda text, secrets: text)
def test_credentials_in_an_answer_are_masked() -> None:
    """A platform that repeats the request does not bring its credentials into the error: not even into `raw`."""
    secret = "client-secret-0123456789"
    body = json.dumps({"message": f"bad {secret}", "errors": [{"details": [secret, {"was": secret}]}]}).encode()

    error = parse_error_response(ORDERS, Response(400, {}, body), [secret, "short"])

    assert secret not in repr((error.message, error.details, error.raw, str(error)))
    assert "bad ***" == error.message


def test_credentials_are_masked_however_they_are_written() -> None:
    """JSON can write each letter as a number: what is read from it is masked all the same."""
    secret = "client-secret-0123456789"
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in secret)

    error = parse_error_response(ORDERS, Response(400, {}, f'{{"message":"bad {spelled}"}}'.encode()), [secret])

    assert "bad ***" == error.message
    assert spelled.encode() not in error.raw
