"""What becomes of a call whose connection fails: the same over either transport."""

from __future__ import annotations

import asyncio
import json
from asyncio import Task
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from paymentsdk import (
    AiohttpTransport,
    Http11Transport,
    NoAnswer,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    Result,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.events import AttemptEnded, Event
from paymentsdk.resources import orders
from paymentsdk.testing import FakeClock
from tests.faults import FaultServer, Peer, Seen, http, refused_port
from tests.identity.writes import write
from tests.transports.http11 import turns

Kind: TypeAlias = type[AiohttpTransport | Http11Transport]
Fault: TypeAlias = Callable[[Peer, bytes], Awaitable[None]]

READ, KEYED, UNKEYED = "orders.get", "orders.create", "customers.create"
ORDER = {"id": "ORD1", "external_reference": "shop-1", "total_amount": "24.90"}
BODIES: dict[str, object] = {READ: ORDER, KEYED: ORDER, UNKEYED: {"id": "CUS1", "email": "ann@example.com"}}
both = pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])


async def hangs_up(peer: Peer, response: bytes) -> None:
    """Close the connection without a response."""


async def resets(peer: Peer, response: bytes) -> None:
    """Break it."""
    peer.reset()


async def hangs(peer: Peer, response: bytes) -> None:
    """Say nothing until the client gives up."""
    await peer.hung_up()


async def cuts_off(peer: Peer, response: bytes) -> None:
    """Close it within the response."""
    await peer.write(response[:-1])


async def resets_within(peer: Peer, response: bytes) -> None:
    """Break it within the response."""
    await peer.write(response[:-1])
    peer.reset()


async def speaks_nonsense(peer: Peer, response: bytes) -> None:
    """Respond with what is no HTTP."""
    await peer.write(b"\x15\x03\x01\x00\x02\x02\x16 is a TLS alert\r\n\r\n")


async def shows_a_page(peer: Peer, response: bytes) -> None:
    """Respond as a proxy does that wants to be logged in to."""
    await peer.write(http(200, b"<html>Welcome to this network</html>", "Content-Type: text/html"))


async def speaks_of_another(peer: Peer, response: bytes) -> None:
    """Respond to somebody else."""
    foreign = {"id": "ORD2", "external_reference": "shop-2", "total_amount": "9.99", "email": "bob@example.com"}
    await peer.write(http(201, json.dumps(foreign).encode()))


FAULTS = [hangs_up, resets, hangs, cuts_off, resets_within, speaks_nonsense, shows_a_page, speaks_of_another]


async def made(kind: Kind, name: str, fault: Fault) -> tuple[Result[object] | OutcomeUnknown | NoAnswer, list[Seen]]:
    """Make the call *name*, whose first request meets *fault*; return what came of it, and the requests."""
    response = http(200 if name == READ else 201, json.dumps(BODIES[name]).encode())

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            if len(server.seen) == 1:
                await fault(peer, response)
                return
            await peer.write(response)

    async with FaultServer(script) as server:
        try:
            return await called(kind, name, server.url("")), server.seen
        except (OutcomeUnknown, NoAnswer) as error:
            return error, server.seen


async def called(kind: Kind, name: str, base_url: str) -> Result[object]:
    """Make the call *name* at *base_url*."""
    retry, timeout = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.002), Timeout(total=20.0, attempt=0.3)
    transport = kind(drain=0.1)
    async with PaymentsClient("token", base_url=base_url, transport=transport, retry=retry, timeout=timeout) as client:
        return await (client.call(orders.GET, order_id="ORD1") if name == READ else write(name)(client))


@pytest.mark.control("paymentsdk._call.retry.Retries._may_retry", lambda self, outcome: not hasattr(outcome, "value"))
@both
async def test_a_write_without_a_key_is_sent_once(kind: Kind) -> None:
    """It may have taken effect, whatever has come in place of its response: nobody but the caller may repeat it."""
    for fault in FAULTS:
        outcome, requests = await made(kind, UNKEYED, fault)

        assert isinstance(outcome, OutcomeUnknown), fault
        assert 1 == len(requests) == outcome.attempts


@pytest.mark.control("paymentsdk._call.retry.Retries._may_retry", lambda self, outcome: False)
@pytest.mark.parametrize(("kind", "name"), [(AiohttpTransport, READ), (Http11Transport, KEYED)])
async def test_what_may_be_sent_again_is_sent_again(kind: Kind, name: str) -> None:
    """A read, and a write with its key and its bytes, on another connection: it succeeds at the second attempt."""
    for fault in FAULTS:
        outcome, requests = await made(kind, name, fault)

        assert isinstance(outcome, Result), fault
        assert ORDER["id"] == outcome.value.id
        assert 2 == len(requests) == outcome.attempts
        first, second = (
            (each.method, each.target, each.headers.get("x-idempotency-key"), each.body) for each in requests
        )
        assert first == second
        assert (name == KEYED) is (first[2] is not None)
        assert requests[0].connection != requests[1].connection


@pytest.mark.parametrize(("kind", "name"), [(AiohttpTransport, UNKEYED), (Http11Transport, KEYED)])
async def test_without_a_connection_nothing_was_sent(kind: Kind, name: str) -> None:
    """However often it was tried: no write is in doubt."""
    with refused_port() as port, pytest.raises(NotSent) as failed:
        await called(kind, name, f"http://127.0.0.1:{port}")

    assert 3 == failed.value.attempts


def holding(server: FaultServer, kind: Kind, **settings: object) -> PaymentsClient:
    """Return a client whose pool has two connections."""
    options = {"retry": RetryPolicy(base_delay=0.0), **settings}
    return PaymentsClient("token", base_url=server.url(""), transport=kind(limit=2, drain=0.1), **options)


class Held:
    """Responds to nothing before it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        async for _ in peer.requests():
            await self.released.wait()
            await peer.write(http(200, json.dumps(ORDER).encode()))


class OfNoTransport(SendFailed):
    """What no transport raises."""


@pytest.mark.control("paymentsdk._call.verdicts.PoolFull", OfNoTransport)
@both
async def test_calls_wait_for_a_connection_until_their_deadline(kind: Kind, until) -> None:
    """Waits for a connection cost neither attempts nor the retry budget: nothing has reached the platform."""
    held, waits, timeout = Held(), Counter(), Timeout(total=30.0, connect=0.05)

    def observe(event: Event) -> None:
        if isinstance(event, AttemptEnded) and event.failure is not None:
            waits[event.call] += 1

    async with FaultServer(held) as server, holding(server, kind, timeout=timeout, observers=[observe]) as client:
        calls = [asyncio.ensure_future(client.orders.get("ORD1")) for _ in range(2)]
        await until(lambda: len(server.seen) == 2)
        calls += [asyncio.ensure_future(client.orders.get("ORD1")) for _ in range(10)]
        await until(lambda: sum(count > 4 for count in waits.values()) == 10 or all(map(Task.done, calls[2:])))
        held.released.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert ["ORD1"] * 12 == [getattr(outcome, "id", repr(outcome)) for outcome in outcomes]
    assert 12 == len(server.seen)


@pytest.mark.control("paymentsdk._call.verdicts.UNSENT", "no such mark")
@both
async def test_a_write_in_the_queue_for_a_connection_is_never_in_doubt(kind: Kind, until, caplog) -> None:
    """Its deadline, or its caller, may end the wait: either way the platform has seen nothing of it."""
    held, clock, patient = Held(), FakeClock(), Timeout(total=None, attempt=None)
    async with (
        FaultServer(held) as server,
        holding(server, kind, timeout=Timeout(attempt=100.0), clock=clock) as client,
    ):
        get = client.with_options(timeout=patient).orders.get
        reads = [asyncio.ensure_future(get("ORD1")) for _ in range(2)]
        await until(lambda: len(server.seen) == 2)
        expired, cancelled = (asyncio.ensure_future(write(KEYED)(client)) for _ in range(2))
        await turns(20)
        cancelled.cancel()
        clock.advance(60.0)
        await asyncio.wait([expired, cancelled])
        held.released.set()
        await asyncio.gather(*reads)

    assert isinstance(expired.exception(), NotSent)
    assert cancelled.cancelled()
    assert [] == [record.getMessage() for record in caplog.records]
    assert 2 == len(server.seen)
