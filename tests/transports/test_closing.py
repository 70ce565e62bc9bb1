"""The end of a transport: what is in flight gets its time, and nothing outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable
from typing import TypeAlias

import aiohttp
import pytest
from aiohttp.abc import ResolveResult

from paymentsdk import Http11Transport, Request, SendFailed, Transport
from paymentsdk.errors import ClientClosed
from paymentsdk.transports.aiohttp import AiohttpTransport
from tests.conftest import PATIENCE
from tests.faults import FaultServer, Peer, always, http, unanswered_port
from tests.transports.http11 import turns

Kind: TypeAlias = type[AiohttpTransport | Http11Transport]

both = pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])


@both
async def test_closing_does_not_wait_for_calls(kind: Kind) -> None:
    """With nothing in flight a transport is closed at once, whatever time it would give."""
    async with FaultServer(always(http())) as server:
        transport = kind(drain=60.0)
        await transport.send(Request("GET", server.url()))
        assert 1 == transport.open_connections

        await asyncio.wait_for(transport.aclose(), 2)

        assert 0 == transport.open_connections


@both
async def test_closing_waits_for_the_responses(kind: Kind) -> None:
    """A request in flight gets its response while the transport is being closed; new ones are rejected meanwhile."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await go_on.wait()
        await peer.write(http(201))

    async with FaultServer(script) as server:
        transport = kind(drain=10.0)
        flying = asyncio.ensure_future(transport.send(Request("POST", server.url(), {}, b"{}")))
        await arrived.wait()
        closing = [asyncio.ensure_future(transport.aclose()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await transport.send(Request("POST", server.url(), {}, b"{}"))
        go_on.set()

        assert 201 == (await flying).status
        await asyncio.gather(*closing)
        await server.all_hung_up()


@both
async def test_closing_waits_for_every_response(kind: Kind, until) -> None:
    """It is not over with the first response that comes, let alone with one that came before, and is with the last."""
    go_on = {"/a": asyncio.Event(), "/b": asyncio.Event()}

    async def script(peer: Peer) -> None:
        async for request in peer.requests():
            if request.target in go_on:
                await go_on[request.target].wait()
            await peer.write(http(201))

    async with FaultServer(script) as server:
        transport = kind(drain=600.0)
        await transport.send(Request("POST", server.url(), {}, b"{}"))
        flying = [asyncio.ensure_future(transport.send(Request("POST", server.url(target)))) for target in go_on]
        await until(lambda: len(server.seen) == 3)
        closing = asyncio.ensure_future(transport.aclose())
        for sending, event in zip(flying, go_on.values(), strict=True):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not closing.done()
            event.set()
            assert 201 == (await sending).status

        await asyncio.wait_for(closing, PATIENCE)
        await server.all_hung_up()


@both
async def test_closing_waits_for_the_queue(kind: Kind, until) -> None:
    """Requests that wait for a place have the time of those in flight; who gets none in it was not sent."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        async for request in peer.requests():
            await (peer.hung_up() if request.target == "/hang" else go_on.wait())
            await peer.write(http(201))

    async with FaultServer(script) as server:
        transport = kind(limit=1, drain=0.5)
        targets = ("/first", "/second", "/hang", "/late")
        flying = [asyncio.ensure_future(transport.send(Request("POST", server.url(target)))) for target in targets]
        await until(lambda: server.seen)
        closing = asyncio.ensure_future(transport.aclose())
        await asyncio.sleep(0)
        go_on.set()
        *sent, hanging, late = await asyncio.gather(*flying, return_exceptions=True)
        await closing

    assert [201, 201] == [response.status for response in sent]
    assert isinstance(hanging, SendFailed)
    assert hanging.sent
    assert isinstance(late, ClientClosed)
    assert ["/first", "/second", "/hang"] == [request.target for request in server.seen]


@both
async def test_closing_that_is_cancelled_as_a_place_comes_free_leaves_nothing_to_wait_for(kind: Kind, until) -> None:
    """Whoever closes once more waits for nobody, whatever those did who waited for a place."""
    for count in range(12):
        go_on = asyncio.Event()

        async def script(peer: Peer, go_on: asyncio.Event = go_on) -> None:
            async for _ in peer.requests():
                await go_on.wait()
                await peer.write(http())

        async with FaultServer(script) as server:
            transport = kind(limit=1, drain=60.0)
            flying = [asyncio.ensure_future(transport.send(Request("POST", server.url()))) for _ in range(3)]
            await until(lambda server=server: server.seen)
            closing = asyncio.ensure_future(transport.aclose())
            await asyncio.sleep(0)
            flying[0].cancel()
            for _ in range(count):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            go_on.set()
            await asyncio.wait_for(transport.aclose(), 2)
            await asyncio.wait(flying)
            assert all(isinstance(outcome, ClientClosed | SendFailed) for outcome in await results(flying[1:]))


async def results(flying: list[asyncio.Task[object]]) -> list[object]:
    """Wait for all of *flying*, and return what each has come to."""
    return await asyncio.gather(*flying, return_exceptions=True)


async def test_closing_as_the_time_to_connect_runs_out(until) -> None:
    """A request whose time to connect is up at that very moment is in nobody's way."""
    with unanswered_port() as port:
        async with FaultServer(never) as server:
            transport = Http11Transport(drain=0.0)
            sent = asyncio.ensure_future(transport.send(Request("POST", server.url())))
            await until(lambda: server.seen)
            late = asyncio.ensure_future(
                transport.send(Request("POST", f"http://127.0.0.1:{port}/", connect_timeout=60.0))
            )
            await until(lambda: transport._pool._bounds)
            [bound] = transport._pool._bounds
            closing = asyncio.ensure_future(transport.aclose())
            await asyncio.sleep(0)
            bound.reschedule(0.0)
            await closing
            outcomes = await results([sent, late])

    assert [True, False] == [getattr(outcome, "sent", False) for outcome in outcomes]
    assert 0 == transport.open_connections


async def never(peer: Peer) -> None:
    """Respond to nothing."""
    await peer.request()
    await peer.hung_up()


async def test_closing_waits_for_what_is_in_flight_on_a_session() -> None:
    """An injected session is its owner's, who closes it next: what is in flight gets its time before that."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await go_on.wait()
        await peer.write(http())

    async with FaultServer(script) as server, aiohttp.ClientSession() as session:
        transport = AiohttpTransport(session=session)
        sending = asyncio.create_task(transport.send(Request("GET", server.url())))
        await arrived.wait()
        closing = asyncio.create_task(transport.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing
        assert 200 == (await sending).status


@both
async def test_closing_while_a_connection_is_opened(kind: Kind) -> None:
    """Nothing was sent, and the request says so: to call it in doubt would have somebody look for money."""
    transport = kind(drain=0)
    with unanswered_port() as port:
        request = Request("POST", f"http://127.0.0.1:{port}/", connect_timeout=2 * PATIENCE)
        sending = asyncio.create_task(transport.send(request))
        await asyncio.sleep(0)
        await transport.aclose()

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ClientClosed, match="closed while the request waited"):
                await sending


@both
async def test_a_request_that_closing_breaks_off_says_so(kind: Kind) -> None:
    """It is in doubt, and not because of the server, where somebody would look for the cause."""
    async with FaultServer(never) as server:
        transport = kind(drain=0.0)
        flying = asyncio.ensure_future(transport.send(Request("POST", server.url())))
        await server.arrived.wait()

        await transport.aclose()
        [error] = await results([flying])

    assert isinstance(error, SendFailed)
    assert (True, "the transport was closed") == (error.sent, error.reason)


@both
async def test_closing_twice_at_once_cancels_no_call(kind: Kind) -> None:
    """A program and its framework may close a transport at the same moment: who is connecting learns the same."""
    with unanswered_port() as port:
        transport = kind(drain=0.0)
        flying = asyncio.ensure_future(transport.send(Request("POST", f"http://127.0.0.1:{port}/")))
        for _ in range(10):
            await asyncio.sleep(0)

        await asyncio.gather(transport.aclose(), transport.aclose())
        [error] = await results([flying])

    assert isinstance(error, ClientClosed)
    assert 0 == flying.cancelling()


@both
async def test_closing_breaks_off_what_a_peer_does_not_take(kind: Kind) -> None:
    """A request that a peer has stopped reading ends with its transport, not when somebody cancels it."""
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer._reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await asyncio.Event().wait()

    async with FaultServer(script) as server:
        transport = kind(drain=0)
        sending = asyncio.create_task(transport.send(Request("POST", server.url(), {}, b"x" * 30_000_000)))
        await arrived.wait()

        async with asyncio.timeout(PATIENCE):
            await transport.aclose()
            with pytest.raises(SendFailed) as failed:
                await sending
        assert failed.value.sent


def abort(attempt: object, task: asyncio.Task[object]) -> None:
    """Break the connection off without a word to who reads from it."""
    attempt.wire.transport.abort()


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.control("paymentsdk.transports._aiohttp_pool.Attempt.end", abort, raises=pytest.fail.Exception)
async def test_closing_ends_no_response(fresh: bool) -> None:
    """What came of a response that says nothing of its length does not pass for the whole when its time is up."""
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(b'HTTP/1.1 200 OK\r\n\r\n{"results": []')
        arrived.set()
        await peer.hung_up()

    async with FaultServer(script) as server:
        transport = AiohttpTransport(drain=0)
        sending = asyncio.create_task(transport.send(Request("GET", server.url(), fresh=fresh)))
        await arrived.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        await transport.aclose()

        with pytest.raises(SendFailed) as failed:
            await sending
        assert failed.value.sent


@both
async def test_closing_ends_even_when_it_is_cancelled(kind: Kind, until) -> None:
    """The connections are closed, whether or not somebody waits for it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.hung_up()

    async with FaultServer(script) as server:
        transport = kind(drain=60.0)
        flying = asyncio.ensure_future(transport.send(Request("GET", server.url())))
        await until(lambda: server.seen)
        closing = asyncio.ensure_future(transport.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing, flying])

        assert closing.cancelled()
        assert isinstance(flying.exception(), SendFailed)
        await server.all_hung_up()


async def test_whose_cancellation_it_is(until) -> None:
    """A cancellation comes out as one, be the transport open or closed, unless the transport did it by closing."""
    waiting = []

    async def never(*arguments: object, **options: object) -> list[ResolveResult]:
        waiting.append(arguments)
        await asyncio.Event().wait()
        return []

    resolver = aiohttp.ThreadedResolver()
    resolver.resolve = never
    transport = AiohttpTransport(drain=0.0, resolver=resolver)
    sending = [asyncio.ensure_future(transport.send(Request("GET", f"http://{host}.test/"))) for host in "abcd"]
    await until(lambda: len(waiting) == 4)

    sending[0].cancel()
    await asyncio.wait(sending[:1])
    closing = asyncio.ensure_future(transport.aclose())
    sending[1].cancel()
    await until(sending[2].cancelling)
    sending[3].cancel()  # Its end by the transport is on its way.
    await asyncio.wait(sending)
    await closing

    assert [True, True, False, True] == [task.cancelled() for task in sending]
    assert isinstance(sending[2].exception(), ClientClosed)


async def test_a_cancellation_of_what_was_sent_is_not_the_transports(until) -> None:
    """Closing cancels only those who wait for a connection: who is cancelled in mid-flight, at any moment, is so."""
    for moment in range(12):
        async with FaultServer(never) as server:
            transport = AiohttpTransport(drain=0.0)
            sending = asyncio.ensure_future(transport.send(Request("POST", server.url(), {}, b"{}")))
            await until(lambda server=server: server.seen)
            closing = asyncio.ensure_future(transport.aclose())
            await turns(moment)
            is_cancelled = sending.cancel()
            await asyncio.wait([sending, closing])

        assert is_cancelled is sending.cancelled()
        assert is_cancelled or (isinstance(sending.exception(), SendFailed) and sending.exception().sent)


# The control leaves the session open.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.control("paymentsdk.transports._aiohttp_pool.contextlib.suppress", lambda *kinds: contextlib.nullcontext())
def test_closing_while_another_loop_stands_still() -> None:
    """A loop that neither runs nor is over closes its connections when it goes on, and nobody waits for it."""
    second_loop, transport = asyncio.new_event_loop(), AiohttpTransport()
    server = FaultServer(always(http()))
    with contextlib.closing(second_loop):
        second_loop.run_until_complete(server.__aenter__())
        second_loop.run_until_complete(transport.send(Request("GET", server.url())))

        failure = asyncio.run(closed(transport))

        second_loop.run_until_complete(server.__aexit__(None, None, None))
    assert failure is None


async def closed(transport: AiohttpTransport) -> str | None:
    """Close a transport; return what aiohttp or asyncio had against it."""
    try:
        await transport.aclose()
    except RuntimeError as error:
        return str(error)
    return None


# Without its loop nobody can close what it has left.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_closing_after_a_loop_that_ended_amid_a_request() -> None:
    """Whoever closes a transport on a second loop, since its own is over, need not know what was in flight there."""

    async def begin(transport: AiohttpTransport) -> tuple[socket.socket, asyncio.Task[object]]:
        loop = asyncio.get_running_loop()
        sending = loop.create_task(transport.send(Request("GET", "http://{}:{}/".format(*listener.getsockname()))))
        peer, _ = await loop.sock_accept(listener)
        await loop.sock_recv(peer, 1)
        return peer, sending

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        second_loop, transport = asyncio.new_event_loop(), AiohttpTransport()
        peer, *flying = second_loop.run_until_complete(begin(transport))
        second_loop.close()
        with peer:
            failure = asyncio.run(closed(transport))

    del transport, flying
    gc.collect()
    assert failure is None


@pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])
async def test_closing_that_is_cancelled_closes(
    kind: Callable[[], Transport], recwarn: pytest.WarningsRecorder
) -> None:
    """Nobody closes it later: no connection is left open, and the cancellation goes on."""
    transport = kind()
    async with FaultServer(always(http())) as server:
        await transport.send(Request("GET", server.url()))

        async def end(transport: Transport) -> None:
            asyncio.current_task().cancel()
            await transport.aclose()
            await asyncio.sleep(0)

        with pytest.raises(asyncio.CancelledError):
            await end(transport)
        asyncio.current_task().uncancel()
        del transport
        gc.collect()

    assert [] == [str(warning.message) for warning in recwarn if "nclosed" in str(warning.message)]
