"""`first_sent_at=`: a key that an earlier call sent puts the write in doubt from the beginning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from math import inf

import pytest

from paymentsdk import (
    APIError,
    AuthenticationFailed,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    StaticToken,
    Timeout,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import Script

NOW = datetime.fromtimestamp(1_700_000_000, UTC)
AN_HOUR_AGO = NOW - timedelta(hours=1)
FAILURES = {
    "401": Response(401, {}, b'{"code":"unauthorized"}'),
    "404": Response(404, {}, b'{"message":"no Route matched with those values"}'),
    "429": Response(429, {}, b"{}"),
    "not sent": SendFailed("connection refused", sent=False),
}


async def cancel(
    *responses: Response | SendFailed, since: datetime | None, key: str | None = "k-1"
) -> tuple[PaymentsError, MemoryTransport]:
    """Cancel an order with a key of ours, and return the error."""
    transport = MemoryTransport(Script(*responses))
    async with PaymentsClient(
        "TEST-token",
        base_url="https://platform.test",
        transport=transport,
        clock=FakeClock(),
        retry=RetryPolicy(base_delay=0),
    ) as client:
        with pytest.raises(PaymentsError) as raised:
            await client.orders.cancel("ORD1", idempotency_key=key, first_sent_at=since)
    return raised.value, transport


@pytest.mark.parametrize("name", FAILURES)
async def test_what_settles_nothing_leaves_a_key_that_was_sent_before_in_doubt(name: str) -> None:
    """A rejected token, a gateway, a limit or a refused connection says nothing of the earlier call."""
    error, _ = await cancel(FAILURES[name], since=AN_HOUR_AGO)

    assert OutcomeUnknown is type(error)
    assert ("k-1", AN_HOUR_AGO) == (error.idempotency_key, error.first_sent_at)
    assert "it was sent before this call" == error.first_reason


async def test_a_rejected_token_settles_a_key_of_this_call_alone() -> None:
    """A random key was never sent before: a 401 to its first request settles the write."""
    error, _ = await cancel(FAILURES["401"], since=None, key=None)

    assert AuthenticationFailed is type(error)
    assert error.settled


async def test_what_settles_ends_the_doubt() -> None:
    """A code that settles is the platform's word about the earlier call as well."""
    error, transport = await cancel(Response(409, {}, b'{"code":"cannot_cancel_order"}'), since=AN_HOUR_AGO)

    assert isinstance(error, APIError)
    assert (True, 1) == (error.settled, len(transport.requests))


@pytest.mark.parametrize(("age", "requests"), [(timedelta(hours=22, minutes=59), 4), (timedelta(hours=23), 0)])
async def test_the_23_hours_count_from_the_first_time(age: timedelta, requests: int) -> None:
    """A key that may be forgotten is not sent, not even once; one that is younger is."""
    error, transport = await cancel(SendFailed("reset", sent=True), since=NOW - age)

    assert (OutcomeUnknown, requests) == (type(error), len(transport.requests))


async def test_a_moment_at_the_edge_of_the_calendar_is_long_ago() -> None:
    """Such a placeholder for "nobody knows" sends nothing, and the error says what is known."""
    error, transport = await cancel(FAILURES["404"], since=datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))

    assert (OutcomeUnknown, "k-1", []) == (type(error), error.idempotency_key, transport.requests)


async def test_they_count_on_though_the_clock_of_the_machine_is_set_back() -> None:
    """The age of the key grows by the monotonic clock: time that the wall clock takes back makes no key younger."""
    clock, requests, since = FakeClock(), 0, NOW - timedelta(hours=22, minutes=45)

    def platform(request: object) -> Response:
        nonlocal requests
        requests += 1
        clock.advance(20 * 60)
        clock._now -= 3600
        raise SendFailed("reset", sent=True)

    async with PaymentsClient(
        "TEST-token",
        base_url="https://platform.test",
        transport=MemoryTransport(platform),
        clock=clock,
        timeout=Timeout(total=None, attempt=None),
        retry=RetryPolicy(base_delay=0),
    ) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel("ORD1", idempotency_key="k-1", first_sent_at=since)

    assert 1 == requests


UNBOUNDED = Timeout(total=None, attempt=None, connect=None)


class Signed:
    """Signs the requests."""

    def sign(self, request: Request, now: float) -> dict[str, str]:
        """See `Signer`."""
        return {"X-Signature": "0123456789abcdef"}


@pytest.mark.control("paymentsdk._call.call.connect_timeout", lambda timeout, remaining: timeout.connect or inf)
@pytest.mark.parametrize("auth", [StaticToken("TEST-token"), Signed()], ids=["token", "signed"])
async def test_a_key_is_sent_on_no_connection_that_comes_after_its_time(auth: StaticToken | Signed) -> None:
    """However long an attempt may take, the wait for its connection ends before the platform may forget the key."""
    clock, waits = FakeClock(), []

    def platform(request: Request) -> Response:
        waits.append(request.connect_timeout)
        clock.advance(20 * 3600)
        raise SendFailed("reset", sent=True)

    async with PaymentsClient(
        auth=auth,
        base_url="https://platform.test",
        transport=MemoryTransport(platform),
        clock=clock,
        timeout=UNBOUNDED,
        retry=RetryPolicy(base_delay=0),
    ) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel("ORD1")
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel(
                "ORD1", idempotency_key="k-1", first_sent_at=datetime.fromtimestamp(clock.now() - 22 * 3600, UTC)
            )

    (first, again, resumed) = waits
    assert first > 20 * 3600
    assert (True, True) == (again < 3 * 3600, resumed < 3600)


@pytest.mark.parametrize(
    ("since", "key"),
    [
        (AN_HOUR_AGO, None),
        (AN_HOUR_AGO.replace(tzinfo=None), "k-1"),
        (NOW + timedelta(hours=2), "k-1"),
        ("2026-01-01", "k-1"),
    ],
)
async def test_a_moment_that_makes_no_sense_is_rejected(since: datetime, key: str | None) -> None:
    """It needs a key, an offset, and to lie in the past; nothing is sent otherwise."""
    error, transport = await cancel(FAILURES["404"], since=since, key=key)

    assert RequestInvalid is type(error)
    assert ("first_sent_at", 0) == (error.path, len(transport.requests))
