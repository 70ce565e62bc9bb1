"""One client and several event loops: it follows its program to a new loop, and leaves one that lives alone."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pytest

from paymentsdk import AiohttpTransport, ClientClosed, Http11Transport, PaymentsClient, Response, RetryPolicy, Timeout
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport

Kind: TypeAlias = type[AiohttpTransport | Http11Transport]

both = pytest.mark.parametrize("kind", [AiohttpTransport, Http11Transport])


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A platform in a thread: no event loop of the test is its own."""
    with Sandbox().in_thread() as sandbox:
        yield sandbox


def client_of(sandbox: Sandbox, **options: object) -> PaymentsClient:
    """A client of *sandbox*."""
    return PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, **options)


@contextmanager
def no_complaints() -> Iterator[None]:
    """Let a loop that is closed with open connections say so to nobody: that is what its owner did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


async def search(client: PaymentsClient) -> int:
    """Ask for the plans, and return how many there are."""
    return len(await client.plans.search().collect())


# --- a loop that is closed --------------------------------------------------------------------------------------------


@both
def test_a_client_follows_to_a_new_loop(sandbox: Sandbox, kind: Kind) -> None:
    """A job runner with a loop per task keeps one client, whichever of its tasks comes first on each loop."""
    client = client_of(sandbox, transport=kind())

    async def together() -> list[int]:
        copies = [client.with_options(headers={"X-Copy": str(number)}) for number in range(10)]
        return await asyncio.gather(*map(search, copies))

    with no_complaints():
        for _ in range(3):
            assert [1] * 10 == asyncio.run(together())
        asyncio.run(client.aclose())


@both
def test_what_was_in_flight_stays_behind(sandbox: Sandbox, kind: Kind) -> None:
    """A loop that was closed over a call, and over its deadline, takes neither to the next one."""
    bounds = Timeout(total=5.0, attempt=0.5)
    client = client_of(sandbox, transport=kind(), timeout=bounds, retry=RetryPolicy(attempts=1))
    loop = asyncio.new_event_loop()
    with sandbox.faults.add(FaultRule(effect="hang", operation="plans.search", times=1)) as fault:
        call = loop.create_task(search(client))
        while not fault.hits:
            loop.run_until_complete(asyncio.sleep(0))
        with no_complaints():
            loop.close()

            assert 1 == asyncio.run(search(client))
            asyncio.run(client.aclose())
            del call


# --- a loop that is not -----------------------------------------------------------------------------------------------


async def get(client: PaymentsClient) -> str:
    """Ask for an order."""
    return (await client.orders.get("ORD1")).id


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
