"""How long a call may take, and whose cancellation is whose."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf

import pytest

from paymentsdk import (
    NoAnswer,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    RefreshFailed,
    RefreshingToken,
    Response,
    RetryPolicy,
    Timeout,
    TokenPair,
)
from paymentsdk.testing import FakeClock, MemoryTransport

ONCE = RetryPolicy(attempts=1)
SPENT = TokenPair(access_token="APP_USR-old-access", refresh_token="TG-old-refresh", expires_at=0.0)


async def forever(request) -> Response:
    """Do not respond at all."""
    await asyncio.Event().wait()


async def under_way(coroutine, transport: MemoryTransport) -> asyncio.Task:
    """Start a call, and return when its request has reached the transport."""
    task = asyncio.create_task(coroutine)
    for _ in range(100):
        await asyncio.sleep(0)
        if transport.requests:
            break
    return task


# --- which bound ran out ----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._call.deadline.Deadlines._fire", lambda self: None)
@pytest.mark.parametrize(
    ("bounds", "passed", "words"),
    [
        (Timeout(total=None, attempt=30), 30, "timeout.attempt=30 s"),
        (Timeout(total=10, attempt=30), 10, "timeout.total=10 s"),
        (Timeout(total=10, attempt=None), 10, "timeout.total=10 s"),
    ],
)
async def test_the_message_says_which_bound_ran_out(
    play, hang, clock, *, bounds: Timeout, passed: float, words: str
) -> None:
    """A call that hangs ends when its nearest bound does, and the error names that bound."""
    played = await play("orders.get", hang, timeout=bounds, retry=ONCE)

    assert (NoAnswer, passed) == (type(played.error), clock.monotonic())
    assert words in str(played.error)


async def test_the_last_attempt_gets_the_remaining_time(play, hang, clock) -> None:
    """An attempt that would outlive the call gets the rest of its time, and it is the total that ran out then."""
    policy = RetryPolicy(base_delay=0)

    played = await play("orders.create", hang, timeout=Timeout(total=70, attempt=30), retry=policy)

    assert [30, 30, 10] == [request.timeout for request in played.requests]
    assert 70 == clock.monotonic()
    assert OutcomeUnknown is type(played.error)
    assert "timeout.total=70 s" in played.error.reason


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Timeout(total=20, attempt=30, connect=3), (20, 3)),
        (Timeout(total=20, connect=None), (20, 18)),
        (Timeout(total=5, connect=5), (5, 4.5)),
        (Timeout(total=None, attempt=None, connect=None), (inf, inf)),
    ],
)
async def test_the_transport_is_told(play, jobs, bounds: Timeout, expected: tuple[float, float]) -> None:
    """A transport learns the time that the attempt may take, and the connection, whose time ends first.

    What is cut off after it may have been sent.
    """
    played = await play("orders.get", jobs["orders.get"].response, timeout=bounds)

    assert [expected] == [(request.timeout, request.connect_timeout) for request in played.requests]


# --- whose cancellation -----------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._call.deadline.Deadline.uncancel", lambda self: self.expired, raises=NoAnswer)
@pytest.mark.parametrize("user_first", [True, False])
async def test_a_users_cancellation_in_the_tick_of_the_expiry(make_client, clock, user_first: bool) -> None:
    """When both come at the same moment, the user's is never swallowed: the task ends as cancelled."""
    transport = MemoryTransport(forever)
    task = await under_way(make_client(transport=transport, retry=ONCE).orders.get("ORD1"), transport)

    if user_first:
        task.cancel()
    clock.advance(30)
    if not user_first:
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.control(
    "paymentsdk._call.deadline.Deadline.uncancel", lambda self: self.expired, raises=(AssertionError, NotSent)
)
async def test_an_expiry_leaves_no_trace(make_client, hang) -> None:
    """After an expiry the task counts no cancellation, so that timeouts and task groups around it work as ever."""
    client = make_client(hang, retry=RetryPolicy(), timeout=Timeout(total=600.0))

    with pytest.raises(NoAnswer):
        await client.orders.get("ORD1")

    assert 0 == asyncio.current_task().cancelling()
    await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["orders.get", "release_reports.disable_schedule"])
async def test_a_cancelled_call_that_needs_no_report(make_client, jobs, caplog, name: str) -> None:
    """A read leaves nothing behind, and neither does a write that was not sent: the log is silent."""
    auth = RefreshingToken(SPENT)
    transport = MemoryTransport(forever)
    client = make_client(transport=transport, **({"auth": auth} if name != "orders.get" else {}))
    task = await under_way(jobs[name].call(client), transport)

    task.cancel()
    await asyncio.wait([task])

    assert [] == caplog.records
    await stop(auth)


async def stop(auth: RefreshingToken) -> None:
    """End the refresh that is under way: it outlives the calls that wait for it."""
    flight = auth._flight
    if flight is not None:
        flight.cancel()
        await asyncio.wait([flight])


async def test_expired_in_the_pause(make_client, clock) -> None:
    """A pause that takes longer than was asked for does not outlive the call either."""

    async def sleep(seconds: float) -> None:
        clock.advance(1000)
        await asyncio.sleep(0)
        raise LookupError("nobody put an end to it")

    clock.sleep = sleep
    client = make_client(Response(503))

    with pytest.raises(NoAnswer, match=r"timeout\.total=60 s"):
        await client.orders.get("ORD1")
    with pytest.raises(OutcomeUnknown, match=r"timeout\.total=60 s"):
        await client.orders.cancel("ORD1")
    assert 0 == asyncio.current_task().cancelling()


# --- transports that meddle -------------------------------------------------------------------------------------------


async def test_a_transport_that_responds_after_all(make_client, clock) -> None:
    """A response that arrives in the tick of the expiry is a response, and leaves no trace of the expiry."""

    async def send(request) -> Response:
        asyncio.get_running_loop().call_soon(clock.advance, request.timeout)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Response(200, {}, b'{"id":"ORD1"}')

    client = make_client(send)

    assert "ORD1" == (await client.orders.get("ORD1")).id
    assert 0 == asyncio.current_task().cancelling()


# --- a token that takes its time --------------------------------------------------------------------------------------


def renews_slowly(first: object, clock: FakeClock) -> object:
    """A platform that takes *first*, and never responds to a refresh until the attempt is over."""

    async def platform(request) -> Response:
        if request.url.endswith("/oauth/token"):
            asyncio.get_running_loop().call_soon(clock.advance, 29)
            await asyncio.Event().wait()
        return first

    return platform


@pytest.mark.parametrize(
    ("first", "expires_at", "bounds", "error", "words"),
    [
        (None, 0.0, Timeout(attempt=10), NotSent, r"timeout\.attempt=10 s\) while the token was refreshed"),
        (Response(401), None, Timeout(attempt=10), RefreshFailed, r"timeout\.attempt=10 s"),
    ],
    ids=["ended", "refused"],
)
async def test_a_deadline_while_the_token_is_refreshed(
    make_client,
    clock,
    *,
    first: object,
    expires_at: float | None,
    bounds: Timeout,
    error: type[PaymentsError],
    words: str,
) -> None:
    """The deadline covers the wait for a refresh: the write was not sent, or was rejected for its token."""
    auth = RefreshingToken(TokenPair(access_token="APP_USR-old", refresh_token="TG-old-refresh", expires_at=expires_at))
    transport = MemoryTransport(renews_slowly(first, clock))
    client = make_client(transport=transport, auth=auth, timeout=bounds)

    with pytest.raises(error, match=words):
        await client.orders.cancel("ORD1")

    sent = [request for request in transport.requests if not request.url.endswith("/oauth/token")]
    assert len(sent) == (0 if first is None else 1)
    assert [] == clock.slept  # The refresh has attempts of its own.
    assert 0 == asyncio.current_task().cancelling()
    await stop(auth)


class Meddler:
    """A source of tokens that does not let a cancellation through: it has a token after all, or an error of its own."""

    def __init__(self, end: object) -> None:
        self.end = end
        self.waiting = asyncio.Event()

    def token(self, now: float) -> str | None:
        return None

    async def renew(self, rejected, exchange, now) -> str:
        with suppress(asyncio.CancelledError):
            self.waiting.set()
            await asyncio.Event().wait()
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


@pytest.mark.parametrize("end", ["APP_USR-access-1", ConnectionError("vault")], ids=["token", "error"])
async def test_a_source_of_tokens_that_swallows_a_deadline(make_client, clock, end: object) -> None:
    """Nothing is sent when the time is over, for nobody would watch it; and the task is not left as cancelled."""
    auth, transport = Meddler(end), MemoryTransport(forever)
    client = make_client(transport=transport, auth=auth, access_token=None)
    task = asyncio.create_task(client.orders.cancel("ORD1"))
    await auth.waiting.wait()
    clock.advance(30)

    with pytest.raises(NotSent):
        await task
    assert (0, []) == (task.cancelling(), transport.requests)
