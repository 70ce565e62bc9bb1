"""The inline first attempt: short where all is well, and as safe as the general way where it is not."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import FrameType

import pytest
from msgspec import Struct

from paymentsdk import (
    Http11Transport,
    NotSent,
    Operation,
    PaymentsClient,
    PaymentsError,
    Request,
    Response,
    RetryClass,
    RetryPolicy,
    SendFailed,
)
from paymentsdk.resources.common import Resource
from paymentsdk.testing import MemoryTransport
from tests.engine.conftest import order_request
from tests.faults import FaultServer, Peer, http

TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
Until = Callable[[Callable[[], object]], Awaitable[object]]


def order(target: str) -> bytes:
    """Return the order that *target* asks for, or the one that was made."""
    number = target.rpartition("/")[2]
    order_id = "ORD1" if number == "orders" else number
    return http(201 if number == "orders" else 200, order_json(order_id))


def order_json(number: str) -> bytes:
    """Return an order as the platform sends it."""
    return (
        f'{{"id":"{number}","external_reference":"shop-1","total_amount":"24.90",'
        '"transactions":{"payments":[{"id":"PAY1","amount":"24.90"}]}}'
    ).encode()


async def respond(peer: Peer) -> None:
    """Answer each request with its order."""
    async for request in peer.requests():
        await peer.write(order(request.target))


@asynccontextmanager
async def warm(server: FaultServer) -> AsyncIterator[PaymentsClient]:
    """Give a client whose next call finds an idle connection and a prepared head."""
    transport = Http11Transport(drain=5, limit=4)
    async with PaymentsClient(TOKEN, base_url=server.url(), transport=transport) as client:
        await client.orders.get("ORD1")
        await client.orders.get("ORD1")
        await client.orders.create(order_request())
        yield client


def holding(held: asyncio.Event) -> Callable[[Peer], Awaitable[None]]:
    """Answer three requests with their orders, and the next ones once *held* is set."""
    count = itertools.count(1)

    async def serve(peer: Peer) -> None:
        async for request in peer.requests():
            if next(count) > 3:
                await held.wait()
            await peer.write(order(request.target))

    return serve


async def test_no_frame_that_waits_holds_a_credential(until: Until) -> None:
    """A debugger or a traceback of a call that waits shows neither the token nor a head with it.

    Cancelled, it closes its connection.
    """
    held = asyncio.Event()

    async with FaultServer(holding(held)) as server, warm(server) as client:
        task = asyncio.create_task(client.orders.create(order_request()))
        await until(lambda: len(server.seen) > 3)
        frames = frames_of(task)
        texts = [repr(value) for frame in frames for value in frame.f_locals.values()]
        task.cancel()
        await asyncio.wait([task])
        held.set()
        await server.all_hung_up()

    assert 2 == len(frames)  # The call is inline: no frame of the transport waits.
    assert not [text for text in texts if "0123456789abcdef" in text]


def frames_of(task: asyncio.Task[object]) -> list[FrameType]:
    """Return the frames of all coroutines that wait in *task*."""
    frames, coroutine = [], task.get_coro()
    while getattr(coroutine, "cr_frame", None) is not None:
        frames.append(coroutine.cr_frame)
        coroutine = coroutine.cr_await
    return frames


@pytest.mark.parametrize("turns", range(0, 14, 2))
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


class Name(Struct):
    """What a thing is made of."""

    name: str


class Thing(Struct):
    """What the platform has."""

    id: str = ""


KEYED = Operation(
    name="things.create", method="POST", path="/t", retry=RetryClass.KEYED, body=Name, result=Thing, key_header="Foo-Id"
)


class Things(Resource):
    """A namespace of a client's own."""

    async def write(self, operation: Operation[Name, object], body: Name | None = None) -> object:
        """Carry out an operation of one's own without options."""
        return await self._write(operation, body, {})


class Raw:
    """A server that keeps the bytes of its requests and gives each the same response."""

    def __init__(self, response: bytes) -> None:
        self.received: list[bytes] = []
        self._response = response

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take whatever comes in one piece for a request."""
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                self.received.append(data)
                writer.write(self._response)
        writer.close()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[PaymentsClient]:
        """Give a client of this server."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = Http11Transport(drain=1)
        async with server, PaymentsClient(TOKEN, base_url=f"http://127.0.0.1:{port}", transport=transport) as client:
            yield client


async def test_a_key_stands_once_in_the_header_of_an_own_name() -> None:
    """A platform that reads the first of two fields would see an empty key, and would do a resent write twice."""
    raw = Raw(http(200, b'{"id":"1"}'))
    async with raw.client() as client:
        for _ in range(3):
            await Things(client).write(KEYED, Name("a"))

    keys = [key.strip() for data in raw.received for key in re.findall(rb"\r\nfoo-id:([^\r]*)", data.lower())]
    assert (3, 3) == (len(keys), len({*keys} - {b""}))


class Counting(Http11Transport):
    """A transport of one's own that sees each request."""

    def __init__(self) -> None:
        super().__init__(drain=5)
        self.targets: list[str] = []

    async def send(self, request: Request) -> Response:
        """Take note of the request, and send it."""
        self.targets.append(request.url)
        return await super().send(request)


class Delegating:
    """A transport that has all but `send` from another."""

    def __init__(self) -> None:
        self.inner = Http11Transport(drain=5)
        self.targets: list[str] = []

    async def send(self, request: Request) -> Response:
        """Take note of the request, and send it."""
        self.targets.append(request.url)
        return await self.inner.send(request)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@pytest.mark.parametrize("kind", [Counting, Delegating])
async def test_a_transport_with_a_send_of_its_own_sees_each_request(kind: type[Counting | Delegating]) -> None:
    """What it does to requests, such as to stop them, is done to all of them."""
    transport = kind()
    async with (
        FaultServer(respond) as server,
        PaymentsClient(TOKEN, base_url=server.url(), transport=transport) as client,
    ):
        for _ in range(3):
            await client.orders.get("ORD1")

    assert 3 == len(transport.targets)


class Changing:
    """A source whose tokens change."""

    def __init__(self) -> None:
        self.current = "APP_USR-1-first-token-0123456789-77"
        self.rejected: list[str | None] = []

    def token(self, now: float) -> str | None:
        """Return the current one."""
        return self.current

    async def renew(self, token: str | None, exchange: object, now: float) -> str | None:
        """Take note of which one was rejected."""
        self.rejected.append(token)
        return self.current


async def test_a_rejection_is_of_the_token_that_was_sent(make_client: Callable[..., PaymentsClient]) -> None:
    """Another call may have sent another token meanwhile: that one was not rejected, and is not in the error."""
    held, source = asyncio.Event(), Changing()
    first = source.current

    async def reply(request: Request) -> Response:
        if request.headers["Authorization"].endswith(first):
            await held.wait()
            return Response(401, {}, f'{{"message":"not valid: {first}"}}'.encode())
        return Response(200, {}, order_json("ORD1"))

    client = make_client(transport=MemoryTransport(reply), auth=source)
    task = asyncio.create_task(client.orders.get("ORD1"))
    await asyncio.sleep(0)
    source.current = "APP_USR-1-other-token-9876543210-77"
    await client.orders.get("ORD1")
    held.set()

    assert "ORD1" == (await task).id
    assert [first] == source.rejected


async def test_a_send_that_raises_before_it_is_awaited_fails_its_attempt() -> None:
    """A function that returns what another transport's `send` returns may raise at once."""

    class Guard(MemoryTransport):
        def send(self, request: Request) -> Awaitable[Response]:
            raise SendFailed("the gateway is off", sent=False)

    client = PaymentsClient(TOKEN, base_url="https://x", transport=Guard(), retry=RetryPolicy(attempts=1))
    general = client.with_options(observers=[lambda event: None])
    errors = []
    for caller in (client, general):
        with pytest.raises(PaymentsError) as caught:
            await caller.orders.create(order_request())
        errors.append(caught.value)

    assert type(errors[0]) is type(errors[1]) is NotSent
    assert (errors[0].attempts, errors[0].operation) == (errors[1].attempts, errors[1].operation)
