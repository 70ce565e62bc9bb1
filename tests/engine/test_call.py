"""What comes back from a call: the result, cancellation, the log, and transports that do not keep to their protocol."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from contextlib import suppress
from weakref import ref

import anyio
import pytest

from paymentsdk import OPERATIONS, ClientClosed, OutcomeUnknown, Response, Result, RetryPolicy, SendFailed, Timeout
from paymentsdk.events import CallOutcome, Event
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.observing import of_attempts

ONCE = RetryPolicy(attempts=1)


# --- the result -------------------------------------------------------------------------------------------------------


async def test_the_result_of_a_call(make_client, clock) -> None:
    """`call` gives all that is known: value, status, headers, request id, attempts, time, key and body."""
    body = b'{"id":"ORD1"}'
    transport = MemoryTransport([Response(503), Response(200, {"x-request-id": "r-1"}, body)])
    client = make_client(transport=transport)
    clock.advance(86_400)  # Times count from the call.

    result = await client.call(
        OPERATIONS["orders.cancel"], order_id="ORD1", idempotency_key="k-1", headers={"X-Tag": "a"}
    )

    assert isinstance(result, Result)
    assert ("ORD1", 200, "r-1", 2, "k-1") == (
        result.value.id,
        result.status,
        result.request_id,
        result.attempts,
        result.idempotency_key,
    )
    assert (body, ()) == (result.raw, result.anomalies)
    assert clock.slept == pytest.approx([result.elapsed], abs=1e-6)
    assert "Result(value=Order(id='ORD1'" in repr(result)
    assert {"a"} == {request.headers["X-Tag"] for request in transport.requests}


async def test_any_2xx_is_a_success(play) -> None:
    """A platform may respond with 200 where 201 is documented, and the other way round; nothing else is a success."""
    for status in (200, 201, 202, 204, 299):
        assert (await play("orders.get", Response(status, {}, b'{"id":"ORD1"}'))).error is None
    for status in (199, 300):
        assert status == (await play("orders.get", Response(status, {}, b'{"id":"ORD1"}'))).error.status


# --- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1, 2], ids=["twice at once", "twice", "twice later"])
async def test_a_call_that_is_cancelled_leaves_its_key(make_client, until, caplog, turns: int) -> None:
    """Whoever is cancelled gets no error of ours: the key is in a note and in the log, and the observer is told."""
    attempts, transport = [], MemoryTransport(lambda _: asyncio.Event().wait())
    client = make_client(transport=transport, observers=of_attempts(attempts.append))
    call = asyncio.create_task(client.orders.cancel("ORD1", idempotency_key="k-1"))
    await until(lambda: transport.requests)

    call.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await call

    assert ["orders.cancel may have been sent, with idempotency_key='k-1'"] == cancelled.value.__notes__
    assert "cancelled when it may have been sent (idempotency_key='k-1')" in caplog.text
    assert [(1, "cancelled", "k-1")] == [(each.number, each.failure, each.idempotency_key) for each in attempts]


@pytest.mark.parametrize("end", [KeyboardInterrupt, GeneratorExit])
async def test_a_call_that_ends_with_the_program_leaves_its_key(make_client, end: type[BaseException], caplog) -> None:
    """It passes through, with a note: nothing else of the program may be left that knows of the write."""
    events: list[Event] = []

    async def interrupted(request) -> Response:
        raise end

    client = make_client(transport=MemoryTransport(interrupted), observers=[events.append])
    with pytest.raises(end) as ended:
        await client.orders.cancel("ORD1", idempotency_key="k-1")

    assert ["orders.cancel may have been sent, with idempotency_key='k-1'"] == ended.value.__notes__
    assert "cancelled when it may have been sent (idempotency_key='k-1')" in caplog.text
    assert (CallOutcome.CANCELLED, end.__name__) == (events[-1].outcome, events[-1].error)


async def test_a_cancelled_call_leaves_nothing_behind(make_client) -> None:
    """Its body and its token are gone with its error: they are in no circle that waits for the garbage collector."""
    transport = MemoryTransport(lambda _: asyncio.Event().wait())
    client = make_client(transport=transport)
    asking = []

    async def ask() -> None:
        asking.append(ref(asyncio.current_task()))
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await client.orders.cancel("ORD1")

    gc.disable()
    try:
        await asyncio.create_task(ask())
        await asyncio.sleep(0)  # What wakes us holds the task as well.
        assert None is asking[0]()
    finally:
        gc.enable()


class Weighed(Response, frozen=True, weakref=True):
    """A response of which a test can see whether it is still there."""


@pytest.mark.parametrize("status", [None, 404, 429, 503])
async def test_a_failed_call_leaves_nothing_behind(make_client, status: int | None) -> None:
    """Nor does one that a retry has saved: bodies of failures are not to pile up until a collector comes to them."""
    attempts = []

    async def fail(request: object) -> Response:
        failure = SendFailed("connection reset", sent=True)
        if status is not None:
            failure = Weighed(status, {}, b"<html>" + b"." * 10_000)
        attempts.append(ref(failure))
        if isinstance(failure, SendFailed):
            raise failure
        return failure if status != 429 or len(attempts) < 3 else Response(200, {}, b'{"id":"ORD1"}')

    transport = MemoryTransport(fail)
    client = make_client(transport=transport)
    gc.disable()
    try:
        call = asyncio.create_task(client.orders.cancel("ORD1"))
        await asyncio.wait([call])
        if call.exception() is not None:
            attempts.append(ref(call.exception()))
        attempts.append(ref(call))
        del call
        transport.discarded.clear()  # The transport of a test keeps them.
        assert [] == [attempt for attempt in attempts if attempt() is not None]
    finally:
        gc.enable()


async def at_once(cancelled: asyncio.CancelledError, note: str | None) -> None:
    """Take the words of a transport."""


@pytest.mark.control("paymentsdk._call.call.cancelled_again", at_once, raises=asyncio.CancelledError)
async def test_a_scope_of_anyio_ends_a_call(make_client) -> None:
    """Whoever calls in a cancel scope goes on behind it, also if the transport cancels in words of its own."""
    scope = anyio.CancelScope()

    class InOtherWords(MemoryTransport):
        async def send(self, request) -> Response:
            scope.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise asyncio.CancelledError("request was cancelled")

    client = make_client(transport=InOtherWords())
    with scope:
        await client.orders.cancel("ORD1")

    assert scope.cancelled_caught
    assert 0 == asyncio.current_task().cancelling()


class Swallows(MemoryTransport):
    """A transport that takes a cancellation for its own, and responds all the same."""

    async def send(self, request) -> Response:
        try:
            await asyncio.Event().wait() if not self.requests else None
        except asyncio.CancelledError:
            self.requests.append(request)
            return Response(503)
        return await super().send(request)


@pytest.mark.control("paymentsdk._call.deadline.Deadline.cancelled_by_others", lambda self: False)
async def test_nothing_more_is_sent_for_a_task_that_was_cancelled(make_client, until) -> None:
    """A transport that swallows a cancellation does not have a write sent again by a task that was cancelled."""
    transport = Swallows([Response(200, {}, b'{"id":"ORD1"}')])
    call = asyncio.create_task(make_client(transport=transport).orders.cancel("ORD1"))
    for _ in range(10):
        await asyncio.sleep(0)

    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    assert 1 == len(transport.requests)


async def test_a_rejection_that_is_cancelled_in_its_pause_is_no_doubt(make_client, clock, caplog) -> None:
    """What was rejected unprocessed has not happened: whoever cancels the pause after it is told of no doubt."""

    async def sleep(seconds: float) -> None:
        call.cancel()
        await asyncio.Event().wait()

    clock.sleep = sleep
    call = asyncio.create_task(make_client(Response(429)).orders.cancel("ORD1"))

    with pytest.raises(asyncio.CancelledError) as cancelled:
        await call

    assert not hasattr(cancelled.value, "__notes__")
    assert "unknown" not in caplog.text


# --- the log ----------------------------------------------------------------------------------------------------------


async def test_the_log_tells_of_every_attempt(make_client, caplog) -> None:
    """DEBUG for a success, INFO for a failure, WARNING for an unknown outcome; the facts are in the extras."""
    caplog.set_level(logging.DEBUG, "paymentsdk")
    rejected, ok = Response(503, {"X-Request-Id": "r-1"}), Response(200, {}, b'{"id":"ORD1"}')
    client = make_client(rejected, ok, SendFailed("50 % lost"))

    await client.orders.cancel("ORD1", idempotency_key="k-1")
    with pytest.raises(OutcomeUnknown):
        await client.with_options(retry=ONCE).orders.cancel("ORD1", idempotency_key="k-2")

    unknown = "orders.cancel: the outcome is unknown: 50 % lost (idempotency_key='k-2')"
    assert [
        (logging.INFO, "orders.cancel: attempt 1: 503 Service Unavailable [request r-1]", 1, 503, "r-1", "k-1"),
        (logging.DEBUG, "orders.cancel: attempt 2: success", 2, 200, None, "k-1"),
        (logging.INFO, "orders.cancel: attempt 1: 50 % lost", 1, None, None, "k-2"),
        (logging.WARNING, unknown, 1, None, None, "k-2"),
    ] == [
        (
            record.levelno,
            record.message,
            record.payments_number,
            record.payments_status,
            record.payments_request_id,
            record.payments_idempotency_key,
        )
        for record in caplog.records
    ]
    assert {"orders.cancel"} == {record.payments_operation for record in caplog.records}
    assert ["server_error", None, "no_trusted_response", None] == [record.payments_kind for record in caplog.records]
    assert all(record.payments_elapsed >= 0 for record in caplog.records)


# --- clients that are closed, and transports with defects -------------------------------------------------------------


@pytest.mark.control("paymentsdk._call.runtime.Runtime.close", lambda self: setattr(self, "closed", True))
@pytest.mark.parametrize(("first", "end"), [(SendFailed("reset"), OutcomeUnknown), (Response(429), ClientClosed)])
async def test_closing_wakes_those_that_wait_for_their_next_attempt(make_client, until, first, end) -> None:
    """A call that pauses when its client is closed ends at once, with the truth about the attempt before."""
    clock, pauses = FakeClock(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.Event().wait()

    clock.sleep = sleep
    hours = RetryPolicy(base_delay=3600, max_delay=3600)
    client = make_client(first, clock=clock, retry=hours, timeout=Timeout(total=None))
    call = asyncio.create_task(client.orders.cancel("ORD1"))
    await until(lambda: pauses)

    await client.aclose()
    for _ in range(10):
        await asyncio.sleep(0)
    in_time = call.done()
    call.cancel()
    await asyncio.wait([call])

    assert in_time
    assert (end, 1) == (type(call.exception()), call.exception().attempts)


async def test_a_call_that_fails_after_its_client_was_closed_does_not_pause(make_client, clock) -> None:
    """Closing lets an attempt end; there will be no other, and nothing to wait for."""

    async def close_first(request) -> Response:
        await client.aclose()
        return Response(503)

    client = make_client(close_first)

    with pytest.raises(OutcomeUnknown) as unknown:
        await client.orders.cancel("ORD1")

    assert ([], 1) == (clock.slept, unknown.value.attempts)


async def test_a_transport_that_is_closed_says_so(play) -> None:
    """A transport that belongs to another loop, or is closed, sent nothing; a doubt from before stays one."""
    closed = ClientClosed("the session is closed")

    class Closing(MemoryTransport):
        async def send(self, request) -> Response:
            self.requests.append(request)
            raise SendFailed("reset") if len(self.requests) == 1 and self.doubtful else closed

    at_once, later = Closing(), Closing()
    at_once.doubtful, later.doubtful = False, True

    first, second = await play("orders.cancel", transport=at_once), await play("orders.cancel", transport=later)

    assert (ClientClosed, str(closed)) == (type(first.error), str(first.error))
    assert (OutcomeUnknown, ClientClosed) == (type(second.error), type(second.error.last_error))
    # It is as closed a moment later.
    assert [(1, 0), (2, 1)] == [(len(played.requests), len(played.slept)) for played in (first, second)]


async def test_every_error_of_a_transport(play) -> None:
    """An exception that a transport should not have raised may have come after the request went out: its place is told.

    Its text is not: nobody knows what is in it.
    """
    played = await play("orders.cancel", transport=Broken())

    assert played.is_unknown()
    assert re.fullmatch(r"the transport raised OSError \(test_call.py:[0-9]+ in send\)", played.error.reason)


class Broken(MemoryTransport):
    """A transport that does not keep to its protocol."""

    async def send(self, request) -> Response:
        raise OSError("disk on fire")


@pytest.mark.parametrize("response", [None, Response("200", {}, b"")])
async def test_a_transport_that_returns_no_response_leaves_a_write_in_doubt(make_client, response: object) -> None:
    """What it has sent may have taken effect: each attempt has the same key, and the caller learns it."""

    class Loose(MemoryTransport):
        async def send(self, request) -> object:
            self.requests.append(request)
            return response

    transport = Loose()
    with pytest.raises(OutcomeUnknown) as unknown:
        await make_client(transport=transport).orders.cancel("ORD1")

    assert {unknown.value.idempotency_key} == {request.headers["X-Idempotency-Key"] for request in transport.requests}
