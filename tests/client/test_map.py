"""`client.map`: one call for each of many items, so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from paymentsdk import ClientClosed, MapOutcome, NotFound, PaymentsClient, Request, RequestInvalid, Response
from paymentsdk.testing import MemoryTransport


class Work:
    """Calls that end when they are told to, and what is known of them."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.Future[int]] = {}
        self.started: list[int] = []
        self.most = 0
        self.cancelled: list[int] = []

    async def __call__(self, item: int) -> int:
        self.started.append(item)
        self.running[item] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.running))
        try:
            return await self.running[item]
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            del self.running[item]

    async def end(self, item: int, error: Exception | None = None) -> None:
        """End one, and let go on who waits for it."""
        if error is None:
            self.running[item].set_result(item * 10)
        else:
            self.running[item].set_exception(error)
        await turns()


async def turns() -> None:
    """Let every task go on until it waits for something else."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def client() -> PaymentsClient:
    """A client without a platform."""
    return PaymentsClient("APP_USR-1", base_url="https://platform.test", transport=MemoryTransport())


class Reader:
    """Reads outcomes in a task of its own."""

    def __init__(self, outcomes: AsyncIterator[MapOutcome[int, int]]) -> None:
        self.seen: list[MapOutcome[int, int]] = []
        self.task = asyncio.ensure_future(self._read(outcomes))

    async def _read(self, outcomes: AsyncIterator[MapOutcome[int, int]]) -> None:
        async with aclosing(outcomes):
            async for outcome in outcomes:
                self.seen.append(outcome)

    @property
    def items(self) -> list[int]:
        return [outcome.item for outcome in self.seen]


async def test_it_calls_with_each_item_in_order(client) -> None:
    """In the order of the items, however the calls end; so many at a time."""
    work = Work()
    reader = Reader(client.map(work, range(5), concurrency=3))
    await turns()

    await work.end(2)
    await work.end(1)
    assert ([0, 1, 2], []) == (work.started, reader.items)
    await work.end(0)
    assert ([0, 1, 2, 3, 4], [0, 1, 2]) == (work.started, reader.items)
    await work.end(3)
    await work.end(4)
    await reader.task

    assert [(n, n * 10, None) for n in range(5)] == [
        (outcome.item, outcome.value, outcome.error) for outcome in reader.seen
    ]
    assert 3 == work.most


async def test_it_yields_as_calls_end(client) -> None:
    """With `ordered=False` a slow call holds nothing up."""
    work = Work()
    reader = Reader(client.map(work, range(4), concurrency=2, ordered=False))
    await turns()

    for item in (1, 2, 3, 0):
        await work.end(item)
    await reader.task

    assert [1, 2, 3, 0] == reader.items
    assert 2 == work.most


async def test_a_failed_call_is_an_outcome() -> None:
    """The others go on, and asking for its value raises what it failed with."""

    def answer(request: Request) -> Response:
        number = request.url.rpartition("/")[2]
        return Response(404, {}, b"{}") if number == "2" else Response(200, {}, b'{"id":"%s"}' % number.encode())

    client = PaymentsClient("APP_USR-1", base_url="https://platform.test", transport=MemoryTransport(answer))

    outcomes = [outcome async for outcome in client.map(client.orders.get, ["1", "2", "3", ""])]

    assert [None, NotFound, None, RequestInvalid] == [outcome.error and type(outcome.error) for outcome in outcomes]
    assert ["1", "3"] == [outcome.value.id for outcome in outcomes if outcome.error is None]
    assert repr(outcomes[0]).startswith("MapOutcome(item='1', error=None, _value=Order(id='1'")
    assert repr(outcomes[1]).startswith("MapOutcome(item='2', error=NotFound(404")
    with pytest.raises(NotFound):
        _ = outcomes[1].value


async def test_a_slow_consumer_holds_the_items_up(client) -> None:
    """Of an endless iterable no more is taken than may be under way."""
    numbers = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            numbers.append(number)
            yield number
            number += 1

    async def at_once(item: int) -> int:
        return item

    async with aclosing(client.map(at_once, endless(), concurrency=4)) as outcomes:
        for number in range(3):
            await anext(outcomes)
            await turns()
            assert number + 5 == len(numbers)


async def test_an_async_iterable_is_asked_for_one_item_at_a_time(client) -> None:
    """And only when there is a place for it; what has ended is yielded while it is waited for."""
    numbers, gate = [], asyncio.Event()

    async def slow() -> AsyncIterator[int]:
        for number in range(3):
            numbers.append(number)
            if number == 2:
                await gate.wait()
            yield number

    work = Work()
    reader = Reader(client.map(work, slow(), concurrency=2))
    await turns()
    assert ([0, 1], [0, 1]) == (numbers, work.started)

    await work.end(0)
    assert ([0, 1, 2], [0]) == (numbers, reader.items)
    await work.end(1)
    assert [0, 1] == reader.items
    gate.set()
    await turns()
    await work.end(2)
    await reader.task

    assert [0, 1, 2] == reader.items


async def test_each_call_of_a_closed_client_has_its_outcome() -> None:
    """What was under way may have moved money: every item has an outcome."""
    transport = MemoryTransport(lambda request: Response(200, {}, b'{"id":"ORD1"}'))
    client = PaymentsClient("APP_USR-1", base_url="https://platform.test", transport=transport)
    errors = []

    async for outcome in client.map(client.orders.get, ["ORD1"] * 20, concurrency=4):
        errors.append(type(outcome.error))
        if len(errors) == 10:
            await client.aclose()

    assert 20 == len(errors)
    assert [type(None)] * 10 == errors[:10]
    assert ClientClosed is errors[-1]


async def test_a_defect_comes_in_its_turn(client) -> None:
    """In order, too: whatever comes before it is yielded, and what is under way is cancelled."""
    work = Work()
    reader = Reader(client.map(work, range(9), concurrency=4))
    await turns()
    work.running[2].set_exception(TypeError("a defect"))
    for item in (1, 0):
        await work.end(item)
    [raised] = await asyncio.gather(reader.task, return_exceptions=True)

    assert TypeError is type(raised)
    assert [0, 1] == reader.items
    assert 3 in work.cancelled
    assert {} == work.running


async def test_a_defect_loses_no_outcome_that_a_slow_consumer_has_not_read(client) -> None:
    """What has ended, in order, may have moved money."""
    work = Work()
    outcomes = client.map(work, range(9), concurrency=4)
    first = asyncio.ensure_future(anext(outcomes))
    await turns()
    for item in (2, 0, 1):
        await work.end(item)
    assert 0 == (await first).item
    work.running[3].set_exception(TypeError("a defect"))
    await turns()

    assert [1, 2] == [(await anext(outcomes)).item for _ in range(2)]
    with pytest.raises(TypeError, match="a defect"):
        await anext(outcomes)
    assert {} == work.running


async def test_items_that_cannot_be_read_are_no_end(client) -> None:
    """Whoever reads them from a file that breaks learns that there were more."""

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the file ends early")

    async def at_once(item: int) -> int:
        return item

    outcomes = client.map(at_once, broken())
    assert 1 == (await anext(outcomes)).item
    with pytest.raises(OSError, match="ends early"):
        await anext(outcomes)


async def test_leaving_early_ends_the_calls(client) -> None:
    """When its task is cancelled, no call and no iterator goes on by itself."""
    closed = []

    class Source:
        """Yields a number and hangs."""

        async def __aiter__(self) -> AsyncIterator[int]:
            try:
                yield 0
                await asyncio.Event().wait()
            finally:
                closed.append(True)

    work = Work()
    reader = Reader(client.map(work, Source(), ordered=False))
    await turns()
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task

    assert ({}, [True]) == (work.running, closed)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("concurrency", [0, True, 2.0, 100_001])
def test_arguments_that_make_no_sense_are_rejected(client, concurrency: object) -> None:
    """At once, and not when the iterator is first asked."""
    with pytest.raises(RequestInvalid) as refused:
        client.map(print, [], concurrency=concurrency)

    assert "concurrency" == refused.value.path
