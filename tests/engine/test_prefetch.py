"""Pages that are fetched ahead of the reader, and walks that several tasks share."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import suppress

import pytest

from paymentsdk import BadRequest, ClientClosed, Response
from tests.engine.walks import ids, ids_until_it_fails, over

# --- pages ahead ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 3, 8])
async def test_pages_ahead_come_in_order_and_in_bounds(tables, prefetch: int) -> None:
    """So many pages are under way as were asked for, never more, none behind the end; the rows stay in order."""
    table = tables(600)

    assert table.ids == await ids(table.search(over(table), prefetch=prefetch))
    assert prefetch == table.most_in_flight
    assert 20 == len(table.offsets)


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
async def test_the_memory_of_a_long_walk_is_flat(tables, monkeypatch, *, defence: bool) -> None:
    """A walk over many pages holds no more at its end than in its middle."""
    if not defence:
        monkeypatch.setattr("paymentsdk._paging.pager.REMEMBERED", 500)
    table = tables(4_000, cap=250)
    walk = table.search(over(table)).pages()
    held = []

    tracemalloc.start()
    try:
        async for page in walk:
            if page.offset in (1_000, 3_500):
                del page
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert held[1] - held[0] < 50_000


# --- a walk that is shared, or closed ---------------------------------------------------------------------------------


async def unshared(self):
    """Take a row, as if nobody else read the walk."""
    while not self._page:
        self._page.extend((await self._pages.__anext__()).items)
    return self._page.popleft()


@pytest.mark.control("paymentsdk._paging.pager.Items.__anext__", unshared)
async def test_a_page_is_shared_by_all_who_wait_for_it(tables) -> None:
    """Nobody is told of the end while there are rows that nobody has taken."""
    table = tables(10)
    rows = aiter(table.search(over(table)))

    shares = await asyncio.gather(*(anext(rows, None) for _ in range(3)))

    assert [1, 2, 3] == [row and row.id for row in shares]


@pytest.mark.control("paymentsdk._paging.pager._closed", lambda operation: StopAsyncIteration())
@pytest.mark.parametrize("count", [1, 10])
async def test_who_is_busy_when_a_walk_is_closed(tables, count: int) -> None:
    """A task that works on its row while another closes the walk does not take that for its end."""
    table = tables(100)
    rows = aiter(table.search(over(table), page_size=10))
    for _ in range(count):
        await anext(rows)

    await rows.aclose()

    for _ in range(2):
        with pytest.raises(ClientClosed) as closed:
            await anext(rows, None)
        assert "invoices.search" == closed.value.operation


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_walk_that_was_closed_says_where_to_go_on(tables, *, waiting: bool) -> None:
    """As every error that ends one, whether its reader waited for a page or came back for it, with pages ahead or not.

    Where rows of a page were left, nobody can say it.
    """
    table = tables(100)
    pages = table.search(over(table), page_size=10, prefetch=3).pages()
    await anext(pages)
    reader = asyncio.ensure_future(anext(pages)) if waiting else None
    await asyncio.sleep(0)

    await pages.aclose()

    with pytest.raises(ClientClosed) as closed:
        await (anext(pages) if reader is None else reader)
    assert (10, 100) == (closed.value.resume_point, closed.value.resume_point.total)
    assert "invoices.search" == closed.value.operation
