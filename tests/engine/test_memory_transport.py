"""The transport and the clock that programs test with."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from paymentsdk import ClientClosed, Request, Response, SendFailed
from paymentsdk.testing import FakeClock, MemoryTransport

REQUEST = Request("GET", "http://x/y")
OK = Response(200, {}, b"{}")


async def waits(request: Request) -> Response:
    """Respond after a moment."""
    await asyncio.sleep(0)
    return OK


@pytest.mark.parametrize("handler", [lambda request: OK, waits, [OK], iter([200]), itertools.repeat(200)])
async def test_a_response_from_a_function_or_a_script(handler: object) -> None:
    """A handler returns a response or awaits one; a script is any iterable of these, also without end."""
    transport = MemoryTransport(handler)

    assert OK == await transport.send(REQUEST)
    assert [REQUEST] == transport.requests


async def test_a_script_is_used_up_one_by_one() -> None:
    """Each request takes the next response; when there is none left, that is a failure that says so."""
    transport = MemoryTransport([503])
    transport.replies(OK, SendFailed("refused", sent=False), ValueError("odd"), asyncio.CancelledError())

    assert [503, 200] == [(await transport.send(REQUEST)).status for _ in range(2)]
    with pytest.raises(SendFailed, match="refused") as rejected:
        await transport.send(REQUEST)
    assert not rejected.value.sent
    with pytest.raises(SendFailed, match="ValueError: odd") as failed:
        await transport.send(REQUEST)
    assert failed.value.sent
    with pytest.raises(asyncio.CancelledError):
        await transport.send(REQUEST)
    with pytest.raises(SendFailed, match="the script is used up"):
        await transport.send(REQUEST)
    await transport.aclose()
    with pytest.raises(ClientClosed):
        await transport.send(REQUEST)


# --- the clock --------------------------------------------------------------------------------------------------------


def test_alarms_ring_in_their_order_and_at_their_time() -> None:
    """Every alarm on the way rings at its own time, those that are set by others as well; a cancelled one does not."""
    clock, rang = FakeClock(), []

    def ring(name: str):
        return lambda: rang.append((name, clock.monotonic()))

    def again() -> None:
        rang.append(("again", clock.monotonic()))
        clock.call_at(clock.monotonic() + 1, ring("later"))
        clock.call_at(0, ring("overdue"))

    clock.call_at(3, ring("three"))
    clock.call_at(1, again)
    clock.call_at(2.5, ring("never")).cancel()
    clock.call_at(9, ring("nine"))
    clock.advance(5)

    assert [("again", 1), ("overdue", 1), ("later", 2), ("three", 3)] == rang
    assert 5 == clock.monotonic()
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
