"""What a client does after a 429, and with flow control: through public names and a transport in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from paymentsdk import (
    APIError,
    ClientClosed,
    ErrorCode,
    Failure,
    FlowControl,
    NoAnswer,
    NotSent,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    RateLimited,
    Request,
    Response,
    RetryClass,
    RetryPolicy,
    SendFailed,
    Timeout,
    TokenPair,
)
from paymentsdk.events import AttemptEnded
from paymentsdk.resources.orders import Order
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import order_request
from tests.flow.platform import SimulatedClock
from tests.observing import of_attempts

ONCE = RetryPolicy(attempts=1)
ORDER = Response(200, {}, b'{"id":"ORD1"}')
LIMITED = Response(429, {"Retry-After": "5"}, b"{}")


class Platform:
    """Responses in turn, or hangs, and notes when each request came."""

    def __init__(self, clock: FakeClock, *script: Response | SendFailed | None) -> None:
        self.clock = clock
        self.script = list(script)
        self.times: list[float] = []
        self.requests: list[Request] = []
        self.hanging: list[asyncio.Future[Response]] = []

    async def __call__(self, request: Request) -> Response:
        self.times.append(round(self.clock.monotonic(), 3))
        self.requests.append(request)
        response = self.script.pop(0) if self.script else ORDER
        if isinstance(response, SendFailed):
            raise response
        if response is None:
            self.hanging.append(asyncio.get_running_loop().create_future())
            return await self.hanging[-1]
        return response


@pytest.fixture
async def connect(clock: SimulatedClock) -> AsyncIterator[Callable[..., PaymentsClient]]:
    """Make clients of a platform that are closed in the end."""
    clients: list[PaymentsClient] = []

    def connect(platform: Platform, **settings: object) -> PaymentsClient:
        defaults = {"access_token": "APP_USR-1", "base_url": "https://platform.test", "clock": clock, "retry": ONCE}
        if "accounts" in settings:
            del defaults["access_token"]
        clients.append(PaymentsClient(**{**defaults, "transport": MemoryTransport(platform), **settings}))
        return clients[-1]

    yield connect
    for client in clients:
        await client.aclose()


def start(*calls: object) -> list[asyncio.Task[object]]:
    """Make *calls* at the same time."""
    return [asyncio.ensure_future(call) for call in calls]


async def test_after_a_429_one_of_the_others_tries_and_then_all_go(clock, connect):
    """By default: 0.1 s nothing, then one request; when it is served, the rest at once."""
    platform = Platform(clock, LIMITED, None)
    client = connect(platform)
    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    calls = start(*(client.orders.get("ORD1") for _ in range(5)))
    await clock.run(1.0)

    assert [0.0, 0.1] == platform.times
    platform.hanging[0].set_result(ORDER)
    await clock.run(0.0)
    assert [0.0, 0.1, 1.0, 1.0, 1.0, 1.0] == platform.times
    await asyncio.gather(*calls)


def declaring(status: int, kind: Failure | None = None, raises: type[APIError] | None = None) -> Operation[None, Order]:
    """Return a read whose code "custom", with *status*, is of a *kind*."""
    return Operation(
        name="shop.get",
        method="GET",
        path="/v1/orders/{order_id}",
        result=Order,
        retry=RetryClass.READ,
        errors=(ErrorCode(status, "custom", "an error of this operation", kind=kind, raises=raises),),
    )


def as_the_status_says(original: Callable[..., object]) -> Callable[..., object]:
    """Take a response for what its status says, whatever is declared."""

    def classify(errors: object, status: int, code: str | None, codes: object) -> object:
        return original((), status, code, codes)

    return classify


@pytest.mark.parametrize("kind", [Failure.CLIENT_ERROR])
@pytest.mark.control("paymentsdk._contract.rules.classify_response", around=as_the_status_says)
async def test_a_429_that_is_declared_as_something_else_closes_no_gate(clock, connect, kind: Failure):
    """As a quota of one thing, which says nothing of the other calls."""
    platform = Platform(clock, Response(429, {"Retry-After": "3600"}, b'{"error":"custom"}'))
    client, operation = connect(platform), declaring(429, kind)
    calls = start(client.call(operation, order_id="ORD1"))
    await clock.settle()
    calls += start(client.call(operation, order_id="ORD1"))
    await clock.run(1.0)
    await asyncio.gather(*calls, return_exceptions=True)

    assert [0.0, 0.0] == platform.times


@pytest.mark.parametrize(
    ("status", "kind", "opens"),
    [
        (400, Failure.SERVER, False),
        (503, None, False),
        (503, Failure.CLIENT_ERROR, True),
        (429, Failure.CONFLICT, True),
    ],
)
async def test_a_response_opens_the_gate_by_what_it_is_declared_as(
    clock, connect, status: int, kind: Failure | None, opens: bool
):
    """One that says that the platform could not do it lets only the next one try, whatever its status."""
    platform = Platform(clock, LIMITED, Response(status, {}, b'{"error":"custom"}'), None, None)
    client, operation = connect(platform), declaring(status, kind)
    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    calls = start(*(client.call(operation, order_id="ORD1") for _ in range(3)))
    await clock.run(1.0)
    sent = list(platform.times)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    assert [0.0, 0.1, 0.1, 0.1][: 4 if opens else 3] == sent


async def test_the_time_of_an_attempt_begins_with_its_turn(clock, connect):
    """One that hangs after it has waited ends as soon as any other."""
    client = connect(Platform(clock, LIMITED, None), timeout=Timeout(total=60.0, attempt=5.0))
    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    [call] = start(client.orders.get("ORD1"))
    await clock.run(5.0)
    waits = not call.done()
    await clock.run(0.1)

    assert (True, NoAnswer) == (waits, type(call.exception()))


async def test_copies_and_accounts_know_of_the_429_of_their_seller(clock, connect):
    """Whichever copy got it; another seller is not held."""
    platform = Platform(clock, LIMITED)
    client = connect(platform, accounts={"one": "APP_USR-1", "two": "APP_USR-2"})
    with pytest.raises(RateLimited):
        await client.account("one").orders.get("ORD1")
    calls = start(
        client.account("one").with_options(strict=True).orders.get("ORD1"), client.account("two").orders.get("ORD1")
    )
    await clock.run(1.0)
    await asyncio.gather(*calls)

    assert [("one", 0.0), ("two", 0.0), ("one", 0.1)] == [
        (request.account, when) for request, when in zip(platform.requests, platform.times, strict=True)
    ]


async def test_a_wait_that_is_too_long_sends_nothing(clock, connect):
    """The error says so, and that trying again is safe; a retry would wait as long once more, so there is none."""
    platform = Platform(clock, Response(429, {"Retry-After": "600"}, b"{}"), None)
    client = connect(platform, flow=FlowControl(max_wait=3.0), timeout=Timeout(total=60.0, attempt=60.0))
    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    patient = client.with_options(retry=RetryPolicy(attempts=3, base_delay=0.0))
    [tries, waits] = start(client.orders.get("ORD1"), patient.orders.create(order_request()))
    await clock.run(4.0)

    assert waits.done()
    with pytest.raises(NotSent, match=r"3 s \(flow.max_wait\)"):
        await waits
    assert 2 == len(platform.requests)
    tries.cancel()
    await asyncio.gather(tries, return_exceptions=True)


async def test_a_write_in_doubt_that_waits_too_long_stays_in_doubt(clock, connect):
    """Its first attempt may have taken effect: "not sent" would be wrong. Observers are told of no second one."""
    attempts: list[AttemptEnded] = []
    platform = Platform(clock, SendFailed("reset", sent=True), Response(429, {"Retry-After": "600"}, b"{}"), None)
    client = connect(platform, flow=FlowControl(max_wait=3.0), retry=RetryPolicy(attempts=2, base_delay=0.0))
    twice = client.with_options(retry=RetryPolicy(attempts=2, base_delay=2.0), observers=of_attempts(attempts.append))
    [write] = start(twice.orders.create(order_request()))
    await clock.settle()
    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    [tries] = start(client.orders.get("ORD1"))
    await clock.run(10.0)

    with pytest.raises(OutcomeUnknown, match="waited for its turn"):
        await write
    assert [1, 0] == [attempt.number for attempt in attempts]
    tries.cancel()
    await asyncio.gather(tries, return_exceptions=True)


class Slots:
    """A shared rate in memory: slots are a fixed time apart, and whoever can wait for the next one gets it."""

    def __init__(self, apart: float, first: float = 0.0) -> None:
        self.apart = apart
        self.free = first
        self.asked: list[float] = []

    async def reserve(self, now: float, longest: float) -> float | None:
        """Take one."""
        await asyncio.sleep(0)
        self.asked.append(longest)
        start = max(self.free, now)
        if start - now > longest:
            return None
        self.free = start + self.apart
        return start - now


def without_deadline(original: Callable[..., object]) -> Callable[..., object]:
    """Ask for a permit as if the call had all the time of the world."""

    def acquire(self: object, seller: object, priority: str = "interactive", left: float = 0.0) -> object:
        return original(self, seller, priority)

    return acquire


@pytest.mark.control("paymentsdk._call.flow.Flow.acquire", around=without_deadline)
async def test_calls_that_are_too_many_for_a_shared_rate_leave_it_to_those_who_have_the_time(clock, connect):
    """Half of the calls are not sent; the others get every slot, and go out early enough for their responses."""

    async def serve(request: Request) -> Response:
        times.append(clock.monotonic())
        await clock.sleep(0.1)
        return ORDER

    times: list[float] = []
    share = FlowControl(share=Slots(1 / 20), max_wait=3.0)
    client = connect(serve, flow=share, timeout=Timeout(total=0.5))
    calls: list[asyncio.Task[object]] = []
    for _ in range(100):
        calls += start(client.orders.get("ORD1"))
        await clock.run(1 / 40)
    await clock.run(1.0)
    ends = await asyncio.gather(*calls, return_exceptions=True)

    assert {Order, NotSent} == {type(end) for end in ends}
    assert 20 * 2.5 <= len(times)


async def test_a_call_waits_for_its_slot_for_half_of_its_time_and_no_longer_than_the_flow_allows(clock, connect):
    """What it has waited before counts; where the slot comes later, nothing is sent, and the error says why at once."""
    slots = Slots(1.0, first=clock.now() + 31.0)
    client = connect(Platform(clock), flow=FlowControl(share=slots))
    for total in (10.0, 60.0, 90.0, None):
        with pytest.raises(NotSent, match=r"its slot in the rate of flow\.share comes too late"):
            await client.with_options(timeout=Timeout(total=total)).orders.get("ORD1")

    assert [5.0, 30.0, 30.0, 30.0] == slots.asked
    assert 0.0 == clock.monotonic()


class Broken:
    """A shared rate with a defect."""

    async def reserve(self, now: float, longest: float) -> float | None:
        """Have none."""
        raise LookupError("a defect")


async def test_a_share_that_breaks_ends_the_call(clock, connect):
    """At once, as to try again would hide it behind pauses; the error says where, and that nothing was sent."""
    client = connect(Platform(clock), flow=FlowControl(share=Broken()), retry=RetryPolicy())
    with pytest.raises(NotSent, match=r"waiting for its turn raised LookupError \(test_client.py:\d+ in reserve\)"):
        await client.orders.create(order_request())

    assert 0.0 == clock.monotonic()


@pytest.mark.control("paymentsdk._call.flow._SLOTS_AHEAD", 3600.0)
async def test_batch_calls_take_their_slots_after_the_others(clock, connect):
    """Whoever comes with an interactive call waits for the slots that are taken, not for all who have asked before."""
    platform = Platform(clock)
    client = connect(platform, flow=FlowControl(share=Slots(1.0)))
    batch = client.with_options(priority="batch", headers={"X-Who": "batch"})
    calls = start(*(batch.orders.get("ORD1") for _ in range(9)))
    await clock.run(1.5)
    calls += start(client.orders.get("ORD1"), client.orders.get("ORD1"))
    await clock.run(10.0)
    await asyncio.gather(*calls)

    assert [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0] == platform.times
    assert [3, 4] == [at for at, request in enumerate(platform.requests) if "X-Who" not in request.headers]


@pytest.mark.control(
    "paymentsdk._call.flow.Flow.pause", around=lambda _: lambda self, seconds: self._clock.sleep(seconds)
)
@pytest.mark.parametrize("ahead", [0.05, 1.0])
async def test_closing_the_client_ends_the_wait_for_a_slot(clock, connect, ahead: float):
    """Of all, at once, also of the one that has a slot and sleeps until then; and nothing more is sent."""
    platform = Platform(clock)
    client = connect(platform, flow=FlowControl(share=Slots(ahead)))
    calls = start(*(client.orders.get("ORD1") for _ in range(5)))
    await clock.run(ahead / 2)
    await client.aclose()
    await clock.settle()

    at_once = [call.done() for call in calls]
    await clock.run(10.0)
    ends = [type(end) for end in await asyncio.gather(*calls, return_exceptions=True)]

    assert [True] * 5 == at_once
    assert [ClientClosed] * 4 == ends[1:]
    assert [0.0] == platform.times


async def test_batch_calls_go_after_the_others(clock, connect):
    """A copy for a nightly job, on the same connections."""
    platform = Platform(clock, Response(429, {"Retry-After": "600"}, b"{}"), None)
    client = connect(platform)
    batch = client.with_options(priority="batch", headers={"X-Who": "batch"})
    with pytest.raises(RateLimited):
        await client.orders.get("ORD1")
    calls = start(client.orders.get("ORD1"))
    await clock.run(1.0)
    calls += start(batch.orders.get("ORD1"), client.orders.get("ORD1"))
    await clock.run(1.0)
    platform.hanging[0].set_result(ORDER)
    await clock.run(1.0)
    await asyncio.gather(*calls)

    assert [None, "batch"] == [request.headers.get("X-Who") for request in platform.requests[2:]]


async def test_a_token_is_refreshed_while_the_seller_is_limited(clock, connect):
    """The limit is about the seller's requests; whoever waits for the token would hold the only permit."""
    tokens = Response(200, {}, b'{"access_token":"APP_USR-2","refresh_token":"TG-2","expires_in":3600}')
    platform = Platform(clock, LIMITED, Response(401, {}, b"{}"), tokens)
    pair = TokenPair(access_token="APP_USR-1", refresh_token="TG-1", expires_at=4e9)
    client = connect(platform, accounts={"one": pair}, client_id="app", client_secret="app-secret-0123456789")
    seller = client.account("one")
    with pytest.raises(RateLimited):
        await seller.orders.get("ORD1")
    [call] = start(seller.orders.get("ORD1"))
    await clock.run(3.0)

    assert "ORD1" == (await call).id
    assert ["orders.get", "orders.get", "oauth.token", "orders.get"] == [r.operation for r in platform.requests]
