"""A walk that several tasks share, that one of them closes, or whose reader goes away."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from paymentsdk import ClientClosed, Response
from tests.engine.walks import over


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


@pytest.mark.control("paymentsdk._paging.pager.Items.__anext__", unshared)
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_failure_comes_after_the_rows_before_it(tables, prefetch: int) -> None:
    """Whoever goes on from the resume point of a shared walk that failed has lost no row of the pages before."""
    table = tables(40, changes=lambda response, request: Response(400) if "offset=10" in request.url else None)
    rows, walked = aiter(table.search(over(table), page_size=10, prefetch=prefetch)), []

    async def work() -> None:
        async for row in rows:
            walked.append(row.id)
            for _ in range(3):
                await asyncio.sleep(0)

    readers = [asyncio.create_task(work()) for _ in range(3)]
    failed, waiting = await asyncio.wait(readers, return_when=asyncio.FIRST_EXCEPTION)
    at_the_first_failure = sorted(walked)
    await asyncio.gather(*waiting, return_exceptions=True)

    assert {10} == {reader.exception().resume_point for reader in failed}
    assert list(range(1, 11)) == at_the_first_failure


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


async def next_page(walk, patience: int):
    """Ask for a page, go away after *patience* turns of the loop, and ask again; return what came of the wait."""
    for turns in (patience, 1_000):
        reader = asyncio.create_task(anext(walk))
        for _ in range(turns):
            if not reader.done():
                await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader])
        if not reader.cancelled():
            break
    return reader


async def test_a_reader_that_goes_away(tables) -> None:
    """However late the wait for a page is cancelled, its rows come to who asks next."""
    for patience in range(1, 40, 2):
        table = tables(24)

        async def slow(request, table=table) -> Response:
            # The page before it is larger, and reaches the total: it is still under way then.
            for _ in range(100 if "offset=20" in request.url else 0):
                await asyncio.sleep(0)
            is_larger = "offset=10" in request.url
            return await table(
                replace(request, url=request.url.replace("limit=10", "limit=14")) if is_larger else request
            )

        walk = table.search(over(slow), page_size=10, prefetch=4).pages()
        walked = []
        while not (reader := await next_page(walk, patience)).exception():
            walked += [row.id for row in reader.result().items]

        assert isinstance(reader.exception(), StopAsyncIteration)
        assert list(range(1, 25)) == walked
