"""What happens to each operation in each failure: how many requests are sent, and what the caller learns in the end."""

from __future__ import annotations

from math import inf

import pytest

from paymentsdk import OutcomeUnknown, Response, RetryPolicy, Timeout, errors

#: An operation of each class.
CLASSES = {
    "read": "orders.get",
    "keyed": "orders.create",
    "delete": "release_reports.disable_schedule",
    "unkeyed": "preferences.create",
    "code": "oauth.exchange_code",
    "refresh": "oauth.refresh",
}


# Different failures one after the other, which the table above does not say: the requests, and the outcome.
SEQUENCES = """
keyed   | reset ok                   | 2 ok
keyed   | 503 timeout html ok        | 4 ok
keyed   | 409 ok                     | 2 ok                # under way: perhaps it was sent twice on the way
keyed   | reset 409 ok               | 3 ok                # our own first attempt held it
keyed   | reset 409 409 ok           | 4 ok
keyed   | reset 409 409 409 ok       | 4 OutcomeUnknown    # at most two more
keyed   | 503 423 423 423 ok         | 4 OutcomeUnknown
keyed   | 429 400                    | 2 BadRequest        # a 429 leaves no doubt
keyed   | reset unsent unsent unsent | 4 OutcomeUnknown    # the three outcomes are never merged
keyed   | reset 429 429 429          | 4 OutcomeUnknown
keyed   | reset 401                  | 2 OutcomeUnknown
keyed   | reset 403                  | 2 OutcomeUnknown
keyed   | reset 307                  | 2 OutcomeUnknown
keyed   | reset 400 ok               | 3 ok                # no code that settles: perhaps a gateway's
keyed   | 503 404 400 404 ok         | 4 OutcomeUnknown
keyed   | unsent 429 unsent 400      | 4 BadRequest
keyed   | 429 unsent unsent unsent   | 4 NotSent           # rejected unprocessed: doing it again is safe
read    | reset unsent unsent unsent | 4 NoAnswer          # something was sent
read    | unsent unsent unsent reset | 4 NoAnswer
read    | 503 404                    | 2 NotFound
read    | reset 409                  | 2 Conflict
read    | 503 ok                     | 2 ok
delete  | reset 429 ok               | 3 ok
delete  | reset unsent unsent unsent | 4 OutcomeUnknown
unkeyed | unsent 429 ok              | 3 ok
unkeyed | 429 reset ok               | 2 OutcomeUnknown
code    | unsent 429 unsent ok       | 4 ok
code    | unsent reset ok            | 2 OutcomeUnknown
refresh | reset ok                   | 2 ok
refresh | 503 ok                     | 2 ok
refresh | reset 503 ok               | 2 OutcomeUnknown    # once, whatever it was
refresh | reset unsent ok            | 3 ok
refresh | reset 400                  | 2 OutcomeUnknown
"""

PATIENT = Timeout(total=None, attempt=30.0)


def sequences() -> list[object]:
    """Return (operation, steps, requests, outcome) for each line, with the operation of its class."""
    rows = [[cell.strip() for cell in row.partition("#")[0].split("|")] for row in SEQUENCES.strip().splitlines()]
    return [
        pytest.param(CLASSES[column], steps.split(), int(cell.split()[0]), cell.split()[1], id=f"{column}-{steps}")
        for column, steps, cell in rows
    ]


@pytest.mark.parametrize(("name", "steps", "requests", "outcome"), sequences())
async def test_sequence(play, jobs, failures, *, name: str, steps: list[str], requests: int, outcome: str) -> None:
    """Failures of several kinds, one after the other, end in what is true of all of them together."""
    played = await play(name, *({**failures, "ok": jobs[name].response}[step] for step in steps), timeout=PATIENT)

    assert requests == len(played.requests)
    assert outcome == ("ok" if played.error is None else type(played.error).__name__)
    assert 1 == len({(request.body, request.headers.get("X-Idempotency-Key")) for request in played.requests})


@pytest.mark.control("paymentsdk._contract.rules.MAX_UNSETTLED", inf)
async def test_a_conflict_with_ourselves_is_waited_out_twice(play, failures) -> None:
    """However many attempts are allowed, a conflict after a doubt is asked about at most two more times."""
    played = await play("orders.create", failures["reset"], failures["409"], retry=RetryPolicy(attempts=10))

    assert 1 + 1 + 2 == len(played.requests)
    assert played.is_unknown()
    assert 409 == played.error.last_error.status
    assert "connection reset" in played.error.first_reason
    assert "409" in played.error.reason


LOCKED = [
    Response(423, {}, b'{"errors":[{"code":"order_busy"}]}'),
    Response(409, {}, b'{"errors":[{"code":"resource_locked"}]}'),
]


@pytest.mark.control("paymentsdk._contract.rules.is_in_progress", lambda kind, codes: False, raises=errors.APIError)
@pytest.mark.parametrize("locked", LOCKED)
async def test_a_key_that_was_sent_before_this_call(make_client, locked: Response) -> None:
    """Whoever brings a key may settle an earlier call with it: while that is still at work, its outcome is unknown."""
    client = make_client(locked, locked, locked, locked, retry=RetryPolicy(attempts=10))

    with pytest.raises(OutcomeUnknown) as unknown:
        await client.orders.cancel("ORD1", idempotency_key="k-1")

    assert (3, "k-1") == (unknown.value.attempts, unknown.value.idempotency_key)


async def test_what_is_settled_is_settled_with_a_key_of_ones_own(make_client) -> None:
    """A conflict that names a state is a rejection, whoever chose the key."""
    rejected = Response(409, {}, b'{"errors":[{"code":"cannot_cancel_order"}]}')
    client = make_client(rejected, rejected)

    for key in ("k-1", None):
        with pytest.raises(errors.APIError) as settled:
            await client.orders.cancel("ORD1", idempotency_key=key)
        assert (1, True) == (settled.value.attempts, settled.value.settled)


@pytest.mark.control("paymentsdk._call.verdicts.History.record", lambda self, failure, monotonic, timestamp: None)
@pytest.mark.parametrize("then", ["unsent", "429"])
async def test_a_doubt_is_never_forgotten(play, failures, then: str) -> None:
    """Once an attempt is in doubt, no later failure but a rejection of the very same request makes it definite."""
    played = await play("orders.refund", failures["reset"], failures[then])

    assert played.is_unknown()
    assert {played.error.idempotency_key} == played.keys
