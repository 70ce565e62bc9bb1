"""A plain rejection of a new name is final, and a write that was turned away may be called again: on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paymentsdk import (
    OPERATIONS,
    APIError,
    BadRequest,
    Deferred,
    NotFound,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    PermissionDenied,
    RateLimited,
    ReauthorizationRequired,
    RefreshingToken,
    Request,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk.journal import RecordState
from paymentsdk.testing import MemoryTransport
from tests.calls.test_settled import KEYED, UNKEYED
from tests.identity.writes import body_of
from tests.journal.conftest import Start
from tests.journal.platform import ONCE, TOKEN, Platform, order

Write = Operation[object, object]

WRITES = {name: OPERATIONS[name] for name in ("orders.create", "orders.refund", "customers.create")}


def says(status: int, code: str, **headers: str) -> Response:
    """Return a rejection of the platform."""
    return Response(status, headers, b'{"errors":[{"code":"%s","message":"no"}]}' % code.encode())


async def error_of(
    client: PaymentsClient, operation: Write, once: str | None = None, **options: object
) -> PaymentsError:
    """Return the error of a write."""
    path = dict.fromkeys(operation.path_names, "ORD1")
    with pytest.raises(PaymentsError) as raised:
        await client.call(operation, body_of(operation.name), once=once, **options, **path)
    return raised.value


async def state_of(client: PaymentsClient, name: str) -> RecordState:
    """Return the state of a record."""
    return next(row.state for row in await client.journal.records(set(RecordState)) if row.name == name)


def facts(error: PaymentsError) -> tuple[object, ...]:
    """Return what a caller decides by."""
    return type(error), *(getattr(error, name, None) for name in ("status", "code", "codes", "settled"))


#: What anybody may send who stands between: the rest of what is tried is declared by the operation.
OTHERS = {
    "brand new": says(422, "brand_new"),
    "a state": says(409, "thing_already_sold"),
    "no state": says(409, "thing_changed"),
    "the key": says(409, "idempotency_key_already_used"),
    "the key as a 400": says(400, "idempotency_key_already_used"),
    "payment failed": says(402, "declined"),
    "with an order": Response(400, {}, b'{"code":"property_value","data":{"id":"ORD1"}}'),
    "request timeout": says(408, "property_value"),
    "locked": says(423, "property_value"),
    "in progress": says(400, "refund_in_progress"),
    "dependency": says(424, "property_value"),
    "too early": says(425, "property_value"),
    "HTML": Response(403, {}, b"<html>Forbidden</html>"),
    "no route": Response(404, {}, b'{"message":"no Route matched with those values"}'),
    "closed by a proxy": says(499, "property_value"),
    "server": says(503, "property_value"),
    "too many": says(429, "too_many_requests"),
    "no token": says(401, "whatever"),
    "forbidden": says(403, "blocked"),
    "bad token of a preference": says(400, "invalid_access_token"),
}
TURNED_AWAY = {401, 403, 429}
#: What is never final under a name, though it settles a write without a name.
KEY_USED = "idempotency_key_already_used"


def rejections(operation: Write) -> dict[str, Response]:
    """Return every rejection that *operation* declares, and what others may send."""
    return {f"{error.status} {error.code}": says(error.status, error.code) for error in operation.errors} | OTHERS


@pytest.mark.parametrize("operation", [*WRITES.values(), KEYED, UNKEYED], ids=lambda operation: operation.name)
async def test_a_new_name_hears_what_a_call_without_a_name_hears(
    start: Start, platform: Platform, operation: Write
) -> None:
    """What settles a call without a name settles the name: at once, later, and in another process.

    A name whose write was turned away is free: the record is `not_sent`, and nobody else sends it.
    """
    client, another = start(), start()
    for name, response in rejections(operation).items():
        platform.fail = lambda request, response=response: response
        unnamed = await error_of(client, operation)
        with_name = await error_of(client, operation, once=name)

        is_settled = isinstance(unnamed, APIError) and unnamed.settled and KEY_USED not in unnamed.codes
        if not is_settled:
            assert OutcomeUnknown is type(with_name), name
            assert RecordState.UNKNOWN is await state_of(client, name), name
            continue
        assert facts(unnamed) == facts(with_name), name
        is_turned_away = unnamed.status in TURNED_AWAY or unnamed.code == "invalid_access_token"
        assert (RecordState.NOT_SENT if is_turned_away else RecordState.REFUSED) is await state_of(client, name), name
        sent = len(platform.posts)
        again = await error_of(another, operation, once=name)
        assert facts(with_name) == facts(again), name
        assert (len(platform.posts) > sent) == is_turned_away, name


@pytest.mark.parametrize("name", ["orders.create", "customers.create"])
async def test_recovery_leaves_what_is_settled_alone(start: Start, platform: Platform, name: str) -> None:
    """After the last rejection nothing is sent until the caller asks for it: the balance may suffice by then."""
    client, operation = start(), WRITES[name]
    for number, response in enumerate((says(400, "property_value"), says(403, "forbidden_now"), OTHERS["too many"])):
        platform.fail = lambda request, response=response: response
        assert isinstance(await error_of(client, operation, once=f"n-{number}"), APIError)
    platform.fail, sent = None, len(platform.posts)

    summary = await start().recover()

    assert ((), {}, sent) == (summary.left, dict(summary.resolved), len(platform.posts))


@pytest.mark.control("paymentsdk.journal._outcome.TURNED_AWAY", frozenset())
@pytest.mark.parametrize("operation", [WRITES["orders.create"], WRITES["customers.create"]], ids=["keyed", "unkeyed"])
async def test_one_429_that_asks_for_a_minute(start: Start, platform: Platform, operation: Write) -> None:
    """The client does not wait that long: the caller hears how long to wait, and may call again with the name."""
    platform.fail = lambda request: says(429, "too_many_requests", **{"Retry-After": "60"})
    client = start()
    error = await error_of(client, operation, once="n-1")

    assert (RateLimited, 60.0, True, 1) == (type(error), error.retry_after, error.settled, error.attempts)
    assert RecordState.NOT_SENT is await state_of(client, "n-1")
    sent = len(platform.posts)
    platform.fail = lambda request: PLAIN
    assert BadRequest is type(await error_of(client, operation, once="n-1"))
    assert sent + 1 == len(platform.posts)


def in_turn(platform: Platform, *steps: Response | SendFailed | None) -> None:
    """Have the platform respond with *steps*; `None` is what it does itself."""
    remaining = list(steps)

    def fail(request: Request) -> Response | None:
        step = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(step, SendFailed):
            raise step
        return step

    platform.fail = fail


def believing(settles: Callable[..., Any]) -> Callable[..., Any]:
    """Take every rejection for final."""
    return lambda *args, **facts: type(settles(*args, **facts)).ALL


PLAIN, SETTLING = says(422, "brand_new"), says(400, "property_value")
LOST, UNSENT = SendFailed("reset", sent=True), SendFailed("refused", sent=False)
TOO_MANY = says(429, "too_many_requests")


@pytest.mark.parametrize("before", [(UNSENT,), (TOO_MANY,)], ids=["unsent", "429"])
async def test_attempts_without_effect_do_not_count(
    start: Start, platform: Platform, before: tuple[Response | SendFailed, ...]
) -> None:
    """What was not sent, or turned away, leaves no doubt: the rejection after it is final."""
    in_turn(platform, *before, PLAIN)
    client = start()
    error = await error_of(client, WRITES["orders.create"], once="n-1")

    assert (BadRequest, True) == (type(error), error.settled)
    assert RecordState.REFUSED is await state_of(client, "n-1")


@pytest.mark.control("paymentsdk._contract.rules.settles", around=believing)
@pytest.mark.parametrize("before", [(LOST,), (TOO_MANY, LOST), (says(503, "x"),)], ids=["lost", "429, lost", "503"])
async def test_a_rejection_after_a_doubt_is_not_final(
    start: Start, platform: Platform, before: tuple[Response | SendFailed, ...]
) -> None:
    """The attempt in doubt may have taken effect, and be the very reason of the rejection."""
    in_turn(platform, *before, PLAIN)
    client = start()

    assert OutcomeUnknown is type(await error_of(client, WRITES["orders.create"], once="n-1"))
    assert RecordState.UNKNOWN is await state_of(client, "n-1")


@pytest.mark.control("paymentsdk._contract.rules.settles", around=believing)
@pytest.mark.parametrize(
    ("by", "response"), [("the same name", PLAIN), ("recovery", PLAIN), ("the same name", TOO_MANY)]
)
async def test_what_was_taken_over_is_not_rejected_by_that(
    start: Start, platform: Platform, by: str, response: Response
) -> None:
    """A process was cut off while it sent: whoever goes on with its record believes only a code that settles."""
    platform.lose = True
    await error_of(start(retry=ONCE), WRITES["orders.create"], once="n-1")
    platform.fail = lambda request: response
    client = start()
    if by == "recovery":
        await client.recover()
    else:
        assert OutcomeUnknown is type(await error_of(client, WRITES["orders.create"], once="n-1"))

    assert RecordState.UNKNOWN is await state_of(client, "n-1")


async def test_a_deferred_write_that_was_turned_away_is_sent_by_recovery(start: Start, platform: Platform) -> None:
    """With `defer=True` the caller leaves to recovery what cannot be done now, such as what meets a rate limit."""
    in_turn(platform, TOO_MANY)
    client = start()
    with pytest.raises(Deferred, match="429"):
        await client.orders.create(order(), once="n-1", defer=True)
    platform.fail = None
    await client.recover()

    assert RecordState.DONE is await state_of(client, "n-1")


@pytest.mark.parametrize(
    ("refreshed", "then", "error", "state"),
    [
        (200, says(404, "pos_not_found"), NotFound, RecordState.REFUSED),
        (200, says(403, "blocked"), PermissionDenied, RecordState.NOT_SENT),
        (400, PLAIN, ReauthorizationRequired, RecordState.NOT_SENT),
    ],
    ids=["rejected then", "turned away then", "spent"],
)
async def test_a_token_that_is_refreshed_on_the_way(
    start: Start, platform: Platform, *, refreshed: int, then: Response, error: type[APIError], state: RecordState
) -> None:
    """The first attempt was turned away with its token: what counts is what comes of the next one, if there is one."""
    in_turn(platform, says(401, "unauthorized"), then)
    tokens = (
        b'{"access_token":"%s","refresh_token":"TG-new","expires_in":15552000}' % TOKEN.replace("-1123", "-9").encode()
    )

    def respond(request: Request) -> Response:
        if request.url.endswith("/oauth/token"):
            return Response(refreshed, {}, tokens if refreshed == 200 else b'{"error":"invalid_grant"}')
        return platform(request)

    auth = RefreshingToken(TokenPair(access_token=TOKEN, refresh_token="TG-old-refresh"))
    client = start(
        None, auth=auth, transport=MemoryTransport(respond), client_id="1", client_secret="secret-0123456789"
    )
    raised = await error_of(client, WRITES["orders.create"], once="n-1")

    assert (error, True) == (type(raised), raised.settled)
    assert state is await state_of(client, "n-1")
