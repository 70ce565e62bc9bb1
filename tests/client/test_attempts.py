"""What an observer learns of each attempt by itself."""

from __future__ import annotations

from paymentsdk import PaymentsClient, Request, Response, RetryPolicy
from paymentsdk.events import AttemptEnded
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.observing import of_attempts


async def test_an_attempt_lasts_from_its_own_start() -> None:
    """Neither the attempts before nor the pauses between count: each duration is that of one request."""
    clock, attempts = FakeClock(), list[AttemptEnded]()
    durations = iter([2.0, 3.0, 0.5])

    async def answer(request: Request) -> Response:
        clock.advance(next(durations))
        return Response(200 if len(attempts) == 2 else 503, {}, b'{"id":"ORD1"}')

    retry = RetryPolicy(base_delay=4.0)
    transport = MemoryTransport(answer)
    options = {"clock": clock, "observers": of_attempts(attempts.append), "retry": retry}
    client = PaymentsClient("token", base_url="http://127.0.0.1", transport=transport, **options)

    result = await client.orders.get("ORD1"), attempts

    assert "ORD1" == result[0].id
    assert [2.0, 3.0, 0.5] == [round(attempt.elapsed, 6) for attempt in attempts]
    assert sum(clock.slept) > 0
