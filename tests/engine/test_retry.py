"""When another attempt is made: pauses, what the platform asks for, the budget, and the end of a key's life."""

from __future__ import annotations

import asyncio
import errno
import sys
from math import inf, nan

import pytest
from msgspec import Struct, structs

from paymentsdk import (
    OutcomeUnknown,
    RateLimited,
    RequestInvalid,
    Response,
    RetryClass,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.errors import ServerError
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.declared import declared
from tests.observing import of_attempts

ENDLESS = Timeout(total=None, attempt=30.0)
RESET = SendFailed("connection reset", sent=True)


def asks_for(seconds: object, status: int = 429) -> Response:
    """A rejection that asks to wait."""
    return Response(status, {"retry-after": str(seconds)})


# --- pauses -----------------------------------------------------------------------------------------------------------


async def test_the_clock_rolls_the_dice(play) -> None:
    """The pauses of a call are drawn from the clock's random numbers, so that a test can repeat them."""
    played = await play("orders.get", Response(503))

    rolls = FakeClock()
    assert played.slept == [0.5 * 2**n * rolls.random() for n in range(3)]


# --- Retry-After ------------------------------------------------------------------------------------------------------


def whole(pauses: list[float]) -> list[int]:
    """The pauses without the jitter on top of them, which is below the base of half a second at first."""
    return [int(seconds) for seconds in pauses if seconds % 1 < 0.5]


@pytest.mark.control("paymentsdk._call.verdicts.Rejected.retry_after", 0.0)
@pytest.mark.parametrize("status", [429, 503, 408])
async def test_what_the_platform_asks_for_is_a_floor(play, jobs, status: int) -> None:
    """Coming back early prolongs the ban: a pause is never shorter than Retry-After, whatever the jitter says."""
    played = await play("orders.create", asks_for(7, status), jobs["orders.create"].response)

    assert played.error is None
    assert [7] == whole(played.slept)


@pytest.mark.control("paymentsdk._call.verdicts.Rejected.retry_after", 0.0)
async def test_a_longer_wait_is_the_callers_to_decide(play) -> None:
    """Above the cap the call fails at once, and the error says how long to wait."""
    played = await play("orders.create", asks_for(31))
    waited = await play("orders.create", asks_for(30), asks_for(31))

    assert RateLimited is type(played.error)
    assert (1, 31.0, []) == (len(played.requests), played.error.retry_after, played.slept)
    assert [30] == whole(waited.slept)


@pytest.mark.control("paymentsdk._call.retry.Retries._delay", lambda self, state: 0.0)
async def test_no_pause_outlives_the_call(play) -> None:
    """A pause that would end at the deadline or after it is not begun: the caller learns at once."""
    played = await play("orders.create", asks_for(20), timeout=Timeout(total=20.0))

    assert (1, []) == (len(played.requests), played.slept)
    assert RateLimited is type(played.error)


# --- the life of a key ------------------------------------------------------------------------------------------------

SLOW = RetryPolicy(attempts=20, max_retry_after=86_400, base_delay=0)


@pytest.mark.control("paymentsdk._contract.rules.KEY_LIFETIME", inf)
async def test_nothing_is_sent_again_after_23_hours(play) -> None:
    """The platform forgets a key after 24 hours, and would then do it twice: the last resend is before 23 hours."""
    played = await play("orders.create", asks_for(5 * 3600, 503), timeout=ENDLESS, retry=SLOW)

    to_the_end = await play("orders.create", asks_for(23 * 3600, 503), timeout=ENDLESS, retry=SLOW)

    assert played.is_unknown()
    assert [5 * 3600.0] * 4 == played.slept
    assert sum(played.slept) < 23 * 3600
    assert [] == to_the_end.slept


@pytest.mark.control("paymentsdk._call.verdicts.History.key_lasts", lambda self, clock: inf)
@pytest.mark.parametrize(("counted", "clock_hours"), [(0, 30), (30, 0)])
async def test_a_machine_that_slept_does_not_send_again(
    make_client, clock, jobs, *, counted: int, clock_hours: int
) -> None:
    """A laptop that was shut in a pause wakes up a day later: its monotonic clock stood still, the other did not.

    Or the other was set back in the meantime. The later of the two is right, and what is not sent is not counted.
    """
    attempts = []
    transport = MemoryTransport([RESET, jobs["orders.create"].response])
    client = make_client(transport=transport, timeout=ENDLESS, observers=of_attempts(attempts.append))

    async def sleep(seconds: float) -> None:
        clock._monotonic += counted * 3600
        clock._now += clock_hours * 3600

    clock.sleep = sleep
    with pytest.raises(OutcomeUnknown, match="23 hours"):
        await jobs["orders.create"].call(client)
    assert 1 == len(transport.requests)
    assert [1, 0] == [attempt.number for attempt in attempts]


@pytest.mark.control("paymentsdk._contract.rules.KEY_LIFETIME", inf, raises=pytest.fail.Exception)
@pytest.mark.parametrize("refused_before", [False, True])
async def test_a_machine_that_slept_during_an_attempt_does_not_send_again(make_client, clock, jobs, *, refused_before):
    """A key is as old as the request, and not as the reset that the machine finds a day later, when it wakes up."""

    async def asleep(request) -> Response:
        clock._now += 24 * 3600
        raise RESET

    begun = clock.now()
    before = [Response(429)] if refused_before else []
    steps = [*before, asleep, jobs["orders.create"].response]
    client = make_client(*steps, timeout=ENDLESS, retry=RetryPolicy(base_delay=0))

    with pytest.raises(OutcomeUnknown) as unknown:
        await jobs["orders.create"].call(client)

    assert begun == unknown.value.first_sent_at.timestamp()
    assert 1 + refused_before == unknown.value.attempts


# --- the bytes --------------------------------------------------------------------------------------------------------


def encoded_again(build):
    """Encode the body at every attempt, as it is by then."""

    def built(intent, *arguments, **options):
        return structs.replace(build(intent, *arguments, **options), body=intent.operation.encoder.encode(intent.body))

    return built


class Delivery(Struct):
    """A body of a program's own, which it can change."""

    names: list[str]
    note: str
    extra: dict[str, object]


@pytest.mark.control("paymentsdk._call.intent.Intent.request", around=encoded_again)
async def test_every_attempt_sends_the_bytes_of_the_first(make_client, clock) -> None:
    """What the caller does to the body during a pause changes no retry: one key stands for one request."""
    body = Delivery(["Ann"], "at the front", {"floor": 1})
    transport = MemoryTransport([RESET, Response(503), Response(200, {}, b"{}")])
    client = make_client(transport=transport)

    async def sleep(seconds: float) -> None:
        body.names.append("Eve")
        body.note = "at the back"

    clock.sleep = sleep
    await client.call(declared(body=Delivery, retry=RetryClass.KEYED), body)

    assert [b'{"names":["Ann"],"note":"at the front","extra":{"floor":1}}'] * 3 == [
        request.body for request in transport.requests
    ]
    assert 1 == len({request.headers["X-Idempotency-Key"] for request in transport.requests})


# --- the budget -------------------------------------------------------------------------------------------------------


async def calls(client, call, count: int) -> int:
    """Make *count* calls one after the other; return how many failed."""
    failed = 0
    for _ in range(count):
        try:
            await call(client)
        except ServerError:
            failed += 1
    return failed


@pytest.mark.control("paymentsdk._call.retry.RetryBudgets.withdraw", lambda self, seller, rule, failure: 5)
async def test_an_outage_is_not_multiplied(make_client, jobs) -> None:
    """When everything fails, the budget pays for 100 retries; after that each call is one request."""
    transport = MemoryTransport(lambda request: Response(503))
    client = make_client(transport=transport)

    await calls(client, jobs["orders.get"].call, 40)

    assert 40 + 100 == len(transport.requests)


async def test_a_success_gives_back_what_it_took(make_client, jobs) -> None:
    """Every clean success is one token, and one that took retries gives back what its last retry cost."""
    read, down = jobs["orders.get"], [Response(503)]
    transport = MemoryTransport([*down * 140, *[read.response] * 8, *down, read.response, *down * 20])
    client = make_client(transport=transport)
    await calls(client, read.call, 40)  # It is used up: 100 retries.
    assert 140 == len(transport.requests)

    await calls(client, read.call, 8)
    await calls(client, read.call, 1)
    await calls(client, read.call, 1)

    assert 140 + 8 + 2 + 2 == len(transport.requests)


# --- the policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("attempts", 2.5),
        ("attempts", "4"),
        ("attempts", True),
        ("base_delay", nan),
        ("max_delay", inf),
        ("max_retry_after", None),
        ("retry_unkeyed", "false"),
    ],
)
def test_a_policy_that_makes_no_sense(setting: str, value: object) -> None:
    """A policy is rejected where it is made, with the name of the setting."""
    with pytest.raises(RequestInvalid) as rejected:
        RetryPolicy(**{setting: value})

    assert f"retry.{setting}" == rejected.value.path


async def test_a_process_that_can_open_no_more_files(play, monkeypatch: pytest.MonkeyPatch) -> None:
    """What retries need is imported at the first failure: when that cannot be, the caller learns how the call ended."""

    class Full:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "tenacity":
                raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.delitem(sys.modules, "tenacity", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Full, *sys.meta_path])

    played = await play("orders.create", RESET)

    assert (OutcomeUnknown, 1) == (type(played.error), len(played.requests))
    assert played.error.idempotency_key


@pytest.mark.parametrize("name", ["orders.get", "orders.create"])
async def test_an_unrequested_cancellation_is_not_a_response(make_client, jobs, name: str) -> None:
    """What ended a task of the transport's own does not end the caller's: the call goes on, with its one key."""
    transport = MemoryTransport([asyncio.CancelledError(), jobs[name].response])

    await jobs[name].call(make_client(transport=transport))

    assert 2 == len(transport.requests)
    assert 1 == len({request.headers.get("X-Idempotency-Key") for request in transport.requests})
