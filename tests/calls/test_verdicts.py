"""What an error response says of a write: a table of every body seen, six writes, and what is in doubt.

What is expected is worked out here from the rules, by hand-written tables and a few lines: not from the code that it
checks, nor from its declarations.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from typing import NamedTuple

import pytest

from paymentsdk import (
    OPERATIONS,
    APIError,
    AuthenticationFailed,
    BadRequest,
    Conflict,
    ErrorCode,
    Failure,
    IdempotencyConflict,
    NotFound,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    PermissionDenied,
    RateLimited,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
)
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.orders import (
    OrderRequest,
    PaymentRequest,
    RefundRequest,
    RefundTransactionRequest,
    TransactionsRequest,
)
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest
from paymentsdk.testing import FakeClock, MemoryTransport

LOST = SendFailed("connection reset", sent=True)
PRICE = Decimal("24.90")

# --- what is written --------------------------------------------------------------------------------------------------


def bodies() -> dict[str, object]:
    """Return the body of each write."""
    payment = TransactionsRequest(payments=[PaymentRequest(amount=PRICE)])
    return {
        "preferences.create": PreferenceRequest(
            items=[PreferenceItemRequest(title="A book", quantity=1, unit_price=PRICE)]
        ),
        "wallet_payments.create": WalletPaymentRequest(
            wallet_payment=WalletChargeRequest(transaction_amount=PRICE, external_reference="shop-1"),
            payer=WalletPayerRequest(token="payer-token-0123456789", type_token="wallet"),
        ),
        "customers.create": CustomerRequest(email="ann@example.com"),
        "orders.create": OrderRequest(external_reference="shop-1", total_amount=PRICE, transactions=payment),
        "orders.cancel": None,
        "orders.refund": RefundRequest(transactions=[RefundTransactionRequest(id="PAY1", amount=PRICE)]),
    }


KEYED = ("wallet_payments.create", "orders.create", "orders.cancel", "orders.refund")
UNKEYED = ("preferences.create", "customers.create")
WRITES = (*KEYED, *UNKEYED)

# --- what comes back --------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """An error response, and what a person reads in it: every code, and whether an object of the platform is there."""

    status: int
    body: bytes
    codes: tuple[str, ...] = ()
    has_object: bool = False


def response(status: int, body: object, *codes: str) -> Answer:
    """Return the response with *body*: JSON, unless it is bytes."""
    return Answer(status, body if isinstance(body, bytes) else json.dumps(body).encode(), codes)


def orders(status: int, *codes: str) -> Answer:
    """Return a response of the Orders API."""
    return response(status, {"errors": [{"code": code, "message": "no", "details": ["x"]} for code in codes]}, *codes)


def causes(status: int, error: str | None, *codes: str | int) -> Answer:
    """Return a response of the older APIs: an error, and codes of its causes."""
    cause = [{"code": code, "description": "no", "data": None} for code in codes]
    return response(
        status,
        {"message": "no", "error": error, "status": status, "cause": cause},
        *filter(None, (*map(str, codes), error)),
    )


ANSWERS: dict[str, Answer] = {
    # A gateway, a load balancer, a firewall: it knows nothing of what an attempt has done.
    "no route": response(404, {"message": "no Route matched with those values"}),
    "gateway bad_request": response(400, {"error": "bad_request"}, "bad_request"),
    "gateway 405": response(405, {"message": "Method Not Allowed"}),
    "gateway 415": response(415, {"message": "Unsupported Media Type"}),
    "gateway 425": response(425, {"message": "Too Early"}),
    "gateway 409": response(409, {"message": "conflict"}),
    "no body": response(404, b""),
    "html": response(403, b"<html>Forbidden</html>"),
    "text": response(400, b"bad gateway"),
    # The platform, about the way to it.
    "401": orders(401, "unauthorized"),
    "403 forbidden": orders(403, "forbidden"),
    "429": response(429, {"status": 429, "error": "too_many_requests", "message": "no"}, "too_many_requests"),
    # The platform, about the request.
    "value": orders(400, "property_value"),
    "not found": orders(404, "order_not_found"),
    "no till": orders(404, "pos_not_found"),
    "amount": orders(400, "refund_amount_exceeds"),
    "failed": orders(402, "failed"),
    "value in a cause": causes(400, "bad_request", "property_value"),
    "value after another": orders(400, "bad_request", "property_value"),
    "value in CamelCase": response(
        400, {"ErrorMessage": "no", "ErrorCause": [{"ErrorCode": "property_value"}]}, "property_value"
    ),
    "value alone": response(400, {"code": "property_value", "message": "no"}, "property_value"),
    "value beside an order": response(
        400, {"errors": [{"code": "property_value", "details": None}], "data": {"id": "ORD1"}}, "property_value"
    )._replace(has_object=True),
    "customer number": causes(400, "bad_request", 106),
    "customer exists": causes(400, "bad_request", "101"),
    "unlisted": orders(400, "brand_new_code"),
    # The platform, about the state.
    "state": orders(409, "cannot_cancel_order"),
    "state of a refund": orders(409, "cannot_refund_order"),
    "already canceled": orders(409, "order_already_canceled"),
    "key used": orders(409, "idempotency_key_already_used"),
    "locked": orders(423, "resource_locked"),
    "busy": orders(409, "refund_in_progress"),
    "value and locked": orders(400, "property_value", "resource_locked"),
    "state and busy": orders(409, "cannot_refund_order", "refund_in_progress"),
}

# --- what must come of it ---------------------------------------------------------------------------------------------

#: What the platform says about the same bytes, or about a state that no attempt of this write can have led to.
_BYTES = {(400, "property_value"), (400, "required_properties"), (400, "invalid_idempotency_key_length")}
SETTLING: dict[str, set[tuple[int, str]]] = {
    "orders.create": {*_BYTES, (404, "pos_not_found")},
    "orders.cancel": {
        (400, "invalid_idempotency_key_length"),
        (404, "order_not_found"),
        (409, "cannot_cancel_order"),
    },
    "orders.refund": {*_BYTES, (404, "order_not_found"), (409, "cannot_refund_order")},
    "wallet_payments.create": set(),
    # Without a key the platform cannot tell a resend from a second request.
    "preferences.create": set(),
    "customers.create": set(),
}
#: Declared by these writes, though they only repeat their statuses.
WORDS = {
    (400, "bad_request"): {*KEYED, "preferences.create"},
    (403, "forbidden"): {"orders.create", "orders.cancel", "orders.refund"},
}
IN_PROGRESS = {"resource_locked", "refund_in_progress"}
DONE = {"order_already_canceled", "order_already_refunded", "idempotency_key_already_used"}
CLASSES = {
    400: BadRequest,
    401: AuthenticationFailed,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
}


class Expected(NamedTuple):
    """What a caller learns, and how many requests it took."""

    error: type[PaymentsError]
    settled: bool | None
    requests: int


def rejected(answer: Answer) -> type[PaymentsError]:
    """Return the class of an error response."""
    used = "idempotency_key_already_used" in answer.codes[:1]
    return IdempotencyConflict if used else CLASSES.get(answer.status, APIError)


def expected(write: str, answer: Answer, *, in_doubt: bool, supplied: bool) -> Expected:
    """Say by the rules what comes of *answer*, which is the response to every attempt but the lost ones."""
    before = int(in_doubt)
    keyed = write in KEYED
    settling = SETTLING[write] | ({(409, "idempotency_key_already_used")} if keyed and not supplied else set())
    busy = bool(IN_PROGRESS & set(answer.codes))
    if not busy and not answer.has_object and any((answer.status, code) in settling for code in answer.codes):
        return Expected(rejected(answer), True, before + 1)
    plain = not (supplied or answer.has_object or answer.status in {402, 421, 425, 426, 451}) and (
        answer.status in {401, 429} or any(write in WORDS.get((answer.status, code), {write}) for code in answer.codes)
    )
    if answer.status == 429:
        return Expected(OutcomeUnknown if in_doubt else RateLimited, None if in_doubt else plain, 4)
    if answer.status in {401, 403}:
        return Expected(OutcomeUnknown if in_doubt else rejected(answer), None if in_doubt else plain, before + 1)
    held = busy or (answer.status in {409, 423, 425} and not DONE & set(answer.codes))
    if keyed and (held or in_doubt):
        return Expected(OutcomeUnknown, None, before + 3)
    if in_doubt:
        return Expected(OutcomeUnknown, None, before + 1)
    return Expected(rejected(answer), plain and not held, 1)


# --- the table --------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What came of a call."""

    error: PaymentsError
    requests: list[Request]


Play = Callable[..., Awaitable[Told]]


@pytest.fixture
def play() -> Play:
    """Make a write, with responses to its attempts: the last one again and again."""

    async def play(
        operation: Operation[object, object], *responses: Response | SendFailed, key: str | None = None
    ) -> Told:
        remaining = list(responses)

        def platform(request: Request) -> Response:
            outcome = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(outcome, SendFailed):
                raise outcome
            return outcome

        transport = MemoryTransport(platform)
        retry = RetryPolicy(retry_unkeyed=True)
        path = dict.fromkeys(operation.path_names, "ORD1")
        async with PaymentsClient(
            "TEST-token", base_url="https://platform.test", transport=transport, clock=FakeClock(), retry=retry
        ) as client:
            with pytest.raises(PaymentsError) as raised:
                await client.call(operation, bodies()[operation.name], idempotency_key=key, **path)
        return Told(raised.value, transport.requests)

    return play


def cells() -> Iterator[tuple[str, bool, bool]]:
    """Yield each write, in doubt or not, with a key of the caller's or not."""
    for write in WRITES:
        for in_doubt in (False, True):
            for supplied in (False, True) if write in KEYED else (False,):
                yield write, in_doubt, supplied


Change = Callable[[ErrorCode], ErrorCode]


@functools.cache
def declared(write: str, change: Change | None) -> Operation[object, object]:
    """Return a write as it is declared, or with its codes changed: once, since a declaration compiles its codecs."""
    operation = OPERATIONS[write]
    return dataclasses.replace(operation, errors=tuple(map(change, operation.errors))) if change else operation


async def told(
    play: Play, write: str, answer: Answer, *, in_doubt: bool, supplied: bool, change: Change | None = None
) -> tuple[Expected, Told]:
    """Play a cell; return what came of it, in the form of what is expected, and the whole."""
    last = Response(answer.status, {}, answer.body)
    result = await play(declared(write, change), *[LOST] * in_doubt, last, key="k-1" if supplied else None)
    settled = result.error.settled if isinstance(result.error, APIError) else None
    return Expected(type(result.error), settled, len(result.requests)), result


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_what_an_error_response_says_of_a_write(play: Play, answer: Answer) -> None:
    """Error class, `settled`, requests, one key and the same bytes: as the rules say for each write."""
    for write, in_doubt, supplied in cells():
        cell = f"{write}{', in doubt' * in_doubt}{', with a key' * supplied}"
        outcome, result = await told(play, write, answer, in_doubt=in_doubt, supplied=supplied)

        assert expected(write, answer, in_doubt=in_doubt, supplied=supplied) == outcome, cell
        keys = {request.headers.get("X-Idempotency-Key") for request in result.requests}
        assert 1 == len({(request.method, request.url, request.body) for request in result.requests}), cell
        assert {result.error.idempotency_key} == keys, cell
        assert (write in KEYED) == (None not in keys), cell
        if isinstance(result.error, OutcomeUnknown):
            last = result.error.last_error
            assert isinstance(last, APIError), cell
            assert not last.settled, cell
            assert f"platform_error:{answer.codes[0] if answer.codes else answer.status}" == result.error.reason, cell


# --- the table can fail -----------------------------------------------------------------------------------------------


async def failing(play: Play, change: Change | None = None) -> set[tuple[str, str]]:
    """Return the cells in doubt that fail with codes declared otherwise: the write, and the name of the response."""
    failed = set()
    for name, answer in ANSWERS.items():
        for write in WRITES:
            outcome, _ = await told(play, write, answer, in_doubt=True, supplied=False, change=change)
            if outcome != expected(write, answer, in_doubt=True, supplied=False):
                failed.add((write, name))
    return failed


def by_status(settles):
    """Compare statuses alone: a gateway's 400 and 404 settle."""

    def settle(errors, status, codes, kind, **facts):
        every = type(settles(errors, status, codes, kind, **facts))
        return every.ALL if any(error.settles and error.status == status for error in errors) else every.NONE

    return settle


def by_first(settles):
    """Compare the first code alone: a cause settles nothing, and "in progress" goes unseen."""
    return lambda errors, status, codes, kind, **facts: settles(errors, status, codes[:1], kind, **facts)


@pytest.mark.control("paymentsdk._call.verdicts.settles", around=by_status)
@pytest.mark.control("paymentsdk._call.verdicts.settles", around=by_first)
async def test_the_status_and_every_code_are_compared(play: Play) -> None:
    """No cell of the table fails; where only the status or the first code is compared, some do."""
    assert set() == await failing(play)


# --- the declarations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "forbidden"),
        (500, "generic"),
        (402, "failed"),
        (424, "bank_down"),
        (499, "left"),
        (429, "too_many_requests"),
        (400, "bad_request"),
        (409, "refund_in_progress"),
        (409, "order_already_canceled"),
    ],
)
def test_what_can_never_settle_is_rejected_at_declaration(status: int, code: str) -> None:
    """A code that a gateway sends as well, or that an own earlier effect causes, cannot be declared to settle."""
    with pytest.raises(RequestInvalid) as invalid:
        ErrorCode(status, code, "", settles=True)

    assert "settles" == invalid.value.path
    assert not ErrorCode(status, code, "").settles


@pytest.mark.control("paymentsdk._contract.rules._NEVER_SETTLE_KIND", frozenset(), raises=pytest.fail.Exception)
@pytest.mark.parametrize("kind", [Failure.SERVER, Failure.RATE_LIMITED, Failure.UNAUTHORIZED, Failure.FORBIDDEN])
def test_what_says_nothing_of_an_earlier_attempt_cannot_settle(kind: Failure) -> None:
    """A declaration with `settles` and a kind that leaves a write in doubt would say two things."""
    with pytest.raises(RequestInvalid, match="says nothing about an earlier attempt") as invalid:
        ErrorCode(404, "thing_not_found", "", settles=True, kind=kind)

    assert "settles" == invalid.value.path
    for fine in (None, Failure.CLIENT_ERROR, Failure.CONFLICT):
        assert ErrorCode(404, "thing_not_found", "", settles=True, kind=fine).settles
