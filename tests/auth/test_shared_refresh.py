"""The refresh of a token belongs to the client: no call that waits for it has a say in how it is made."""

from __future__ import annotations

import asyncio
import pickle
import re
from traceback import TracebackException

import pytest

from paymentsdk import (
    ClientClosed,
    MemoryTokenStore,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    RefreshFailed,
    RefreshingToken,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.resources.oauth import OAuth
from paymentsdk.testing import FakeClock
from tests.auth.platform import START, Platform
from tests.conftest import PATIENCE

SHORT = [Timeout(total=0.1), Timeout(attempt=0.1)]
HASTY = RetryPolicy(attempts=1)


async def on_the_callers_terms(engine: object, refresh_token: str) -> object:
    """Refresh with the timeouts of whichever call came first."""
    return (await OAuth(engine).refresh(refresh_token)).pair(START)


@pytest.mark.control(
    "paymentsdk.client._exchange_refresh_token", on_the_callers_terms, raises=(PaymentsError, AssertionError)
)
@pytest.mark.parametrize(("bounds", "rejected"), [(SHORT[0], False), (SHORT[1], True)], ids=["due", "refused"])
async def test_a_hasty_caller_ends_its_own_wait_alone(
    make_client, platform: Platform, clock: FakeClock, until, *, bounds: Timeout, rejected: bool
) -> None:
    """One call with a short deadline comes first, and a hundred join: they succeed, with one refresh.

    Its pair is kept. The hasty call ends in time, with an error that says that it did nothing.
    """
    store = MemoryTokenStore()
    client = make_client(platform.pair(expires_at=None if rejected else 0.0), store=store)
    platform.latency, platform.accepts_only = 0.2, 2
    hasty = asyncio.create_task(client.with_options(timeout=bounds, retry=HASTY).orders.cancel("ORD1"))
    await until(lambda: platform.refreshes)
    clock.advance(0.005)
    joined = [asyncio.create_task(client.orders.cancel("ORD1")) for _ in range(100)]
    for _ in range(5):
        await asyncio.sleep(0)

    clock.advance(0.095)
    with pytest.raises(RefreshFailed if rejected else NotSent, match=r"the time ran out \(timeout\."):
        await hasty
    clock.advance(0.1)
    orders = await asyncio.gather(*joined)

    assert 100 == len(orders)
    assert ["TG-refresh-1"] == platform.refreshes
    assert "TG-refresh-2" == (await store.load()).refresh_token


# --- what the callers learn -------------------------------------------------------------------------------------------


class Full(MemoryTokenStore):
    """A store whose disk is full."""

    async def save(self, pair: object) -> None:
        raise OSError(28, "No space left on device")


TROUBLE = {
    "unsent": SendFailed("refused", sent=False),
    "reset": SendFailed("reset"),
    "503": Response(503),
    "429": Response(429),
    "400": Response(400),
    "404": Response(404),
}


@pytest.mark.parametrize(("trouble", "rejected"), [*((name, False) for name in TROUBLE), ("503", True), ("full", True)])
async def test_a_refresh_that_fails_for_now_says_so(make_client, platform, *, trouble: str, rejected: bool) -> None:
    """Each of a hundred callers learns that nothing was done; none of them that the seller had to authorize again."""
    store = Full() if trouble == "full" else None
    client = make_client(platform.pair(expires_at=None if rejected else 0.0), store=store)
    platform.accepts_only = 2
    platform.trouble = [TROUBLE[trouble]] * 9 if trouble in TROUBLE else []

    errors = await asyncio.gather(*(client.orders.cancel("ORD1") for _ in range(20)), return_exceptions=True)

    assert {RefreshFailed} == set(map(type, errors))
    assert 20 == len(set(map(id, errors)))
    assert all((cause is None) == (trouble == "full") for cause in (error.cause for error in errors))
    assert {("orders.cancel", int(rejected))} == {(error.operation, error.attempts) for error in errors}
    assert "trying again is safe" in str(errors[0])
    restored = pickle.loads(pickle.dumps(errors[0]))
    assert (str(errors[0]), str(errors[0].cause)) == (str(restored), str(restored.cause))
    text = f"{TracebackException.from_exception(errors[0], capture_locals=True).stack.format()} {vars(errors[0])}"
    assert not re.search("TG-refresh|APP_USR-access|TEST-client-secret", text)

    platform.trouble = []
    if trouble != "full":
        assert "ORD1" == (await client.orders.cancel("ORD1")).id


@pytest.mark.parametrize("trouble", ["unsent", "503", "400"])
async def test_a_doubt_outlives_a_failed_refresh(make_client, platform: Platform, until, trouble: str) -> None:
    """A write in doubt whose token cannot be refreshed is `OutcomeUnknown`, with that failure as its last error."""
    client = make_client(platform.pair(), retry=RetryPolicy(base_delay=0))
    platform.accepts_only, platform.responses = 1, [SendFailed("reset")]
    platform.trouble = [TROUBLE[trouble]] * 9
    call = asyncio.create_task(client.orders.cancel("ORD1"))
    await until(lambda: platform.calls)
    platform.accepts_only = 2

    with pytest.raises(OutcomeUnknown) as unknown:
        await call

    assert RefreshFailed is type(unknown.value.last_error)
    assert unknown.value.idempotency_key


# --- closing ----------------------------------------------------------------------------------------------------------


async def closed_after(client: PaymentsClient, clock: FakeClock, seconds: float, **options: float) -> None:
    """Close *client*, and fail unless that takes *seconds*."""
    closing = asyncio.create_task(client.aclose(**options))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    clock.advance(seconds - 0.001)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    clock.advance(0.001)
    async with asyncio.timeout(PATIENCE):
        await closing


@pytest.mark.parametrize("options", [{}, {"grace": 0.5}], ids=["default", "given"])
async def test_closing_waits_no_longer_than_its_grace(make_client, platform, clock, until, *, caplog, options) -> None:
    """With a token endpoint that hangs, closing takes `grace` seconds: the refresh is given up, and the log says so."""
    client = make_client(platform.pair(expires_at=0.0))
    platform.latency = 1000.0
    call = asyncio.create_task(client.orders.get("ORD1"))
    await until(lambda: platform.refreshes)
    call.cancel()

    await closed_after(client, clock, options.get("grace", 5), **options)

    await asyncio.sleep(0)
    assert "cancelled when it may have been sent" in caplog.text


async def test_another_client_asks_for_itself(make_client, platform: Platform, clock, until) -> None:
    """Two clients share a token: when the one that refreshes it gives that up as it closes, the other asks anew."""
    token = RefreshingToken(platform.pair(expires_at=0.0))
    closed, living = (make_client(auth=token) for _ in range(2))
    platform.trouble, platform.latency = [Response(503)], 1000.0
    first = asyncio.create_task(closed.orders.get("ORD1"))
    await until(lambda: platform.refreshes)
    second = asyncio.create_task(living.orders.get("ORD1"))
    for _ in range(5):
        await asyncio.sleep(0)
    platform.latency = 0.0

    await closed_after(closed, clock, 5)

    assert "ORD1" == (await second).id
    with pytest.raises(ClientClosed):
        await first
