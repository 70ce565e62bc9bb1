"""`APIError.settled`: an example of each sentence of the rule.

What is expected is written down here by hand, from the documentation: not from the code that it checks.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from msgspec import Struct

from paymentsdk import (
    APIError,
    ErrorCode,
    Failure,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    RefreshingToken,
    RequestInvalid,
    Response,
    RetryClass,
    RetryPolicy,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import Script


class Thing(Struct):
    """What the operations here are about."""

    id: str = ""


class CardDeclinedError(APIError):
    """An error class of one's own."""


DECLARED = (
    ErrorCode(400, "bad_request", "a gateway has this text as well"),
    ErrorCode(400, "thing_too_large", ""),
    ErrorCode(402, "failed", "the payment failed"),
    ErrorCode(403, "forbidden", ""),
    ErrorCode(404, "thing_not_found", "", settles=True),
    ErrorCode(409, "cannot_change_thing", "", settles=True),
    ErrorCode(409, "idempotency_key_already_used", "", settles=True),
    ErrorCode(409, "thing_changed", "no state is named, and nothing settles"),
    ErrorCode(409, "card_declined", "", kind=Failure.CLIENT_ERROR, raises=CardDeclinedError),
    ErrorCode(418, "thing_not_found", "a status that only this platform has"),
    ErrorCode(423, "thing_too_large", "", kind=Failure.CLIENT_ERROR),
    ErrorCode(424, "bank_down", ""),
    ErrorCode(444, "thing_too_large", ""),
    ErrorCode(499, "thing_too_large", ""),
)


def declare(name: str, retry: RetryClass) -> Operation[None, Thing]:
    """Return an operation with the codes above."""
    return Operation(name=f"things.{name}", method="POST", path="/things", retry=retry, result=Thing, errors=DECLARED)


READ, KEYED, UNKEYED = (
    declare("read", RetryClass.READ), declare("keyed", RetryClass.KEYED), declare("unkeyed", RetryClass.UNKEYED)
)  # fmt: skip


def shaped(*codes: str, **members: object) -> str:
    """Return a body of the Orders API with *codes*, and further *members*."""
    return json.dumps({"errors": [{"code": code, "message": "no"} for code in codes], **members})


BODIES = {
    "empty": "",
    "HTML": "<html><h1>403 Forbidden</h1></html>",
    "message of a gateway": '{"message": "no Route matched with those values"}',
    "an unlisted code": shaped("brand_new"),
    "a declared code": shaped("thing_too_large"),
    "a code that settles": shaped("thing_not_found"),
    "not-found": '{"code": "not-found"}',
    "a state": shaped("thing_already_canceled"),
    "a conflict without a state": shaped("thing_changed"),
    "a conflict that is declared to be none": shaped("card_declined"),
    "the key": shaped("idempotency_key_already_used"),
    "in progress": shaped("refund_in_progress"),
    "a code that settles, and in progress": shaped("thing_not_found", "refund_in_progress"),
    "the order that exists": shaped("failed", data={"id": "ORD1", "status": "failed"}),
    "a code that settles, and an order": shaped("thing_not_found", data={"id": "ORD1"}),
    "bank down": shaped("bank_down"),
}


class Situation(NamedTuple):
    """Who calls what, and whether an earlier attempt is in doubt."""

    operation: Operation[None, Thing]
    own_key: bool = False
    in_doubt: bool = False


async def rejection(
    situation: Situation, status: int, body: str, *before: Response, **options: object
) -> PaymentsError:
    """Return the error of a call that gets *body* with *status* after some other responses."""
    lost = [SendFailed("reset", sent=True)] * situation.in_doubt
    transport = MemoryTransport(Script(*lost, *before, Response(status, {}, body.encode())))
    options = {"access_token": "TEST-token", "retry": RetryPolicy(retry_unkeyed=True), **options}
    client = PaymentsClient(base_url="https://platform.test", transport=transport, clock=FakeClock(), **options)
    with pytest.raises(PaymentsError) as raised:
        await client.call(situation.operation, idempotency_key="k-1" if situation.own_key else None)
    return raised.value


# --- an example of each sentence --------------------------------------------------------------------------------------

RANDOM, OWN, PLAIN = Situation(KEYED), Situation(KEYED, own_key=True), Situation(UNKEYED)
DOUBT = Situation(KEYED, in_doubt=True)

EXAMPLES = {
    "a read of what is not there": (Situation(READ), 404, "HTML", True),
    "a read behind a firewall": (Situation(READ), 403, "HTML", True),
    "a read that came too often": (Situation(READ), 429, "an unlisted code", False),
    "a read whose dependency failed": (Situation(READ), 424, "bank down", False),
    "a rejected token": (RANDOM, 401, "empty", True),
    "too many requests": (RANDOM, 429, "empty", True),
    "a declared pair": (RANDOM, 400, "a declared code", True),
    "a declared pair without a key": (PLAIN, 400, "a declared code", True),
    "a declared pair with a rare status": (RANDOM, 418, "a code that settles", True),
    "an undeclared code": (RANDOM, 422, "an unlisted code", True),
    "a conflict that names a state": (RANDOM, 409, "a state", True),
    "a conflict that names no state": (PLAIN, 409, "a conflict without a state", False),
    "a conflict that is declared to be a rejection": (RANDOM, 409, "a conflict that is declared to be none", True),
    "only the words of the status": (RANDOM, 404, "not-found", False),
    "a payment that failed and has made its order": (RANDOM, 402, "the order that exists", False),
    "a payment that failed": (RANDOM, 402, "a declared code", False),
    "an order in a 404": (RANDOM, 404, "a code that settles, and an order", False),
    "the page of a firewall": (RANDOM, 403, "HTML", False),
    "a gateway that has no route": (RANDOM, 404, "message of a gateway", False),
    "a proxy that closed": (RANDOM, 444, "a declared code", False),
    "a caller that left": (PLAIN, 499, "a declared code", False),
    "locked, though declared as a rejection": (RANDOM, 423, "a declared code", False),
    "in progress": (PLAIN, 400, "in progress", False),
    "a random key that was used": (RANDOM, 409, "the key", True),
    "one's own key that was used": (OWN, 409, "the key", False),
    "one's own key": (OWN, 400, "a declared code", False),
    "one's own key, and a code that settles": (OWN, 404, "a code that settles", True),
    "in doubt": (DOUBT, 400, "a declared code", False),
    "in doubt, and another code": (DOUBT, 404, "an unlisted code", False),
    "in doubt, a code that settles, and in progress": (DOUBT, 404, "a code that settles, and in progress", False),
    "in doubt, and a code that settles": (DOUBT, 404, "a code that settles", True),
}


@pytest.mark.parametrize(
    ("operation", "attempts", "error"),
    [(READ, 4, APIError), (KEYED, 4, OutcomeUnknown), (UNKEYED, 1, OutcomeUnknown)],
    ids=["read", "keyed", "unkeyed"],
)
async def test_a_424_is_a_failure_of_the_platform(
    operation: Operation[None, Thing], attempts: int, error: type[PaymentsError]
) -> None:
    """Something behind the platform failed: it is tried again as after a 5xx, and a write stays in doubt."""
    raised = await rejection(Situation(operation), 424, BODIES["bank down"])

    assert (error, attempts) == (type(raised), raised.attempts)


@pytest.mark.parametrize("operation", [READ, KEYED, UNKEYED], ids=["read", "keyed", "unkeyed"])
async def test_a_token_that_cannot_be_refreshed_settles_a_write(operation: Operation[None, Thing]) -> None:
    """The platform turned the write away, and nothing was sent after that. To a read, no response came at all.

    The client reads for itself before a named write: the error of that read says nothing of an earlier call.
    """
    auth = RefreshingToken(TokenPair(access_token="APP_USR-old-access", refresh_token="TG-old-refresh"))
    options = {"access_token": None, "auth": auth, "client_id": "1", "client_secret": "secret-0123456789"}
    unauthorized, spent = Response(401, {}, b'{"code": "unauthorized"}'), '{"error": "invalid_grant"}'

    error = await rejection(Situation(operation), 400, spent, unauthorized, **options)

    assert isinstance(error, APIError)
    assert ("invalid_grant", operation is not READ) == (error.code, error.settled)


def by_status(settles):
    """Compare statuses alone: a gateway's 400 and 404 settle."""

    def settle(errors, status, codes, kind, **facts):
        every = type(settles(errors, status, codes, kind, **facts))
        return every.ALL if any(error.settles and error.status == status for error in errors) else every.NONE

    return settle


def by_first(settles):
    """Compare the first code alone: a cause settles nothing, and "in progress" goes unseen."""
    return lambda errors, status, codes, kind, **facts: settles(errors, status, codes[:1], kind, **facts)


@pytest.mark.control("paymentsdk._contract.rules.settles", around=by_status)
@pytest.mark.control("paymentsdk._contract.rules.settles", around=by_first)
@pytest.mark.control("paymentsdk._call.verdicts.has_object", lambda response: False)
async def test_the_status_every_code_and_the_object_are_compared() -> None:
    """Every example is as said above; where only the status or the first code is compared, some are not."""
    for situation, status, body, settled in EXAMPLES.values():
        error = await rejection(situation, status, BODIES[body])
        assert settled == getattr(error, "settled", False)


# --- declarations ----------------------------------------------------------------------------------------------------


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
