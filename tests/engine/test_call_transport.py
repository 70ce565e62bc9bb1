"""What a call does with a client that is closed, and with a transport that does not keep to its protocol."""

from __future__ import annotations

import asyncio
import re

import pytest

from paymentsdk import (
    ClientClosed,
    OutcomeUnknown,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.testing import FakeClock, MemoryTransport

# --- a client that is open, and here -----------------------------------------------------------------------------


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


# --- transports -------------------------------------------------------------------------------------------------------


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
    assert re.fullmatch(r"the transport raised OSError \(test_call_transport.py:[0-9]+ in send\)", played.error.reason)


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
