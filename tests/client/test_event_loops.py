"""One client and several event loops: it follows its program to a new loop, and leaves one that lives alone."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

import pytest

from paymentsdk import AiohttpTransport, ClientClosed, Http11Transport, PaymentsClient, Response, RetryPolicy, Timeout
from paymentsdk.testing import MemoryTransport

Kind: TypeAlias = type[AiohttpTransport | Http11Transport]

both = pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])
PAGE = b'{"paging":{"offset":%d,"limit":1,"total":5},"results":[{"id":"%d"}]}'


class Platform(BaseHTTPRequestHandler):
    """Responses as the platform does, on connections that stay open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Respond with an order, or a page; a path that says so never gets a response."""
        self.server.peers.append(self.client_address)
        if "hang" in self.path:
            self.server.hold.wait(20)
        offset = int(self.path.rpartition("offset=")[2]) if "offset=" in self.path else 0
        body = PAGE % (offset, offset) if "search" in self.path else b'{"id":"%b"}' % self.path.encode()[11:]
        with suppress(ConnectionError):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Has room for all who connect at once: the sixth would come again after a second."""

    request_queue_size = 64


@pytest.fixture
def platform() -> Iterator[ThreadingHTTPServer]:
    """A platform in a thread: no event loop of the test is its own."""
    server = Server(("127.0.0.1", 0), Platform)
    server.peers, server.hold, server.daemon_threads = [], threading.Event(), True
    server.handle_error = lambda *_: None  # A client that goes away is no error of the platform.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()


def client_of(server: ThreadingHTTPServer, **options: object) -> PaymentsClient:
    """A client of *server*."""
    return PaymentsClient("token", base_url=f"http://127.0.0.1:{server.server_address[1]}", **options)


@contextmanager
def no_complaints() -> Iterator[None]:
    """Let a loop that is closed with open connections say so to nobody: that is what its owner did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


async def get(client: PaymentsClient, order_id: str = "ORD1") -> str:
    """Ask for an order."""
    return (await client.orders.get(order_id)).id


# --- a loop that is closed --------------------------------------------------------------------------------------------


@both
def test_a_client_follows_to_a_new_loop(platform: ThreadingHTTPServer, kind: Kind) -> None:
    """A job runner with a loop per task keeps one client: on each loop it has connections of that loop alone."""
    client = client_of(platform, transport=kind())

    with no_complaints():
        assert ["ORD1"] * 3 == [asyncio.run(get(client)) for _ in range(3)]
        asyncio.run(client.aclose())

    assert 3 == len(set(platform.peers))


@both
def test_many_tasks_follow_at_once(platform: ThreadingHTTPServer, kind: Kind) -> None:
    """Whichever task comes first on the new loop, all get their responses, and the copies of the client with them."""
    client = client_of(platform, transport=kind())

    async def together() -> list[str]:
        copies = [client.with_options(access_token=f"token-{i}") for i in range(10)]
        return await asyncio.gather(*(get(copy, f"ORD{i}") for i, copy in enumerate(copies)))

    with no_complaints():
        for _ in range(2):
            assert [f"ORD{i}" for i in range(10)] == asyncio.run(together())
        asyncio.run(client.aclose())


@both
def test_what_was_in_flight_stays_behind(platform: ThreadingHTTPServer, kind: Kind) -> None:
    """A loop that was closed over a call, and over its deadline, takes neither to the next one."""
    client = client_of(
        platform, transport=kind(), timeout=Timeout(total=5.0, attempt=0.5), retry=RetryPolicy(attempts=1)
    )
    loop = asyncio.new_event_loop()
    call = loop.create_task(get(client, "hang"))
    while not platform.peers:
        loop.run_until_complete(asyncio.sleep(0))
    with no_complaints():
        loop.close()

        assert "ORD1" == asyncio.run(get(client))
        platform.hold.set()
        asyncio.run(client.aclose())
        del call


# --- a loop that is not -----------------------------------------------------------------------------------------------


def in_memory() -> PaymentsClient:
    """A client without connections: what is refused is rejected by itself."""
    transport = MemoryTransport(lambda request: Response(200, {}, b'{"id":"ORD1"}'))
    return PaymentsClient("token", base_url="http://127.0.0.1", transport=transport)


def test_a_loop_that_stands_still_keeps_its_client() -> None:
    """It may go on, with all that is in flight on it: only a closed loop is given up."""
    client, loop = in_memory(), asyncio.new_event_loop()
    loop.run_until_complete(get(client))

    with pytest.raises(ClientClosed, match="another event loop"):
        asyncio.run(get(client))

    assert "ORD1" == loop.run_until_complete(get(client))
    loop.close()
    assert "ORD1" == asyncio.run(get(client))


def test_without_a_loop_of_asyncio_a_call_says_so() -> None:
    """Under trio, or stepped by hand, a call ends in an error of this package that names what it needs."""
    call = in_memory().orders.get("ORD1")

    with pytest.raises(ClientClosed, match="needs a running event loop of asyncio"):
        call.send(None)
