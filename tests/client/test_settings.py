"""Each setting takes what its documentation says, to the bound, and is rejected by its own name beyond it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from paymentsdk import FlowControl, OutcomeUnknown, PaymentsClient, RequestInvalid, Response, RetryPolicy, Timeout
from paymentsdk.testing import FakeClock, MemoryTransport

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


@pytest.mark.parametrize(("ahead", "error"), [(0, OutcomeUnknown), (3600, OutcomeUnknown), (3601, RequestInvalid)])
async def test_a_key_can_have_been_sent_by_a_clock_that_goes_ahead(ahead: int, error: type[Exception]) -> None:
    """The clocks of machines differ by up to an hour. More would let a key outlive what the platform remembers."""
    clock = FakeClock()
    client, transport = connect(clock=clock)
    moment = datetime.fromtimestamp(clock.now(), UTC) + timedelta(seconds=ahead)
    async with client:
        with pytest.raises(error):
            await client.orders.cancel("ORD1", idempotency_key="k-1", first_sent_at=moment)

    assert (error is OutcomeUnknown) == len(transport.requests)
