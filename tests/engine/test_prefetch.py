"""Pages that are fetched ahead of the reader: in order, in bounds, and none left under way."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import suppress

import pytest

from paymentsdk import BadRequest, Response
from tests.engine.walks import ids, ids_until_it_fails, over


@pytest.mark.parametrize("prefetch", [1, 3, 8])
async def test_pages_ahead_come_in_order_and_in_bounds(tables, prefetch: int) -> None:
    """So many pages are under way as were asked for, never more, none behind the end; the rows stay in order."""
    table = tables(600)

    assert table.ids == await ids(table.search(over(table), prefetch=prefetch))
    assert prefetch == table.most_in_flight
    assert 20 == len(table.offsets)


async def test_a_page_is_asked_for_once(tables) -> None:
    """Over a slow connection, too, every page is asked for once, and as many are under way as were asked for."""
    table = tables(60, cap=3)

    async def slow(request) -> Response:
        response = await table(request)
        table.waiting += 1
        table.most_waiting = max(table.most_waiting, table.waiting)
        for _ in range(table.waiting * 5):
            await asyncio.sleep(0)
        table.waiting -= 1
        return response

    table.waiting = table.most_waiting = 0
    pager = table.search(over(slow), prefetch=4)

    assert table.ids == await ids(pager)
    assert list(range(0, 60, 3)) == table.offsets
    assert 4 == table.most_waiting


async def test_a_slow_reader_is_waited_for(tables) -> None:
    """Back-pressure: while nobody takes a row, no more pages are fetched than were asked for."""
    table = tables(6_000)
    walk = aiter(table.search(over(table), prefetch=4))

    for _ in range(31):
        await anext(walk)
    for _ in range(50):
        await asyncio.sleep(0)

    assert 1 + 4 == len(table.offsets)
    await walk.aclose()


@pytest.mark.control("paymentsdk._paging.pager.Pages._cancel_prefetch", lambda self: [])
@pytest.mark.parametrize("ending", ["aclose", "fails", "is cancelled", "is dropped"])
async def test_a_walk_that_is_over_has_nothing_under_way(tables, caplog, ending: str) -> None:
    """A walk has no page under way once it is closed, has failed, was cancelled or is dropped."""
    before, hold = asyncio.all_tasks(), asyncio.Event()
    table = tables(6_000)

    async def slow(request) -> Response:
        if ending == "fails" and request.url.endswith("offset=30"):
            return Response(400)
        if not request.url.endswith(("offset=0", "offset=30")):
            await hold.wait()
        return await table(request)

    walk = table.search(over(slow), prefetch=4).pages()
    with suppress(BadRequest, TimeoutError):
        async with asyncio.timeout(0.05 if ending == "is cancelled" else None):
            for _ in range(3 if ending == "is cancelled" else 2):
                await anext(walk)
    if ending == "aclose":
        await walk.aclose()
    if ending == "is dropped":
        del walk
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)

    try:
        assert set() == asyncio.all_tasks() - before
    finally:
        for task in asyncio.all_tasks() - before:
            task.cancel()
    assert "asyncio" not in {record.name for record in caplog.records}


async def test_a_walk_can_go_on_after_a_cancelled_page(tables) -> None:
    """Whoever gave up waiting for a page can ask for it again: the walk has not moved."""
    hold = asyncio.Event()
    table = tables(90)

    async def slow(request) -> Response:
        if "offset=30" in request.url and not hold.is_set():
            await hold.wait()
        return await table(request)

    walk = table.search(over(slow), prefetch=2).pages()
    walked = [row.id for row in (await anext(walk)).items]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(walk)
    hold.set()

    assert table.ids == walked + [row.id async for page in walk for row in page.items]


async def test_a_page_that_fails_ahead_is_raised_in_its_place(tables) -> None:
    """An error of a page ahead waits for its turn: all rows before it are given first."""
    table = tables(300, changes=lambda response, request: Response(400) if "offset=120" in request.url else None)
    walked, error = await ids_until_it_fails(table.search(over(table), prefetch=8))

    assert table.ids[:120] == walked
    assert 120 == error.resume_point


@pytest.mark.control("paymentsdk._paging.pager.REMEMBERED", 10**9)
async def test_the_memory_of_a_long_walk_is_flat(tables) -> None:
    """A walk over many pages holds no more at its end than in its middle."""
    table = tables(22_000, cap=500)
    walk = table.search(over(table)).pages()
    held = []

    tracemalloc.start()
    try:
        async for page in walk:
            if page.offset in (11_000, 21_500):
                del page
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert held[1] - held[0] < 200_000
