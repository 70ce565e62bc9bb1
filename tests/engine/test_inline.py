"""The inline first attempt: short where all is well, and as safe as the general way where it is not."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import CodeType, FrameType

import pytest

from paymentsdk import Http11Transport, PaymentsClient
from paymentsdk.testing._fault_server import FaultServer, Peer, http
from tests.engine.conftest import order_request

TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
Until = Callable[[Callable[[], object]], Awaitable[object]]
#: The functions of this package that a warm call runs, each counted once; the general way runs 50 and 67.
MOST_FUNCTIONS = {"GET": 32, "POST": 41}


def order(target: str) -> bytes:
    """Return the order that *target* asks for, or the one that was made."""
    number = target.rpartition("/")[2]
    shown = "ORD1" if number == "orders" else number
    return http(201 if number == "orders" else 200, order_json(shown))


def order_json(number: str) -> bytes:
    """Return an order as the platform sends it."""
    return (
        f'{{"id":"{number}","external_reference":"shop-1","total_amount":"24.90",'
        '"transactions":{"payments":[{"id":"PAY1","amount":"24.90"}]}}'
    ).encode()


async def respond(peer: Peer) -> None:
    """Answer each request with its order."""
    async for seen in peer.requests():
        await peer.write(order(seen.target))


@asynccontextmanager
async def warm(server: FaultServer) -> AsyncIterator[PaymentsClient]:
    """Give a client whose next call finds an idle connection and a prepared head."""
    async with PaymentsClient(TOKEN, base_url=server.url(), transport=Http11Transport(drain=5)) as client:
        await client.orders.get("ORD1")
        await client.orders.get("ORD1")
        await client.orders.create(order_request())
        yield client


@pytest.mark.control("paymentsdk._engine.engine.is_plain", lambda operation, settings: False)
@pytest.mark.parametrize("method", MOST_FUNCTIONS)
async def test_a_usual_call_runs_few_functions(method: str) -> None:
    """A call with a valid token on an idle connection takes the short way."""
    functions: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/paymentsdk/" in (file := frame.f_code.co_filename) and "/testing/" not in file:
            functions[frame.f_code] = 1

    async with FaultServer(respond) as server, warm(server) as client:
        sys.setprofile(count)
        try:
            await (client.orders.get("ORD1") if method == "GET" else client.orders.create(order_request()))
        finally:
            sys.setprofile(None)

    assert functions.total() <= MOST_FUNCTIONS[method]


async def test_no_frame_that_waits_holds_a_credential(until: Until) -> None:
    """A debugger or a traceback of a call that waits shows neither the token nor a head with it."""
    held = asyncio.Event()

    async def hold_the_fourth(peer: Peer) -> None:
        async for seen in peer.requests():
            if len(server.seen) > 3:
                await held.wait()
            await peer.write(order(seen.target))

    async with FaultServer(hold_the_fourth) as server, warm(server) as client:
        task = asyncio.create_task(client.orders.create(order_request()))
        await until(lambda: len(server.seen) > 3)
        frames = frames_of(task)
        shown = [repr(value) for frame in frames for value in frame.f_locals.values()]
        held.set()
        await task

    assert len(frames) >= 2
    assert not [text for text in shown if "0123456789abcdef" in text]


def frames_of(task: asyncio.Task[object]) -> list[FrameType]:
    """Return the frames of all coroutines that wait in *task*."""
    frames, coroutine = [], task.get_coro()
    while getattr(coroutine, "cr_frame", None) is not None:
        frames.append(coroutine.cr_frame)
        coroutine = coroutine.cr_await
    return frames


@pytest.mark.parametrize("turns", range(14))
async def test_a_call_that_is_cancelled_at_any_turn_harms_no_other(turns: int) -> None:
    """Cancelled before its response, with it, or after it, a call never touches the next owner of its connection."""
    async with FaultServer(respond) as server, warm(server) as client:
        for number in range(5):
            task = asyncio.create_task(client.orders.get(f"LOST{number}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            results = await asyncio.gather(*(client.orders.get(f"ORD{number}{i}") for i in range(3)))
            await asyncio.wait([task])
            assert [f"ORD{number}{i}" for i in range(3)] == [result.id for result in results]


async def test_closing_waits_for_an_inline_call(until: Until) -> None:
    """A call in flight gets the transport's time to end; its caller has the value."""
    held = asyncio.Event()

    async def hold_the_fourth(peer: Peer) -> None:
        async for seen in peer.requests():
            if len(server.seen) > 3:
                await held.wait()
            await peer.write(order(seen.target))

    async with FaultServer(hold_the_fourth) as server, warm(server) as client:
        task = asyncio.create_task(client.orders.get("ORD7"))
        await until(lambda: len(server.seen) > 3)
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        held.set()
        await closing

        assert task.done()
        assert "ORD7" == (await task).id


async def test_the_bytes_of_both_ways_are_the_same() -> None:
    """The server cannot tell an inline request from any other."""
    async with FaultServer(respond) as server, warm(server) as client:
        general = client.with_options(observers=[lambda event: None])
        for caller in (client, client, general):
            await caller.orders.get("ORD1")
            await caller.orders.create(order_request())
        seen = [(request.method, request.target, [*request.headers], request.body) for request in server.seen[-6:]]

    assert seen[0] == seen[2] == seen[4]
    assert seen[1] == seen[3] == seen[5]
