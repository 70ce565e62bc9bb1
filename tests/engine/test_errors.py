"""Errors say what is known and what to do next, travel between processes, and read every shape of error body."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from paymentsdk import (
    OPERATIONS,
    APIError,
    Deferred,
    ErrorDetail,
    Incomplete,
    NoAnswer,
    NotWhole,
    Operation,
    OutcomeUnknown,
    PaymentsError,
    ReauthorizationRequired,
    RequestInvalid,
    Response,
    ResumePoint,
    RetryPolicy,
    ServerError,
)
from tests.engine.conftest import example_call

# --- errors -----------------------------------------------------------------------------------------------------------


NOW = datetime(2026, 1, 31, tzinfo=UTC)
WINDOW = "2026-01-31T00:00:00.000+00:00 to 2026-01-31T00:00:00.000+00:00"
REFUSAL = APIError(
    402,
    "failed",
    "no funds",
    meaning="the payment failed",
    details=[ErrorDetail(code="failed", details=("card",))],
    request_id="r-1",
    retry_after=7.0,
    raw=b"{}",
)


def classes(cls: type[PaymentsError] = PaymentsError) -> list[type[PaymentsError]]:
    """Every error of the package, from the base down."""
    ours = [sub for sub in cls.__subclasses__() if sub.__module__ == cls.__module__]
    return [cls, *(below for sub in ours for below in classes(sub))]


def made(cls: type[PaymentsError]) -> PaymentsError:
    """An error of *cls* with every attribute set."""
    if issubclass(cls, APIError):
        error = cls(429, "slow", "too fast", meaning="m", details=REFUSAL.details, retry_after=1.5, raw=b"raw")
    elif cls is RequestInvalid:
        error = cls("$.items[0].title", "is too long")
    elif cls is Incomplete:
        error = cls(60, 100, ResumePoint(60, total=100))
    elif cls is NotWhole:
        error = cls((NOW, NOW), 3, 4, "it has too many rows")
    elif cls is Deferred:
        error = cls("table-7/1", "connection refused")
    else:
        error = cls("the reason")
    if isinstance(error, NoAnswer):
        error.first_reason, error.last_error, error.first_sent_at = "reset", REFUSAL, NOW
    error.operation, error.attempts, error.idempotency_key = "orders.create", 3, "k-1"
    error.request_id, error.resume_point, error.account = "r-1", ResumePoint(60, total=100), "shop-1"
    return error


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_an_error_travels_whole(cls: type[PaymentsError]) -> None:
    """Pickled and copied, an error is what it was: class, text and every attribute."""
    error = made(cls)

    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(error), str(error), error.args) == (type(twin), str(twin), twin.args)
        assert state(error) == state(twin)
        assert (60, 100) == (twin.resume_point, twin.resume_point.total)


def state(error: PaymentsError) -> dict[str, object]:
    """All attributes, with the errors among them as texts."""
    return {name: str(value) if isinstance(value, Exception) else value for name, value in vars(error).items()}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (made(OutcomeUnknown),
         ("outcome unknown after 3 attempt(s): the reason (at first: reset); send it again with idempotency_key='k-1', "
          "within 23 hours of the first time")),
        (OutcomeUnknown("the reason"), "outcome unknown after 0 attempt(s): the reason; look before you send it again"),
        (made(Incomplete), "incomplete: the page at offset 60 of 100 is empty; 60 rows were seen"),
        (made(NotWhole), f"not whole: {WINDOW} of account shop-1, 3 of 4 rows seen: it has too many rows"),
        (REFUSAL, "402 failed no funds (the payment failed) [retry after 7 s] [request r-1]"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_an_error_says_what_to_do(error: PaymentsError, text: str) -> None:
    """The text has what is known and what comes next; for a write in doubt that is the key."""
    assert text == str(error)


@pytest.mark.parametrize("key", ["k-1", None])
def test_the_advice_is_what_the_text_says(key: str | None) -> None:
    """Whoever reads the advice alone is told of the key as well, and never to look where nothing can be looked up."""
    error = OutcomeUnknown("the reason")
    error.in_doubt, error.idempotency_key = "send it again", key

    assert (key is not None) == ("idempotency_key='k-1'" in error.advice)
    assert str(error).endswith(f"; {error.advice}")


@pytest.mark.control("paymentsdk.errors.visible", lambda text: text)
@pytest.mark.parametrize(
    "error",
    [
        APIError(400, "bad\x1b[2J", "no\nCRITICAL forged", request_id="1\x1b]0;mine\x07"),
        APIError(400, message="\u202etxet\u2028 and \x9b2J"),
    ],
)
def test_an_error_is_one_line_of_text(error: PaymentsError) -> None:
    """What a platform, or the buyer of a shop, wrote forges no line of a log, and tells a terminal nothing."""
    assert str(error).isprintable()
    assert "\\x1b" in str(error) or "\\x9b" in str(error)


# --- error responses --------------------------------------------------------------------------------------------------


ORDERS, CUSTOMERS, TOKEN, REFRESH = "orders.create", "customers.create", "oauth.exchange_code", "oauth.refresh"
ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def read(play) -> Callable[..., Awaitable[APIError]]:
    """Read an error response: that of a call, or that which leaves the call in doubt."""

    async def read(body: object, status: int = 400, operation: str = ORDERS, **headers: str) -> APIError:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        error = (await play(operation, Response(status, fields, content), retry=ONCE)).error
        return error.last_error if isinstance(error, OutcomeUnknown) else error

    return read


SHAPES = {
    # name: operation, body, code, message, the entries as (code, message, lines)
    "cause with numbers": (
        CUSTOMERS,
        {"message": "invalid", "error": "bad_request", "cause": [{"code": 101, "description": "exists"}]},
        "101",
        "invalid",
        [("101", "exists", ())],
    ),
    "cause is empty": (ORDERS, {"message": "no", "error": "not_found", "cause": []}, "not_found", "no", []),
    "cause is an object": (ORDERS, {"cause": {"code": 7, "message": "x"}}, "7", "x", [("7", "x", ())]),
    "token endpoint of the contract": (
        TOKEN,
        {"message": "Error", "code": "bad_request", "error": "invalid_grant", "status": 400, "cause": []},
        "invalid_grant",
        "Error",
        [],
    ),
    "token endpoint of the standard": (TOKEN, {"error": "a", "error_description": "unknown"}, "a", "unknown", []),
    "orders": (
        ORDERS,
        {"errors": [{"code": "property_value", "message": "bad", "details": ["total_amount", "items[0]"]}]},
        "property_value",
        "bad",
        [("property_value", "bad", ("total_amount", "items[0]"))],
    ),
    "orders with objects": (
        ORDERS,
        {"errors": [{"code": "a", "message": "b", "details": [{"field": "x", "n": 1}, None, 5]}]},
        "a",
        "b",
        [("a", "b", ("field: x, n: 1", "null", "5"))],
    ),
    "code and message": (ORDERS, {"code": "unauthorized", "message": "no"}, "unauthorized", "no", []),
    "error and code": (ORDERS, {"error": "not_found", "code": 404, "message": "no"}, "not_found", "no", []),
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
    "camel case without entries": (ORDERS, {"Code": "E1", "Message": "no"}, "E1", "no", []),
    "a list of objects": (ORDERS, [{"code": "a", "message": "b"}], "a", "b", [("a", "b", ())]),
    "a list of texts": (ORDERS, ["first", 5, True, None, []], None, "first", [(None, "first", ()), (None, "5", ())]),
    "a string under a third name": (ORDERS, {"errors": [{"msg": "no"}]}, None, "no", [(None, "no", ())]),
    "the first entry says nothing": (
        ORDERS, {"errors": [{"code": "a"}, {"message": "b"}]}, "a", "b", [("a", None, ()), (None, "b", ())]
    ),
    "an object of nothing": (ORDERS, {}, None, "", []),
    "nothing": (ORDERS, b"", None, "", []),
    "plain text": (ORDERS, b"upstream  connect\nerror", None, "upstream connect error", []),
    "html": (ORDERS, b"<html>\n<h1>403</h1>", None, "<html> <h1>403</h1>", []),
    "a string that is no UTF-8": (ORDERS, b'{"message": "\xff"}', None, '{"message": "\ufffd"}', []),
    "odd members": (ORDERS, {"code": ["a"], "message": {"a": 1}, "error": True}, None, "", []),
    "empty members": (ORDERS, {"code": "", "message": "", "errors": [], "error": ""}, None, "", []),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
async def test_one_reader_for_every_shape(read, shape: str) -> None:
    """Code, message and entries are found in every shape; status, request id, Retry-After and body are kept."""
    operation, body, code, message, entries = SHAPES[shape]
    error = await read(body, 418, operation, x_request_no="9", x_request_id="r-1", retry_after="7")
    assert (code, message or "I'm a Teapot") == (error.code, error.message)
    assert entries == [(detail.code, detail.message, detail.details) for detail in error.details]
    assert (418, "r-1", 7.0) == (error.status, error.request_id, error.retry_after)
    assert error.raw == (body if isinstance(body, bytes) else json.dumps(body).encode())


async def test_only_the_beginning_of_the_body_is_kept(read) -> None:
    """An error is small: 2 KiB of the body, 500 characters of the message."""
    error = await read({"message": "x" * 10_000})

    assert (2048, 500) == (len(error.raw), len(error.message))
    assert (500, 500) == (
        len((await read(b"<" * 10_000)).message),
        len((await read(["x" * 10_000])).details[0].message),
    )


async def test_only_so_many_entries_are_kept(read) -> None:
    """An error is small, whatever the platform pours out: 100 entries, 100 lines of each, 500 characters of a text."""
    entry = {"field": "f" * 600, "code": "c" * 600, "message": "m" * 600, "details": ["x" * 600]}
    many, long = await read({"errors": [entry] * 101}), await read({"errors": [{**entry, "details": ["x"] * 101}]})
    [detail, *_] = many.details

    assert (100, 100) == (len(many.details), len(long.details[0].details))
    assert (500, 500, 500) == (len(detail.code), len(detail.message), len(detail.details[0]))


async def test_a_body_that_is_nested_deeply(read) -> None:
    """No depth of nesting breaks the reader."""
    for spoiled in (b"[" * 990 + b"]" * 990, b'{"a":' * 900 + b"1" + b"}" * 900):
        for frame in (
            b"%b",
            b'{"errors":[{"details":[%b]}]}',
            b'{"errors":[{"field":%b}]}',
            b'{"cause":[{"data":%b}]}',
        ):
            assert 400 == (await read(frame % spoiled)).status


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_every_documented_code_has_its_meaning(read, operation: Operation) -> None:
    """Whatever shape it comes in, a documented code comes with what the contract says about it."""
    for documented in operation.errors:
        body = {"errors": [{"code": documented.code}]}
        listed = await read(body, documented.status, example_call(operation))

        assert documented.meaning == listed.meaning == listed.details[0].meaning
        assert documented.code in str(listed)
        assert documented.meaning in str(listed)


async def test_an_error_reads_well(read) -> None:
    """Status, code, message, meaning where it says more, when to come back, and the id that the support asks for."""
    error = await read({"code": "pos_not_found", "message": "no such till"}, 404, x_request_id="r-1")
    bare = await read({"code": "pos_not_found", "message": "external_pos_id is unknown"}, 404)
    later = await read(
        {"error": "too_many_requests", "message": "slow down"}, 429, retry_after="3600", x_request_id="r-1"
    )

    assert "404 pos_not_found no such till (external_pos_id is unknown) [request r-1]" == str(error)
    assert "404 pos_not_found external_pos_id is unknown" == str(bare)
    assert "429 too_many_requests slow down [retry after 3600 s] [request r-1]" == str(later)


@pytest.mark.parametrize("status", [500, 503])
async def test_a_failure_of_the_server_is_no_rejection(read, status: int) -> None:
    """Whatever its code: neither is a key used up by it, nor does a grant end, which would send a person to sign in."""
    for code, operation in (("idempotency_key_already_used", ORDERS), ("invalid_grant", REFRESH)):
        assert ServerError is type(await read({"error": code}, status, operation))


@pytest.mark.parametrize(("code", "status"), [("invalid_grant", 400), ("invalid_client", 401)])
async def test_the_end_of_a_grant(read, code: str, status: int) -> None:
    """The codes that end a grant do so at a refresh only: a code that is rejected never was a grant."""
    body = {"error": code, "message": "no"}

    assert ReauthorizationRequired is type(await read(body, status, REFRESH))
    assert ReauthorizationRequired is not type(await read(body, status, TOKEN))
    assert ReauthorizationRequired is not type(await read({"error": "invalid_scope"}, status, REFRESH))


@pytest.mark.parametrize(
    "body",
    [
        {"error": "bad_request", "cause": [{"code": "invalid_grant"}]},
        {"error": "invalid_grant", "cause": [{"code": "bad_request"}]},
        {"errors": [{"code": "bad_request"}, {"code": "invalid_grant"}]},
    ],
    ids=str,
)
async def test_the_code_of_a_rejected_grant_is_its_sub_error(read, body: object) -> None:
    """Wherever it stands beside `bad_request`, which is the code of all of them by the contract."""
    error = await read(body, 400, REFRESH)

    assert (ReauthorizationRequired, "invalid_grant") == (type(error), error.code)
    assert "bad_request" == (await read({"error": "bad_request", "code": "unheard_of"}, 400, REFRESH)).code


@pytest.mark.control("paymentsdk._contract.error_response.scrub", lambda text, secrets: text)
async def test_credentials_in_a_response_are_masked(read) -> None:
    """A platform that repeats the request does not bring its credentials into the error: not even into `raw`."""
    secret = "client-secret-0123456789"  # Of the client.
    body = json.dumps({"message": f"bad {secret}", "errors": [{"details": [secret, {"was": secret}]}]}).encode()

    error = await read(body, operation=TOKEN)

    assert secret not in repr((error.message, error.details, error.raw, str(error)))
    assert "bad ***" == error.message


async def test_credentials_are_masked_however_they_are_written(read) -> None:
    """JSON can write each letter as a number: what is read from it is masked all the same."""
    secret = "client-secret-0123456789"
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in secret)

    error = await read(f'{{"message":"bad {spelled}"}}'.encode(), operation=TOKEN)

    assert "bad ***" == error.message
    assert spelled.encode() not in error.raw
