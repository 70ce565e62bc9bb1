"""Each setting takes what its documentation says, to the bound, and is rejected by its own name beyond it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from paymentsdk import (
    AiohttpTransport,
    Deferred,
    FlowControl,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    RateLimited,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.client import CallOptions, ClientOptions
from paymentsdk.journal import SQLiteJournal
from paymentsdk.testing import FakeClock, MemoryTransport
from paymentsdk.transports.aiohttp import ConnectorOptions
from tests.journal.platform import Platform, order

MAKES: dict[str, Callable[..., object]] = {"timeout": Timeout, "retry": RetryPolicy, "flow": FlowControl}
#: The least and the most that each takes, and what is just beyond.
BOUNDS = {
    "timeout.total": ([0.001, 86_400, None], [0, 86_401]),
    "timeout.attempt": ([0.001, 86_400, None], [0, 86_401]),
    "timeout.connect": ([0.001, 86_400, None], [0, 86_401]),
    "retry.attempts": ([1, 20], [0, 21]),
    "retry.base_delay": ([0, 86_400], [-1, 86_401]),
    "retry.max_delay": ([0, 86_400], [-1, 86_401]),
    "retry.max_retry_after": ([0, 86_400], [-1, 86_401]),
    "retry.retry_unkeyed": ([True, False], [1]),
    "flow.max_in_flight": ([1, 100_000], [0, 100_001]),
    "flow.max_wait": ([0.001, 86_400], [0, 86_401]),
}
SETTINGS = pytest.mark.parametrize("name", BOUNDS)


@SETTINGS
def test_a_setting_takes_its_bounds(name: str) -> None:
    """Both ends belong to it."""
    kind, _, member = name.partition(".")

    assert BOUNDS[name][0] == [getattr(MAKES[kind](**{member: value}), member) for value in BOUNDS[name][0]]


@SETTINGS
def test_a_setting_beyond_its_bounds_is_rejected_by_its_name(name: str) -> None:
    """Whoever reads the error finds the setting by it."""
    kind, _, member = name.partition(".")

    for value in BOUNDS[name][1]:
        with pytest.raises(RequestInvalid) as rejected:
            MAKES[kind](**{member: value})
        assert name == rejected.value.path


def connect(**settings: object) -> tuple[PaymentsClient, MemoryTransport]:
    """Return a client of a platform that is down, and what it sends."""
    transport = MemoryTransport(lambda request: Response(503))
    settings = {"clock": FakeClock(), "retry": RetryPolicy(attempts=1), "transport": transport, **settings}
    return PaymentsClient("APP_USR-1-2-3-77", base_url="https://platform.test", **settings), transport


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Timeout(total=60, attempt=10, connect=5), (10, 5)),
        (Timeout(total=60, attempt=5, connect=5), (5, 4.5)),
        (Timeout(total=60, attempt=4, connect=5), (4, 3.6)),
        (Timeout(total=60, attempt=10, connect=None), (10, 9)),
        (Timeout(total=8, attempt=10, connect=None), (8, 7.2)),
    ],
)
async def test_the_wait_for_a_connection_ends_before_the_attempt(
    bounds: Timeout, expected: tuple[float, float]
) -> None:
    """What is cut off after it may have been sent, and would be in doubt: a tenth of the attempt is left for that."""
    client, transport = connect(timeout=bounds)
    async with client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel("ORD1")

    assert [expected] == [(request.timeout, pytest.approx(request.connect_timeout)) for request in transport.requests]


@pytest.mark.parametrize("ahead", [-3601, -3599, -1, 0, 1, 3599, 3600])
async def test_a_key_can_have_been_sent_a_moment_ago_by_a_clock_that_goes_ahead(ahead: int) -> None:
    """The clocks of machines differ by up to an hour."""
    clock = FakeClock()
    client, transport = connect(clock=clock)
    moment = datetime.fromtimestamp(clock.now(), UTC) + timedelta(seconds=ahead)
    async with client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel("ORD1", idempotency_key="k-1", first_sent_at=moment)

    assert 1 == len(transport.requests)


async def test_a_key_cannot_have_been_sent_in_the_future() -> None:
    """More than an hour ahead is a mistake, and would let the key outlive what the platform remembers."""
    clock = FakeClock()
    client, transport = connect(clock=clock)
    async with client:
        moment = datetime.fromtimestamp(clock.now() + 3601, UTC)
        with pytest.raises(RequestInvalid) as rejected:
            await client.orders.cancel("ORD1", idempotency_key="k-1", first_sent_at=moment)

    assert ("first_sent_at", []) == (rejected.value.path, transport.requests)


@pytest.mark.parametrize("length", [1, 64])
async def test_a_key_has_1_to_64_characters(length: int) -> None:
    """Both are sent as they are."""
    client, transport = connect()
    async with client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel("ORD1", idempotency_key="k" * length)
        for wrong in ("", "k" * 65, "k k", "k\n"):
            with pytest.raises(RequestInvalid) as rejected:
                await client.orders.cancel("ORD1", idempotency_key=wrong)
            assert "idempotency_key" == rejected.value.path

    assert ["k" * length] == [request.headers["X-Idempotency-Key"] for request in transport.requests]


@pytest.mark.parametrize("concurrency", [1, 100_000])
async def test_a_map_takes_one_call_at_a_time_or_very_many(concurrency: int) -> None:
    """Both bounds of `concurrency` belong to it."""
    client, _ = connect()

    async def double(number: int) -> int:
        return 2 * number

    async with client:
        assert [0, 2, 4] == [outcome.value async for outcome in client.map(double, range(3), concurrency=concurrency)]


async def test_a_signed_client_without_an_account_has_no_records(tmp_path) -> None:
    """The key of a record is derived from the seller, whom a signature does not name."""

    class Signer:
        def sign(self, request: Request, now: float) -> dict[str, str]:
            return {"X-Signature": "s"}

    transport = MemoryTransport(lambda request: Response(503))
    journal = SQLiteJournal(tmp_path / "payments.db")
    async with PaymentsClient(
        auth=Signer(), base_url="https://platform.test", transport=transport, journal=journal, clock=FakeClock()
    ) as client:
        with pytest.raises(RequestInvalid) as rejected:
            await client.orders.cancel("ORD1", once="table-7/1")

    assert ("account", []) == (rejected.value.path, transport.requests)


async def test_a_signed_write_needs_no_time_of_the_platform(tmp_path) -> None:
    """No read asks for it: a new record ends by the clock that has begun it."""

    class Signer:
        def sign(self, request: Request, now: float) -> dict[str, str]:
            return {"X-Signature": "s"}

    clock = FakeClock()
    platform = Platform(clock)
    transport = MemoryTransport(platform)
    async with PaymentsClient(
        accounts={"shop-1": Signer()},
        base_url="https://platform.test",
        transport=transport,
        journal=SQLiteJournal(tmp_path / "payments.db"),
        clock=clock,
    ) as client:
        orders = client.account("shop-1").orders
        for number in (1, 2):
            await orders.create(order(), once=f"table-7/{number}")

    assert ["POST", "POST"] == [request.method for request in transport.requests]


async def test_a_write_that_was_not_sent_says_so_each_time(tmp_path) -> None:
    """Who names the record once more learns the operation, the key and the reason, as the first did."""

    def answer(request: Request) -> Response:
        if request.method == "POST":
            raise SendFailed("connection refused", sent=False)
        return Response(200, {"Date": "Tue, 14 Nov 2023 22:13:20 GMT"}, b'{"paging":{"total":0},"results":[]}')

    journal = SQLiteJournal(tmp_path / "payments.db")
    client, _ = connect(transport=MemoryTransport(answer), journal=journal)
    errors = []
    async with client:
        for _ in range(2):
            with pytest.raises(NotSent, match="connection refused") as raised:
                await client.orders.cancel("ORD1", once="table-7/1")
            errors.append(raised.value)

    assert {("orders.cancel", errors[0].idempotency_key)} == {
        (error.operation, error.idempotency_key) for error in errors
    }
    assert errors[0].idempotency_key is not None


@pytest.mark.parametrize("address", [5, None, b"https://platform.test", "platform.test", ""])
def test_an_address_is_a_url(address: object) -> None:
    """Anything else is rejected by its name."""
    with pytest.raises(RequestInvalid) as rejected:
        PaymentsClient("APP_USR-1-2-3-77", base_url=address, transport=MemoryTransport())

    assert "base_url" == rejected.value.path


async def test_a_pause_of_just_the_longest_is_kept() -> None:
    """`max_retry_after` is the longest pause that is kept, and not the first that is not."""
    clock = FakeClock()
    script = [Response(429, {"Retry-After": "30"}), Response(429, {"Retry-After": "31"})]
    transport = MemoryTransport(script)
    client, _ = connect(clock=clock, transport=transport, retry=RetryPolicy(base_delay=0), timeout=Timeout(total=None))
    async with client:
        with pytest.raises(RateLimited) as raised:
            await client.orders.get("ORD1")

    assert (31.0, 2) == (raised.value.retry_after, len(transport.requests))
    assert clock.slept == [30.0]


async def test_a_deferred_write_says_why_it_was_not_sent(tmp_path) -> None:
    """The reason is that of the attempt, as a `NotSent` has it."""

    def answer(request: Request) -> Response:
        if request.method == "POST":
            raise SendFailed("connection refused", sent=False)
        return Response(
            200, {"Date": "Fri, 31 Jan 2026 12:00:00 GMT"}, b'{"paging":{"offset":0,"total":0},"results":[]}'
        )

    journal = SQLiteJournal(tmp_path / "payments.db")
    client, _ = connect(transport=MemoryTransport(answer), journal=journal)
    async with client:
        with pytest.raises(Deferred) as deferred:
            await client.orders.cancel("ORD1", once="table-7/1", defer=True)
        with pytest.raises(NotSent, match="connection refused"):
            await client.orders.cancel("ORD1", once="table-7/2")

    assert "connection refused" == deferred.value.reason


@pytest.mark.parametrize(
    ("documented", "options"),
    [
        (PaymentsClient, ClientOptions),
        (PaymentsClient.with_options, CallOptions),
        (AiohttpTransport, ConnectorOptions),
    ],
)
def test_a_docstring_names_every_option(documented: object, options: type) -> None:
    """An editor shows no list of the options behind `**options`, so the docstring has it."""
    text = inspect.getdoc(documented) or ""
    assert [] == [name for name in options.__annotations__ if f"`{name}`" not in text]
