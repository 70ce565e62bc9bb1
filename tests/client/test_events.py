"""What observers learn of calls: `PaymentsClient(observers=)` and `paymentsdk.events`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paymentsdk import (
    Failure,
    FlowControl,
    MemoryTokenStore,
    NoAnswer,
    NotFound,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    RateLimited,
    RefreshingToken,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
    TokenPair,
)
from paymentsdk.events import (
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    CallEvent,
    CallOutcome,
    CallStarted,
    Event,
    ReauthorizationDue,
    TokenRefreshed,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import order

ORDER = Response(200, {"X-Request-Id": "req-1"}, b'{"id":"ORD1"}')
TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
NO_JITTER = RetryPolicy(base_delay=0)


class Seen(list[Event]):
    """An observer that keeps what it is told."""

    __call__ = list.append

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self]


def make(observer: Callable[[Event], None], transport: MemoryTransport, **settings: object) -> PaymentsClient:
    """Make a client whose observer is *observer*."""
    defaults = {"base_url": "https://platform.test", "clock": FakeClock(), "access_token": TOKEN, "retry": NO_JITTER}
    return PaymentsClient(transport=transport, observers=[observer], **{**defaults, **settings})


async def test_a_call_begins_and_ends_and_so_do_its_attempts() -> None:
    """In order, with one number for all, the route and not the path, and each duration its own."""
    events, clock = Seen(), FakeClock()
    durations = iter([2.0, 0.5])

    def answer(request: Request) -> Response:
        clock.advance(next(durations))
        return Response(503) if len(transport.requests) == 1 else ORDER

    transport = MemoryTransport(answer)
    retry = RetryPolicy(base_delay=4.0)
    await make(events, transport, clock=clock, retry=retry).orders.get("ORD1")

    assert ["CallStarted", *["AttemptStarted", "AttemptEnded"] * 2, "CallEnded"] == events.kinds
    about = {(e.call, e.operation, e.method, e.route, e.account) for e in events if isinstance(e, CallEvent)}
    assert {(events[0].call, "orders.get", "GET", "/v1/orders/{order_id}", None)} == about
    assert ["https://platform.test/v1/orders/ORD1"] * 2 == [event.url for event in events.of(AttemptStarted)]
    first, second = events.of(AttemptEnded)
    assert (1, 503, Failure.SERVER, 2.0) == (first.number, first.status, first.kind, first.elapsed)
    assert (2, 200, None, 0.5, "req-1") == (
        second.number,
        second.status,
        second.kind,
        second.elapsed,
        second.request_id,
    )
    [end] = events.of(CallEnded)
    assert (CallOutcome.SUCCEEDED, None, 200, 2) == (end.outcome, end.error, end.status, end.attempts)
    assert (0.0, 0.0, 0.0) == (first.queued, second.queued, end.queued)
    assert end.elapsed == pytest.approx(2.5 + sum(clock.slept))
    assert clock.slept


@pytest.mark.parametrize(
    ("answer", "outcome", "error", "status", "kind"),
    [
        (Response(404, {}, b"{}"), CallOutcome.REFUSED, "NotFound", 404, Failure.CLIENT_ERROR),
        (SendFailed("no route", sent=False), CallOutcome.NOT_SENT, "NotSent", None, Failure.NOT_SENT),
        (Response(503), CallOutcome.UNKNOWN, "OutcomeUnknown", None, Failure.SERVER),
    ],
)
async def test_the_result_of_a_write(answer, outcome, error, status, kind) -> None:
    """The three outcomes of a write are values of an enum, and so is the kind of each failure."""
    events, transport = Seen(), MemoryTransport([answer])

    with pytest.raises((NotFound, NotSent, OutcomeUnknown)):
        await make(events, transport, retry=RetryPolicy(attempts=1)).orders.create(order())

    [attempt], [end] = events.of(AttemptEnded), events.of(CallEnded)
    assert kind is attempt.kind
    assert (outcome, error, status) == (end.outcome, end.error, end.status)
    assert end.idempotency_key == transport.requests[0].headers["X-Idempotency-Key"]


async def test_a_read_without_a_response_and_a_cancelled_call_end_as_well() -> None:
    """Whatever ends a call, a `CallEnded` follows its `CallStarted`."""
    events = Seen()

    async def cut_off(request: Request) -> Response:
        if len(transport.requests) == 1:
            raise SendFailed("reset")
        call.cancel()
        return await asyncio.Event().wait() and ORDER

    transport = MemoryTransport(cut_off)
    once = make(events, transport).with_options(retry=RetryPolicy(attempts=1))

    with pytest.raises(NoAnswer):
        await once.orders.get("ORD1")
    call = asyncio.create_task(once.orders.get("ORD1"))
    with pytest.raises(asyncio.CancelledError):
        await call

    assert [CallOutcome.NO_ANSWER, CallOutcome.CANCELLED] == [event.outcome for event in events.of(CallEnded)]
    assert 2 == len(events.of(AttemptEnded))


async def test_every_observer_is_told_and_none_breaks_a_call(caplog) -> None:
    """One that raises at every event, even a cancellation, changes nothing for the call or the others; it is logged."""
    before, after = Seen(), Seen()

    def broken(event: Event) -> None:
        raise asyncio.CancelledError if isinstance(event, CallStarted) else LookupError("a defect")

    transport = MemoryTransport([Response(503), ORDER])
    client = make(broken, transport).with_options(observers=[before, broken, after])

    assert "ORD1" == (await client.orders.get("ORD1")).id

    assert before == after
    assert 6 == len(before)
    raised = [record for record in caplog.records if record.message == "orders.get: an observer raised"]
    assert 6 == len(raised)


async def test_an_observer_adds_headers_to_an_attempt(caplog) -> None:
    """Each attempt carries what the observers add to it; the next begins without. What the client writes stays."""

    def trace(event: Event) -> None:
        if isinstance(event, AttemptStarted):
            event.headers["traceparent"] = f"00-{event.number:032x}-{event.number:016x}-01"
            event.headers["Authorization"] = "Bearer mine"
            event.headers["X-Bad"] = "two\r\nlines"

    transport = MemoryTransport([Response(503), ORDER])
    await make(trace, transport).with_options(headers={"TraceParent": "old"}).orders.get("ORD1")

    sent = [{name.lower(): value for name, value in request.headers.items()} for request in transport.requests]
    assert [f"00-{n:032x}-{n:016x}-01" for n in (1, 2)] == [headers["traceparent"] for headers in sent]
    assert [f"Bearer {TOKEN}"] * 2 == [headers["authorization"] for headers in sent]
    assert "x-bad" not in sent[0]
    left_out = [record.message for record in caplog.records if "left out" in record.message]
    assert 4 == len(left_out)
    assert not any("mine" in line or "lines" in line for line in left_out)


async def test_no_event_holds_a_secret_or_a_query() -> None:
    """Neither the token nor what a search asks for is in the text of any event."""
    events = Seen()
    body = b'{"paging":{"offset":0,"total":0},"results":[]}'
    client = make(events, MemoryTransport(lambda request: Response(200, {}, body)))

    await client.plans.search(q="payer@example.com").first()

    text = repr(events)
    assert "plans.search" in text
    assert TOKEN not in text
    assert "payer" not in text


async def test_a_wait_for_a_turn_is_told() -> None:
    """After a 429 the next call waits: its events say how long; the wait is no part of the attempt."""
    events, clock = Seen(), FakeClock()
    answers = [Response(429, {"Retry-After": "5"}, b"{}"), ORDER]
    once = RetryPolicy(attempts=1)
    client = make(events, MemoryTransport(answers), clock=clock, retry=once, flow=FlowControl())
    clock.advance(1000.0)

    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    await client.orders.get("ORD1")

    last, end = events.of(AttemptEnded)[-1], events.of(CallEnded)[-1]
    assert events.of(AttemptStarted)[-1].queued == pytest.approx(0.1)
    assert (last.queued, end.queued) == pytest.approx((0.1, 0.1))
    assert (0.0, 0.1) == (last.elapsed, pytest.approx(end.elapsed))
    assert Failure.RATE_LIMITED is events.of(AttemptEnded)[0].kind


def token(number: int) -> Response:
    """A response of the token endpoint."""
    body = b'{"access_token":"APP_USR-new-%d-77","refresh_token":"TG-%d","expires_in":15552000}' % (number, number)
    return Response(200, {}, body)


def with_refresh(events: Seen, handler: Callable[[Request], Response], expires_at: float) -> PaymentsClient:
    """Make a client whose token ends at *expires_at*."""
    pair = TokenPair(access_token="APP_USR-old-77", refresh_token="TG-0", expires_at=expires_at)
    auth = RefreshingToken(pair, store=MemoryTokenStore(pair))
    application = {"client_id": "app", "client_secret": "secret-1"}
    return make(events, MemoryTransport(handler), access_token=None, accounts={"shop-1": auth}, **application)


async def test_a_refresh_is_told_once() -> None:
    """However many calls wait for it; with the account, and when the new token ends."""
    events = Seen()

    def answer(request: Request) -> Response:
        return token(1) if request.operation == "oauth.token" else ORDER

    client = with_refresh(events, answer, expires_at=1.0).account("shop-1")
    await asyncio.gather(*(client.orders.get("ORD1") for _ in range(3)))

    [refreshed] = events.of(TokenRefreshed)
    assert ("shop-1", 1_700_000_000.0 + 15_552_000) == (refreshed.account, refreshed.expires_at)
    assert {"shop-1"} == {event.account for event in events}
    assert "TG-" not in repr(events)


async def test_a_spent_refresh_token_is_told_while_there_is_time() -> None:
    """An early refresh that is rejected does no harm yet: whoever observes learns until when a person has to act."""
    events, end = Seen(), 1_700_000_100.0

    def answer(request: Request) -> Response:
        return Response(400, {}, b'{"error":"invalid_grant"}') if request.operation == "oauth.token" else ORDER

    client = with_refresh(events, answer, expires_at=end).account("shop-1")
    await client.orders.get("ORD1")

    [due] = events.of(ReauthorizationDue)
    assert ("shop-1", end, "orders.get") == (due.account, due.expires_at, due.operation)
    assert [] == events.of(TokenRefreshed)


class Broken:
    """A signer that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def sign(self, request: Request, now: float) -> dict[str, str]:
        raise self.error


@pytest.mark.parametrize("error", [KeyError("x"), NotSent("no key"), SystemExit(3)])
async def test_an_attempt_that_cannot_be_signed_ends(error: BaseException) -> None:
    """Whatever the signer raises; the end has the number of the beginning."""
    events = Seen()
    with pytest.raises((NotSent, SystemExit)):
        await make(events, MemoryTransport(), access_token=None, auth=Broken(error)).orders.get("ORD1")

    assert [1] == [event.number for event in events.of(AttemptStarted)] == [e.number for e in events.of(AttemptEnded)]
    assert [1] == [event.attempts for event in events.of(CallEnded)]
