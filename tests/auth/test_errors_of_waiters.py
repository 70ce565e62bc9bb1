"""One failure of a source of tokens, and the many calls that it ends: each caller has an error of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from paymentsdk import (
    APIError,
    Auth,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    Response,
)
from paymentsdk.testing import FakeClock
from tests.auth.platform import START, Platform


class Failing(Auth):
    """A source of tokens that remembers why it has none, and raises that object to whoever waits."""

    def __init__(self, error: PaymentsError) -> None:
        self.error = error

    def token(self, now: float) -> str | None:
        """Have every call wait."""
        return None

    async def renew(self, rejected: str | None, exchange: object, now: float) -> str | None:
        """Fail, once all of them wait."""
        await asyncio.sleep(0)
        raise self.error


def failures() -> list[PaymentsError]:
    """Return what may be raised to many at a time."""
    spent = ReauthorizationRequired(401, "invalid_grant", "spent")
    spent.settled = True  # Of the refresh.
    return [spent, RefreshFailed("the store is full")]


async def told(client: PaymentsClient) -> list[PaymentsError]:
    """Make three calls at a time that fail, and return what each was told."""
    calls = (
        client.orders.cancel("ORD1", idempotency_key="k-1"),
        client.orders.cancel("ORD2", idempotency_key="k-2"),
        client.orders.get("ORD3"),
    )
    ends = await asyncio.gather(*calls, return_exceptions=True)
    return [end for end in ends if isinstance(end, PaymentsError)]


def attributes(errors: list[PaymentsError]) -> list[tuple[str | None, str | None]]:
    """Return what each of *errors* says of its call."""
    return [(error.operation, error.idempotency_key) for error in errors]


OWN = [("orders.cancel", "k-1"), ("orders.cancel", "k-2"), ("orders.get", None)]


@pytest.mark.control("paymentsdk._call.verdicts._own", lambda error: error)
@pytest.mark.parametrize("number", range(2), ids=[type(error).__name__ for error in failures()])
async def test_each_caller_has_an_error_of_its_own(make_client: Callable[..., PaymentsClient], number: int) -> None:
    """Operation and key are those of the call, though one object was raised to all; that object stays as it was."""
    error = failures()[number]  # One for each run: the control changes it.
    errors = await told(make_client(auth=Failing(error)))

    assert OWN == attributes(errors)
    assert {type(error)} == {type(caller_error) for caller_error in errors}
    assert (None, None) == (error.operation, error.idempotency_key)


@pytest.mark.control("paymentsdk._call.verdicts._own", lambda error: error)
async def test_a_rejected_refresh_settles_no_write(
    make_client: Callable[..., PaymentsClient], platform: Platform, clock: FakeClock
) -> None:
    """With a key that was sent before, a spent grant is an `OutcomeUnknown`, and nothing in it says "settled"."""
    platform.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = make_client(platform.pair(expires_at=START - 1))
    before = datetime.fromtimestamp(clock.now(), UTC) - timedelta(hours=1)
    for _ in range(2):  # The grant is found spent, and remembered.
        with pytest.raises(OutcomeUnknown) as raised:
            await client.orders.cancel("ORD1", idempotency_key="k-1", first_sent_at=before)

        last = raised.value.last_error
        assert isinstance(last, APIError)
        assert (ReauthorizationRequired, False) == (type(last), last.settled)
        assert before == raised.value.first_sent_at
